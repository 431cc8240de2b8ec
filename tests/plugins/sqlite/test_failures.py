"""The medium fails: a typed error, nothing half written, what was there before is still there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import purra_plugin_sqlite
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from tests.plugins.sqlite import children


def _in_process(script: str, path: Path) -> list[str]:
    package = Path(purra_plugin_sqlite.__file__).parent.parent
    lines = [
        "import resource, signal, sys",
        f"sys.path[:0] = [{str(package)!r}, {str(Path(__file__).parent)!r}]",
        "import children",
        "from purra_plugin_sqlite.engine import Engine",
        "from purra_plugin_sqlite.errors import EngineError",
        f"engine = Engine({str(path)!r})",
        script,
    ]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def test_no_more_room(tmp_path: Path) -> None:
    """STO-024, K62: writes fail from some size on (RLIMIT_FSIZE); each is refused or whole, and
    reading goes on.
    """
    path = tmp_path / "store.db"
    said = _in_process(
        """
children.commit(engine, ("run", "first"), children.append("run", 0, "first"), durable=True)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
wrote = 1
for number in range(100):
    try:
        op = children.append("run", -1, "x" * 20_000)
        children.commit(engine, ("run", f"{number}"), op, durable=True)
        wrote += 1
    except EngineError as error:
        print(error.code, error.detail["errno"], wrote)
        break
assert engine.read("run", 0, 1)["records"] == ["first"]
assert engine.read("run", 0, 1)["head"] == wrote
try:
    print(engine.blob_put([b"x" * 1_000_000]))
except EngineError as error:
    print(error.code)
""",
        path,
    )
    code, number, wrote, blob = said
    assert (code, blob) == ("storage", "storage")
    assert int(number) in (5, 27, 28)
    engine = Engine(str(path))
    assert engine.read("run", 0, 1)["head"] == int(wrote)
    children.commit(engine, ("run", "again"), children.append("run", int(wrote), "room again"))
    engine.close()


def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    """STO-024: reads go on, commits say so."""
    engine = Engine(str(tmp_path / "store.db"))
    children.commit(engine, ("run", "k"), children.append("run", 0, "kept"))
    engine._writer.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(EngineError) as refused:
        children.commit(engine, ("run", "l"), children.append("run", 1, "x"))
    assert refused.value.code == "storage"
    assert refused.value.detail == {"errno": 30, "sqlite": "SQLITE_READONLY"}
    assert engine.read("run", 0, 10)["records"] == ["kept"]
    engine.close()


def test_a_damaged_page(tmp_path: Path) -> None:
    """STO-024: what lies on it is a typed error; the process and the rest of the file go on."""
    path = tmp_path / "store.db"
    engine = Engine(str(path))
    for number in range(300):
        op = children.append("run", number, {"n": number, "text": "x" * 300})
        children.commit(engine, ("run", f"{number}"), op)
    children.commit(engine, None, children.put("doc", "kept", 0))
    page_bytes, damaged = 4096, 20  # the first tables are made, the log has the most pages
    engine.close()
    content = bytearray(path.read_bytes())
    assert len(content) > 2 * damaged * page_bytes
    start = damaged * page_bytes
    content[start : start + page_bytes] = b"\xff" * page_bytes
    path.write_bytes(content)
    engine = Engine(str(path))
    with pytest.raises(EngineError) as refused:
        for after in range(0, 300, 50):
            engine.read("run", after, 50)
    assert refused.value.code == "storage"
    assert refused.value.detail["errno"] == 74
    assert engine.get(["doc"])["documents"][0]["value"] == "kept"
    assert engine.read("run", 0, 5)["head"] == 300
    engine.close()


def test_a_closed_engine(tmp_path: Path) -> None:
    """An orderly end: closing twice is fine, calls after it are typed errors."""
    engine = Engine(str(tmp_path / "store.db"))
    engine.close()
    engine.close()
    with pytest.raises(EngineError) as refused:
        engine.read("run", 0, 1)
    assert refused.value.code == "storage"
    outcomes = engine.commit_together([{"ops": [children.put("d", 1, 0)], "key": None}] * 2)
    assert [getattr(outcome, "code", None) for outcome in outcomes] == ["storage"] * 2


def test_a_blob_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K62: a permanent, coded refusal before anything is written."""
    monkeypatch.setattr("purra_plugin_sqlite.blobs.BLOB_BYTES", 1000)
    engine = Engine(str(tmp_path / "store.db"))
    with pytest.raises(EngineError) as refused:
        engine.blob_put([b"x" * 600, b"x" * 600])
    assert refused.value.code == "invalid_argument"
    assert engine.blob_put([b"x" * 1000])["digest"].startswith("sha256:")
    engine.close()
