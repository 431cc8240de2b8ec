"""The engine without a process: what a host's channel does, done by calls in this process.

The port above it is the real one, and values pass the real codec, so that what differs from a
hosted store is the host alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from purra.contracts.store import Store
from purra_bridge.ports.channel import Request
from purra_bridge.ports.store import HostedStore
from purra_bridge.wire.codec import decode, encode
from purra_bridge.wire.errors import WireError
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.conformance.store_subject import Subject

__all__ = ["EngineChannel", "FakeClock", "open_subject"]

START_MS = 1_700_000_000_000


class FakeClock:
    """A store clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms

    async def pass_time(self, ms: int) -> None:
        self.now_ms += ms


class EngineChannel:
    """A `Channel` onto one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def call(self, request: Request, on_item: Callable[[Any], None] | None = None) -> Any:
        args = _through_the_codec(request.args)
        engine = self.engine
        methods: dict[str, Callable[[], Any]] = {
            "commit": lambda: engine.commit(args),
            "read": lambda: engine.read(args["stream"], args["after"], args["limit"]),
            "get": lambda: engine.get(args["keys"]),
            "scan": lambda: engine.scan(args),
            "now": engine.now,
        }
        try:
            return _through_the_codec(methods[request.method]())
        except EngineError as error:
            raise _wire_error(error) from error

    def stream(self, request: Request) -> _Watched | _Pieces:
        if request.method == "watch":
            return _Watched(self.engine, request.args["prefix"])
        args = request.args
        return _Pieces(lambda: self.engine.blob_get(args["digest"], args["offset"], args["length"]))

    async def upload(self, request: Request, chunks: AsyncIterable[bytes]) -> Any:
        got: list[bytes] = []
        failure: Exception | None = None
        try:
            async for chunk in chunks:
                got.append(chunk)
        except Exception as error:  # the uploader's, whatever it is: raised where it would arrive
            failure = error

        def arriving() -> Iterator[bytes]:
            yield from got
            if failure is not None:
                raise failure

        return self.engine.blob_put(arriving())


class _Watched:
    """Names from any thread, as the items of a stream."""

    result: Any = None

    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine = engine
        self._prefix = prefix
        self._loop = asyncio.get_running_loop()
        self._names: asyncio.Queue[str] = asyncio.Queue()
        self._started = False
        self.closed = False

    def offer(self, item: str) -> bool:
        self._loop.call_soon_threadsafe(self._names.put_nowait, item)
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if not self._started:
            self._started = True
            self._engine.watch(self._prefix, self)
        return await self._names.get()

    async def aclose(self) -> None:
        self.closed = True


class _Pieces:
    """A blob's pieces as the items of a stream."""

    result: Any = None

    def __init__(self, start: Callable[[], Iterator[bytes]]) -> None:
        self._start = start
        self._pieces: Iterator[bytes] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            if self._pieces is None:
                self._pieces = self._start()
            return next(self._pieces)
        except StopIteration:
            raise StopAsyncIteration from None
        except EngineError as error:
            raise _wire_error(error) from error

    async def aclose(self) -> None:
        self._pieces = iter(())


@asynccontextmanager
async def open_subject(path: Path, ns: str = "test") -> AsyncGenerator[Subject, None]:
    """A subject of the store suite on a new file."""
    clock = FakeClock()
    engines: list[Engine] = []

    def open_engine() -> HostedStore:
        engine = Engine(str(path), clock_ms=clock, patience_s=5.0)
        engines.append(engine)
        return HostedStore(EngineChannel(engine), "journal")

    async def peer() -> Store:
        return open_engine()

    async def reopen() -> Store:
        for engine in engines:
            engine.close()
        return open_engine()

    try:
        yield Subject(open_engine(), ns, 15_000, clock.pass_time, peer, reopen)
    finally:
        for engine in engines:
            engine.close()


def _through_the_codec(value: Any) -> Any:
    try:
        return decode(encode(value))
    except ValueError as refused:
        raise WireError("contract_violation", str(refused)) from None


def _wire_error(error: EngineError) -> WireError:
    if error.code == "invalid_argument":
        return WireError("invalid_argument", error.message)
    detail = {"store": {**error.detail, "code": error.code}}
    return WireError("failed_precondition", error.message, detail=detail)
