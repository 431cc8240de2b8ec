"""What a session tells its owner. Plain records: the fields are the constructor's arguments.

Connection: `Hello`, `Welcome`, `Ready`, `Pong`, `Drain`, `Status`, `Log`, `Changed` carry the
checked `body`; `Ping` its `token`; `Refused` the error of an ERROR on id 0.

Calls that the peer made: `Called`, then `Chunk`s of an upload, perhaps `Cancelled`; the owner
answers with exactly one `result` or `error`. Calls that we made: `Items` and `Chunk`s, then exactly
one of `Returned` and `Failed`. `Credited` says that a sender may go on (id 0: any of them).

`cost` of `Items` and `Chunk` must be handed to `Session.consumed` once the items are taken.
"""

from __future__ import annotations

__all__ = [
    "Called",
    "Cancelled",
    "Changed",
    "Chunk",
    "Credited",
    "Drain",
    "Failed",
    "Hello",
    "Items",
    "Log",
    "Ping",
    "Pong",
    "Ready",
    "Refused",
    "Returned",
    "Status",
    "Welcome",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from purra_bridge.wire.errors import WireError


class _Record:
    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]  # mutable records are not keys


class _BodyRecord(_Record):
    __slots__ = ("body",)

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.body!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.body == other.body


class Hello(_BodyRecord):
    """The plugin has introduced itself."""

    __slots__ = ()


class Welcome(_BodyRecord):
    """The host has accepted us; its limits are in force."""

    __slots__ = ()


class Ready(_BodyRecord):
    """The plugin may be called."""

    __slots__ = ()


class Pong(_BodyRecord):
    """The answer to our PING."""

    __slots__ = ()


class Drain(_BodyRecord):
    """The peer takes no new calls."""

    __slots__ = ()


class Status(_BodyRecord):
    """How the plugin gets on."""

    __slots__ = ()


class Log(_BodyRecord):
    """A log line of the plugin."""

    __slots__ = ()


class Changed(_BodyRecord):
    """A dynamic catalog of the plugin has changed."""

    __slots__ = ()


class Refused(_Record):
    """The peer has given the connection up."""

    __slots__ = ("error",)

    def __init__(self, error: WireError) -> None:
        self.error = error


class Ping(_Record):
    """The peer asks for a `pong` with this token."""

    __slots__ = ("token",)

    def __init__(self, token: Any) -> None:
        self.token = token


class Called(_Record):
    """The peer calls. `window` is what its stream of items may hold, `deadline_ms` what is left."""

    __slots__ = (
        "adapter",
        "args",
        "deadline_ms",
        "id",
        "key",
        "method",
        "parent",
        "trace",
        "window",
    )

    def __init__(self, call_id: int, body: dict[str, Any], window: int) -> None:
        get = body.get
        self.id = call_id
        self.adapter: str = body["adapter"]
        self.method: str = body["method"]
        self.args: Any = body["args"]
        self.window = window
        self.deadline_ms: int | None = get("deadline_ms")
        self.parent: int | None = get("parent")
        self.key: str = get("key") or ""
        self.trace: dict[str, Any] = get("trace") or {}


class Items(_Record):
    """One or more items of a stream, in order. `end`: the upload is complete."""

    __slots__ = ("cost", "end", "id", "values")

    def __init__(self, call_id: int, values: list[Any], cost: int, end: bool) -> None:
        self.id = call_id
        self.values = values
        self.cost = cost
        self.end = end


class Chunk(_Record):
    """Raw bytes of a stream. `end`: the upload is complete."""

    __slots__ = ("cost", "data", "end", "id")

    def __init__(self, call_id: int, data: bytes | bytearray, cost: int, end: bool) -> None:
        self.id = call_id
        self.data = data
        self.cost = cost
        self.end = end


class Returned(_Record):
    """Our call has its result."""

    __slots__ = ("id", "value")

    def __init__(self, call_id: int, value: Any) -> None:
        self.id = call_id
        self.value = value


class Failed(_Record):
    """Our call has failed."""

    __slots__ = ("error", "id")

    def __init__(self, call_id: int, error: WireError) -> None:
        self.id = call_id
        self.error = error


class Cancelled(_Record):
    """The peer no longer wants the call that we serve; it still needs its one terminal."""

    __slots__ = ("id", "reason")

    def __init__(self, call_id: int, reason: str) -> None:
        self.id = call_id
        self.reason = reason


class Credited(_Record):
    """More of this call may be sent; of every call if `id` is 0."""

    __slots__ = ("id",)

    def __init__(self, call_id: int) -> None:
        self.id = call_id
