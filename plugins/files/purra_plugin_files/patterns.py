"""Regular expressions and globs, as programs for `automaton` (VFS-04).

A pattern comes from a model, and a text from anybody, so matching must not be able to take
exponential time. `re` backtracks and cannot be interrupted from the thread that runs it; a limit on
line length still leaves minutes. So patterns are parsed here, into the subset of `re`'s language
that needs no backtracking, and run by an automaton that reads each character once. What one
character may be (classes, `\\w`, case) is still asked of `re`, so that it means the same.

Taken: literals, `.`, classes, `\\d \\w \\s` and opposites, `\\b \\B ^ $`, groups of any kind that
only group, `|`, `* + ? {m,n}` and their lazy forms (the language is the same), a leading `(?i)`.
Refused by name: references, looking around, possessive forms, other flags.

Rejected: `re` in a child process that is killed (tools run where no process may be started);
a timer signal (handlers run on the main thread only); `re` behind a list of "dangerous" shapes
(incomplete, and it refuses good patterns).
"""

from __future__ import annotations

import re
import string
from typing import NamedTuple

from purra_plugin_files.faults import FsError

__all__ = ["MAX_PATTERN_CHARS", "Op", "Program", "compile_glob", "compile_regex"]

MAX_PATTERN_CHARS = 500
MAX_OPS = 500
"""Size of a program: counted repeats are written out, so `(a{99}){99}` is refused here."""
MAX_GROUP_DEPTH = 40
MAX_WAYS = 16
"""Up to so many ways through a pattern, backtracking is harmless and `re` is faster."""
_UNBOUNDED = -1
_ANCHORS = {"^": "start", "$": "end", "A": "start", "Z": "end", "b": "edge", "B": "inside"}
_CLASS_LETTERS = frozenset("dDwWsS")
_CONTROL_LETTERS = frozenset("abfnrtv0")
_CODE_DIGITS = {"x": 2, "u": 4, "U": 8}
_DIGITS = frozenset(string.digits)
_HEX = frozenset(string.hexdigits)


class Op(NamedTuple):
    """One step of a program. `kind`: char (matches `atom`), split (go on at `to` or `other`), jump
    (`to`), start, end, edge, inside (true between characters), match.
    """

    kind: str
    to: int = 0
    other: int = 0
    atom: re.Pattern[str] | None = None


class Program(NamedTuple):
    """A compiled pattern. `plain` is the same as an `re` pattern where that is harmless."""

    ops: tuple[Op, ...]
    plain: re.Pattern[str] | None


class _Node(NamedTuple):
    """A part of a pattern: atom | anchor | sequence | either | repeat."""

    kind: str
    text: str = ""
    parts: tuple[_Node, ...] = ()
    least: int = 0
    most: int = 0


