"""One short session with every kind of message in it, as bytes of both directions.

`HostScript` and `PluginScript` own one real end each and react to what comes in, so the recorded
bytes can be played to them whole, split, or damaged.
"""

from __future__ import annotations

from typing import Any

from purra_bridge.wire import events as ev
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.header import HEADER_BYTES, unpack
from purra_bridge.wire.session import Session
from tests.bridge.wire.links import HELLO_BODY, READY_BODY, WELCOME_BODY

LIMITS = {"max_frame": 4096, "link_window": 16_384, "inflight": 8, "raw_window": 1024}
BUFFER_BYTES = 40 * 1024


class Script:
    """One end, and everything it was told."""

    def __init__(self, role: str) -> None:
        self.session = Session(role, LIMITS, buffer_bytes=BUFFER_BYTES)
        self.seen: list[Any] = []
        self.sent = bytearray()
        self.violation: ProtocolViolation | None = None
        self.refusals = 0

    def play(self, data: bytes) -> None:
        """Reads `data`, reacts, and keeps what would be written."""
        try:
            events = self.session.receive(data)
        except ProtocolViolation as violation:
            self.violation = violation
            events = violation.events
        for event in events:
            self.seen.append(event)
            try:
                self.react(event)
            except WireError:  # the connection has ended meanwhile
                self.refusals += 1
        self.sent += b"".join(self.session.take())

    def react(self, event: Any) -> None:
        raise NotImplementedError


class HostScript(Script):
    def __init__(self) -> None:
        super().__init__("host")

    def react(self, event: Any) -> None:
        session = self.session
        kind = type(event)
        if kind is ev.Hello:
            limits = event.body.get("limits", {})
            try:
                agreed = session.negotiate(limits)
            except ProtocolViolation as violation:
                self.violation = violation
                session.refuse(WireError("protocol_violation"))
                return
            session.welcome(WELCOME_BODY | {"limits": agreed})
        elif kind is ev.Ready and self.violation is None:
            session.ping(7)
            session.call(
                "fs",
                "grep",
                {"pattern": "x", "n": [1, 2.5, None]},
                {"deadline_ms": 9, "window": 40},
            )
            upload = session.call("blob", "put", None, {"window": 4096})
            session.chunk(upload, b"\x00" * 900)
            session.chunk(upload, b"end", end=True)
            session.call("big", "echo", "x" * 6000, {"trace": {"run": "r"}})
            session.cancel(session.call("slow", "wait", None, {"key": "k"}), "unsent")
            slow = session.call("slow", "wait", None)
            session.chunk(slow, b"x")
            session.cancel(slow, "enough")
        elif kind is ev.Called:
            session.result(event.id, {"found": True})
        elif kind in (ev.Items, ev.Chunk):
            session.consumed(event.id, event.cost)


class PluginScript(Script):
    def __init__(self) -> None:
        super().__init__("plugin")
        self.uploads: set[int] = set()
        self.session.hello(HELLO_BODY)
        self.sent += b"".join(self.session.take())

    def react(self, event: Any) -> None:
        session = self.session
        kind = type(event)
        if kind is ev.Welcome:
            session.status({"phase": "importing"})
            session.ready(READY_BODY)
        elif kind is ev.Ping:
            session.pong(event.token, lag_ms=0.5, inflight=session.serving, rss=1)
        elif kind is ev.Called:
            self._serve(event)
        elif kind in (ev.Items, ev.Chunk):
            session.consumed(event.id, event.cost)
            if event.end and event.id in self.uploads:
                error = WireError("failed_precondition", detail={"store": {"a": 1}})
                session.error(event.id, error)
        elif kind is ev.Returned:  # of the callback
            session.result(1, {"matches": 3})
            session.drain("tired", 100)
        elif kind is ev.Cancelled:
            session.error(event.id, WireError("cancelled", executed="yes"))

    def _serve(self, event: ev.Called) -> None:
        session = self.session
        if event.adapter == "fs":
            session.log("info", "grep", {"n": 1}, call=event.id)
            session.call("memory", "find", {"q": ""}, {"parent": event.id})
            session.items(event.id, ["one"])
            session.items(event.id, [{"line": 2}, {"line": 3}])
            session.chunk(event.id, b"raw")
        elif event.adapter == "big":
            session.result(event.id, event.args)
            session.changed({"epoch": 2})
        elif event.adapter == "blob":
            self.uploads.add(event.id)


def record() -> tuple[list[bytes], list[bytes]]:
    """What the host and the plugin write in a whole session, in turns: each part answers what came
    before it, so a replay must not run ahead of them."""
    host, plugin = HostScript(), PluginScript()
    host_wrote: list[bytes] = []
    plugin_wrote: list[bytes] = []
    while plugin.sent or host.sent:
        if plugin.sent:
            plugin_wrote.append(bytes(plugin.sent))
            plugin.sent.clear()
            host.play(plugin_wrote[-1])
        if host.sent:
            host_wrote.append(bytes(host.sent))
            host.sent.clear()
            plugin.play(host_wrote[-1])
    assert host.violation is None
    assert plugin.violation is None
    assert host.refusals == plugin.refusals == 0
    return host_wrote, plugin_wrote


def frames(data: bytes) -> list[bytes]:
    """The recorded bytes, frame by frame."""
    found = []
    while data:
        end = HEADER_BYTES + unpack(data, 0)[0]
        found.append(data[:end])
        data = data[end:]
    return found
