"""The one error of this package: an ordinary failure that the model may read (VFS-01)."""

from __future__ import annotations

import errno

__all__ = ["FsError", "fs_error"]

_CODES = {
    errno.ENOENT: ("not_found", "no such file or folder"),
    errno.ENOTDIR: ("not_found", "a part of the path is not a folder"),
    errno.EACCES: ("denied", "the system does not permit it"),
    errno.EPERM: ("denied", "the system does not permit it"),
    errno.EROFS: ("denied", "the file system is read-only"),
    errno.ELOOP: ("denied", "a part of the path is a symbolic link; links are not followed"),
    errno.EEXIST: ("conflict", "it exists already"),
    errno.EISDIR: ("conflict", "it is a folder"),
    errno.ENAMETOOLONG: ("invalid_argument", "a name in the path is too long"),
    errno.ENOSPC: ("storage", "no space is left"),
    errno.EDQUOT: ("storage", "no space is left"),
}


class FsError(Exception):
    """A tool could not do what was asked.

    `code`: not_found, denied, too_large, conflict, invalid_argument, storage. `effect_state`:
    not_started unless something of a write may have reached the disk (unknown).
    """

    def __init__(self, code: str, message: str, *, effect_state: str = "not_started") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.effect_state = effect_state


def fs_error(error: OSError, path: str, *, effect_state: str = "not_started") -> FsError:
    """The fault that stands for a failed system call on `path` (as the model wrote it)."""
    code, what = _CODES.get(error.errno or 0, ("storage", error.strerror or "input/output error"))
    return FsError(code, f"{path or '.'}: {what}", effect_state=effect_state)
