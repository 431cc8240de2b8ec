"""Where puppets play: a plugin's folder, the socket in it, and the kit's end of each process.

    async with Stage(root, tap, patience_s) as stage:
        ...                                # a host is told to run stage.spec()
        puppet = await stage.enter()       # a process of it is there
        await puppet.handshake()
        call = await puppet.called()
        await puppet.write(frames.result(call.id, 1))

`write` returns when the bytes are on the channel, so what a check does next comes after them.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from purra_tck import patience
from purra_tck.drivers.host import PluginSpec
from purra_tck.puppets import frames
from purra_tck.puppets.frames import Frame
from purra_tck.puppets.threaded import entry_of
from purra_tck.verdict import SubjectFailed

__all__ = ["STAGES", "Called", "Puppet", "Stage", "Tap", "ThreadStage", "manifest_text"]

SCRIPT: Final = Path(__file__).with_name("puppet.py")
TAPPED: Final = 400
"""Frames that are kept for a report: the last ones."""
MANIFEST: Final = "purra-plugin.toml"
HEAD_BYTES: Final = 5


class Tap:
    """What went over the wire, in milliseconds since the tap was made."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._kept: deque[tuple[float, int, str, bytes | Frame]] = deque(maxlen=TAPPED)

    def note(self, process: int, sender: str, what: bytes | Frame) -> None:
        """Records a frame of the host, or bytes that a puppet has sent."""
        self._kept.append((time.perf_counter() - self._began_s, process, sender, what))

    def rows(self) -> list[dict[str, Any]]:
        """Decoded, for a report."""
        rows: list[dict[str, Any]] = []
        for at_s, process, sender, what in self._kept:
            head = {"ms": round(at_s * 1000, 2), "process": process, "from": sender}
            if isinstance(what, Frame):
                rows.append(head | what.shown())
                continue
            whole = frames.Reader().feed(what)
            rows += [head | found.shown() for found in whole]
            cut = len(what) - sum(len(found.body) + frames.HEADER_BYTES for found in whole)
            if cut:
                rest = what[len(what) - cut :]
                rows.append(head | {"kind": "bytes", "bytes": cut, "hex": rest[:200].hex()})
        return rows


@dataclass(frozen=True, slots=True)
class Called:
    """A CALL that reached the plugin."""

    id: int
    body: Mapping[str, Any]
    raw: bytes

    @property
    def args(self) -> Any:
        return self.body["args"]


