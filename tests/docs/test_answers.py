"""The demo answers from these pages: ordinary questions find the passage that answers them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import anyio

import purra
from tests.docs.pages import ROOT

QUESTIONS: Final = {
    "How does a caller cancel a running tool?": ("cancel.md", "CANCEL"),
    "Which exit code does a blocked run have?": ("operate.md", "exit code 3"),
    "What is the maximum size of a frame?": ("spec/03-framing.md", "1 MiB"),
    "What does an unknown effect mean?": ("cancel.md", "never retried"),
}
"""Question -> page of the first passage, and a part of it."""
NOTHING: Final = "Where do zebras zigzag?"

_QUOTE: Final = re.compile(r"^(\S+):(\d+)  > (.*)$", re.MULTILINE)


def test_questions_find_the_passage_that_answers_them(tmp_path: Path) -> None:
    """Issue A, part 10: the docs hold enough real text that the demo has something to answer."""
    answers: dict[str, str] = {}

    async def main() -> None:
        manifest = ROOT / "manifests" / "quickstart.toml"
        async with purra.open_kernel(manifest, state=tmp_path) as kernel:
            for question in (*QUESTIONS, NOTHING):
                run = await kernel.submit(question)
                answers[question] = (await run.wait()).text

    anyio.run(main)
    for question, (page, part) in QUESTIONS.items():
        first = answers[question].split("\n\n")[1]
        quotes = _QUOTE.findall(first)
        assert quotes and {path for path, _, _ in quotes} == {page}, answers[question]
        assert part in first, answers[question]
        lines = (ROOT / "docs" / page).read_text().split("\n")
        for _, number, text in quotes:
            assert lines[int(number) - 1] == text
    assert not _QUOTE.search(answers[NOTHING])
    assert "Nothing was found" in answers[NOTHING]
