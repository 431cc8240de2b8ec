"""A puppet that is a plugin in a thread of the host's process: it has the channel to itself.

The host starts it as it starts any plugin in a thread: it makes HELLO, takes WELCOME, imports. From
then on this plugin does not let the SDK serve: it hands every byte on, as `puppet.py` does in a
process, and READY is the kit's to say. It ends by closing its side; nothing else can end a thread.

The entry names the folder of its stage, so that nothing has to be put on any import path.
"""

# mypy: ignore-errors

from __future__ import annotations

import itertools
import os
import socket
from typing import Any

from purra_sdk import Plugin
from purra_tck.puppets.puppet import Puppet

__all__ = ["NO_PROCESS", "entry_of"]

PREFIX = "at_"
NO_PROCESS = 1 << 30
"""Numbers from here on are no process: the kernel gives none as high."""
_NUMBERS = itertools.count(NO_PROCESS)


def entry_of(folder: str) -> str:
    """The entry that plays in `folder`."""
    return f"{__name__}:{PREFIX}{folder.encode().hex()}"


def __getattr__(name: str) -> Any:
    if not name.startswith(PREFIX):
        raise AttributeError(name)
    return _Threaded(bytes.fromhex(name.removeprefix(PREFIX)).decode())


class _GoneError(EOFError):
    """The puppet leaves: what a thread of the host's takes for the end of its channel."""


class _Threaded(Plugin):
    """Set up as any plugin; what it offers is the first thing that a worker wants to send, and from
    there on the puppet has the channel.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(setup=self._keep)
        self._folder = folder

    def _keep(self, setup: Any) -> None:
        self._setup = setup

    def offers(self) -> Any:
        """Never gives any: it plays to the end of the channel, then raises `EOFError`."""
        link = self._setup._ledger.link
        try:
            _Puppet(link.descriptor, self._folder, self._setup).run()
        finally:
            link.open = False
            link.arm()  # its second thread ends too


class _Puppet(Puppet):
    """What only a process can do is not there."""

    def __init__(self, channel: int, folder: str, setup: Any) -> None:
        self._setup = setup
        super().__init__(channel, folder)

    def facts(self) -> dict[str, Any]:
        setup = self._setup
        welcome = {
            "config": setup.config,
            "grants": setup.grants,
            "secrets": setup.secrets,
            "generation": setup.generation,
        }
        return {"pid": next(_NUMBERS), "cwd": "", "welcome": welcome, "host": os.getpid()}

    def leave(self, status: int) -> None:
        self.do_close()
        self.kit.close()
        raise _GoneError

    def do_close(self) -> None:
        if self.channel >= 0:
            self.do_shut(socket.SHUT_RDWR)
            self.channel = -1  # the descriptor is the host's, which closes it

    def do_signal(self, number: int) -> None:
        """There is nobody to signal but the kit itself."""
        self.leave(1)

    def do_ignore(self, number: int) -> None:
        """No signal comes to a thread."""

    def do_haunt(self, mark: str, late: bytes) -> int:
        raise NotImplementedError("a thread starts no process")

    do_fork = do_haunt
