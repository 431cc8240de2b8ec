"""Folders: staged imports, private homes, and their removal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from purra_bridge.ports.channel import Request
from purra_hosts.process.staging import STEP, Folders, removing
from tests.hosts.process.rig import hosting, puppet, running


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folders:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Folders()


def test_exactly_three_packages_are_staged(folders: Folders) -> None:
    """Tables, worker paths: the SDK, the wire, msgpack; nothing of the kernel or the hosts."""
    staged = folders.staged()
    assert sorted(path.name for path in staged.iterdir()) == [
        "msgpack",
        "purra_bridge",
        "purra_sdk",
    ]
    assert sorted(
        p.name for p in (staged / "purra_bridge").glob("*") if p.name != "__pycache__"
    ) == [
        "__init__.py",
        "wire",
    ]
    assert folders.staged() is staged
    assert folders.root.stat().st_mode & 0o777 == 0o700


def test_the_staged_copy_is_compiled_and_importable_alone(folders: Folders) -> None:
    """A bare interpreter finds msgpack there; no second start compiles again."""
    staged = folders.staged()
    assert list(staged.glob("msgpack/__pycache__/fallback.*.pyc"))
    code = f"import sys; sys.path[:0] = [{str(staged)!r}]; import msgpack; print(msgpack.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(staged / "msgpack" / "__init__.py")


def test_nothing_is_copied_for_a_command(tmp_path: Path) -> None:
    """It imports nothing of ours, so the first start of a host does not wait for the copy."""

    async def main() -> None:
        async with hosting() as watched:
            code = "start()\nsession.result(called().id, os.listdir('..'))\nflush()\nevents()"
            route = watched.host.add(puppet(tmp_path, code))
            made = await route.call(Request("t", "call", {}))
            assert "lock" in made and "staged" not in made

    running(main)


def test_what_another_process_is_compiling_is_not_copied(
    folders: Folders, request: pytest.FixtureRequest
) -> None:
    """Its temporary file may vanish between the listing and the copy: that is no failed start."""
    import purra_sdk

    cache = Path(str(purra_sdk.__file__)).parent / "__pycache__"
    cache.mkdir(exist_ok=True)
    passing = cache / "worker.cpython-311.pyc.140623250881344"
    request.addfinalizer(lambda: passing.unlink(missing_ok=True))
    passing.symlink_to("renamed already")
    assert not os.path.lexists(folders.staged() / "purra_sdk" / "__pycache__" / passing.name)


def test_homes_are_private_and_everything_is_removed(folders: Folders) -> None:
    """LIM-007: also where a worker took its own rights away, and never through a link."""
    outside = folders.root.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    root = folders.root
    home = folders.home("p-1")
    assert home.stat().st_mode & 0o777 == (home / "tmp").stat().st_mode & 0o777 == 0o700
    (home / "link").symlink_to(outside)
    (home / "locked").mkdir()
    (home / "locked" / "file").write_text("x")
    (home / "locked").chmod(0)
    for _ in folders.removing():
        pass
    assert not root.exists()
    assert (outside / "kept").read_text() == "kept"
    assert list(folders.removing()) == []


def test_the_folder_of_a_killed_host_is_removed_by_the_next(folders: Folders) -> None:
    """Facts: nothing can run in a host that is killed; what lives, is young or is foreign stays."""
    code = (
        "import sys, os, tempfile; tempfile.tempdir = sys.argv[1];"
        "from purra_hosts.process.staging import Folders; folders = Folders();"
        "folders.home('p-1'); print(folders.root, flush=True); os.kill(os.getpid(), 9)"
    )
    parent = folders.root.parent
    killed = subprocess.run(
        [sys.executable, "-c", code, str(parent)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )
    left = Path(killed.stdout.strip())
    assert (left / "p-1").is_dir()
    (parent / "purra-host-unlocked").mkdir()
    (parent / "purra-host-link").symlink_to(parent)
    other = Folders()
    assert other.root.is_dir()
    assert not left.exists() and folders.root.exists()
    assert (parent / "purra-host-unlocked").exists() and (parent / "purra-host-link").exists()
    for some in (folders, other):
        for _ in some.removing():
            pass


def test_removal_goes_in_small_steps(tmp_path: Path) -> None:
    """A worker that left many files does not stop the event loop."""
    many = tmp_path / "many"
    many.mkdir()
    for number in range(5 * STEP):
        (many / str(number)).touch()
    assert len(list(removing(many))) >= 5
    assert not many.exists()
