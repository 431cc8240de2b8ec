"""A worker process under test: the real bootstrap and SDK, and a raw session as its host."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

import purra_bridge
import purra_hosts
import purra_sdk
from purra_bridge.wire import events as wire
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.session import Session

LIMIT_S = 20.0
"""Nothing in these tests may take that long; waiting longer fails the test."""
SAMPLES = Path(__file__).parent / "samples"
BOOTSTRAP = Path(next(iter(purra_hosts.__path__)), "bootstrap.py")


def stage(folder: Path) -> Path:
    """The three packages that a host stages, as it lays them out."""
    (folder / "purra_bridge").mkdir(parents=True)
    bridge = Path(next(iter(purra_bridge.__path__)))
    shutil.copy(bridge / "__init__.py", folder / "purra_bridge")
    (folder / "purra_bridge" / "wire").symlink_to(bridge / "wire")
    (folder / "purra_sdk").symlink_to(next(iter(purra_sdk.__path__)))
    (folder / "msgpack").symlink_to(next(iter(msgpack.__path__)))
    return folder


class RunningWorker:
    """The host's end: every event that came, and what it takes to wait for the next one."""

    def __init__(
        self, staged: Path, manifest: Path, entry: str, *, welcome: dict[str, Any], wrap: list[str]
    ) -> None:
        gate = welcome.pop("gate", "open")
        self.near, far = socket.socketpair()
        env = {
            "PATH": os.environ["PATH"],
            "PURRA_FD": str(far.fileno()),
            "PURRA_PROTO": "1",
            "PURRA_PLUGIN": "sample@1.2.3",
            "PURRA_MANIFEST": str(manifest),
            "PURRA_GENERATION": "7",
            "PURRA_NONCE": "nonce",
            "PURRA_ENTRY": entry,
            "PURRA_STAGED": str(staged),
            "GRANTED": "yes",
        }
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-I", "-S", str(BOOTSTRAP)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(far.fileno(),),
            env=env,
            cwd=staged,
            start_new_session=True,
        )
        far.close()
        self.session = Session("host")
        self.events: list[Any] = []
        self.ended = False
        self.hello = self.wait(wire.Hello).body
        if gate == "open":
            self.welcome(welcome)
        elif gate == "refuse":
            self.session.refuse(WireError("manifest_mismatch", "the wrong manifest"))
            self.flush()
        elif gate == "stray":
            self.near.sendall(b"Last login: never\n")

    def welcome(self, welcome: dict[str, Any]) -> None:
        """Opens the gate."""
        body = {
            "proto": 1,
            "instance": "i1",
            "generation": 7,
            "grants": {},
            "isolation": {"level": "standard", "require": False},
            "config": {},
            "secrets": {},
            "sys_path": [str(SAMPLES)],
            **welcome,
        }
        limits = body.pop("limits", {})
        body["limits"] = {**self.session.negotiate(self.hello.get("limits", {})), **limits}
        self.session.welcome(body)
        self.flush()

    # Writing

    def flush(self) -> None:
        pieces = self.session.take()
        if pieces:
            self.near.sendall(b"".join(pieces))  # in one write, as tests rely on

    def call(self, adapter: str, method: str = "call", args: Any = None, **options: Any) -> int:
        call_id = self.session.call(adapter, method, {} if args is None else args, options)
        self.flush()
        return call_id

    def tool(self, name: str, **arguments: Any) -> int:
        return self.call(name, args={"arguments": arguments})

    def consume(self, event: wire.Items | wire.Chunk) -> None:
        self.session.consumed(event.id, event.cost)
        self.flush()

    # Reading

    def pump(self, timeout_s: float) -> bool:
        """Reads once; False if nothing came in that time."""
        if self.ended or not select.select([self.near], [], [], timeout_s)[0]:
            return False
        try:
            data = self.near.recv(1 << 20)
        except ConnectionResetError:  # it died with something unread
            data = b""
        if data:
            self.events += self.session.receive(data)
            self.flush()
        else:
            self.ended = True
            self.events += self.session.eof()
        return True

    def take(self, fits: Callable[[Any], bool], limit_s: float = LIMIT_S) -> Any:
        """The first event that fits, removed from `events`; waits for it."""
        until = time.monotonic() + limit_s
        seen = 0
        while True:
            for index in range(seen, len(self.events)):
                if fits(self.events[index]):
                    return self.events.pop(index)
            seen = len(self.events)
            left = until - time.monotonic()
            if left <= 0 or (not self.pump(left) and self.ended):
                raise AssertionError(f"it did not come; there is {self.events}")

    def wait(self, kind: type, call_id: int | None = None, limit_s: float = LIMIT_S) -> Any:
        return self.take(
            lambda event: (
                type(event) is kind and (call_id is None or getattr(event, "id", None) == call_id)
            ),
            limit_s,
        )

    def result(self, call_id: int, limit_s: float = LIMIT_S) -> Any:
        """The value of RESULT; fails on ERROR."""
        event = self.terminal(call_id, limit_s)
        assert type(event) is wire.Returned, event.error
        return event.value

    def error(self, call_id: int) -> Any:
        """The error of ERROR; fails on RESULT."""
        event = self.terminal(call_id)
        assert type(event) is wire.Failed, event
        return event.error

    def terminal(self, call_id: int, limit_s: float = LIMIT_S) -> Any:
        return self.take(
            lambda event: type(event) in (wire.Returned, wire.Failed) and event.id == call_id,
            limit_s,
        )

    def run(self, name: str, **arguments: Any) -> Any:
        """Calls a tool and returns its value."""
        return self.result(self.tool(name, **arguments))["value"]

    # The end

    def half_close(self) -> None:
        self.near.shutdown(socket.SHUT_WR)

    def finish(self) -> tuple[int, str, str]:
        """Waits for the exit: status, stdout, stderr."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out.decode(), err.decode()

    def close(self) -> None:
        self.near.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., RunningWorker]]:
    """Starts workers: `launch(entry)` returns at READY, with `ready=False` after WELCOME."""
    staged = stage(tmp_path / "staged")
    manifest = tmp_path / "purra-plugin.toml"
    manifest.write_text("schema = 'purra.plugin/1'\n")
    started: list[RunningWorker] = []

    def start(
        entry: str = "sample:plugin",
        *,
        ready: bool = True,
        wrap: list[str] | None = None,
        **welcome: Any,
    ) -> RunningWorker:
        worker = RunningWorker(staged, manifest, entry, welcome=welcome, wrap=wrap or [])
        started.append(worker)
        if ready:
            worker.ready = worker.wait(wire.Ready).body  # type: ignore[attr-defined]
        return worker

    yield start
    for worker in started:
        worker.close()
