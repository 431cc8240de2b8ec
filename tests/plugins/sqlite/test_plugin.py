"""The plugin on the SDK: what the adapter adds to the engine."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import purra_plugin_sqlite
from purra.contracts.store import ANY, Append, Commit, Project, Put
from purra.errors import PurraError
from purra.manifest.plugin import load_plugin
from purra_bridge.wire.errors import WireError
from purra_plugin_sqlite.plugin import plugin
from purra_sdk.testing import PluginLink, connect
from tests.plugins.sqlite import children, hosting


@pytest.fixture
def link(tmp_path: Path) -> Iterator[PluginLink]:
    with connect(plugin, config={"path": str(tmp_path / "store.db")}) as connected:
        yield connected


def _commit(*ops: Any, key: str = "", **more: Any) -> dict[str, Any]:
    return {
        "ops": list(ops),
        "key": ["run", key] if key else None,
        "require": {},
        "durable": False,
        **more,
    }


def test_the_manifest_is_what_the_code_offers() -> None:
    """MAN-001, HSK-005: one store, found without importing anything."""
    manifest = load_plugin(Path(purra_plugin_sqlite.__file__).parent / "purra-plugin.toml")
    offers = [{"kind": offer.kind, "name": offer.name} for offer in manifest.offers]
    assert offers == plugin.offers() == [{"kind": "store", "name": "journal"}]
    assert manifest.runs.entry == "purra_plugin_sqlite.plugin:plugin"
    assert manifest.limits.inflight == 1024
    assert manifest.capabilities.fs_write == ("{config.path}",)


def test_refusals_keep_their_detail(link: PluginLink) -> None:
    """Contract, error details: as the port reads them."""
    link.call("journal", "commit", _commit(children.put("doc", 1, 0)))
    with pytest.raises(WireError) as refused:
        link.call("journal", "commit", _commit(children.put("doc", 1, 0)))
    assert (refused.value.code, refused.value.origin) == ("failed_precondition", "plugin")
    assert refused.value.detail["store"] == {"code": "conflict", "key": "doc", "revision": 1}
    for method, args in {
        "commit": {"ops": 7},
        "read": {"stream": "run", "after": -1, "limit": 1},
        "get": {"keys": "doc"},
        "scan": {"prefix": 1},
        "watch": {},
        "blob_get": {"digest": "sha256:", "offset": 0, "length": 0},
    }.items():
        with pytest.raises(WireError) as refused:
            link.call("journal", method, args)
        assert (refused.value.code, refused.value.executed) == ("invalid_argument", "no"), method


def test_trouble_with_the_medium_is_logged(link: PluginLink) -> None:
    """STO-024: the wire carries an errno, the log what SQLite said."""
    with pytest.raises(WireError) as refused:
        link.call("journal", "commit", _commit({"op": "project", "name": "no", "payload": 1}))
    assert refused.value.detail["store"] == {"code": "not_found", "project": "no"}
    assert link.logs == []
    holder = sqlite3.connect(_path(link), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        _journal(link)._engine._writer._patience_s = 0.05
        with pytest.raises(WireError) as refused:
            link.call("journal", "commit", _commit(children.put("doc", 1, 0)))
    finally:
        holder.close()
    store = refused.value.detail["store"]
    assert store == {"code": "storage", "errno": 16, "sqlite": "SQLITE_BUSY"}
    (line,) = link.logs
    assert (line["level"], line["fields"]["errno"]) == ("error", 16)
    assert "locked" in line["msg"]


def _journal(link: PluginLink) -> Any:
    return link._worker._handlers["journal", "now"].function.__self__  # type: ignore[attr-defined]


def _path(link: PluginLink) -> str:
    return str(_journal(link)._engine._path)


def test_waiting_commits_are_taken_together(link: PluginLink) -> None:
    """STO-028: what arrives while a commit is under way shares the next transaction."""
    engine = _journal(link)._engine
    real, entered, go = engine.commit_together, threading.Event(), threading.Event()
    sizes: list[int] = []

    def slow(batch: Any) -> Any:
        sizes.append(len(batch))
        entered.set()
        assert go.wait(10)
        return real(batch)

    engine.commit_together = slow
    before = engine.transactions
    first = link.stream("journal", "commit", _commit(children.append("run", -1, 0), key="0"))
    assert entered.wait(10)
    others = [
        link.stream("journal", "commit", _commit(children.append("run", -1, n), key=f"{n}"))
        for n in range(1, 60)
    ]
    go.set()
    for items in (first, *others):
        assert list(items) == []
        assert items.result["heads"]["run"] >= 1
    assert sum(sizes) == 60
    assert engine.transactions - before == len(sizes) <= 5
    assert link.call("journal", "read", {"stream": "run", "after": 0, "limit": 100})["head"] == 60


def test_an_upload_keeps_nobody_waiting(link: PluginLink) -> None:
    """PRT, store: a slow upload holds neither the handler nor the file."""
    heads: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(3):
            yield b"x" * 1000
            args = _commit(children.append("run", -1, number), key=f"{number}")
            heads.append(link.call("journal", "commit", args)["heads"]["run"])

    digest = link.upload("journal", "blob_put", chunks())["digest"]
    assert heads == [1, 2, 3]
    args = {"digest": digest, "offset": 0, "length": 10_000}
    items = link.stream("journal", "blob_get", args, window=1 << 20)
    assert b"".join(items) == b"x" * 3000


def test_a_cancelled_watch_is_forgotten(link: PluginLink) -> None:
    """CAN, watch: its thread ends with it."""
    items = link.stream("journal", "watch", {"prefix": "run"})
    assert next(items) == ""
    link.call("journal", "commit", _commit(children.append("run", -1, 1), key="k"))
    assert next(items) == "run"
    (thread,) = [each for each in threading.enumerate() if each.name == "purra-sqlite-watch"]
    items.cancel()
    with pytest.raises(WireError) as ended:
        list(items)
    assert ended.value.code == "cancelled"
    thread.join(5)
    assert not thread.is_alive()


def test_a_file_that_is_not_ours_fails_the_start(tmp_path: Path) -> None:
    """SVC-08: the plugin does not come up, and says why."""
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database, but a letter" * 200)

    async def main() -> None:
        with pytest.raises(WireError) as refused:
            async with hosting.start(path):
                pass
        assert "file is not a database" in str(refused.value)

    anyio.run(main)
    assert path.read_bytes() == b"not a database, but a letter" * 200


def test_projectors_in_the_plugin(tmp_path: Path) -> None:
    """RUN-18: named in the configuration, loaded by the plugin's process, not by the kernel's."""

    async def main() -> None:
        address = "projector_for_tests:counted"
        async with hosting.open_store(tmp_path / "s.db", projectors={"count": address}) as store:
            ops = (Append("run", ANY, (1,)), Project("count", 2), Project("count", 3))
            await store.commit(Commit(ops, key=("run", "k")))
            with pytest.raises(PurraError):
                bad = (Project("count", 100), Put("doc", 1, 9))
                await store.commit(Commit(bad))
            (document,) = await store.get(["nothing"])
            assert document is None

    anyio.run(main)
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("SELECT sum(n) FROM counted").fetchone() == (5,)
    connection.close()


def test_a_worker_that_is_asked_to_stop_leaves_one_file(tmp_path: Path) -> None:
    """Operating: after an orderly end the file is whole by itself, ready to be copied."""

    async def main() -> None:
        async with hosting.open_store(tmp_path / "s.db") as store:
            await store.commit(Commit((Put("doc", "kept", 0),)))

    anyio.run(main)
    assert [file.name for file in tmp_path.iterdir()] == ["s.db"]
