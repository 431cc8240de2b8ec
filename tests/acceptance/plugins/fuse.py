"""A fuse: it kills the kernel's process at a named point, once.

The fuse is a file that holds the name of a point. The plugin that passes this point removes the
file and kills its parent. So a test chooses the moment exactly, without a hook in the product.
"""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["burn"]


def burn(fuse: str, point: str, *, go_on: bool) -> None:
    """Kills the parent if the file `fuse` names `point`.

    Without `go_on` nothing that comes after this call will happen in this process.
    """
    try:
        with open(fuse) as file:
            if file.read() != point:
                return
    except FileNotFoundError:
        return
    os.unlink(fuse)
    os.kill(os.getppid(), signal.SIGKILL)
    if not go_on:
        threading.Event().wait()
