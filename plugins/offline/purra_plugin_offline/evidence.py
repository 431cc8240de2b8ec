"""What the conversation holds: the question, and what tools have answered to it so far.

Results are other people's text. They are taken apart as data, by shape and type; whatever does not
have the shape is counted and left out, and nothing in them is ever obeyed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Evidence", "Line", "Question", "gather", "question_in"]

MAX_LINES = 5000
"""Lines kept of all results."""
MAX_RESULT_CHARS = 1_000_000
"""A longer result is not read."""


class Question(NamedTuple):
    """The user's last message, and its place in the conversation."""

    text: str
    place: int


class Line(NamedTuple):
    """A line of a file, as a tool gave it. `whole`: not cut by the tool."""

    path: str
    number: int
    text: str
    whole: bool


class Evidence:
    """Everything that tools have answered since the question.

    `found`: lines by (path, number), from searches and reads. `entries`: paths of listed files.
    `rounds`: answers that asked for calls. `failed`: results that are errors or cannot be read, of
    `results` in all. `truncated`: patterns of searches that said there is more.
    """

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], Line] = {}
        self.entries: list[str] = []
        self.truncated: set[str] = set()
        self.rounds = 0
        self.results = 0
        self.failed = 0

    def add(self, line: Line) -> None:
        """Keeps a line; a whole one replaces a cut one, a later one an earlier one."""
        key = (line.path, line.number)
        known = self.found.get(key)
        if (known is None and len(self.found) >= MAX_LINES) or (
            known is not None and known.whole and not line.whole
        ):
            return
        self.found[key] = line


def question_in(messages: list[Any]) -> Question:
    """The last message of the user; an empty question if there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "user":
            return Question(messages[place]["content"], place)
    return Question("", -1)


def gather(messages: list[Any], question: Question) -> Evidence:
    """What came after the question."""
    evidence = Evidence()
    patterns: dict[str, str] = {}
    for message in messages[question.place + 1 :]:
        if message["role"] == "assistant" and message.get("calls"):
            evidence.rounds += 1
            for call in message["calls"]:
                asked = _parsed(call["arguments"])
                if isinstance(asked, dict) and isinstance(asked.get("pattern"), str):
                    patterns[call["id"]] = asked["pattern"]
        elif message["role"] == "tool":
            evidence.results += 1
            if not _take(evidence, message["content"], patterns.get(message.get("call_id", ""))):
                evidence.failed += 1
    return evidence


def _parsed(text: str) -> Any:
    """The JSON value at the beginning of `text`; None if there is none."""
    if len(text) > MAX_RESULT_CHARS:
        return None
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _take(evidence: Evidence, content: str, pattern: str | None) -> bool:
    """Takes a result in. False: an error, or nothing that is known here."""
    value = _parsed(content)
    if not isinstance(value, Mapping):
        return False
    if isinstance(matches := value.get("matches"), list):
        for match in matches:
            _take_match(evidence, match)
        if value.get("truncated") is True and pattern is not None:
            evidence.truncated.add(pattern)
        return True
    if isinstance(value.get("content"), str) and isinstance(value.get("path"), str):
        return _take_content(evidence, value)
    if isinstance(entries := value.get("entries"), list):
        for entry in entries:
            if isinstance(entry, Mapping) and entry.get("type") == "file":
                path = entry.get("path")
                if isinstance(path, str) and len(evidence.entries) < MAX_LINES:
                    evidence.entries.append(path)
        return True
    return False


def _take_match(evidence: Evidence, match: Any) -> None:
    if not isinstance(match, Mapping):
        return
    path, number, text = match.get("path"), match.get("line"), match.get("text")
    if isinstance(path, str) and type(number) is int and number > 0 and isinstance(text, str):
        evidence.add(Line(path, number, text, match.get("cut") is not True))


def _take_content(evidence: Evidence, value: Mapping[str, Any]) -> bool:
    """Lines of a file. Text in an escape form is not the file's own, so it cannot be quoted."""
    start = value.get("start_line", 1)
    if value.get("encoding", "utf-8") != "utf-8" or type(start) is not int or start < 1:
        return False
    lines = value["content"].split("\n")
    if value.get("line_cut") is True:
        evidence.add(Line(value["path"], start, lines[0], False))
        return True
    ended = lines.pop()
    for offset, text in enumerate(lines):
        evidence.add(Line(value["path"], start + offset, text.removesuffix("\r"), True))
    if ended:
        evidence.add(Line(value["path"], start + len(lines), ended, True))
    return True
