"""Paths under the root, and the one way to open something there (VFS-02).

Rules of this file:

1. A path is text of the model: relative, parts split at `/`. Absolute paths, `..` and NUL are
   denied by their look, before anything is opened. `.` and empty parts mean nothing.
2. Every part is opened relative to the descriptor of the folder before it, never to a name, and
   never through a symbolic link. There is no check of a name followed by a use of that name, so
   nothing can be swapped in between: what was opened is what is looked at (`fstat`) and used.
3. Only regular files and folders are opened. A pipe or a device would block or act.

A symbolic link below the root is never followed, wherever it points; only the root itself may be
named through links, since the operator named it. Rejected: following links that stay inside. It
takes a second resolver in user space, with `..`, link counts and a stack of descriptors; and a
model reaches the same files under their own names, which is also what quotes should show.
Rejected: `realpath` and a prefix check, the usual way: it is a check before a use, and a prefix
takes `/data-old` for a part of `/data`. Rejected: openat2(RESOLVE_BENEATH), which the standard
library cannot call.

Not defended against: hard links (they are the file), and someone who may rename folders of the
tree out of the root while a call holds them open.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from purra_plugin_files.faults import FsError, fs_error

__all__ = ["MAX_PATH_CHARS", "Root", "demand_regular", "open_regular", "parts_of"]

MAX_PATH_CHARS = 4096
"""Longest path taken; PATH_MAX of Linux."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The names in `path`; empty for the root itself.

    Raises `FsError`: denied for a path that leaves the root by its look, invalid_argument for one
    that is too long.
    """
    if len(path) > MAX_PATH_CHARS:
        raise FsError("invalid_argument", f"a path may have {MAX_PATH_CHARS} characters")
    if "\0" in path:
        raise FsError("denied", "a path with a NUL character")
    if path.startswith("/"):
        raise FsError("denied", f"{path}: paths are relative to the root; absolute ones are denied")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise FsError("denied", f"{path}: '..' is denied")
    return parts


class Root:
    """The open root folder. Close it with `close`, or use it as a context manager."""

    def __init__(self, path: str) -> None:
        """Opens the folder `path`, through links if need be. Raises OSError."""
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the root's descriptor."""
        os.close(self._fd)

    @contextmanager
    def folder(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A descriptor of the folder `parts`, closed at the end; `make` creates what is missing.

        Raises `FsError`: not_found, denied.
        """
        fd = os.dup(self._fd)
        try:
            for depth, part in enumerate(parts, 1):
                inner = self._step(fd, part, "/".join(parts[:depth]), make)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)

    def _step(self, fd: int, part: str, path: str, make: bool) -> int:
        try:
            return os.open(part, _FOLDER_FLAGS, dir_fd=fd)
        except FileNotFoundError as error:
            if not make:
                raise fs_error(error, path) from None
        except NotADirectoryError as error:
            _deny_link(fd, part, path)
            raise fs_error(error, path) from None
        except OSError as error:
            raise fs_error(error, path) from None
        try:
            os.mkdir(part, dir_fd=fd)
            os.fsync(fd)
        except FileExistsError:
            pass  # somebody else made it just now; what it is, the open says
        except OSError as error:
            raise fs_error(error, path) from None
        return self._step(fd, part, path, make=False)

    def is_folder(self, parts: tuple[str, ...]) -> bool:
        """Whether `parts` is a folder now. Good for choosing what to open, and for nothing else.

        Raises `FsError`: not_found, denied.
        """
        if not parts:
            return True
        path = "/".join(parts)
        with self.folder(parts[:-1]) as parent:
            try:
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            except OSError as error:
                raise fs_error(error, path) from None
        if stat.S_ISDIR(status.st_mode):
            return True
        demand_regular(status, path)
        return False

    @contextmanager
    def file(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A descriptor of the regular file `parts` for reading, closed at the end.

        Raises `FsError`: not_found, denied, conflict (a folder).
        """
        path = "/".join(parts)
        if not parts:
            raise FsError("conflict", ".: it is a folder")
        with self.folder(parts[:-1]) as parent:
            fd = open_regular(parent, parts[-1], path)
        try:
            yield fd
        finally:
            os.close(fd)


def open_regular(parent: int, name: str, path: str) -> int:
    """Opens the regular file `name` of the folder `parent` for reading; `path` is for messages.

    The look at the name keeps pipes and devices from being opened at all; the look at what was
    opened is the one that counts. Raises `FsError`.
    """
    try:
        demand_regular(os.stat(name, dir_fd=parent, follow_symlinks=False), path)
        fd = os.open(name, _FILE_FLAGS, dir_fd=parent)
    except OSError as error:
        raise fs_error(error, path) from None
    try:
        demand_regular(os.fstat(fd), path)
    except FsError:
        os.close(fd)
        raise
    return fd


def demand_regular(status: os.stat_result, path: str) -> None:
    """Raises `FsError` unless `status` is that of a regular file: conflict for a folder, denied."""
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise FsError("conflict", f"{path}: it is a folder")
    if stat.S_ISLNK(status.st_mode):
        raise FsError("denied", f"{path}: a symbolic link; links are not followed")
    raise FsError("denied", f"{path}: not a regular file")


def _deny_link(parent: int, name: str, path: str) -> None:
    """A link where a folder is needed is denied, not missing. Only the message depends on it."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise FsError("denied", f"{path}: a symbolic link; links are not followed")