class Puppet:
    """One process of a plugin, as the kit holds it. `facts`: what it found at its start."""

    def __init__(self, number: int, tap: Tap, patience_s: float, spec: PluginSpec) -> None:
        self.number = number
        self.pid = 0
        self.facts: Mapping[str, Any] = {}
        self.lively = True
        """PINGs are answered by themselves; `pings` counts them all the same."""
        self.pings = 0
        self.credits: list[tuple[int, Any]] = []
        """(call, count) of every CREDIT that came."""
        self.received: list[Frame] = []
        """Every frame that came, PING and CREDIT too."""
        self.eof = False
        self.ended = False
        self._spec = spec
        self._tap = tap
        self._patience_s = patience_s
        self._frames: deque[Frame] = deque()
        self.results: deque[Any] = deque()
        """Of commands that were given by `order`, when they came."""
        self._reader = frames.Reader()
        self._sent = 0
        self._written = 0
        self._changed = asyncio.Event()
        self._writer: asyncio.StreamWriter | None = None

    # Bytes.

    async def write(self, *parts: bytes) -> None:
        """Puts bytes on the channel; returns when the process has written them."""
        self.post(*parts)
        due = self._sent
        await self._until(lambda: self._written >= due or self.ended, "the host takes the bytes")

    def post(self, *parts: bytes) -> None:
        """As `write`, without waiting."""
        whole = b"".join(parts)
        self._tap.note(self.number, "plugin", whole)
        self._tell(b"W", whole)
        self._sent += len(whole)

    async def slice(self, whole: bytes, size: int = 1) -> None:
        """Writes in pieces that the host reads one by one."""
        self._tap.note(self.number, "plugin", whole)
        for at in range(0, len(whole), size):
            piece = whole[at : at + size]
            self._tell(b"W", piece)
            self._sent += len(piece)
            due = self._sent
            await self._until(lambda due=due: self._written >= due or self.ended, "a piece taken")

    async def frame(self, *kinds: int, what: str = "") -> Frame:
        """The next frame of the host but PING and CREDIT; it must be one of `kinds`, if given.

        `what`: how a failure calls it.
        """
        due = what or _names(kinds)
        await self._until(lambda: self._frames or self.ended or self.eof, due)
        if not self._frames:
            raise SubjectFailed(due, "the channel has ended")
        found = self._frames.popleft()
        if kinds and found.kind not in kinds:
            raise SubjectFailed(due, f"{found.name} on id {found.call}: {found.shown()}")
        return found

    @property
    def waiting(self) -> tuple[Frame, ...]:
        """Frames that came and were not asked for yet."""
        return tuple(self._frames)

    async def until(self, condition: Any, what: str) -> None:
        """Returns when `condition()` holds; looked at whenever something comes."""
        await self._until(condition, what)

    async def credited(self, call: int, more_than: int = 0) -> int:
        """Waits for CREDIT on `call`; the sum of all that came."""
        await self._until(lambda: self.credit_of(call) > more_than, f"CREDIT on id {call}")
        return self.credit_of(call)

    async def room(self, call: int, spent: int, window: int) -> None:
        """Returns when a producer that has `spent` so many bytes of credit may send more."""
        await self._until(
            lambda: spent < window + self.credit_of(call),
            f"CREDIT on id {call} for more than {spent} bytes",
        )

    def credit_of(self, call: int) -> int:
        """The sum of the CREDIT that came on `call`."""
        return sum(count for credited, count in self.credits if credited == call)

    # Commands.

    async def do(self, name: str, **arguments: Any) -> Any:
        """Has the process do something (`do_...` in `puppet.py`) and gives its result."""
        self._tell(b"C", repr((name, arguments)).encode())
        await self._until(lambda: self.results or self.ended, f"the puppet does {name}")
        if not self.results:
            raise SubjectFailed(f"a process that does {name}", "it was gone")
        return self.results.popleft()

    def order(self, name: str, **arguments: Any) -> None:
        """As `do`, for what gives no result: `exit`, a deadly `signal`, `spin`."""
        self._tell(b"C", repr((name, arguments)).encode())

    async def leave(self, name: str = "exit", **arguments: Any) -> None:
        """Has the process end, and returns when it has."""
        self.order(name, **arguments)
        await self.gone()

    async def gone(self) -> None:
        """Returns when the process has ended."""
        await self._until(lambda: self.ended, "the process ends")

    # The protocol, as a good plugin speaks it.

    def hello(self, **changes: Any) -> bytes:
        """HELLO as the manifest has it, but for `changes`; a field that is None is left out."""
        manifest = (self._spec.folder / MANIFEST).read_bytes()
        body = {
            "proto": [1, 1],
            "plugin": self._spec.id,
            "version": self._spec.version,
            "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
            **changes,
        }
        return frames.frame(
            frames.HELLO, 0, frames.pack({k: v for k, v in body.items() if v is not None})
        )

    def ready(self, *offers: tuple[str, str]) -> bytes:
        """READY with these offers, else with those of the manifest."""
        found = offers or self._spec.offers
        body = {"offers": [{"kind": kind, "name": name} for kind, name in found]}
        return frames.frame(frames.READY, 0, frames.pack(body))

    async def greet(self, **changes: Any) -> Mapping[str, Any]:
        """HELLO, and the body of WELCOME."""
        await self.write(self.hello(**changes))
        return (await self.frame(frames.WELCOME)).value  # type: ignore[no-any-return]

    async def handshake(self, **changes: Any) -> Mapping[str, Any]:
        """HELLO to READY; the body of WELCOME."""
        welcome = await self.greet(**changes)
        await self.write(self.ready())
        return welcome

    async def called(self, skip: tuple[int, ...] = ()) -> Called:
        """The next CALL, joined from its fragments. Frames of the kinds in `skip` are passed by."""
        found = await self.frame(frames.CALL, *skip)
        while found.kind != frames.CALL:
            found = await self.frame(frames.CALL, *skip)
        body = found.body
        while found.flags & frames.MORE:
            found = await self.frame(frames.CALL)
            body += found.body
        whole = replace(found, body=body, flags=0)
        return Called(whole.call, whole.value, whole.body)

    # Inside.

    async def live(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes what the process tells, to its end."""
        self._writer = writer
        try:
            while True:
                head = await reader.readexactly(HEAD_BYTES)
                payload = await reader.readexactly(int.from_bytes(head[:4], "big"))
                self._hear(head[4:], payload)
                self._stir()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.ended = True
            self._stir()
            writer.close()
            self._writer = None

    def let_go(self) -> None:
        """Ends the connection, at which the process ends."""
        if self._writer is not None:
            self._writer.close()

    def _hear(self, letter: bytes, payload: bytes) -> None:
        if letter == b"D":
            for found in self._reader.feed(payload):
                self._take(found)
        elif letter == b"A":
            self._written += int(payload)
        elif letter == b"E":
            self.eof = True
        elif letter == b"R":
            self.results.append(ast.literal_eval(payload.decode()))
        elif letter == b"H":
            self.facts = ast.literal_eval(payload.decode())
            self.pid = self.facts["pid"]

    def _take(self, found: Frame) -> None:
        self._tap.note(self.number, "host", found)
        self.received.append(found)
        if found.kind == frames.PING:
            self.pings += 1
            if self.lively:
                self.post(frames.frame(frames.PONG, 0, found.body))
        elif found.kind == frames.CREDIT:
            self.credits.append((found.call, found.value))
        else:
            self._frames.append(found)

    def _tell(self, letter: bytes, payload: bytes) -> None:
        if self._writer is not None and not self.ended:
            self._writer.write(len(payload).to_bytes(4, "big") + letter + payload)

    def _stir(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, condition: Any, what: str) -> None:
        if condition():
            return
        with patience.limit(self._patience_s):
            while not condition():
                await self._changed.wait()
            return
        raise SubjectFailed(f"{what} within {self._patience_s:g} s", "nothing of the kind")


def _names(kinds: tuple[int, ...]) -> str:
    return " or ".join(frames.NAMES.get(kind, f"type {kind}") for kind in kinds) or "a frame"


class _ThreadPuppet(Puppet):
    """A puppet in a thread: its host has said HELLO for it, and sent itself WELCOME."""

    def hello(self, **changes: Any) -> bytes:
        if changes:
            raise TypeError(f"a plugin in a thread has no say in HELLO: {', '.join(changes)}")
        return b""

    async def greet(self, **changes: Any) -> Mapping[str, Any]:
        self.hello(**changes)
        return self.facts["welcome"]  # type: ignore[no-any-return]


class Stage:
    """The folder of one plugin. Each process that a host starts from it turns up in `enter`."""

    _puppet: type[Puppet] = Puppet

    def __init__(
        self,
        folder: Path,
        tap: Tap,
        patience_s: float,
        adopt: Callable[[int], Any] = lambda _: None,
        **spec: Any,
    ) -> None:
        """`spec`: fields of `PluginSpec`, and `files`: name -> text of more files in the folder.
        `adopt` gets the number of each process, to end it if nobody else does.
        """
        self._adopt = adopt
        self._files: Mapping[str, str] = spec.pop("files", {})
        self.puppets: list[Puppet] = []
        self._tap = tap
        self._patience_s = patience_s
        self._entered = 0
        self._arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self.spec = self._spec_of(folder, spec)

    def _spec_of(self, folder: Path, spec: dict[str, Any]) -> PluginSpec:
        command = spec.pop("command", ("{python}", "-I", "-S", SCRIPT.name))
        if spec.get("entry"):
            command = ()
        return PluginSpec(folder=folder, command=command, **spec)

    async def __aenter__(self) -> Self:
        folder = self.spec.folder
        folder.mkdir(exist_ok=True)
        shutil.copy(SCRIPT, folder)
        for name, text in self._files.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / MANIFEST).write_text(manifest_text(self.spec), encoding="utf-8")
        self._server = await asyncio.start_unix_server(self._come, str(folder / "kit"))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for puppet in self.puppets:
            puppet.let_go()

    async def enter(self) -> Puppet:
        """The next process that was started. Raises `SubjectFailed` if none comes."""
        with patience.limit(self._patience_s):
            while len(self.puppets) <= self._entered:
                await self._arrived.wait()
                self._arrived.clear()
        if len(self.puppets) <= self._entered:
            raise SubjectFailed(
                f"a process of the plugin within {self._patience_s:g} s", "none was started"
            )
        puppet = self.puppets[self._entered]
        self._entered += 1
        await puppet.until(lambda: puppet.pid or puppet.ended, "the process tells who it is")
        self._adopt(puppet.pid)
        return puppet

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        puppet = self._puppet(len(self.puppets) + 1, self._tap, self._patience_s, self.spec)
        self.puppets.append(puppet)
        self._arrived.set()
        await puppet.live(reader, writer)


class ThreadStage(Stage):
    """The same for plugins that run in threads of the kit's own process."""

    _puppet = _ThreadPuppet

    def _spec_of(self, folder: Path, spec: dict[str, Any]) -> PluginSpec:
        spec.setdefault("entry", entry_of(str(folder)))
        return PluginSpec(folder=folder, kind="inproc", **spec)

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        folder = str(self.spec.folder)
        sys.path[:] = [path for path in sys.path if path != folder]
        for name in self._files:
            sys.modules.pop(name.removesuffix(".py"), None)


STAGES: Final[Mapping[str, type[Stage]]] = {"inproc": ThreadStage}
"""Kind of host -> its stage; any other kind runs processes."""


def manifest_text(spec: PluginSpec) -> str:
    """The manifest of a puppet, so that a host that reads it itself can run it."""
    lines = [
        'schema = "purra.plugin/1"',
        f'id = "{spec.id}"',
        f'version = "{spec.version}"',
        'summary = "Says and does what the kit tells it"',
        "",
        "[host]",
        f'kind = "{spec.kind}"',
    ]
    if spec.entry:
        lines.append(f'entry = "{spec.entry}"')
    else:
        lines.append(f"command = [{', '.join(repr(part) for part in spec.command)}]")
    if spec.requires:
        lines += ["", "[requires]"]
        lines += [f'{name} = "{specifier}"' for name, specifier in spec.requires.items()]
    for kind, name in spec.offers:
        lines += ["", "[[provides]]", f'kind = "{kind}"', f'name = "{name}"', 'summary = "t"']
        if kind == "tool":
            lines += ['effect = "pure"', "input = { type = 'object' }"]
    return "\n".join(lines) + "\n"
