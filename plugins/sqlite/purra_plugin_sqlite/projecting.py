"""Projectors: functions of the operator's own that write beside the journal, in its transaction.

The plugin's configuration names them (`projectors = { orders = "my_app.projections:orders" }`); a
commit asks for one with the op `project`. A projector is called as `function(tables, payload)` and
writes to tables of its own, in the same file; names that begin with `purra_` are the store's. If it
raises, nothing of the commit is written (RUN-18). It runs while every other writer waits, so it
should do nothing but write.
"""

from __future__ import annotations

import importlib
import sqlite3

from purra_plugin_sqlite.errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Projector = Callable[["Tables", Any], object]

__all__ = ["Projectors", "Tables", "load"]

_ALLOWED = frozenset(("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "CREATE"))


class Tables:
    """What a projector gets: statements, but no say over the transaction they run in."""

    __slots__ = ("_connection", "now_ms")

    def __init__(self, connection: sqlite3.Connection, now_ms: int) -> None:
        self._connection = connection
        self.now_ms = now_ms
        """The time of the commit, by the store's clock."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Runs one statement and gives its rows. Raises ValueError if it would end, or open, a
        transaction, or reach outside the file; sqlite3.Error if it fails.
        """
        word = sql.split(None, 1)[0].upper() if sql.strip() else ""
        if word not in _ALLOWED:
            raise ValueError(f"a projector may not run {word or 'nothing'}")
        return self._connection.execute(sql, tuple(parameters)).fetchall()


class Projectors:
    """Projectors by the names that commits use."""

    def __init__(self, functions: Mapping[str, Projector]) -> None:
        self._functions = dict(functions)

    def run(self, connection: sqlite3.Connection, name: str, payload: Any, now_ms: int) -> None:
        """Raises `EngineError`: not_found for an unknown name, storage if the projector raises."""
        function = self._functions.get(name)
        if function is None:
            raise EngineError("not_found", f"no projector {name!r}", project=name)
        try:
            function(Tables(connection, now_ms), payload)
        except Exception as error:  # whatever the operator's function raises aborts the commit
            raise EngineError(
                "storage",
                f"projector {name!r} failed: {error}",
                project=name,
                type=type(error).__name__,
            ) from error


def load(names: Mapping[str, str]) -> Projectors:
    """Imports each `module:function`. Raises ValueError naming the one that cannot be had."""
    functions: dict[str, Projector] = {}
    for name, address in names.items():
        module, _, attribute = address.partition(":")
        try:
            functions[name] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"projector {name!r}: cannot load {address!r}: {error}") from error
    return Projectors(functions)
