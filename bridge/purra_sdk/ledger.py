"""The calls that are open: their answers, and what their handlers ask for.

Exactly one terminal leaves per call, and `close` is the one place that says a call has ended. Any
thread may come here: a hand, the event loop, a thread of the plugin. Who waits here on the reading
thread (for an uploaded chunk, an answer, credit) reads meanwhile; on any other thread it sleeps
until the reading one has handled something.

Lock = the link's lock. "Lock held" methods are called with it.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident
from collections import deque

from purra_bridge.wire.codec import encode
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.events import Failed

from .calls import DETACHED, DONE, RUNNING, Call, Setup, Stream
from .link import RAW_TYPES
from .outcomes import CallCancelled, Outcome, PluginError, StoreError, ToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from purra_bridge.wire import events as wire

    from .coroutines import Loops
    from .denials import Denials
    from .link import Link

__all__ = ["Ledger", "answer_of", "failure", "report", "tool_failure", "unsendable"]


class Ledger:
    """Every open call of one worker, by id."""

    def __init__(self, link: Link, plugin: str, welcome: dict[str, Any]) -> None:
        self.link = link
        self.session = link.session
        self.setup = Setup(self, plugin, welcome)
        self.calls: dict[int, Call] = {}
        self.loops: Loops | None = None
        self.denials: Denials | None = None
        """What explains denials, in a jailed worker."""
        self.parked: dict[int, Call] = {}
        """Streams without credit."""
        self.reading_inside = False
        """The reading thread reads from inside a handler: it cannot take another call."""
        self._asked: dict[int, tuple[Call, list[Any]]] = {}
        self._bells: list[Any] = []

    # Answers. All of it: lock held.

    def succeed(self, call: Call, value: Any) -> None:
        """RESULT, or the ERROR that says why the result cannot be sent. Lock held."""
        handler = call._handler
        if handler.kind == "tool":
            value = value.body if type(value) is Outcome else {"value": value}
        elif handler.method == "generate":
            value = None
        if not self.close(call):
            return
        try:
            self.session.result(call.id, value)
        except ValueError as refused:
            self.session.error(call.id, unsendable(refused))

    def fail(self, call: Call, error: BaseException) -> None:
        """The terminal that `error` stands for. Lock held."""
        denied = self.denials.explain(error) if self.denials is not None else None
        if denied is not None and self.link.open:
            self.session.log("warning", self.line_of(denied), {"denied": denied}, call.id)
        if isinstance(error, ToolError) and call._handler.kind == "tool":
            self.succeed(call, Outcome(tool_failure(error)))
        elif self.close(call):
            told = failure(error)
            if denied is not None:
                told.detail = {**told.detail, "denied": denied}
            self.session.error(call.id, told)

    def line_of(self, denied: dict[str, str]) -> str:
        """A denial, for the log."""
        from .denials import told

        return told(self.setup.plugin, denied)

    def settle_batch(self, batch: list[Call], outcomes: Any) -> None:
        """The answers of a batched handler: one outcome per call, or what it raised. Lock held."""
        if type(outcomes) not in (list, tuple):
            told = outcomes
            if not isinstance(told, BaseException):
                told = WireError("contract_violation", "a batched handler gave no list")
            outcomes = [told] * len(batch)
        elif len(outcomes) != len(batch):
            told = f"a batched handler gave {len(outcomes)} outcomes for {len(batch)} calls"
            outcomes = [WireError("contract_violation", told)] * len(batch)
        for call, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self.fail(call, outcome)
            else:
                self.succeed(call, outcome)

    def close(self, call: Call) -> bool:
        """The call has ended: False if it had already, or if nobody can be told."""
        if call._state == DONE:
            return False
        call._state = DONE
        self.calls.pop(call.id, None)
        self.parked.pop(call.id, None)
        for part in call._inbox or ():
            if part is not None:
                self.session.consumed(call.id, part[1])
        call._inbox = None
        return self.link.open

    def detach(self, call: Call, stream: Stream) -> None:
        """The handler has returned its stream: others feed it from now on."""
        if call._state == RUNNING:
            call._state = DETACHED
            if call.cancelled:
                self.shut(stream)
            elif self.link.draining:
                self.shut(stream, WireError("draining", "the plugin is stopping"))

    def shut(self, stream: Stream, error: WireError | None = None) -> None:
        """Ends a detached stream from our side."""
        stream.closed = True
        call = stream._call
        if self.close(call):
            self.session.error(call.id, error or failure(CallCancelled()))

    # What handlers ask for. Lock not held.

    def log(self, level: str, message: str, fields: dict[str, Any], call: int | None) -> None:
        """LOG. A line must not fail for its contents: what is no strict value is sent as text."""
        plain = {_plain(name): _strict(value) for name, value in fields.items()}
        level, message = _plain(level), _plain(message)
        with self.link.lock:
            if self.link.open:
                self.session.log(level, message, plain, call)
                self.link.flush()

    def status(self, body: dict[str, Any]) -> None:
        """STATUS."""
        with self.link.lock:
            if self.link.open:
                self.session.status(body)
                self.link.flush()

    def progress(self, call: Call, item: Any) -> None:
        """One item ahead of the result; see `Call.progress`."""
        self.send(call, item, wait=True)
        if call.cancelled:
            raise CallCancelled

    def send(self, call: Call, item: Any, *, wait: bool) -> bool:
        """One item now; see `Stream.send`."""
        link = self.link
        with link.lock:
            if wait:
                self._wait(lambda: self.deaf(call) or self.session.sendable(call.id))
            if self.deaf(call) or not self.session.sendable(call.id):
                return False
            link.frame_held()  # a generator may have items on their way
            if type(item) in RAW_TYPES:
                self.session.chunk(call.id, bytes(item))
            else:
                self.session.items(call.id, [item])
            if call._state != DETACHED or get_ident() != link.reader:
                link.flush()
            # Else: the reading thread is in some other handler, and flushes after it.
        return True

    def end(self, stream: Stream, value: Any, error: BaseException | None) -> None:
        """Ends a detached stream; see `Stream.finish`."""
        call = stream._call
        with self.link.lock:
            stream.closed = True
            if error is None:
                self.succeed(call, value)
            else:
                self.fail(call, error)
            self.link.flush()

    def next_chunk(self, call: Call) -> bytes | None:
        """The next uploaded bytes, None at the end. Raises `CallCancelled`."""
        with self.link.lock:
            if call._inbox is None:
                call._inbox = deque()
            self._wait(lambda: call._inbox or self.deaf(call))
            if not call._inbox:
                raise CallCancelled
            return self.take_chunk(call)

    def ask(self, call: Call, adapter: str, method: str, args: Any, deadline_ms: int | None) -> Any:
        """A callback; see `Call.ask`."""
        with self.link.lock:
            asked, answer = self.begin_ask(call, adapter, method, args, deadline_ms)
            self._wait(lambda: answer or self.deaf(call))
            self.end_ask(asked, answer)
        if not answer:
            raise CallCancelled
        return answer_of(answer[0])

    # What waiting is made of. All of it: lock held.

    def deaf(self, call: Call) -> bool:
        """Nobody takes anything of this call any more."""
        return call.cancelled or call._state == DONE or not self.link.open

    def park(self, call: Call) -> None:
        """The call goes on when it has credit. Lock held."""
        self.parked[call.id] = call

    def take_chunk(self, call: Call) -> bytes | None:
        """What is first in the inbox. Lock held, inbox not empty."""
        part = call._inbox[0]
        if part is None:
            return None  # stays: asking again gives the end again
        call._inbox.popleft()
        self.session.consumed(call.id, part[1])
        data: bytes = part[0]
        return data

    def begin_ask(
        self, call: Call, adapter: str, method: str, args: Any, deadline_ms: int | None
    ) -> tuple[int, list[Any]]:
        """Sends a callback: its id, and a list that will hold its answer. Lock held."""
        if self.deaf(call):
            raise CallCancelled
        options = {"parent": call.id, "deadline_ms": deadline_ms}
        asked = self.session.call(adapter, method, args, options)
        answer: list[Any] = []
        self._asked[asked] = (call, answer)
        return asked, answer

    def end_ask(self, asked: int, answer: list[Any]) -> None:
        """Forgets a callback, and cancels it if it has no answer. Lock held."""
        del self._asked[asked]
        if not answer and self.link.open:
            self.session.cancel(asked, "the call that asked was cancelled")
            self.link.flush()

    def _wait(self, ready: Callable[[], Any]) -> None:
        """Lets time pass until `ready()`. Lock held, and let go of meanwhile."""
        link = self.link
        while not ready():
            link.flush()
            if ready():
                return  # the lock was let go of
            if get_ident() == link.reader:
                self.reading_inside = True
                link.read()
                self.reading_inside = False
                continue
            bell = allocate_lock()
            bell.acquire()
            self._bells.append(bell)
            link.lock.release()
            bell.acquire()
            link.lock.acquire()

    # What comes in for open calls. All of it: lock held, on the thread that has the descriptor.

    def wake(self) -> None:
        """Lets everyone who waits look again; after each read."""
        while self._bells:
            self._bells.pop().release()
        if self.loops is not None:
            self.loops.wake()

    def on_credited(self, event: wire.Credited) -> None:
        """Streams that stood still may go on."""
        parked = self.parked
        if event.id:
            ready = [parked[event.id]] if event.id in parked else []
        else:
            ready = list(parked.values())
        for call in ready:
            self.resume(call)

    def resume(self, call: Call) -> None:
        """A parked stream may go on, or is to see that it is cancelled."""
        del self.parked[call.id]
        call._hand.resume(call)

    def on_chunk(self, event: wire.Chunk) -> None:
        """Bytes of an upload."""
        self._arrived(event.id, [event.data] if event.data else [], event)

    def on_items(self, event: wire.Items) -> None:
        """Items of an upload."""
        self._arrived(event.id, event.values, event)

    def _arrived(self, call_id: int, parts: list[Any], event: Any) -> None:
        """DATA of an upload. Its credit goes back when its last part is taken."""
        call = self.calls.get(call_id)
        if call is None:
            self.session.consumed(call_id, event.cost)  # of an answer or a call that has ended
            return
        if call._inbox is None:
            call._inbox = deque()
        last = len(parts) - 1
        for index, part in enumerate(parts):
            call._inbox.append((part, event.cost if index == last else 0))
        if not parts:
            self.session.consumed(call_id, event.cost)
        if event.end:
            call._inbox.append(None)
        self._poke(call)

    def on_returned(self, event: wire.Returned | wire.Failed) -> None:
        """The answer to a callback."""
        if event.id in self._asked:
            call, answer = self._asked[event.id]
            answer.append(event)
            self._poke(call)

    def _poke(self, call: Call) -> None:
        """What a coroutine may wait for has come; a thread is woken by `wake`."""
        if call._hand is self.loops and self.loops is not None:
            self.loops.resume(call)


# What the wire says of an outcome. An exception that the author did not mean for others may quote a
# secret or a prompt: the caller gets its class, the log its traceback.


def failure(error: BaseException) -> WireError:
    """The ERROR that stands for an exception of a handler."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, CallCancelled):
        return WireError("cancelled", "stopped because it was cancelled", executed="yes")
    if isinstance(error, StoreError):
        detail: dict[str, Any] = {"store": {**error.detail, "code": error.code}}
        return WireError("failed_precondition", error.code, detail=detail)
    if isinstance(error, PluginError):
        detail = dict(error.detail)
        if error.effect_state is not None:
            detail["effect_state"] = error.effect_state
        return WireError(
            error.code,
            error.message,
            origin="plugin",
            executed="no" if error.effect_state == "not_started" else "yes",
            after_ms=error.after_ms,
            detail=detail,
        )
    if isinstance(error, ToolError):
        return WireError("internal", error.message, detail={"type": "ToolError"})
    name = type(error).__name__
    return WireError("internal", f"the handler raised {name}", detail={"type": name})


