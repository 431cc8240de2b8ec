"""What a handler is given: its `Call`, the plugin's `Setup`, and a `Stream` that outlives it."""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .declare import Handler
    from .ledger import Ledger

__all__ = ["DETACHED", "DONE", "QUEUED", "RUNNING", "STREAMING", "Call", "Setup", "Stream"]

QUEUED, RUNNING, STREAMING, DETACHED, DONE = range(5)
"""Where a call is: waiting, in its handler, between two items of its generator, fed by somebody
else, or ended."""


class Setup:
    """What the plugin was started with; one for its whole life.

    `config`, `grants`, `secrets`: as the host manifest gives them. `plugin`: `id@version`.
    `generation`: the number of this start. `state`: what the plugin's `setup` function returned.
    """

    __slots__ = ("_ledger", "config", "generation", "grants", "plugin", "secrets", "state")

    def __init__(self, ledger: Ledger, plugin: str, welcome: dict[str, Any]) -> None:
        self._ledger = ledger
        self.plugin = plugin
        self.config: dict[str, Any] = welcome.get("config") or {}
        self.grants: dict[str, Any] = welcome.get("grants") or {}
        self.secrets: dict[str, str] = welcome.get("secrets") or {}
        self.generation: int = welcome.get("generation", 0)
        self.state: Any = None

    def log(self, level: str, message: str, **fields: Any) -> None:
        """One line in the plugin's log: `debug`, `info`, `warning` or `error`."""
        self._ledger.log(level, message, fields, None)

    def status(self, phase: str, *, text: str = "", extend_ms: int = 0) -> None:
        """Says how a long start gets on; `extend_ms` asks for that much more time."""
        self._ledger.status({"phase": phase, "text": text, "extend_ms": extend_ms})

    def hold(self, on: bool = True) -> None:
        """Asks to be kept while there are no calls, for work of the plugin's own; `False` ends it.

        Without it the host may stop a plugin that was idle for `idle_s`; the next call starts it.
        """
        self._ledger.status({"hold": on})


class Call:
    """One call, as its handler sees it.

    `args`: the request. `deadline_ms`: what was left when it arrived, None = no limit. `key`:
    idempotency key, "" = none. `trace`: to be passed on to logs and upstream requests.
    `cancelled`: becomes true when the caller has given up or is gone; a handler that works long
    looks at it. Whatever it does then, exactly one answer is sent, and the caller may not wait.
    """

    __slots__ = (
        "_arrived_s",
        "_feed",
        "_generator",
        "_hand",
        "_handler",
        "_inbox",
        "_ledger",
        "_state",
        "_task",
        "_waiters",
        "adapter",
        "args",
        "cancelled",
        "deadline_ms",
        "id",
        "key",
        "method",
        "trace",
    )

    def __init__(self, ledger: Ledger, handler: Handler, event: Any) -> None:
        self._ledger = ledger
        self._handler = handler
        self._state = QUEUED
        self._inbox: Any = None
        self._generator: Any = None
        self._feed: Any = None
        self._hand: Any = None
        self._task: Any = None
        self._waiters: Any = None
        self.id: int = event.id
        self.adapter: str = event.adapter
        self.method: str = event.method
        self.args: Any = event.args
        self.deadline_ms: int | None = event.deadline_ms
        self._arrived_s = 0.0 if event.deadline_ms is None else monotonic()
        self.key: str = event.key
        self.trace: dict[str, Any] = event.trace
        self.cancelled = False

    @property
    def setup(self) -> Setup:
        """What the plugin was started with."""
        return self._ledger.setup

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the caller stops waiting, never below 0; None = no limit."""
        if self.deadline_ms is None:
            return None
        return max(0.0, self._arrived_s + self.deadline_ms / 1000 - monotonic())

    def progress(self, item: Any) -> None:
        """Sends one item ahead of the result. Waits while the caller has given no credit.

        Raises `CallCancelled` when the caller gave up meanwhile, `ValueError` for an item that is
        not a strict value.
        """
        self._ledger.progress(self, item)

    def log(self, level: str, message: str, **fields: Any) -> None:
        """One line in the plugin's log, tied to this call."""
        self._ledger.log(level, message, fields, self.id)

    def chunks(self) -> Iterator[bytes]:
        """The bytes that the caller uploads, as they come in. In a coroutine: `async for`.

        Raises `CallCancelled` when the caller gives up before the end.
        """
        while (chunk := self._ledger.next_chunk(self)) is not None:
            yield chunk

    def ask(self, adapter: str, method: str, args: Any, *, deadline_ms: int | None = None) -> Any:
        """Calls a service of the host on behalf of this call: its permissions, trace and deadline
        hold, and it dies with it. In a coroutine: `await`.

        Raises `PluginError` with the code that the host answered, `CallCancelled` when this call
        was cancelled meanwhile.
        """
        return self._ledger.ask(self, adapter, method, args, deadline_ms)

    def detach(self) -> Stream:
        """A stream that goes on when the handler has returned it, fed from a thread of the plugin.

        For endless streams such as `watch`: no handler thread is kept for them.
        """
        return self._feed if type(self._feed) is Stream else Stream(self)


class Stream:
    """The items of a detached call. Any thread may use it. `closed`: nobody takes items any more;
    whoever feeds it forgets it then.
    """

    __slots__ = ("_call", "closed")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.closed = False
        call._feed = self

    def send(self, item: Any) -> bool:
        """Sends one item, waiting while the caller has given no credit. False: closed, not sent.

        Not for coroutines, which would stop their loop: yield from an async generator instead.
        Raises `ValueError` for an item that is not a strict value.
        """
        return self._call._ledger.send(self._call, item, wait=True)

    def offer(self, item: Any) -> bool:
        """As `send`, but never waits. False: closed or no credit, not sent."""
        return self._call._ledger.send(self._call, item, wait=False)

    def finish(self, value: Any = None) -> None:
        """Ends the stream well. Without effect when it has ended."""
        self._call._ledger.end(self, value, None)

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error, as if a handler had raised it."""
        self._call._ledger.end(self, None, error)
