"""A plugin in a thread of the host's own process: the same worker on the same wire, and no walls.

Only the vessel differs. The plugin's end is the SDK's worker, it speaks through a socket as it
would from another process, and the host's end is the code that every instance has: one path, so
values are checked and copied as ever (nothing that one side holds is seen by the other, FRM-018),
and streams have credit. It costs what the wire costs; whoever wants no wire passes objects to
`purra.Kernel`.

What it cannot do, and says (`isolation` reads `none` on every axis):

- nothing is confined: the code can do what this process can, and a crash in C takes all of it;
- a handler that does not return cannot be ended: its call ends in time and its instance is given
  up, but its thread goes on, and a write may land later. So plugins whose tools write are refused
  unless the host manifest says that it wants that (`inproc_writes`);
- what it prints goes where the host prints;
- its modules stay loaded: a reload starts the same code again.

Its import path is appended to this process's, and stays there.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from purra_bridge.wire.codec import ValueRefused
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.events import Refused, Welcome
from purra_bridge.wire.messages import PROTOCOL_VERSIONS
from purra_bridge.wire.session import Session
from purra_hosts.launch import Launch
from purra_hosts.process.spawn import Exit, Pipes
from purra_sdk.link import Link
from purra_sdk.worker import Worker, load

__all__ = ["Thread", "start_thread"]

FAILED: Final = 1
"""Status of a thread that did not start, or ended by a fault."""
_IMPORTING = threading.Lock()


def start_thread(launch: Launch, generation: int) -> tuple[Thread, Pipes]:
    """Runs the plugin's entry in a new thread. Raises `OSError` when there is no descriptor for it,
    or its manifest cannot be read.
    """
    digest = hashlib.sha256(launch.manifest_path.read_bytes()).hexdigest()
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    near.setblocking(False)
    vessel = Thread(launch, far, digest, f"purra:{launch.plugin}-{generation}")
    return vessel, Pipes(near, None, None)


class Thread:
    """Implements `purra_hosts.process.vessel.Vessel`."""

    def __init__(self, launch: Launch, channel: socket.socket, digest: str, name: str) -> None:
        self.exit: Exit | None = None
        self._launch = launch
        self._channel = channel
        self._digest = digest
        self._lock = threading.Lock()
        self._closed = False
        self._told: Callable[[Exit], None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def pid(self) -> int | None:
        return None

    def watch(self, loop: asyncio.AbstractEventLoop, on_exit: Callable[[Exit], None]) -> None:
        """Also starts it: before that nobody could be told of its end."""

        def ended(how: Exit) -> None:
            self.exit = how
            if self._told is not None:
                on_exit(how)

        def tell(how: Exit) -> None:
            try:
                loop.call_soon_threadsafe(ended, how)
            except RuntimeError:
                pass  # the loop is closed: nobody is left to be told

        self._told = tell
        self._thread.start()

    def signal_group(self, number: int) -> bool:
        """A thread cannot be signalled; it loses its channel, at which any that listens ends."""
        with self._lock:
            if self.exit is not None or self._closed:
                return False
            try:
                self._channel.shutdown(socket.SHUT_RDWR)
            except OSError:
                return False  # the host's end is closed
        return True

    def kill_now(self) -> Exit | None:
        """Nor ended from outside; what listens ends by itself."""
        self.signal_group(signal.SIGKILL)
        return self.exit

    def close(self) -> None:
        with self._lock:
            self._told = None
            if not self._thread.ident:
                self._closed = True
                self._channel.close()

    # In the thread.

    def _run(self) -> None:
        status = FAILED
        try:
            status = self._live()
        except (OSError, EOFError):
            pass  # the host has gone
        except BaseException as error:  # whatever it was, it ends this thread and nothing else
            sys.excepthook(type(error), error, error.__traceback__)
        with self._lock:
            self._closed = True
            self._channel.close()
            if self._told is not None:
                self._told(Exit(status=status))

    def _live(self) -> int:
        launch = self._launch
        limits = {"inflight": launch.limits.inflight}
        session = Session("plugin", limits)
        session.hello(
            {
                "proto": list(PROTOCOL_VERSIONS),
                "plugin": launch.plugin,
                "version": launch.version,
                "manifest_sha256": self._digest,
                "limits": limits,
                "sdk": "purra-sdk/1 in-process",
                "pid": os.getpid(),
            }
        )
        self._send(session)
        welcome = self._welcomed(session)
        if welcome is None:
            return FAILED
        link = Link(self._channel.fileno(), session)
        # A thread that is to end at once, whatever its handlers do, can only stop listening.
        worker = Worker(link, launch.label, welcome, lambda status: None)
        try:
            with _IMPORTING:
                sys.path.extend(path for path in launch.sys_path if path not in sys.path)
                plugin = load(launch.entry or "")
            worker.prepare(plugin)
        except BaseException as error:  # a plugin's import may raise anything, SystemExit too
            sys.excepthook(type(error), error, error.__traceback__)
            reason = f"the plugin did not start: {type(error).__name__}: {error}"
            session.refuse(WireError("internal", reason))
            self._send(session)
            return FAILED
        status = worker.run({})
        with link.lock:  # its standby must not read a descriptor that is somebody else's by then
            link.open = False
            link.arm()
        return status

    def _welcomed(self, session: Session) -> dict[str, Any] | None:
        while True:
            count = self._channel.recv_into(session.buffer())
            if not count:
                return None
            try:
                events = session.received(count)
            except (ProtocolViolation, ValueRefused):
                return None
            for event in events:
                if type(event) is Welcome:
                    return event.body
                if type(event) is Refused:
                    return None

    def _send(self, session: Session) -> None:
        for piece in session.take():
            self._channel.sendall(piece)
