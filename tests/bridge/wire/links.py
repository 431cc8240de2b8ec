"""Two real ends and a fake link: what every session test drives."""

from __future__ import annotations

from typing import Any

from purra_bridge.wire import codec, messages
from purra_bridge.wire.header import pack_header
from purra_bridge.wire.session import Session

HELLO_BODY = {
    "proto": [1, 1],
    "plugin": "sample",
    "version": "0.1.0",
    "manifest_sha256": "0" * 64,
    "limits": {},
}
WELCOME_BODY = {"proto": 1, "instance": "i-1", "generation": 1}
READY_BODY = {"offers": [{"kind": "tool", "name": "echo"}], "isolation": {"fs": "none"}}


def frame(kind: int, call_id: int, body: Any = b"", flags: int = 0) -> bytes:
    """One frame by hand; a body that is not bytes is encoded."""
    packed = body if isinstance(body, bytes) else codec.encode(body)
    return pack_header(len(packed), call_id, kind, flags) + packed


def call_frame(call_id: int, **fields: Any) -> bytes:
    return frame(messages.CALL, call_id, {"adapter": "a", "method": "m", "args": None} | fields)


class Link:
    """A host's and a plugin's session. Nothing moves until it is told to."""

    def __init__(
        self, host: dict[str, int] | None = None, plugin: dict[str, int] | None = None
    ) -> None:
        self.host = Session("host", host)
        self.plugin = Session("plugin", plugin)
        self._offer = plugin or {}

    def shake(self) -> Link:
        """The whole handshake."""
        self.greet()
        self.plugin.ready(READY_BODY)
        self.to_host()
        return self

    def greet(self) -> Link:
        """HELLO and WELCOME."""
        self.plugin.hello(HELLO_BODY | {"limits": self._offer})
        (hello,) = self.to_host()
        agreed = self.host.negotiate(hello.body["limits"])
        self.host.welcome(WELCOME_BODY | {"limits": agreed})
        self.to_plugin()
        return self

    def to_plugin(self) -> list[Any]:
        """Carries what the host wrote; returns what the plugin end makes of it."""
        return self.plugin.receive(b"".join(self.host.take()))

    def to_host(self) -> list[Any]:
        return self.host.receive(b"".join(self.plugin.take()))

    def settle(self) -> tuple[list[Any], list[Any]]:
        """Carries both ways until nothing is written: (events at the host, at the plugin)."""
        at_host: list[Any] = []
        at_plugin: list[Any] = []
        while self.host.pending_bytes or self.plugin.pending_bytes:
            at_plugin += self.to_plugin()
            at_host += self.to_host()
        return at_host, at_plugin


def linked(host: dict[str, int] | None = None, plugin: dict[str, int] | None = None) -> Link:
    """Two ends after the handshake."""
    return Link(host, plugin).shake()


def names(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]
