"""The host that the villain attacks, a program of its own so that it can run as another user.

Reads what to do as JSON from stdin and writes what happened to stdout. It keeps everything that an
attack could reach: files beside the grants, sockets that listen, a secret in its memory, another
worker. What arrives at the sockets and what becomes of the files is evidence that no attack can
talk away.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Isolation, Launch, LaunchLimits
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings

VILLAIN: Final = Path(__file__).parent / "villain"
TOOLS: Final = ("attack", "names", "work", "foreign", "open_path", "look_up", "variable", "start")
MEMORY_BYTES: Final = 256 * 1024**2
CALL_S: Final = 30.0
"""For one attack on a busy machine; each takes milliseconds."""
FILES: Final = ("secret", "victim", "movable", "doomed")
DATABASE: Final = "data.db"
TIMINGS: Final = Timings(drain_s=0.5, exit_s=1.0, term_s=1.0)


def villain(plugin: str, level: str, grants: Mapping[str, Any]) -> Launch:
    """The launch of one worker."""
    manifest = VILLAIN / "purra-plugin.toml"
    return Launch(
        plugin=plugin,
        version="0.1.0",
        folder=VILLAIN,
        manifest_path=manifest,
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(),
        offers=tuple(("tool", name) for name in TOOLS),
        python=sys.executable,
        entry="villain:plugin",
        grants=grants,
        sys_path=(str(VILLAIN),),
        limits=LaunchLimits(memory_bytes=MEMORY_BYTES),
        isolation=Isolation(level, require=level != "none"),
    )


class Bait:
    """What attacks are after, and what became of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="purra-arena-"))
        stack.callback(shutil.rmtree, self.top, ignore_errors=True)
        self._outside = self.top / "outside"
        self._secret = ctypes.create_string_buffer(b"the host's memory")
        self._streams: dict[str, socket.socket] = {}
        self._datagrams: dict[str, socket.socket] = {}
        name = f"\0purra-arena-{os.getpid()}"
        places: list[tuple[str, int, int, Any]] = [
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            ("path", socket.AF_UNIX, socket.SOCK_STREAM, str(self.top / "stream")),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, name),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            ("dgram_path", socket.AF_UNIX, socket.SOCK_DGRAM, str(self.top / "datagram")),
            ("dgram_abstract", socket.AF_UNIX, socket.SOCK_DGRAM, name),
        ]
        for key, family, kind, address in places:
            end = stack.enter_context(socket.socket(family, kind))
            end.bind(address)
            end.setblocking(False)
            if kind == socket.SOCK_STREAM:
                end.listen(128)
                self._streams[key] = end
            else:
                self._datagrams[key] = end
        self._canary = stack.enter_context((self.top / "canary").open("w"))
        os.set_inheritable(self._canary.fileno(), True)
        os.environ["PURRA_VILLAIN_CANARY"] = "secret"

    def target(self) -> dict[str, Any]:
        """Everything in place anew, and where it is."""
        shutil.rmtree(self._outside, ignore_errors=True)
        (self._outside / "empty").mkdir(parents=True)
        for name in FILES:
            (self._outside / name).write_text(name)
        database = sqlite3.connect(self._outside / DATABASE)
        database.execute("pragma synchronous = off")
        database.execute("create table t (x)")
        database.close()
        found = os.fstat(self._canary.fileno())
        names = {
            key: end.getsockname()
            for key, end in (*self._streams.items(), *self._datagrams.items())
        }
        return {
            "outside": str(self._outside),
            "host": os.getpid(),
            "address": ctypes.addressof(self._secret),
            "canary": [found.st_dev, found.st_ino],
            **{
                key: name[1] if isinstance(name, tuple) else os.fsdecode(name)
                for key, name in names.items()
            },
        }

    def damage(self) -> list[str]:
        """What an attack has done since `target`."""
        found: list[str] = []
        for key, listener in self._streams.items():
            try:
                listener.accept()[0].close()
                found.append(f"a connection to {key}")
            except BlockingIOError:
                pass
        for key, end in self._datagrams.items():
            try:
                end.recv(16)
                found.append(f"a datagram to {key}")
            except BlockingIOError:
                pass
        for name in FILES:
            path = self._outside / name
            if not path.is_file() or path.read_text() != name or path.stat().st_nlink > 1:
                found.append(f"{name} was changed")
        expected = {*FILES, DATABASE, "empty"}
        if extra := {path.name for path in self._outside.iterdir()} - expected:
            found.append(f"there is {extra}")
        if not (self._outside / "empty").is_dir():
            found.append("a folder is gone")
        return found


