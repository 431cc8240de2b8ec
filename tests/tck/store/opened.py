"""Stores as an author of one would hand them to the kit: functions of a folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from purra.contracts.store import Store
from purra.stores.memory import MemoryStore
from purra_bridge.ports.store import HostedStore
from purra_plugin_sqlite.engine import Engine
from tests.plugins.sqlite.engine_channel import EngineChannel


@asynccontextmanager
async def on_file(folder: str) -> AsyncGenerator[Store, None]:
    """The engine of the SQLite plugin, in the process that calls this."""
    engine = Engine(str(Path(folder) / "store.db"))
    try:
        yield HostedStore(EngineChannel(engine), "journal")
    finally:
        engine.close()


def in_memory(folder: str) -> Store:
    """A store that forgets: what it acknowledged dies with its process."""
    return MemoryStore()


def not_at_all(folder: str) -> Store:
    """Raises."""
    raise OSError("no disk")
