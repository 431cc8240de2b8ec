"""What holds of every page: links lead somewhere, lines are short, numbers are right."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from purra_tck.rules import catalogue
from tests.docs.pages import ROOT, Page, pages

LINE_CHARS = 100
"""Of a line of prose: the offline model quotes whole lines, and terminals are about so wide."""
MIXED = {"CMP-006"}
"""Rules of a milder level than the clause that they stand in."""
PAGES = {page.name: page for page in pages()}

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CLAUSE = re.compile(r"^\*\*(\d+)\.(\d+)\*\* (\S+)", re.MULTILINE)
_LEVELS = ("MUST.", "MUST,", "SHOULD.", "MAY.")
_NOT_YET = "*(not yet)*"


def _anchors(page: Page) -> set[str]:
    """Names of its headings, as GitHub makes them."""
    titles = (line.lstrip("#").strip() for _, line in page.prose() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _dead_links(page: Page) -> Iterator[str]:
    for number, line in page.prose():
        for target in _LINK.findall(line):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            file = (page.path.parent / path).resolve() if path else page.path
            name = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else ""
            if not file.exists() or not name:
                yield f"{page.name}:{number}: {target} leads nowhere"
            elif anchor and name in PAGES and anchor not in _anchors(PAGES[name]):
                yield f"{page.name}:{number}: {name} has no heading for #{anchor}"


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_links_lead_somewhere(page: Page) -> None:
    dead = list(_dead_links(page))
    assert not dead, "\n".join(dead)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_lines_are_short(page: Page) -> None:
    """Lines of tables are as long as they are."""
    long = [
        f"{page.name}:{number}: {len(line)} characters"
        for number, line in page.prose()
        if len(line) > LINE_CHARS and not line.startswith("|")
    ]
    assert not long, "\n".join(long)


def test_clauses_are_numbered_without_gaps() -> None:
    """Rules of the kit cite clauses by number, so a number never moves (chapter.paragraph)."""
    chapters = [name for name in PAGES if re.match(r"docs/spec/\d\d-", name)]
    assert [int(name[10:12]) for name in chapters] == list(range(1, 19))
    for chapter, name in enumerate(chapters, 1):
        text = PAGES[name].text
        assert text.startswith(f"# {chapter} ")
        found = [(int(a), int(b), level) for a, b, level in _CLAUSE.findall(text)]
        assert [pair[:2] for pair in found] == [(chapter, n) for n in range(1, len(found) + 1)]
        assert all(level in _LEVELS for _, _, level in found), name


def test_clauses_and_rules_of_the_kit_name_each_other() -> None:
    """The clause that a rule cites is there and cites the rule, at the same level; and nothing
    cites a rule that there is not."""
    demanded = {
        rule.id: (rule.clause, {"IF": "MUST,"}.get(rule.level, f"{rule.level}."))
        for rule in catalogue().values()
    }
    cited = {}
    for name, page in PAGES.items():
        for paragraph in page.text.split("\n\n") if name.startswith("docs/spec/") else ():
            clause = _CLAUSE.match(paragraph)
            if clause is None:
                continue
            for rule in re.findall(r"\b[A-Z]{3}-\d{3}\b", paragraph):
                cited[rule] = (f"{clause[1]}.{clause[2]}", clause[3])
    assert cited.keys() == demanded.keys()
    wrong = [rule for rule in demanded if cited[rule][0] != demanded[rule][0]]
    assert not wrong
    milder = [r for r in demanded if cited[r][1] != demanded[r][1] and r not in MIXED]
    assert not milder


def test_clauses_that_are_not_kept_are_listed() -> None:
    """The marks in the chapters and the table of the status page say the same."""
    marked = set()
    for name, page in PAGES.items():
        if name.startswith("docs/spec/") and not name.endswith("README.md"):
            for paragraph in page.text.split("\n\n"):
                clause = _CLAUSE.match(paragraph)
                if clause and _NOT_YET in " ".join(paragraph.split()):
                    marked.add(f"{clause[1]}.{clause[2]}")
    table = PAGES["docs/status.md"].text.partition("## Clauses that are not kept yet")[2]
    listed: set[str] = set()
    for first, last in re.findall(r"^\| (\d+\.\d+)(?: to \d+\.(\d+))? \|", table, re.MULTILINE):
        chapter, _, start = first.partition(".")
        listed |= {f"{chapter}.{n}" for n in range(int(start), int(last or start) + 1)}
    assert marked == listed


def test_decisions_are_numbered_and_have_three_parts() -> None:
    names = [name for name in PAGES if re.match(r"docs/decisions/\d", name)]
    assert [int(name[15:19]) for name in names] == list(range(1, len(names) + 1))
    index = PAGES["docs/decisions/README.md"].text
    for name in names:
        text = PAGES[name].text
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequence"], name
        assert text.startswith(f"# {int(name[15:19])} "), name
        assert f"({name.removeprefix('docs/decisions/')})" in index, f"{name} is not in the index"