async def ask(route: Route, tool: str, **arguments: Any) -> Any:
    """The value of one tool of the villain."""
    request = Request(tool, "call", {"arguments": arguments}, timeout_s=CALL_S)
    return (await route.call(request))["value"]


async def assault(level: str, grants: Mapping[str, Any]) -> dict[str, Any]:
    """All attacks, one after the other, each on fresh targets."""
    with ExitStack() as stack:
        bait = Bait(stack)
        async with ProcessHost(timings=TIMINGS) as host:
            attacker = host.add(villain("villain", level, grants))
            sibling = host.add(villain("sibling", level, grants))
            await attacker.start()
            await sibling.start()
            names = (await ask(attacker, "names"))["attacks"]
            outcomes = {}
            for name in names:
                place = {"sibling": sibling.status().pid, **_homes(host, attacker, sibling)}
                target = bait.target() | place
                try:
                    outcome = await ask(attacker, "attack", name=name, target=target)
                except WireError as error:
                    raise AssertionError(f"the attack {name} had no answer") from error
                damage = bait.damage()
                outcomes[name] = outcome | ({"damage": damage} if damage else {})
            isolation = dict(attacker.status().isolation)
            alive = attacker.status().generation == sibling.status().generation == 1
        return {"outcomes": outcomes, "isolation": isolation, "alive": alive}


def _homes(host: ProcessHost, attacker: Route, sibling: Route) -> dict[str, str]:
    root = host._folders.root
    return {
        "home": str(root / str(attacker.status().instance)),
        "sibling_home": str(root / str(sibling.status().instance)),
        "staged": str(root / "staged"),
    }


async def labour(jobs: list[str], level: str, grants: Mapping[str, Any]) -> dict[str, Any]:
    """Honest jobs with these grants, to which a readable and a writable folder are added."""
    with ExitStack() as stack:
        top = Path(tempfile.mkdtemp(prefix="purra-arena-"))
        stack.callback(shutil.rmtree, top, ignore_errors=True)
        server = await asyncio.start_server(_greet, "127.0.0.1", 0)
        other = await asyncio.start_server(_greet, "127.0.0.1", 0)
        ports = [end.sockets[0].getsockname()[1] for end in (server, other)]
        results = {}
        async with server, other, ProcessHost(timings=TIMINGS) as host:
            for number, job in enumerate(jobs):
                readable, writable = top / f"r{number}", top / f"w{number}"
                readable.mkdir()
                writable.mkdir()
                (readable / "note").write_text("granted")
                filled = json.loads(json.dumps(grants).replace("PORT", str(ports[0])))
                given = {"fs.read": [str(readable)], "fs.write": [str(writable)], **filled}
                route = host.add(villain(f"honest{number}", level, given))
                await route.start()
                target = {"readable": str(readable), "writable": str(writable)}
                target |= {"port": ports[0], "other": ports[1], **_homes(host, route, route)}
                try:
                    results[job] = {"gives": await ask(route, "work", name=job, target=target)}
                except WireError as error:
                    tail = error.detail.get("stderr", "")
                    results[job] = {"fails": error.message, "tail": tail, "detail": error.detail}
                results[job]["isolation"] = dict(route.status().isolation)
                await route.stop()
        return results


async def _greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"welcome")
    writer.close()


def main() -> None:
    """One order, one answer."""
    order = json.load(sys.stdin)
    work = assault if order["do"] == "assault" else labour
    json.dump(asyncio.run(work(*order["with"])), sys.stdout)


if __name__ == "__main__":
    main()
