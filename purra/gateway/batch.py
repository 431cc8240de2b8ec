"""From the fragments of one round to whole tool calls (MOD-09, K07, K10).

Fragments carry the number of their call and come in any order between calls. Nothing is guessed:
what does not assemble to distinct whole calls makes the batch malformed, and no call of it runs.
Provider ids are kept as they came; they are aliases that answer the model, and the kernel knows a
call by its run, attempt and ordinal (MOD-10).
"""

from __future__ import annotations

from typing import Final, final

from purra.contracts.messages import ToolCall
from purra.contracts.model import ToolCallFragment
from purra.errors import PurraError
from purra.limits import STREAM_CHARS

__all__ = ["ASSEMBLED_CALLS", "CALL_LABEL_CHARS", "BatchAssembly"]

ASSEMBLED_CALLS: Final = 1024
"""Calls that one stream may open. Far over what a batch may run, so that a batch that is merely
too long is refused call by call; this only bounds memory."""
CALL_LABEL_CHARS: Final = 256
"""Of a call's id or name, each. Providers use up to 64."""


class _Call:
    __slots__ = ("id", "name", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []


@final
class BatchAssembly:
    """The calls of one round, as far as they have come. Use: `add` each fragment, then `finish`."""

    __slots__ = ("_calls", "_chars", "_fault")

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._chars = 0
        self._fault = ""

    @property
    def empty(self) -> bool:
        """Whether no fragment has come."""
        return not self._calls and not self._fault

    @property
    def fault(self) -> str:
        """The first thing that made the batch malformed, "" if nothing has yet."""
        return self._fault

    def add(self, fragment: ToolCallFragment) -> None:
        """Takes one fragment. A malformed one is noted, for `finish` to report.

        Raises `PurraError(model_stream_limit_exceeded)` for more argument text than one attempt may
        have (`STREAM_CHARS`), or more than `ASSEMBLED_CALLS` calls.
        """
        self._chars += len(fragment.arguments)
        if self._chars > STREAM_CHARS:
            raise _over_limit(f"more than {STREAM_CHARS} characters of arguments")
        if type(fragment.index) is not int or fragment.index < 0:
            self._note("a call number is not a whole number of at least 0")
            return
        call = self._calls.get(fragment.index)
        if call is None:
            if len(self._calls) >= ASSEMBLED_CALLS:
                raise _over_limit(f"more than {ASSEMBLED_CALLS} calls")
            call = self._calls[fragment.index] = _Call()
        call.id = self._label(call.id, fragment.id, "ids", fragment.index)
        call.name = self._label(call.name, fragment.name, "names", fragment.index)
        if fragment.arguments:
            call.pieces.append(fragment.arguments)

    def finish(self) -> tuple[ToolCall, ...]:
        """The whole calls in the order of their numbers; () if there were none.

        Raises `PurraError(malformed_tool_batch)`: two ids or names for one call, none at all, one
        id for two calls, a label over `CALL_LABEL_CHARS`, numbers that are not 0, 1, 2, ...
        """
        self._check_whole()
        if self._fault:
            raise PurraError("malformed_tool_batch", self._fault)
        calls = sorted(self._calls.items())
        return tuple(ToolCall(call.id, call.name, "".join(call.pieces)) for _, call in calls)

    def _check_whole(self) -> None:
        owners: dict[str, int] = {}
        for index in sorted(self._calls):
            call = self._calls[index]
            if not call.id:
                self._note(f"call {index} has no id")
            if not call.name:
                self._note(f"call {index} has no name")
            if call.id in owners:
                self._note(f"calls {owners[call.id]} and {index} have the same id")
            owners[call.id] = index
        if self._calls and max(self._calls) != len(self._calls) - 1:
            self._note("the numbers of the calls have gaps")

    def _label(self, known: str, new: str, what: str, index: int) -> str:
        """The id or name of a call; some providers repeat it, none may change it."""
        if not new or new == known:
            return known
        if known:
            self._note(f"call {index} has two {what}")
        elif len(new) > CALL_LABEL_CHARS:
            self._note(f"one of the {what} is longer than {CALL_LABEL_CHARS} characters")
        else:
            return new
        return known

    def _note(self, fault: str) -> None:
        self._fault = self._fault or fault


def _over_limit(what: str) -> PurraError:
    return PurraError("model_stream_limit_exceeded", what)
