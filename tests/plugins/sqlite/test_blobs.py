"""Blobs in the file: kept once, in rows of one size, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from purra_plugin_sqlite.blobs import CHUNK_BYTES, SPOOL_BYTES
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite import children


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def _rows(engine: Engine, table: str) -> int:
    found = engine._reader.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(found[0])


def test_equal_results_are_kept_once(engine: Engine) -> None:
    """K37: 50 results of 1 MB, of which 5 differ: 5 blobs, and a journal of digests."""
    for number in range(50):
        content = bytes([number % 5]) * 1_000_000
        digest = engine.blob_put([content[:300_000], content[300_000:]])["digest"]
        op = children.append("run", number, {"result": digest})
        children.commit(engine, ("run", f"{number}"), op)
    assert _rows(engine, "purra_blobs") == 5
    assert _rows(engine, "purra_blob_chunks") == 5 * (1_000_000 // CHUNK_BYTES + 1)
    (pages,) = engine._reader.connection.execute("PRAGMA page_count").fetchone()
    assert pages * 4096 < 6_000_000


def test_who_was_faster_has_stored_it(engine: Engine, tmp_path: Path) -> None:
    """STO-026: two processes put the same bytes at once; one of them finds it done."""
    other = Engine(str(tmp_path / "store.db"))

    def chunks() -> Iterator[bytes]:
        yield b"a" * 100_000
        assert other.blob_put([b"a" * 100_000 + b"b"])["digest"].startswith("sha256:")
        yield b"b"

    digest = engine.blob_put(chunks())["digest"]
    assert b"".join(other.blob_get(digest, 99_999, 10)) == b"ab"
    assert _rows(engine, "purra_blobs") == 1
    other.close()


def test_an_upload_holds_no_lock(engine: Engine, tmp_path: Path) -> None:
    """SVC-03: others commit while it goes on, also when it has outgrown the memory it may use."""
    other = Engine(str(tmp_path / "store.db"), patience_s=0)

    def chunks() -> Iterator[bytes]:
        for number in range(12):
            children.commit(other, ("run", f"{number}"), children.append("run", number, number))
            yield bytes([number]) * (SPOOL_BYTES // 8)

    digest = engine.blob_put(chunks())["digest"]
    assert other.read("run", 0, 1)["head"] == 12
    whole = b"".join(engine.blob_get(digest, 0, 10**9))
    assert len(whole) == 12 * (SPOOL_BYTES // 8)
    assert whole[-1] == 11
    other.close()


def test_a_missing_piece_is_an_error_not_a_short_blob(engine: Engine) -> None:
    """STO-024, STO-026: damage is told, never papered over."""
    digest = engine.blob_put([b"x" * (3 * CHUNK_BYTES)])["digest"]
    engine._writer.connection.execute("DELETE FROM purra_blob_chunks WHERE id % 16 = 1")
    with pytest.raises(EngineError) as refused:
        b"".join(engine.blob_get(digest, 0, 10**9))
    assert (refused.value.code, refused.value.detail) == ("storage", {"errno": 5})
