"""Runs a program over text, each character once: no backtracking, whatever pattern and text say.

A state is the set of places in the program where a match may stand, before anchors are looked at,
with what stood before (nothing, a word character, another). Anchors need the next character, so
they are resolved when it is known. States and their moves are made when first met and kept, within
`MAX_MOVES`; a kept move is one look into a dict. Making a move costs at most the size of the
program, and all moves of one automaton together at most `MAX_WORK`: a number, not a clock, so that
the same search gives the same answer on a slow machine.
"""

from __future__ import annotations

from purra_plugin_files.patterns import Op, Program, compile_glob

__all__ = ["Automaton", "ExhaustedError", "PathGlob"]

MAX_MOVES = 20_000
"""Moves kept before all are thrown away and made anew: some MiB."""
MAX_WORK = 3_000_000
"""Places looked at while making moves: one to two seconds. Ordinary patterns need thousands."""
MAX_PLAIN_CHARS = 10_000
"""Longest line given to `re`, which may look at each character as often as the pattern is long."""
_START, _OTHER, _WORD = 0, 1, 2


class ExhaustedError(Exception):
    """The pattern costs more than `MAX_WORK` on this text."""


class _State:
    __slots__ = ("before", "moves", "places")

    def __init__(self, places: frozenset[int], before: int) -> None:
        self.places = places
        self.before = before
        self.moves: dict[str, _State] = {}


class Automaton:
    """Answers whether a program matches somewhere in a text."""

    def __init__(self, program: Program) -> None:
        self._ops = program.ops
        self._plain = program.plain
        self._matched = _State(frozenset(), _START)
        self._known: dict[tuple[frozenset[int], int], _State] = {}
        self._kept = 0
        self._work = 0

    def search(self, text: str) -> bool:
        """Whether some part of `text`, which is one line, matches. Raises `ExhaustedError`."""
        if self._plain is not None and len(text) <= MAX_PLAIN_CHARS:
            return self._plain.search(text) is not None
        state = self._state(frozenset(), _START)
        for char in text:
            state = state.moves.get(char) or self._move(state, char)
            if state is self._matched:
                return True
        return self._move(state, "") is self._matched

    def _state(self, places: frozenset[int], before: int) -> _State:
        key = (places, before)
        state = self._known.get(key)
        if state is None:
            state = self._known[key] = _State(places, before)
        return state

    def _move(self, state: _State, char: str) -> _State:
        """The state after `char`; "" is the end of the text."""
        if self._work > MAX_WORK:
            raise ExhaustedError
        if self._kept >= MAX_MOVES:
            self._known.clear()
            self._kept = 0
        reached = self._reach(state, char)
        if reached is None:
            after = self._matched
        else:
            before = _WORD if _is_word(char) else _OTHER
            after = self._state(frozenset(reached), before)
        state.moves[char] = after
        self._kept += 1
        return after

    def _reach(self, state: _State, char: str) -> list[int] | None:
        """Places after `char`; None if the program ends before it, which is a match."""
        reached: list[int] = []
        seen: set[int] = set()
        pending = [0, *state.places]  # 0: a match may start anywhere
        while pending:
            place = pending.pop()
            if place in seen:
                continue
            seen.add(place)
            op = self._ops[place]
            if op.kind == "match":
                self._work += len(seen)
                return None
            if op.kind == "char":
                if char and op.atom is not None and op.atom.fullmatch(char):
                    reached.append(place + 1)
            else:
                pending.extend(_onward(op, place, state.before, char))
        self._work += len(seen)
        return reached


class PathGlob:
    """A glob over paths. Without a `/` it speaks of the last name, with one of the whole path."""

    def __init__(self, glob: str) -> None:
        """Raises `FsError(invalid_argument)`."""
        self._whole = "/" in glob
        self._automaton = Automaton(compile_glob(glob.removeprefix("./")))

    def __call__(self, path: str) -> bool:
        """Whether `path`, relative to the root, is meant. Raises `ExhaustedError`."""
        return self._automaton.search(path if self._whole else path.rpartition("/")[2])


def _onward(op: Op, place: int, before: int, char: str) -> tuple[int, ...]:
    """Where a step that reads nothing leads."""
    if op.kind == "split":
        return op.to, op.other
    if op.kind == "jump":
        return (op.to,)
    if op.kind == "start":
        holds = before == _START
    elif op.kind == "end":
        holds = not char
    else:
        holds = ((before == _WORD) != _is_word(char)) == (op.kind == "edge")
    return (place + 1,) if holds else ()


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
