"""Questions into terms; a search for a term finds every line that holds it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_plugin_offline.words import MAX_TERMS, held, search_pattern, terms_of


def _words(question: str) -> list[str]:
    return [term.word for term in terms_of(question)]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("How does a caller cancel a running tool?", ["caller", "cancel", "running", "tool"]),
        ("What does the protocol say about cancel?", ["protocol", "cancel"]),
        ("max_tokens and run.blocked", ["max", "tokens", "run", "blocked"]),
        ("cancel CANCEL cancelled", ["cancel"]),
        ("Was ist ein Überlauf?", ["ist", "ein", "überlauf"]),
        ("what is it?", ["what", "is", "it"]),
        ("show me the docs", ["show", "docs"]),
        ("Do the files contain anything about xylophones?", ["xylophones"]),
        ("", []),
        ("?!", []),
    ],
)
def test_terms_of_questions(question: str, words: list[str]) -> None:
    """Empty words are left out, unless there is nothing else."""
    assert _words(question) == words


def test_text_without_spaces_is_asked_for_in_pairs() -> None:
    assert _words("如何取消API") == ["如何", "何取", "取消", "api"]
    assert held(terms_of("如何取消"), "可以取消的调用")
    assert not held(terms_of("如何取消"), "可以暂停的调用")


def test_the_number_of_terms_is_bounded_and_long_words_win() -> None:
    question = " ".join(f"term{'x' * size}" for size in range(20))
    assert len(terms_of(question)) == MAX_TERMS
    assert _words(question)[-1] == "term" + "x" * 19


@pytest.mark.parametrize(
    "forms",
    [
        "cancel cancels cancelled canceled cancelling cancellation",
        "run runs running",
        "policy policies",
        "call calls called calling",
        "cache caches cached caching",
        "process processes processed processing",
        "isolate isolates isolated isolating isolation",
        "session sessions",
        "stop stops stopped stopping",
        "fly flies",
    ],
)
def test_forms_of_a_word_find_each_other(forms: str) -> None:
    for asked in forms.split():
        (term,) = terms_of(asked)
        for written in forms.split():
            assert held((term,), f"some {written.upper()} here"), (asked, written)


@pytest.mark.parametrize(
    ("asked", "line"),
    [("run", "runtime"), ("tool", "toolbar"), ("cat", "category"), ("cancellation", "canal")],
)
def test_short_words_do_not_stand_for_longer_ones(asked: str, line: str) -> None:
    assert not held(terms_of(asked), line)


@pytest.mark.parametrize(
    ("asked", "written"),
    [("straße", "Straße"), ("İstanbul", "İSTANBUL"), ("ΛΌΓΟΣ", "λόγος"), ("Ångström", "ÅNGSTRÖM")],
)
def test_capital_letters_of_any_alphabet_are_no_difference(asked: str, written: str) -> None:
    (term,) = terms_of(asked)
    assert held((term,), f"x {written} y")
    assert re.search(search_pattern(term, regex=True), f"x {written} y", re.IGNORECASE)


@given(
    st.text(alphabet="abcdeginorstyßİς字", min_size=1, max_size=10),
    st.lists(st.text(alphabet="abcdeginorsty_-. ßİΣ字", max_size=12), max_size=5),
    st.booleans(),
)
def test_the_search_finds_every_line_that_holds_a_term(
    word: str, parts: list[str], regex: bool
) -> None:
    """What `held` accepts, the pattern finds: the ranking never misses for want of a hit."""
    endings = ["", "s", "ed", "ing", "ies", "ion"]
    lines = [*parts, *(word + ending for ending in endings), *(f"x_{word}{e}" for e in endings)]
    for term in terms_of(word):
        pattern = search_pattern(term, regex=regex)
        expression = re.compile(pattern if regex else re.escape(pattern), re.IGNORECASE)
        assert pattern
        for line in lines:
            if held((term,), line):
                assert expression.search(line), (term, pattern, line)
