"""What the provider is to answer, and how its answer is delivered.

A scenario is said in the words of the contract; the author's `render` turns it into the provider's
own bytes. So the kit knows no vendor, and the author never learns what is expected.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from purra_tck.verdict import NotApplicable, Untestable

__all__ = ["Delivery", "Rendered", "Renderer", "Scenario", "answer", "failure"]

RENDER_S: Final = 20.0
LINE_BYTES: Final = 16 * 1024 * 1024
RENDERER: Final = """
import importlib, json, sys
out = sys.stdout
sys.stdout = sys.stderr
sys.path.insert(0, sys.argv[1])
module, _, name = sys.argv[2].partition(":")
render = getattr(importlib.import_module(module), name)
for line in sys.stdin:
    out.write(json.dumps(render(json.loads(line))) + "\\n")
    out.flush()
"""
"""A program: folder and `module:function` as arguments, a scenario per line."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`items`: what the model says, as items of the contract. `status`: of HTTP; else than 200 an
    error with `message`, and `retry_after_s` if the provider says when to come back.
    """

    items: tuple[Mapping[str, Any], ...] = ()
    status: int = 200
    message: str = ""
    retry_after_s: int | None = None

    def value(self) -> dict[str, Any]:
        """What `render` is given."""
        if self.status == 200:
            return {"kind": "answer", "items": [dict(item) for item in self.items]}
        return {
            "kind": "error",
            "status": self.status,
            "message": self.message,
            "retry_after_s": self.retry_after_s,
        }


def answer(*items: Mapping[str, Any], finish: str = "stop", native: str = "") -> Scenario:
    """A scenario that ends with a finish."""
    end = {"t": "finish", "reason": finish, "native": native or finish}
    return Scenario((*items, end))


def failure(status: int, message: str, retry_after_s: int | None = None) -> Scenario:
    """A scenario of an error."""
    return Scenario((), status, message, retry_after_s)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the bytes come. `slices`: so many bytes at a time, 0 = chunk by chunk. `stop_after`: of
    the chunks, then `then`: `stall` (nothing more comes), `reset`, `eof` (the connection ends in
    good order, the answer does not), `garbage`; -1 = all of it. `wait_s`: before anything is said.
    """

    slices: int = 0
    stop_after: int = -1
    then: Literal["stall", "reset", "eof", "garbage"] = "stall"
    before_head: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rendered:
    """The provider's bytes."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()


class Renderer:
    """The author's `render`, in a process of its own. Use it as an async context manager."""

    def __init__(self, function: str, folder: Path) -> None:
        self._function = function
        self._folder = folder
        self._process: Process | None = None
        self._lines: BufferedByteReceiveStream | None = None
        self._turn = anyio.Lock()

    async def __aenter__(self) -> Renderer:
        argv = [sys.executable, "-c", RENDERER, str(self._folder), self._function]
        self._process = await anyio.open_process(argv, cwd=str(self._folder), stderr=None)
        if self._process.stdout is not None:
            self._lines = BufferedByteReceiveStream(self._process.stdout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            with anyio.CancelScope(shield=True):
                self._process.kill()
                await self._process.aclose()

    async def render(self, scenario: Scenario) -> Rendered:
        """The bytes for a scenario. Raises `Untestable` if the fixture does not work, and
        `NotApplicable` if it answers `{"unsupported": reason}`.
        """
        process, lines = self._process, self._lines
        if process is None or process.stdin is None or lines is None:
            raise Untestable(f"the fixture {self._function} does not run")
        async with self._turn:
            try:
                with anyio.fail_after(RENDER_S):
                    await process.stdin.send(json.dumps(scenario.value()).encode() + b"\n")
                    told = json.loads(await lines.receive_until(b"\n", LINE_BYTES))
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                raise Untestable(f"the fixture {self._function} ended: {error!r}") from None
            except (TimeoutError, ValueError) as error:
                raise Untestable(f"the fixture {self._function} failed: {error!r}") from None
        if isinstance(told, dict) and told.get("unsupported"):
            raise NotApplicable(f"the provider cannot say that: {told['unsupported']}")
        return _rendered(told, self._function)


def _rendered(told: Any, function: str) -> Rendered:
    shaped = isinstance(told, dict) and isinstance(told.get("chunks"), list)
    if not shaped or not isinstance(told.get("status"), int):
        raise Untestable(
            f"the fixture {function} gives no answer",
            '{"status": 200, "headers": {…}, "chunks": ["text", {"base64": "…"}]}',
        )
    return Rendered(told["status"], dict(told.get("headers") or {}), _chunks(told["chunks"]))


def _chunks(told: Sequence[Any]) -> tuple[bytes, ...]:
    return tuple(
        base64.b64decode(chunk["base64"]) if isinstance(chunk, dict) else str(chunk).encode()
        for chunk in told
    )
