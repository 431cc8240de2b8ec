"""`fs.write`: one file, whole or not at all (VFS-02, VFS-03).

`create` and `overwrite` write a new file beside the target and give it the target's name in one
step, so a reader and a crash see the old content or the new. `create` does it with a hard link,
which fails if the name is taken, however recently. `append` is one write at the end: others may
append too, and a crash may leave a part of it, which the effect state then says.

A crash can leave the file beside the target: a hidden `.<16 hex digits>.purra-tmp`, safe to delete.

Rejected: opening the target itself (a crash leaves half a file); a check that the name is free and
then a rename (another writer's file, made in between, would be lost).
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, NamedTuple

from purra_plugin_files.faults import FsError, fs_error
from purra_plugin_files.places import Root, demand_regular, parts_of

__all__ = ["MAX_WRITE_BYTES", "MODES", "Write", "write_file"]

MAX_WRITE_BYTES = 1024 * 1024
MODES = ("create", "overwrite", "append")
_PROTECTED = frozenset({".git", ".hg", ".svn"})
"""Version control runs what stands in these folders (hooks), so no model writes there."""
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)
_NEW_FILE_MODE = 0o666
"""Before the umask."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""What file systems without hard links say."""


class Write(NamedTuple):
    """What `fs.write` is asked. `parents` makes missing folders."""

    path: str
    content: str
    mode: str = "create"
    parents: bool = False


def write_file(root: Root, write: Write) -> dict[str, Any]:
    """Writes and flushes to the disk. Returns path, bytes written, and whether the file is new.

    Raises `FsError`: denied, not_found (a folder of the path), conflict (`create` of what exists,
    a folder), too_large, invalid_argument, storage. Its effect state is `unknown` only when
    something may have reached the file.
    """
    parts = parts_of(write.path)
    path = "/".join(parts)
    data = write.content.encode()
    _demand_writable(parts, path, len(data))
    with root.folder(parts[:-1], make=write.parents) as parent:
        existing = _existing(parent, parts[-1], path)
        if write.mode == "append":
            _append(parent, parts[-1], path, data)
        elif write.mode == "create" and existing is not None:
            raise FsError("conflict", f"{path}: it exists already; mode 'overwrite' replaces it")
        else:
            target = _Target(parent, parts[-1], path, write.mode == "overwrite")
            _put(target, data, existing)
    return {"path": path, "bytes": len(data), "created": existing is None}


def _demand_writable(parts: tuple[str, ...], path: str, size_bytes: int) -> None:
    if not parts:
        raise FsError("conflict", ".: it is a folder")
    if not _PROTECTED.isdisjoint(part.casefold() for part in parts):
        raise FsError("denied", f"{path}: the files of version control are not written")
    if any(not char.isprintable() for char in parts[-1]):
        raise FsError("invalid_argument", "a file name with control characters")
    if size_bytes > MAX_WRITE_BYTES:
        raise FsError("too_large", f"{path}: at most {MAX_WRITE_BYTES} bytes are written at once")


def _existing(parent: int, name: str, path: str) -> os.stat_result | None:
    """The status of the target, which must be a regular file if it is anything."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise fs_error(error, path) from None
    demand_regular(status, path)
    return status


class _Target(NamedTuple):
    """Where a new file goes: folder, name, path for messages, whether the name may be taken."""

    parent: int
    name: str
    path: str
    replace: bool


def _put(target: _Target, data: bytes, existing: os.stat_result | None) -> None:
    """Puts a new file under the name. A name that is a link by now is replaced, not followed."""
    beside = f".{os.urandom(8).hex()}.purra-tmp"
    named = False
    try:
        _write_new(target.parent, beside, data, existing)
        named = _give_name(target, beside)
        os.fsync(target.parent)
    except OSError as error:
        # once the name is given, only whether it outlives a power cut is in doubt
        raise fs_error(
            error, target.path, effect_state="unknown" if named else "not_started"
        ) from None
    finally:
        _remove(target.parent, beside)


def _write_new(parent: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    """A new file with `data`, on the disk, with the permissions of the file it will replace."""
    fd = os.open(name, _NEW_FLAGS, _NEW_FILE_MODE, dir_fd=parent)
    try:
        if like is not None:
            os.fchmod(fd, stat.S_IMODE(like.st_mode) & 0o777)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _give_name(target: _Target, beside: str) -> bool:
    """Gives the file `beside` its name in one step. Always True; raises OSError."""
    parent, name = target.parent, target.name
    if not target.replace:
        try:
            os.link(beside, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # without hard links the name is taken first, empty, by an open that fails if it exists
            os.close(os.open(name, _NEW_FLAGS, _NEW_FILE_MODE, dir_fd=parent))
        else:
            return True
    os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
    return True


def _remove(parent: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except OSError:
        pass  # it was renamed, or never made


def _append(parent: int, name: str, path: str, data: bytes) -> None:
    """Adds `data` at the end in one write."""
    try:
        fd = os.open(name, _APPEND_FLAGS, _NEW_FILE_MODE, dir_fd=parent)
    except OSError as error:
        raise fs_error(error, path) from None
    try:
        demand_regular(os.fstat(fd), path)
        written = os.write(fd, data)
        if written < len(data):
            raise FsError("storage", f"{path}: only a part was written", effect_state="unknown")
        os.fsync(fd)
        os.fsync(parent)
    except OSError as error:
        raise fs_error(error, path, effect_state="unknown") from None
    finally:
        os.close(fd)
