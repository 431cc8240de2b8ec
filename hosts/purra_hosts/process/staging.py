"""The folders of a host: what workers may import of ours, and a private home for each worker.

A worker imports the SDK, the wire and msgpack from a copy that belongs to this host, never from a
site-packages: so a plugin's environment needs nothing of ours, an isolated environment may hold
another version of us, and an upgrade under a running host does not mix two versions in one
conversation. Copied rather than linked for the same reason, and so that later one folder is the
whole read grant. Only the three packages are there: nothing of the kernel is importable.

A host that is killed cannot remove its folder. So a folder is locked while its host lives (`flock`
ends with the process, however it ends), and each host first removes what nobody holds any more.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import py_compile
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from purra_hosts.process.strays import killing

__all__ = ["Folders", "in_steps", "remove_abandoned", "removing"]

STAGED: Final = ("purra_sdk", "purra_bridge/wire", "msgpack")
HOSTS: Final = Path(__file__).resolve().parent.parent
BOOTED: Final = ("bootstrap.py", "isolation/jail.py")
"""The host's files that run in a worker. Run as source they are compiled at each start: 3 ms."""
STEP: Final = 64
"""Entries removed between two breaths of the event loop."""
PREFIX: Final = "purra-host-"
FRESH_PREFIX: Final = "purra-fresh-"
"""Of a folder that is not locked yet: another host must not take it for an abandoned one."""
LOCK: Final = "lock"


class Folders:
    """A private folder (0700) with `boot/`, `staged/` and one home per worker; made when first
    needed.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._staged: Path | None = None
        self._boot: Path | None = None
        self._lock = -1

    @property
    def root(self) -> Path:
        """Made on first use. Raises `OSError`."""
        if self._root is None:
            remove_abandoned()
            fresh = Path(tempfile.mkdtemp(prefix=FRESH_PREFIX))
            self._lock = os.open(fresh / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            root = fresh.with_name(PREFIX + fresh.name.removeprefix(FRESH_PREFIX))
            self._root = fresh.rename(root)
        return self._root

    @property
    def staged_path(self) -> Path:
        """Where `staged` is, or will be: a command needs none of it, so nothing is copied for it.

        Raises `OSError`.
        """
        return self.root / "staged"

    def staged(self) -> Path:
        """The folder to put first on a worker's path; filled on first use. Raises `OSError`."""
        if self._staged is None:
            target = self.staged_path
            for package in STAGED:
                _copy(_source(package), target / package)
            # purra_bridge is only the folder around the wire: its ports stay with the host.
            shutil.copy2(_source("purra_bridge") / "__init__.py", target / "purra_bridge")
            _compile(target)
            self._staged = target
        return self._staged

    def boot(self) -> Path:
        """The bootstrap, compiled for our own interpreter, with the jail beside it as it looks for
        it; made on first use. Raises `OSError`.
        """
        target = self.root / "boot"
        if self._boot is None:
            target.mkdir(mode=0o700)
            for name in BOOTED:
                compiled = (target / name).with_suffix(".pyc")
                compiled.parent.mkdir(exist_ok=True)
                source = str(HOSTS / name)
                py_compile.compile(source, str(compiled), source, doraise=True)
            self._boot = (target / BOOTED[0]).with_suffix(".pyc")
        return self._boot

    def home(self, name: str) -> Path:
        """A new private working directory with a `tmp/` inside. Raises `OSError`."""
        folder = self.root / name
        folder.mkdir(mode=0o700)
        (folder / "tmp").mkdir(mode=0o700)
        return folder

    def removing(self) -> Iterator[None]:
        """Removes everything, in steps; what was made after the last step is removed too."""
        root, self._root, self._staged, self._boot = self._root, None, None, None
        if root is not None:
            yield from removing(root)
            os.close(self._lock)


def remove_abandoned() -> None:
    """Removes the folders of hosts of this user that are gone, and ends what was left in them."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its host lives
        else:
            for _ in (*killing(folder), *removing(folder)):
                pass
        finally:
            os.close(lock)


async def in_steps(steps: Iterator[None]) -> None:
    """Takes the steps of `removing` and the like, and lets others have their turn between two."""
    for _ in steps:
        await asyncio.sleep(0)


def removing(folder: Path) -> Iterator[None]:
    """Removes a tree in small steps, each ended by a `yield`, so that a worker that left a million
    files does not stop the event loop. Never follows a link. What cannot be removed is left.
    """
    _open_up(folder)
    for count, (directory, folders, _files) in enumerate(os.walk(folder, topdown=True)):
        # A worker may have taken its own rights away; entering needs them back.
        for name in folders:
            _open_up(Path(directory, name))
        if count % STEP == STEP - 1:
            yield
    removed = 0
    for directory, folders, files in os.walk(folder, topdown=False):
        for name in (*files, *folders):
            _remove(Path(directory, name))
            removed += 1
            if removed % STEP == 0:
                yield
    _remove(folder)
    yield


def _open_up(path: Path) -> None:
    try:
        if not stat.S_ISLNK(path.lstat().st_mode):
            path.chmod(0o700)
    except OSError:
        pass


def _remove(path: Path) -> None:
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            path.rmdir()
        else:
            path.unlink()
    except OSError:
        pass


def _source(package: str) -> Path:
    name, _, below = package.partition("/")
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not installed as files")
    return Path(next(iter(spec.submodule_search_locations)), below)


def _copy(source: Path, target: Path) -> None:
    """With what is compiled already: times are kept, so it stays valid. What another process is
    compiling this very moment (`*.pyc.NUMBER`) may be gone before it is copied, so it is left out.
    """
    passed_over = shutil.ignore_patterns("*.pyi", "*.c", "*.pyx", "*.pyc.*")
    shutil.copytree(source, target, ignore=passed_over)


def _compile(folder: Path) -> None:
    """What nobody has compiled yet, for our own interpreter; another version compiles its own on
    first import. Without it every start would compile msgpack again: 33 ms, not 11.
    """
    for module in folder.rglob("*.py"):
        if not Path(importlib.util.cache_from_source(str(module))).exists():
            py_compile.compile(str(module), doraise=True)
