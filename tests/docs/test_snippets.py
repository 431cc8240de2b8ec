"""Every example on every page works (README first: it is what a stranger tries)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.bench import Bench
from tests.docs.pages import Page, Snippet, pages

WITH_SNIPPETS = [page for page in pages() if any(page.snippets())]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: page.name)
def test_the_examples_of_a_page(page: Page, tmp_path: Path) -> None:
    """Issue A, part 10: what the pages say is true today."""
    bench = Bench(tmp_path)
    for snippet in page.snippets():
        bench.run(snippet)


@pytest.mark.parametrize(
    ("language", "tags", "text"),
    [
        ("pyhton", {}, "pass\n"),
        ("python", {"flie": "x.py"}, "pass\n"),
        ("python", {}, "raise SystemExit(3)\n"),
        ("python", {}, "def\n"),
        ("toml", {}, "a = 1\n"),
        ("toml", {"in": "host"}, "[agent]\nsorte = 'x'\n"),
        ("toml", {"in": "plugin"}, "[host]\nkind = 'thread'\n"),
        ("toml", {"file": "x.toml"}, "schema = 'purra.host/1'\n"),
        ("sh", {}, "exit 1\n"),
        ("sh", {"exit": "4"}, "true\n"),
        ("sh", {"dry": ""}, "rm -rf /\n"),
        ("text", {"output": ""}, "something\n"),
        ("json", {}, "{\n"),
    ],
)
def test_a_wrong_example_is_found(
    tmp_path: Path, language: str, tags: dict[str, str], text: str
) -> None:
    with pytest.raises(Exception):  # noqa: B017 - each kind fails in its own way
        Bench(tmp_path).run(Snippet("page.md", 1, language, tags, text))


def test_output_is_compared_with_what_was_printed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run(Snippet("page.md", 1, "python", {}, "print('one 17 two')\n"))
    bench.run(Snippet("page.md", 2, "text", {"output": ""}, "one … two\n"))
    with pytest.raises(AssertionError, match=r"page\.md:3"):
        bench.run(Snippet("page.md", 3, "text", {"output": ""}, "one … three\n"))
