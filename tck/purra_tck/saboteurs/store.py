"""Stores that are broken in one way each, and the two that must pass.

Those that only one process can notice are the executable specification with a hook changed; those
that matter when a process dies or others look on are the SQLite plugin with a hook changed, hosted
and run like any other plugin.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from purra.contracts.store import Store
from purra_hosts.launch import Launch
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs import store_memory as local
from purra_tck.subjects.store import (
    Born,
    MemoryStorage,
    Opening,
    StoreSubject,
    alone,
    memory,
    subject_of,
)
from purra_tck.subjects.store_plugin import PluginStorage, find_store

__all__ = ["REFERENCES", "SABOTEURS"]

SLOW_S: Final = 0.1
SLOW_TIMEOUT_S: Final = 240.0
NEGATIVES: Final = ("STO-003", "STO-009", "STO-011", "STO-014", "STO-015", "STO-016")
"""Rules that demand refusals with a reason."""


def _same(launch: Launch) -> Launch:
    return launch


def _broken(name: str, launch: Launch) -> Launch:
    """The launch of the good store, with a broken plugin behind its manifest."""
    import purra_tck

    kit = str(Path(purra_tck.__file__).parent.parent)
    return replace(
        launch,
        entry=f"purra_tck.saboteurs.store_sqlite:broken_{name}",
        sys_path=(*(path for path in launch.sys_path if path != kit), kit),
    )


@asynccontextmanager
async def _sqlite(
    change: Callable[[Launch], Launch] = _same, slow_s: float = 0.0
) -> AsyncGenerator[StoreSubject, None]:
    with TemporaryDirectory(prefix="purra-tck-") as folder:
        found = find_store("sqlite", {})
        storage = PluginStorage(found, Path(folder), change)
        async with subject_of(_Slow(storage, slow_s) if slow_s else storage) as subject:
            yield subject


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A store that answers a while later. Watching is waiting anyway."""

    store: Store
    slow_s: float

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)

        async def later(*args: Any) -> Any:
            await anyio.sleep(self.slow_s)
            return await real(*args)

        return real if name == "watch" else later


class _Slow:
    """A storage all of whose openings are slow."""

    def __init__(self, storage: PluginStorage, slow_s: float) -> None:
        self._storage = storage
        self._slow_s = slow_s
        self.processes = storage.processes
        self.folder = storage.folder

    @asynccontextmanager
    async def open(self, born: Born | None = None) -> AsyncGenerator[Opening, None]:
        async with self._storage.open(born) as opening:
            store: Any = _Delayed(opening.store, self._slow_s)
            yield replace(opening, store=store)

    def advance(self, ms: int) -> bool:
        return self._storage.advance(ms)

    def apart(self) -> _Slow:
        return _Slow(self._storage.apart(), self._slow_s)


Made = Callable[[], AbstractAsyncContextManager[StoreSubject]]


def _in_memory(make: Callable[[Callable[[], int]], Store]) -> Made:
    return alone(lambda: MemoryStorage(make))


def _plugin(name: str) -> Made:
    return partial(_sqlite, partial(_broken, name))


def _python(name: str) -> str:
    known = {"commit-order≠seq-order": "commit_order_is_not_seq_order"}
    return known.get(name, name.replace("-", "_").replace("IOError", "io_error"))


def _hosted(name: str, rule: str, message: str) -> Saboteur:
    return Saboteur(name, (rule,), message, _plugin(_python(name)))


def _universal(name: str, **how: Any) -> Saboteur:
    return Saboteur(name, ("STO-*",), "", _plugin(_python(name)), **how)


REFERENCES: Final[dict[str, Made]] = {"memory": alone(memory), "sqlite": _sqlite}

_LOCAL: Final = (
    ("prefix-commit", "STO-003", "nothing changed", local.PrefixCommit),
    ("burns-sequence", "STO-004", "burns no number", local.BurnsSequence),
    ("ignores-cursor", "STO-005", "records after 1", local.IgnoresCursor),
    ("offset-cursor", "STO-007", "records and head after", local.OffsetCursor),
    ("unlocked-keys", "STO-008", "racers with one key", local.UnlockedKeys),
    ("first-wins-silent", "STO-009", "a known key with", local.FirstWinsSilent),
    ("global-keys", "STO-010", "conflict", local.GlobalKeys),
    ("never-expires", "STO-013", "takeover after TTL", local.NeverExpires),
    ("touch-bumps-revision", "STO-013", "revision", local.TouchBumpsRevision),
    ("anyone-releases", "STO-014", "a release at term 2 of 1", local.AnyoneReleases),
    ("late-append-ok", "STO-016", "a late append", local.LateAppendOk),
    ("recovers-live-run", "STO-018", "what has lapsed", local.RecoversLiveRun),
    ("full-scan", "STO-018", "independent of what has not", local.FullScan),
    (
        "notify-before-commit",
        "STO-020",
        "before it could be read",
        local.NotifyBeforeCommit,
    ),
    ("json-float-keys", "STO-022", "'float'", local.JsonFloatKeys),
    ("fixed-ids", "STO-025", "outside its name space", local.FixedIds),
    ("truncates-blob", "STO-026", "65537 bytes back", local.TruncatesBlob),
)
"""Name, rule, part of the message, the broken store."""

SABOTEURS: Final = (
    *(Saboteur(name, (rule,), told, _in_memory(make)) for name, rule, told, make in _LOCAL),
    _hosted("events-then-status", "STO-001", "before or after, nothing between"),
    _hosted("ack-before-fsync-buffer", "STO-002", "SIGKILL of the writer"),
    _hosted("commit-order≠seq-order", "STO-006", "visible before an earlier one"),
    _hosted("key-check-outside-tx", "STO-008", "racers with one key"),
    _hosted("read-modify-write", "STO-011", "winners among"),
    _hosted("per-process-lock", "STO-012", "a claim by another process"),
    _hosted("fence-on-claim-only", "STO-015", "under term 1 of 2"),
    _hosted("in-memory-flag", "STO-017", "a cancel by another process"),
    _hosted("clears-claim", "STO-019", "the claim at opening 1"),
    _hosted("tells-own-process-only", "STO-020", "a wake-up"),
    _hosted("lost-update", "STO-021", "given twice"),
    _hosted("never-syncs", "STO-027", "written and not flushed"),
    _hosted("migrates-in-place", "STO-023", "a newer format is refused"),
    _hosted("swallows-IOError", "STO-024", "a full disk"),
    _hosted("one-flush-each", "STO-028", "share their flushes"),
    Saboteur(
        "right-verdict-wrong-reason", NEGATIVES, "storage", _plugin("right_verdict_wrong_reason")
    ),
    _universal("null"),
    _universal("refuse-all"),
    _universal("echo-expected"),
    _universal("crash-at-start"),
    Saboteur(
        "flaky-10%",
        ("STO-*",),
        "",
        _in_memory(local.flaky()),
        dies="any",
        verdicts=("flaky",),
        twice=True,
    ),
    Saboteur(
        "slow-100ms",
        ("STO-*",),
        "",
        partial(_sqlite, slow_s=SLOW_S),
        dies="never",
        timeout_s=SLOW_TIMEOUT_S,
    ),
)
