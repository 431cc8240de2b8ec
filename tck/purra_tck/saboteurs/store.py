"""Stores that are broken in one way each, and the two that must pass."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from purra_tck.saboteurs import Saboteur
from purra_tck.subjects.store import StoreSubject, alone, memory, subject_of
from purra_tck.subjects.store_plugin import PluginStorage, find_store

__all__ = ["REFERENCES", "SABOTEURS"]


@asynccontextmanager
async def _sqlite() -> AsyncGenerator[StoreSubject, None]:
    with TemporaryDirectory(prefix="purra-tck-") as folder:
        storage = PluginStorage(find_store("sqlite", {}), Path(folder))
        async with subject_of(storage) as subject:
            yield subject


REFERENCES: dict[str, Any] = {"memory": alone(memory), "sqlite": _sqlite}
SABOTEURS: tuple[Saboteur, ...] = ()
