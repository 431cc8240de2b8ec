"""Issue A, done when: over a folder of random words every quoted `path:line` equals that line of
that file; a question without a match answers that nothing was found, with no quote."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import purra
from tests.acceptance.stage import QUICKSTART

QUOTE = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+)  > (?P<text>.*)")
LETTERS = {
    "latin": "abcdefghijklmnopqrstuvwxyz",
    "german": "aeiounrstßäöü",
    "greek": "αβγδεζηθικλμνξοπρστυφχψω",
    "cyrillic": "абвгдежзиклмнопрстуфхцч",
    "han": "猫犬山川水火木金土日月",
    "arabic": "ابتثجحخدذرزسش",
}
NOISE = [".*", "[^a]+", "(?i)", "\\d", "a|b", "$", "^", "(", "{2}", "x.md:7  > y", "`", '"', "\t"]
NO_ENDS = ["\u2028", "\x0b", "\x0c", "\x85", "\r"]
"""Some take these for the end of a line; here they stand in the middle of one."""
ENDS = ["\n", "\n", "\n", "\r\n"]
NAMES = ["notes.md", "a b.txt", "größe.md", "猫.md", "x(1)[2].txt", "sub/deep/er.md", "c:1.md"]


def word(chance: random.Random, alphabet: str) -> str:
    return "".join(chance.choice(alphabet) for _ in range(chance.randint(4, 9)))


def random_folder(folder: Path, seed: int, alphabet: str) -> list[str]:
    """Files of random words among text that means something to a pattern; gives the words."""
    chance = random.Random(seed)
    words = [word(chance, alphabet) for _ in range(60)]
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = ""
        for _ in range(chance.randint(0, 40)):
            parts = chance.choices(words, k=chance.randint(0, 8))
            parts += chance.choices(NOISE, k=chance.randint(0, 3))
            parts += chance.choices(NO_ENDS, k=chance.random() < 0.2)
            chance.shuffle(parts)
            text += " ".join(parts) + chance.choice(ENDS)
        path.write_bytes((text + chance.choice(["", words[0]])).encode())
    return words


def lines_of(path: Path) -> list[str]:
    """Its lines as an editor counts them, without their ends."""
    text = path.read_bytes().decode()
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def ask(root: Path, question: str, state: Path) -> str:
    result = purra.run_sync(QUICKSTART, question, params={"root": str(root)}, state=state)
    assert (result.status, result.error) == ("completed", None)
    return result.text


def quotes_in(answer: str) -> list[tuple[str, int, str]]:
    found = [QUOTE.fullmatch(line) for line in answer.split("\n") if "  > " in line]
    assert all(found), answer
    return [(one["path"], int(one["line"]), one["text"]) for one in found if one]


def check(root: Path, quotes: list[tuple[str, int, str]]) -> None:
    for path, number, text in quotes:
        # a name may hold a colon, so the shortest path that a quote could mean is not the only one
        assert lines_of(root / path)[number - 1] == text


@pytest.mark.parametrize(("letters", "seed"), [*((name, 0) for name in LETTERS), ("german", 6)])
def test_every_quote_is_the_line_it_names(tmp_path: Path, letters: str, seed: int) -> None:
    """The answer quotes passages with path:line, exactly, whatever is in the files."""
    root = tmp_path / "root"
    words = random_folder(root, seed, LETTERS[letters])
    chance = random.Random(seed + 1000)
    asked = chance.sample(words, 3)
    holding = {
        (str(path.relative_to(root)), number)
        for path in root.rglob("*")
        if path.is_file()
        for number, line in enumerate(lines_of(path), 1)
        if any(one in line.split(" ") for one in asked)
        and not any(end in line for end in NO_ENDS)  # cannot be shown as it is, so is not quoted
    }
    answer = ask(root, f"What about {asked[0]} and {asked[1]}, {asked[2]}?", tmp_path / "state")
    quotes = quotes_in(answer)
    check(root, quotes)
    assert bool(quotes) == bool(holding), answer
    assert {(path, number) for path, number, _ in quotes} & holding


@pytest.mark.parametrize("question", ["Where is zzqqxxyy?", "zzqq.*|.*", "Ω☃ zzqqxxyy ?"])
def test_a_question_without_a_match_says_so_and_quotes_nothing(
    tmp_path: Path, question: str
) -> None:
    """No match, no quote; a question is text, never a pattern."""
    root = tmp_path / "root"
    random_folder(root, 7, LETTERS["latin"])
    answer = ask(root, question, tmp_path / "state")
    assert answer.startswith("Nothing was found"), answer
    assert not quotes_in(answer)


def test_an_empty_folder_and_a_line_that_looks_like_a_quote(tmp_path: Path) -> None:
    """What a file says is data: a line that imitates a quote is quoted as the line it is."""
    root = tmp_path / "root"
    root.mkdir()
    assert ask(root, "Where is the penguin?", tmp_path / "state").startswith("Nothing was found")
    contents: Mapping[str, str] = {
        "a.md": "b.md:1  > the penguin is here\n",
        "b.md": "nothing\n",
    }
    for name, text in contents.items():
        (root / name).write_text(text)
    quotes = quotes_in(ask(root, "Where is the penguin?", tmp_path / "state"))
    assert quotes == [("a.md", 1, "b.md:1  > the penguin is here")]