def compile_regex(pattern: str, *, ignore_case: bool = False) -> Program:
    """The program for a regular expression. Raises `FsError(invalid_argument)` that says where."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise FsError("invalid_argument", f"a pattern may have {MAX_PATTERN_CHARS} characters")
    if pattern.startswith("(?i)"):
        pattern, ignore_case = pattern[4:], True
    node = _Parser(pattern).whole()
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    plain = None
    if _ways(node) <= MAX_WAYS:
        plain = re.compile(_written(node), flags)
    return Program(_assemble(node, flags), plain)


def compile_glob(glob: str) -> Program:
    """The program for a glob over paths; it matches whole paths only.

    `*` and `?` stay within a name, `**` is any folders, `[...]` and `[!...]` are classes, `{a,b}`
    is either. Raises `FsError(invalid_argument)`.
    """
    if len(glob) > MAX_PATTERN_CHARS:
        raise FsError("invalid_argument", f"a glob may have {MAX_PATTERN_CHARS} characters")
    try:
        body = _Parser(_glob_as_regex(glob)).whole()
    except FsError:
        raise FsError("invalid_argument", "bad glob: unbalanced '{}' or a bad class") from None
    whole = _Node("sequence", parts=(_Node("anchor", "start"), body, _Node("anchor", "end")))
    return Program(_assemble(whole, re.NOFLAG), None)


class _Parser:
    """Recursive descent over one pattern; `_at` is the only state."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> _Node:
        node = self._either(0)
        if self._at < len(self._pattern):
            raise self._bad("unbalanced ')'")
        return node

    def _bad(self, what: str) -> FsError:
        return FsError("invalid_argument", f"bad pattern at character {self._at + 1}: {what}")

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._bad("it ends too early")
        self._at += 1
        return char

    def _accept(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _either(self, depth: int) -> _Node:
        branches = [self._sequence(depth)]
        while self._accept("|"):
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else _Node("either", parts=tuple(branches))

    def _sequence(self, depth: int) -> _Node:
        parts: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._one(depth)))
        return parts[0] if len(parts) == 1 else _Node("sequence", parts=tuple(parts))

    def _repeated(self, node: _Node) -> _Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        if node.kind == "anchor":
            raise self._bad("nothing to repeat")
        if not self._accept("?") and self._peek() == "+":
            raise self._bad("possessive repeats are not supported")
        if self._bounds() is not None:
            raise self._bad("multiple repeat")
        return _Node("repeat", parts=(node,), least=bounds[0], most=bounds[1])

    def _bounds(self) -> tuple[int, int] | None:
        simple = {"*": (0, _UNBOUNDED), "+": (1, _UNBOUNDED), "?": (0, 1)}
        if (char := self._peek()) in simple:
            self._at += 1
            return simple[char]
        found = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII).match(self._pattern, self._at)
        if found is None or found[0] == "{}":
            return None  # an ordinary brace
        self._at = found.end()
        least = int(found[1] or 0)
        most = least if not found[2] else int(found[3]) if found[3] else _UNBOUNDED
        if most != _UNBOUNDED and most < least:
            raise self._bad("the bounds of a repeat are the wrong way round")
        if max(least, most) > MAX_OPS:
            raise self._bad(f"a repeat may count to {MAX_OPS}")
        return least, most

    def _one(self, depth: int) -> _Node:
        char = self._take()
        if char == "(":
            return self._group(depth + 1)
        if char == "[":
            return _Node("atom", self._class())
        if char == "\\":
            return self._escape()
        if char in "^$":
            return _Node("anchor", _ANCHORS[char])
        if char == ".":
            return _Node("atom", ".")
        if char in "*+?":
            self._at -= 1
            raise self._bad("nothing to repeat")
        return _Node("atom", re.escape(char))

    def _group(self, depth: int) -> _Node:
        if depth > MAX_GROUP_DEPTH:
            raise self._bad(f"groups may be {MAX_GROUP_DEPTH} deep")
        if self._accept("?"):
            name = re.compile(r"P<[^\W\d]\w*>").match(self._pattern, self._at)
            if name is not None:
                self._at = name.end()
            elif not self._accept(":"):
                raise self._bad("only groups that group are supported: (...), (?:...), (?P<n>...)")
        node = self._either(depth)
        if not self._accept(")"):
            raise self._bad("missing ')'")
        return _Node("sequence", parts=(node,))

    def _escape(self) -> _Node:
        char = self._peek()
        if char in _ANCHORS and char not in "^$":
            self._at += 1
            return _Node("anchor", _ANCHORS[char])
        return _Node("atom", self._escaped())

    def _escaped(self) -> str:
        """The escape after a backslash that stands for one character or one kind of it."""
        char = self._take()
        if char in _CODE_DIGITS:
            digits = self._pattern[self._at : self._at + _CODE_DIGITS[char]]
            if len(digits) < _CODE_DIGITS[char] or not _HEX.issuperset(digits):
                raise self._bad(f"\\{char} takes {_CODE_DIGITS[char]} hexadecimal digits")
            if int(digits, 16) > 0x10FFFF:
                raise self._bad("no such character")
            self._at += _CODE_DIGITS[char]
            return f"\\{char}{digits}"
        if char in _DIGITS and (char != "0" or self._peek() in _DIGITS):
            raise self._bad("references to groups and octal escapes are not supported")
        if char in _CLASS_LETTERS or char in _CONTROL_LETTERS:
            return f"\\{char}"
        if char.isascii() and char.isalpha():
            raise self._bad(f"unknown escape \\{char}")
        return re.escape(char)

    def _class(self) -> str:
        """A character class, written so that `re` reads each part as it is meant here."""
        parts = ["["]
        if self._accept("^"):
            parts.append("^")
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._member()
            parts.append(low)
            if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                parts.append("-" + self._member())
        self._at += 1
        text = "".join(parts) + "]"
        try:
            re.compile(text)
        except re.error as error:
            raise self._bad(f"bad class: {error.msg}") from None
        return text

    def _member(self) -> str:
        char = self._take()
        if char != "\\":
            return re.escape(char)
        if self._peek() == "b":  # in a class it is the backspace, as in `re`
            self._at += 1
            return "\\b"
        return self._escaped()


