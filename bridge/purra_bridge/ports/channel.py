"""What a host offers to the ports: calls, streams and uploads to one plugin.

The line between ports and hosts. A port knows contracts and no process; a host knows processes and
no contract. Every failure is a `purra_bridge.wire.errors.WireError`, whatever its origin, and is
raised at most once per call. Cancelling the awaiting task cancels the call on the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from purra.contracts.call import Stop

__all__ = ["Channel", "Items", "Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, before it has an id.

    `adapter`: the `[[provides]]` name. `method`: the contract's operation. `args`: a strict value
    that is trusted (already checked); its maps may be frozen (`purra.values`). `timeout_s`: None =
    no limit of its own. `window_bytes`: the stream's credit, 0 = the wire's default. `key`:
    idempotency key, "" = none. `trace`: for logs. `exclusive`: runs alone in its instance, and its
    hard timeout kills (protocol, messages, 2).
    `stop`: when requested, CANCEL is sent at once and the await goes on to the terminal, which then
    tells what became of the effect; a call that was not sent yet fails with `cancelled`, executed
    no. (Cancelling the awaiting task, in contrast, ends the await at once.)
    """

    adapter: str
    method: str
    args: Any
    timeout_s: float | None = None
    window_bytes: int = 0
    key: str = ""
    trace: Mapping[str, str] = field(default_factory=dict)
    exclusive: bool = False
    stop: Stop | None = None


class Items(Protocol):
    """The items of one call, in order: decoded values, or bytes of a raw stream.

    Ends after RESULT, then `result` holds its value; raises `WireError` after ERROR or the death of
    the instance, after all items received before it. Credit is returned as items are taken.
    """

    @property
    def result(self) -> Any:
        """The value of RESULT; None before the end."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Any: ...

    async def aclose(self) -> None:
        """Cancels the call if it has not ended, before its first suspension: so it also works in a
        task that is itself being cancelled. Idempotent.
        """


class Channel(Protocol):
    """One plugin's route. What arrives are strict values; whether they fit the contract is not
    looked at.
    """

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        """The value of RESULT. `on_item` takes each DATA item on its way; without it they are lost.

        Raises `WireError`.
        """

    def stream(self, request: Request) -> Items:
        """Starts the call with its first `__anext__`."""

    async def upload(self, request: Request, chunks: AsyncIterable[bytes]) -> Any:
        """Sends `chunks` as a raw stream and gives the value of RESULT. Raises `WireError`."""
