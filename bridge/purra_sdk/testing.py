"""A plugin under test, without a host: the real worker in a thread, a real session as its caller.

    from purra_sdk.testing import connect

    with connect(plugin, config={"root": str(folder)}) as link:
        assert link.tool("fs.read", path="a.txt") == {"text": "..."}
        assert list(link.stream("extractive", "generate", request))

Everything crosses the wire as it would between two processes: values are checked, streams need
credit, a cancel is a frame. What differs: prints go to the test's own output, and nothing can kill
a handler that never returns (the test fails after `limit_s` then).
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from purra_bridge.wire import events as wire
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.session import Session
from purra_bridge.wire.tables import READY_STATE

from .declare import Plugin
from .link import Link
from .outcomes import PluginError, ToolError
from .worker import Worker

__all__ = ["CallItems", "PluginLink", "connect"]

LIMIT_S = 10.0
READ_BYTES = 256 * 1024
PLUGIN = "plugin-under-test@0"

Service = Callable[[Any], Any]


def connect(
    plugin: Plugin,
    *,
    config: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    grants: Mapping[str, Any] | None = None,
    services: Mapping[str, Service] | None = None,
    limits: Mapping[str, int] | None = None,
) -> PluginLink:
    """Starts `plugin` and connects to it; use it as a context manager.

    `services`: what `Call.ask` may ask for, `adapter.method` to a function of its arguments.
    `limits`: as in WELCOME, also `threads`. Raises what the plugin's own set-up raises.
    """
    welcome = {
        "proto": 1,
        "instance": "test",
        "generation": 1,
        "limits": dict(limits or {}),
        "config": dict(config or {}),
        "secrets": dict(secrets or {}),
        "grants": dict(grants or {}),
    }
    return PluginLink(plugin, welcome, dict(services or {}))


class PluginLink:
    """The caller's end. Used by one thread. `logs`: the bodies of the plugin's LOG messages.

    `limit_s`: the longest wait for anything; longer raises `TimeoutError`.
    """

    def __init__(
        self, plugin: Plugin, welcome: dict[str, Any], services: dict[str, Service]
    ) -> None:
        self.limit_s = LIMIT_S
        self.logs: list[dict[str, Any]] = []
        self.session = Session("host")
        self._services = services
        self._near, self._far = socket.socketpair()
        self._arrived: dict[int, list[Any]] = {}
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._open = True
        theirs = Session("plugin")
        theirs.hello({"proto": [1, 1], "plugin": "test", "version": "0", "manifest_sha256": ""})
        self.session.receive(b"".join(theirs.take()))
        own = {name: size for name, size in welcome["limits"].items() if name != "threads"}
        welcome["limits"] = {**welcome["limits"], **self.session.negotiate(own)}
        self.session.welcome(welcome)
        theirs.receive(b"".join(self.session.take()))
        link = Link(self._far.fileno(), theirs)
        self._worker = Worker(link, PLUGIN, welcome, _stay_alive)
        self._thread = threading.Thread(target=self._run, args=(plugin,), daemon=True)
        self._thread.start()
        self._ready.wait(self.limit_s)
        if self._failure is not None:
            self._shut()
            raise self._failure
        while self.session.state != READY_STATE:
            self._next_read()

    def _run(self, plugin: Plugin) -> None:
        try:
            self._worker.prepare(plugin)
        except BaseException as error:  # raised again by the thread that connects
            self._failure = error
            return
        finally:
            self._ready.set()
        self._worker.run({})
        link = self._worker.link
        with link.lock:  # its standby must not read a descriptor that is somebody else's by then
            link.open = False
            link.arm()
        self._far.shutdown(socket.SHUT_RDWR)  # as the end of a process would

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drains the worker and waits for its end. Idempotent."""
        if not self._open:
            return
        self.session.drain("the test is over")
        try:
            self._write()
            self._near.shutdown(socket.SHUT_WR)
            while self._read():
                pass
        except OSError:
            pass  # it has ended already
        self._shut()

    def _shut(self) -> None:
        self._open = False
        self._thread.join(self.limit_s)
        self._near.close()
        self._far.close()

    # Calls

    def call(self, adapter: str, method: str, args: Any = None, **options: Any) -> Any:
        """The value of RESULT. `options`: `key`, `deadline_ms`, `trace`, `window`.

        Raises `WireError` for ERROR, `TimeoutError` when neither came.
        """
        items = self.stream(adapter, method, args, **options)
        for _ in items:
            pass
        return items.result

    def tool(self, name: str, **arguments: Any) -> Any:
        """The value that a tool returned. Raises `ToolError` for a result that is an error."""
        result = self.call(name, "call", {"arguments": arguments})
        if result.get("is_error"):
            raise ToolError(
                result["value"]["error"], code=result["code"], effect_state=result["effect_state"]
            )
        return result["value"]

    def stream(self, adapter: str, method: str, args: Any = None, **options: Any) -> CallItems:
        """Starts a call, and gives its items as they are taken."""
        return CallItems(self, self._start(adapter, method, args, options))

    def upload(self, adapter: str, method: str, chunks: Iterable[bytes], args: Any = None) -> Any:
        """Sends `chunks` with a call: the value of RESULT. Raises as `call` does."""
        call_id = self._start(adapter, method, args, {})
        for chunk in chunks:
            while not self.session.sendable(call_id):
                self._next_read()
            self.session.chunk(call_id, chunk)
            self._write()
        self.session.end_upload(call_id)
        self._write()
        items = CallItems(self, call_id)
        for _ in items:
            pass
        return items.result

    def _start(self, adapter: str, method: str, args: Any, options: dict[str, Any]) -> int:
        call_id = self.session.call(adapter, method, {} if args is None else args, options)
        self._arrived[call_id] = []
        self._write()
        return call_id

    def cancel(self, call_id: int) -> None:
        """Sends CANCEL; the call's terminal still comes."""
        self.session.cancel(call_id, "the test cancels")
        self._write()

    def next_event(self, call_id: int) -> Any:
        """The next `Items`, `Chunk`, `Returned` or `Failed` of a call."""
        while not self._arrived[call_id]:
            self._next_read()
        event = self._arrived[call_id].pop(0)
        if type(event) in (wire.Items, wire.Chunk):
            self.session.consumed(call_id, event.cost)
            self._write()
        else:
            del self._arrived[call_id]
        return event

    # Bytes

    def _write(self) -> None:
        for piece in self.session.take():
            self._near.sendall(piece)

    def _next_read(self) -> None:
        if not self._read():
            raise EOFError("the worker has ended")

    def _read(self) -> bool:
        if not select.select([self._near], [], [], self.limit_s)[0]:
            raise TimeoutError(f"nothing came from the plugin in {self.limit_s} s")
        data = self._near.recv(READ_BYTES)
        for event in self.session.receive(data) if data else self.session.eof():
            self._handle(event)
        self._write()
        return bool(data)

    def _handle(self, event: Any) -> None:
        if type(event) is wire.Log:
            self.logs.append(event.body)
        elif type(event) is wire.Called:
            self._serve(event)
        elif getattr(event, "id", 0) in self._arrived and type(event) is not wire.Credited:
            self._arrived[event.id].append(event)

    def _serve(self, event: wire.Called) -> None:
        name = f"{event.adapter}.{event.method}"
        try:
            if name not in self._services:
                raise PluginError("unimplemented", f"the test offers no {name}")
            self.session.result(event.id, self._services[name](event.args))
        except PluginError as error:
            self.session.error(event.id, WireError(error.code, error.message, detail=error.detail))


class CallItems:
    """The items of one call, in order; `id` for `cancel`. `result` holds RESULT's value after the
    end. Raises `WireError` after ERROR.
    """

    def __init__(self, link: PluginLink, call_id: int) -> None:
        self._link = link
        self._waiting: list[Any] = []
        self._ended = False
        self.id = call_id
        self.result: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._waiting:
            if self._ended:
                raise StopIteration
            self._take(self._link.next_event(self.id))
        return self._waiting.pop(0)

    def _take(self, event: Any) -> None:
        if type(event) is wire.Items:
            self._waiting += event.values
        elif type(event) is wire.Chunk:
            self._waiting.append(event.data)
        else:
            self._ended = True
            if type(event) is wire.Failed:
                raise event.error
            self.result = event.value

    def cancel(self) -> None:
        """Gives the call up; iterating on gives what was under way, then raises `WireError`."""
        self._link.cancel(self.id)


def _stay_alive(status: int) -> None:
    """A worker in a thread must not end the process of the test."""