def _ways(node: _Node) -> int:
    """How many ways lead through `node` at most: a bound on backtracking. Counts to MAX_WAYS + 1,
    which an open repeat always has.
    """
    if node.kind == "either":
        return min(sum(_ways(part) for part in node.parts), MAX_WAYS + 1)
    if node.kind == "repeat":
        inner = _ways(node.parts[0])
        if node.most == _UNBOUNDED or node.most > MAX_WAYS:
            return MAX_WAYS + 1
        ways: int = (inner + (node.most > node.least)) ** node.most
        return min(ways, MAX_WAYS + 1)
    ways = 1
    for part in node.parts:
        ways = min(ways * _ways(part), MAX_WAYS + 1)
    return ways


def _written(node: _Node) -> str:
    """`node` in the syntax of `re`."""
    if node.kind == "atom":
        return node.text
    if node.kind == "anchor":
        return {"start": r"\A", "end": r"\Z", "edge": r"\b", "inside": r"\B"}[node.text]
    inner = [_written(part) for part in node.parts]
    if node.kind == "either":
        return "(?:" + "|".join(inner) + ")"
    if node.kind == "repeat":
        return f"(?:{inner[0]}){{{node.least},{node.most}}}"
    return "".join(inner)


def _assemble(node: _Node, flags: re.RegexFlag) -> tuple[Op, ...]:
    ops: list[Op] = []
    _emit(node, flags, ops)
    return (*ops, Op("match"))


def _emit(node: _Node, flags: re.RegexFlag, ops: list[Op]) -> None:
    if len(ops) > MAX_OPS:
        raise FsError("invalid_argument", "the pattern is too large; repeat less or search twice")
    if node.kind == "atom":
        ops.append(Op("char", atom=re.compile(node.text, flags)))
    elif node.kind == "anchor":
        ops.append(Op(node.text))
    elif node.kind == "either":
        _emit_either(node, flags, ops)
    elif node.kind == "repeat":
        _emit_repeat(node, flags, ops)
    else:
        for part in node.parts:
            _emit(part, flags, ops)


def _emit_either(node: _Node, flags: re.RegexFlag, ops: list[Op]) -> None:
    exits: list[int] = []
    for part in node.parts[:-1]:
        fork = len(ops)
        ops.append(Op("split"))
        _emit(part, flags, ops)
        exits.append(len(ops))
        ops.append(Op("jump"))
        ops[fork] = Op("split", fork + 1, len(ops))
    _emit(node.parts[-1], flags, ops)
    for place in exits:
        ops[place] = Op("jump", len(ops))


def _emit_repeat(node: _Node, flags: re.RegexFlag, ops: list[Op]) -> None:
    for _ in range(node.least):
        before = len(ops)
        _emit(node.parts[0], flags, ops)
        if len(ops) == before:
            break  # an empty group, which no number of turns makes longer
    if node.most == _UNBOUNDED:
        fork = len(ops)
        ops.append(Op("split"))
        _emit(node.parts[0], flags, ops)
        ops.append(Op("jump", fork))
        ops[fork] = Op("split", fork + 1, len(ops))
        return
    forks: list[int] = []
    for _ in range(node.most - node.least):
        forks.append(len(ops))
        ops.append(Op("split"))
        _emit(node.parts[0], flags, ops)
    for fork in forks:
        ops[fork] = Op("split", fork + 1, len(ops))


def _glob_as_regex(glob: str) -> str:
    parts: list[str] = []
    at, braces = 0, 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if glob.startswith("**/", at - 1) and glob[at - 2 : at - 1] in ("", "/"):
            at += 2
            parts.append("(?:[^/]+/)*")
        elif glob.startswith("**", at - 1):
            at += 1
            parts.append(".*")
        elif char == "*":
            parts.append("[^/]*")
        elif char == "?":
            parts.append("[^/]")
        elif char == "[" and (end := glob.find("]", at + 1)) != -1:
            inner = glob[at:end]
            at = end + 1
            negated = inner[0] in "!^"
            members = inner[1:] if negated else inner
            parts.append(f"[{'^' if negated else ''}{members.replace(chr(92), chr(92) * 2)}]")
        elif char == "{":
            braces += 1
            parts.append("(?:")
        elif char == "}" and braces:
            braces -= 1
            parts.append(")")
        elif char == "," and braces:
            parts.append("|")
        else:
            parts.append(re.escape(char))
    return "".join(parts)
