"""A question into terms, and which terms a line holds.

A term is a word without its inflection. The rules are few and blunt: a wrong stem costs a place in
the ranking, never the exactness of a quote. Chinese and Japanese have no spaces; there, pairs of
characters are the terms.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["MAX_TERMS", "Term", "held", "search_pattern", "terms_of"]

MAX_TERMS = 6
"""Terms of one question: each is a search of its own."""
MAX_QUESTION_CHARS = 4000
MAX_STEM_CHARS = 64
"""What of a very long word is looked for; a pattern must fit a tool's bounds."""
PREFIX_CHARS = 5
"""From this length a term is also held by longer words that begin with it: cancel, cancellation."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_VOWEL = re.compile(r"[aeiouy]")

_STOP_TEXT = """
a about after again all also am an and any are as at be because been before being between both but
by can could did do does doing done down during each either else ever every few for from further
get gets got had has have having he her here hers him his how i if in into is it its just let like
made make makes may me might more most much must my neither no nor not now of off on once only or
other our out over own per please s same shall she should so some such t than that the their them
then there these they this those through to too under until up us very via was we were what when
where whether which while who whom whose why will with would yes you your
"""
_ASKING_TEXT = """
answer answers anything appear appears contain contains describe described detail details discuss
discussed documentation documented documents docs everything explain explained file files find
folder folders happen happened happens info information know line lines mean means mention mentioned
mentions nothing occur occurs question say saying says said show shows something talk talks tell
tells text use used uses using want wants word words work works
"""
_STOP = frozenset(_STOP_TEXT.split())
"""Words that say nothing about what is asked."""
_ASKING = frozenset(_ASKING_TEXT.split())
"""Words that ask for text; they count only where nothing else is left."""


class Term(NamedTuple):
    """One thing to look for: `word` as asked, `stem` to compare; `loose`: anywhere in a line."""

    word: str
    stem: str
    loose: bool = False


def terms_of(question: str) -> tuple[Term, ...]:
    """The terms of a question in its order: distinct stems, the longest `MAX_TERMS` of them."""
    words = [word for word in _words(question[:MAX_QUESTION_CHARS]) if word not in _STOP]
    content = [word for word in words if word not in _ASKING]
    terms: dict[str, Term] = {}
    for word in content or words or list(_words(question[:MAX_QUESTION_CHARS])):
        loose = bool(_UNSPACED.match(word))
        term = Term(word, word if loose else _stem(word)[:MAX_STEM_CHARS], loose)
        terms.setdefault(term.stem, term)
    longest = sorted(terms.values(), key=lambda term: -len(term.word))[:MAX_TERMS]
    return tuple(term for term in terms.values() if term in longest)


def held(terms: tuple[Term, ...], line: str) -> frozenset[Term]:
    """The terms that `line` holds."""
    folded = _lower(line)
    stems = {_stem(word) for word in _WORD.findall(folded)}
    return frozenset(term for term in terms if _is_held(term, folded, stems))


def search_pattern(term: Term, *, regex: bool) -> str:
    """What to search for so that every form of the term is found, perhaps among others.

    Literal text, or with `regex` a regular expression that keeps to the beginnings of words.
    """
    if term.loose:
        return re.escape(term.word) if regex else term.word
    root = term.stem
    if len(root) > 2 and root.endswith("y"):  # policy, policies
        return rf"(?:\b|_){re.escape(root[:-1])}[yi]" if regex else root[:-1]
    return rf"(?:\b|_){re.escape(root)}" if regex else root


def _is_held(term: Term, folded: str, stems: set[str]) -> bool:
    if term.loose:
        return term.stem in folded
    if term.stem in stems:
        return True
    return len(term.stem) >= PREFIX_CHARS and any(stem.startswith(term.stem) for stem in stems)


def _lower(text: str) -> str:
    """Small letters as a search without regard to case takes them, one for each character: not
    `casefold`, whose "strasse" no search finds where "Straße" stands."""
    return text.lower().replace("i\N{COMBINING DOT ABOVE}", "i")


def _words(text: str) -> list[str]:
    words = []
    for word in _WORD.findall(_lower(text)):
        if not _UNSPACED.search(word):
            words.append(word)
            continue
        for run in _UNSPACED.findall(word):
            words += [run[at : at + 2] for at in range(max(1, len(run) - 1))]
        words += _WORD.findall(_UNSPACED.sub(" ", word))
    return words


def _stem(word: str) -> str:
    """The word without what English adds to it; words of other alphabets as they are."""
    if len(word) <= 3 or not word.isascii():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("sses"):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending, cut in (("llation", 6), ("ion", 3), ("ing", 3), ("ed", 2)):
        rest = word[:-cut]
        if word.endswith(ending) and len(rest) >= 3 and _VOWEL.search(rest):
            word = rest
            break
    else:
        if len(word) > 3 and word.endswith("e"):
            word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiou":
        word = word[:-1]
    return word
