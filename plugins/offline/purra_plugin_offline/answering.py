"""What to do next: calls, or an answer.

Two rounds of calls at most. First the search: each term by itself, and lines that hold two terms
together (so that a frequent word cannot hide them beyond the bound of its own search). Then the
surroundings of the best places are read, and ranked again with what was read. Without a search tool
the folder is listed and the likeliest files are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from purra_plugin_offline.evidence import Evidence, Line, gather, question_in
from purra_plugin_offline.offers import Asked, Toolbox, ToolUse, toolbox
from purra_plugin_offline.quoting import can_quote, quote
from purra_plugin_offline.ranking import Passage, passages
from purra_plugin_offline.words import Term, held, search_pattern, terms_of

__all__ = ["Answer", "next_step"]

MAX_SEARCH_MATCHES = 40
MAX_CALL_CHARS = 5000
MIN_CALL_CHARS = 400
"""What one call may bring into the conversation. Below the least there is no point in calling."""
MAX_READS = 6
MAX_FILES = 8
"""Files read when nothing can be searched."""
AROUND_LINES = 5
"""Read before and after a place that a search has found."""
MAX_PATTERN_CHARS = 400
MAX_PASSAGES = 4
WORTH = 0.6
"""A passage is shown if it scores at least this part of the best one."""
MAX_CONVERSATION_QUOTES = 5


class Answer(NamedTuple):
    """An answer: `head`, then as many of `passages` (each a text of quotes) as fit, then `tail`."""

    head: str
    passages: tuple[str, ...] = ()
    tail: str = ""

    def text(self, count: int) -> str:
        """The answer with the first `count` passages."""
        parts = [self.head, *self.passages[:count], self.tail]
        return "\n\n".join(part for part in parts if part)


def next_step(request: dict[str, Any], room_chars: int) -> list[Asked] | Answer:
    """Calls to make, or the answer. `room_chars`: what results may add to the conversation."""
    messages = request["messages"]
    question = question_in(messages)
    terms = terms_of(question.text)
    if not terms:
        return _plain("There is no word in the question to look for.")
    tools = toolbox(request.get("tools", []))
    evidence = gather(messages, question)
    calls = _calls(tools, terms, evidence, room_chars)
    if calls:
        return calls
    if not tools.usable and not evidence.results:
        return _from_conversation(messages[: question.place], terms)
    return _from_files(terms, evidence)


def _calls(
    tools: Toolbox, terms: tuple[Term, ...], evidence: Evidence, room_chars: int
) -> list[Asked]:
    if evidence.rounds == 0 and tools.search is not None:
        calls = _searches(tools.search, terms)
    elif evidence.rounds == 0 and tools.list is not None and tools.read is not None:
        calls = [tools.list.ask(path=".", depth=32, max_entries=500)]
    elif evidence.rounds == 1 and tools.read is not None:
        calls = _reads(tools.read, terms, evidence)
    else:
        return []
    chars = min(MAX_CALL_CHARS, room_chars // max(1, len(calls)))
    if chars < MIN_CALL_CHARS:
        return []
    asked = {"max_chars": chars, "max_entries": chars // 40}
    return [_within(tools, call, asked) for call in calls]


def _within(tools: Toolbox, call: Asked, bounds: dict[str, int]) -> Asked:
    """The call with bounds on the size of its result, where the tool takes them."""
    by_name = {tool.name: tool for tool in tools if tool is not None}
    bounded = by_name[call.name].ask(**bounds)
    return Asked(call.name, {**bounded.arguments, **call.arguments})


def _searches(search: ToolUse, terms: tuple[Term, ...]) -> list[Asked]:
    regex = search.takes("regex", "boolean")
    patterns = [search_pattern(term, regex=regex) for term in terms]
    together = "|".join(
        f"{one}.*(?:{'|'.join(other for other in patterns if other != one)})" for one in patterns
    )
    if regex and len(patterns) > 1 and len(together) <= MAX_PATTERN_CHARS:
        patterns.insert(0, together)
    return [
        search.ask(
            pattern=pattern,
            path=".",
            regex=regex,
            ignore_case=True,
            max_matches=MAX_SEARCH_MATCHES,
        )
        for pattern in patterns
    ]


def _reads(read: ToolUse, terms: tuple[Term, ...], evidence: Evidence) -> list[Asked]:
    """The surroundings of the best places; without any, the files whose names say most."""
    if evidence.found:
        return [
            read.ask(path=path, start_line=first, max_lines=last - first + 1)
            for path, first, last in _places(passages(terms, evidence))
        ]
    files = sorted(evidence.entries, key=lambda path: (-len(held(terms, path)), path))
    return [read.ask(path=path) for path in files[:MAX_FILES]]


def _places(ranked: list[Passage]) -> list[tuple[str, int, int]]:
    """Path, first and last line around the best passages, leaving out what is covered already."""
    places: list[tuple[str, int, int]] = []
    for passage in ranked:
        path, number = passage.place
        if any(path == known and first <= number <= last for known, first, last in places):
            continue
        last = passage.lines[-1].number + AROUND_LINES
        places.append((path, max(1, number - AROUND_LINES), last))
        if len(places) == MAX_READS:
            break
    return places


def _from_files(terms: tuple[Term, ...], evidence: Evidence) -> Answer:
    if evidence.results and evidence.failed == evidence.results:
        return _plain(
            f"The search failed ({evidence.failed} of {evidence.results} calls), so what the files "
            f"say is not known. It was about: {_listed(terms)}."
        )
    shown = [_quoted(passage) for passage in _worth(terms, evidence)]
    if not shown:
        return _plain(f"Nothing was found in the files about: {_listed(terms)}.")
    found = frozenset[Term]().union(*(held(terms, line.text) for line in evidence.found.values()))
    tail = []
    if missing := tuple(term for term in terms if term not in found):
        tail.append(f"Nothing was found about: {_listed(missing)}.")
    if evidence.failed:
        tail.append(f"{evidence.failed} of {evidence.results} calls failed.")
    about = _listed(tuple(term for term in terms if term in found))
    return Answer(f"Found on {about}:", tuple(shown), " ".join(tail))


def _worth(terms: tuple[Term, ...], evidence: Evidence) -> list[Passage]:
    """The passages to show: each has a line to quote that none before it has (a heading is shown
    with what stands under it), and they are not far from the best.
    """
    shown: list[Passage] = []
    quoted: set[Line] = set()
    for passage in passages(terms, evidence):
        fresh = {line for line in passage.lines if can_quote(line)} - quoted
        if fresh:
            quoted |= fresh
            shown.append(passage._replace(lines=tuple(sorted(fresh))))
        if len(shown) == MAX_PASSAGES:
            break
    return [one for one in shown if one.score >= WORTH * shown[0].score]


def _quoted(passage: Passage) -> str:
    return "\n".join(quote(line) for line in passage.lines if can_quote(line))


def _from_conversation(messages: list[Any], terms: tuple[Term, ...]) -> Answer:
    """Lines of what the model was told before the question: no file, so no place to name."""
    lines: dict[str, int] = {}
    for message in messages:
        if message["role"] != "assistant":
            for text in message["content"].splitlines():
                if can_quote(Line("conversation", 1, text, True)):
                    lines.setdefault(text, len(held(terms, text)))
    best = sorted((line for line in lines if lines[line]), key=lambda line: -lines[line])
    if not best:
        return _plain(
            "No file tools are offered, and the conversation holds nothing about: "
            f"{_listed(terms)}."
        )
    text = "\n".join(f"> {line}" for line in best[:MAX_CONVERSATION_QUOTES])
    return Answer("No file tools are offered. From the conversation:", (text,))


def _plain(text: str) -> Answer:
    return Answer(text)


def _listed(terms: tuple[Term, ...]) -> str:
    return ", ".join(term.word for term in terms)
