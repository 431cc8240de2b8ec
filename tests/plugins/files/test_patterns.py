"""Patterns mean what they mean to `re`, and cost linear time (VFS-04)."""

from __future__ import annotations

import fnmatch
import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_plugin_files import automaton as automaton_module
from purra_plugin_files.automaton import Automaton, ExhaustedError, PathGlob
from purra_plugin_files.faults import FsError
from purra_plugin_files.patterns import MAX_WAYS, Program, compile_regex

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        r"\d",
        r"\w",
        r"\W",
        r"\s",
        "[ab]",
        "[^a]",
        "[a-c_]",
        "[]x]",
        r"\.",
        "é",
        "-",
    ]
)
ANCHORS = st.sampled_from(["^", "$", r"\b", r"\B"])
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}", "*?", "+?"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda text: f"(?:{text})")
    return st.one_of(
        st.tuples(group, REPEATS).map("".join),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
    )


PATTERNS = st.recursive(st.one_of(ATOMS, ANCHORS), _grown, max_leaves=8)
LINES = st.text(alphabet="abcxé_-. 1\t", min_size=1, max_size=12)


def _both_ways(program: Program) -> list[Automaton]:
    return [Automaton(program), Automaton(program._replace(plain=None))]


@given(PATTERNS, st.lists(LINES, min_size=1, max_size=6), st.booleans())
def test_matches_where_re_matches(pattern: str, lines: list[str], ignore_case: bool) -> None:
    """Both the automaton and the shortcut through `re` agree with `re` on every line."""
    expected = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    for finder in _both_ways(compile_regex(pattern, ignore_case=ignore_case)):
        for line in lines:
            assert finder.search(line) == (expected.search(line) is not None), (pattern, line)


@given(st.text(max_size=12))
def test_any_text_compiles_or_is_a_coded_error(pattern: str) -> None:
    """No pattern, however broken, raises anything but the coded error."""
    try:
        compile_regex(pattern)
    except FsError as error:
        assert error.code == "invalid_argument"


@given(st.text(min_size=1, max_size=12), st.text(max_size=20))
def test_an_escaped_text_finds_itself(text: str, around: str) -> None:
    finder = Automaton(compile_regex(re.escape(text)))
    assert finder.search(around + text + around)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "*",
        "a**",
        "a{3,1}",
        "[z-a]",
        "\\",
        r"\q",
        "(?=a)",
        "(?<!a)",
        r"(a)\1",
        "a*+",
        "(?x)a",
        r"\x1",
        r"\U00110000",
        "a{501}",
        "(a{99}){99}",
        "(" * 41 + "a" + ")" * 41,
        "a" * 501,
        "x{2}{3}",
    ],
)
def test_bad_and_unsupported_patterns_are_coded_errors(pattern: str) -> None:
    with pytest.raises(FsError) as caught:
        compile_regex(pattern)
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize(
    "pattern", ["(?i)CANCEL", "(?P<word>cancel)", "c[a]nc{1}el", r"\bcancel\b"]
)
def test_common_forms_are_taken(pattern: str) -> None:
    assert Automaton(compile_regex(pattern)).search("how to cancel it")


@pytest.mark.parametrize(
    "pattern", [r"(a+)+$", r"(a|a)*b", r"(a*)*b", r"(a|aa)+c", r"a*a*a*a*a*a*b", r"(.*.*)*x"]
)
def test_patterns_that_ruin_a_backtracker_are_harmless(pattern: str) -> None:
    """Each would take `re` longer than the age of the machine on such a line."""
    finder = Automaton(compile_regex(pattern))
    before = time.process_time()
    finder.search("a" * 100_000 + "!")
    assert time.process_time() - before < 5  # it is linear: some tens of milliseconds


def test_only_patterns_with_few_ways_are_left_to_re() -> None:
    assert compile_regex("one|two|three").plain is not None
    assert compile_regex("a+").plain is None
    assert compile_regex("(a|a)" * 5).plain is None, f"2**5 ways are more than {MAX_WAYS}"


def test_empty_groups_in_huge_repeats_cost_nothing() -> None:
    assert Automaton(compile_regex("((((){500}){500}){500}){500}x")).search("x")


def test_a_search_that_makes_too_many_states_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is a number of steps, not a time."""
    monkeypatch.setattr(automaton_module, "MAX_WORK", 5_000)
    finder = Automaton(compile_regex("[ab]*a[ab]{40}c"))
    with pytest.raises(ExhaustedError):
        finder.search("".join(random.Random(1).choices("ab", k=2_000)))


def test_states_are_thrown_away_and_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton_module, "MAX_MOVES", 10)
    finder = Automaton(compile_regex("x[ab]*a[ab]{6}y"))
    assert finder.search("x" + "abba" * 40 + "aaaaaay")
    assert not finder.search("x" + "abba" * 40 + "bbbbbbz")


@given(
    st.text(alphabet="ab*?[]!.-", max_size=8), st.text(alphabet="ab.-!]", min_size=1, max_size=6)
)
def test_globs_over_names_agree_with_fnmatch(glob: str, name: str) -> None:
    """Where both take the glob; `fnmatch` has no error for a bad class, this has."""
    if "**" in glob or "[^" in glob:
        return
    try:
        matches = PathGlob(glob)(name)
    except FsError:
        return
    assert matches == fnmatch.fnmatchcase(name, glob), (glob, name)


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("*.md", "docs/deep/a.md", True),
        ("*.md", "docs/a.txt", False),
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/deep/a.md", False),
        ("docs/**/*.md", "docs/a.md", True),
        ("docs/**/*.md", "docs/deep/er/a.md", True),
        ("docs/**", "docs/deep/a.md", True),
        ("**/a.md", "a.md", True),
        ("./docs/*", "docs/a", True),
        ("*.{md,txt}", "x/b.txt", True),
        ("*.{md,txt}", "x/b.rst", False),
        ("[!a]?.py", "bc.py", True),
        ("a+(b).md", "a+(b).md", True),
    ],
)
def test_globs(glob: str, path: str, expected: bool) -> None:
    assert PathGlob(glob)(path) is expected


@pytest.mark.parametrize("glob", ["{a,b", "[z-a]", "a}{", "x" * 501])
def test_bad_globs_are_coded_errors(glob: str) -> None:
    with pytest.raises(FsError) as caught:
        PathGlob(glob)
    assert caught.value.code == "invalid_argument"