def tool_failure(error: ToolError) -> dict[str, Any]:
    """The RESULT that stands for an ordinary failure of a tool: the model may read it."""
    return {
        "value": {"error": error.message},
        "is_error": True,
        "code": error.code,
        "effect_state": error.effect_state,
    }


def unsendable(refused: BaseException) -> WireError:
    """The ERROR when an answer or item is no strict value: it costs that call only (H20, K26)."""
    if isinstance(refused, WireError):
        return refused  # too large
    return WireError("contract_violation", f"the handler's answer cannot be sent: {refused}")


def answer_of(event: Any) -> Any:
    """The value of a callback. Raises `PluginError` with the code that the host answered."""
    if type(event) is Failed:
        error = event.error
        raise PluginError(error.code, error.message, after_ms=error.after_ms, detail=error.detail)
    return event.value


def report(error: BaseException) -> None:
    """The traceback of an exception that nobody foresaw, to the log."""
    if isinstance(error, (ToolError, PluginError, StoreError, CallCancelled, WireError)):
        return
    try:
        # Written in C: the `traceback` module would be thirteen more modules to load.
        sys.__excepthook__(type(error), error, error.__traceback__)
    except BaseException:  # a plugin may have closed or replaced stderr
        pass


def _plain(text: object) -> str:
    """Text without lone surrogates."""
    return str(text).encode(errors="backslashreplace").decode()


def _strict(value: Any) -> Any:
    try:
        encode(value)
    except ValueError:
        return ascii(value)
    return value
