"""What the jail denied, in the words of the manifest: for the author, who sees "Permission denied".

A denial looks like any other error of the system: EACCES or EPERM, often four exceptions down, and
for sockets without an address. So an audit hook keeps what was last tried, and what a handler
raised is searched for a denial that a grant would have prevented. Advisory in every way: code in C
passes by audit hooks, two threads overwrite each other's last try, and an error that an
ungenerous file mode caused inside the grants is not explained here. Loaded in jailed workers only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Denials", "told"]

EPERM, EACCES = 1, 13
CHAIN = 16
"""Exceptions looked at, from the one that was raised to its causes."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

FILES = {
    "open": 0,
    "os.listdir": 0,
    "os.scandir": 0,
    "os.mkdir": WRITING,
    "os.rmdir": WRITING,
    "os.remove": WRITING,
    "os.rename": WRITING,
    "os.link": WRITING,
    "os.symlink": WRITING,
    "os.truncate": WRITING,
    "sqlite3.connect": WRITING,
}
"""Audit event about a path -> whether it changes something; of `open` its flags say."""
ADDRESSES = {
    "socket.connect": 1,
    "socket.bind": 1,
    "socket.sendto": 1,
    "socket.sendmsg": 1,
    "socket.getaddrinfo": 0,
    "socket.gethostbyname": 0,
}
"""Audit event about an address -> which argument it is; a host and a port follow one another."""
CODE = (".py", ".pyc", ".so")
"""Read by imports, and by the traceback of the very error that is to be explained."""
PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}
SIGNALS = {"os.kill", "os.killpg"}


class Denials:
    """`hook` is for `sys.addaudithook`; `explain` says what grant an exception asks for.

    `grants`: WELCOME's. `isolation`: what was achieved, per axis.
    """

    def __init__(self, grants: dict[str, Any], isolation: dict[str, str]) -> None:
        self._grants = grants
        self._jailed = {axis for axis, how in isolation.items() if not how.startswith("none")}
        self._last: tuple[str, str, bool] = ("", "", False)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Notes what is tried: axis, what, and whether it changes something. Raises nothing."""
        try:
            if event in FILES:
                flags = arguments[2] if event == "open" else FILES[event]
                path, writing = os.fsdecode(arguments[0]), bool((flags or 0) & WRITING)
                if writing or not path.endswith(CODE):
                    self._last = ("fs", path, writing)
            elif event in ADDRESSES:
                at = ADDRESSES[event]
                address = arguments[at] if at else arguments[:2]
                self._last = ("net", _address(address), False)
            elif event == "socket.__new__":
                if self._last[0] != "net":
                    self._last = ("net", "", False)
            elif event in PROGRAMS:
                what = arguments[0] if arguments else "a process"
                self._last = ("exec", str(what), False)
            elif event in SIGNALS:
                self._last = ("ipc", f"a signal to process {arguments[0]}", False)
        except Exception:  # an exception from here would fail what is only being noted
            pass

    def explain(self, error: BaseException) -> dict[str, str] | None:
        """`axis`, `what` was denied, and the `grant` that would allow it ("" if none can). None: no
        denial was found.
        """
        for cause in _chain(error):
            found = self._denial(cause)
            if found is not None and found["axis"] in self._jailed:
                return found
        return None

    def _denial(self, error: BaseException) -> dict[str, str] | None:
        kind = type(error).__name__
        axis, what, _ = self._last
        if isinstance(error, OSError) and error.errno in (EPERM, EACCES):
            if axis == "exec" and not self._grants.get("subprocess"):
                return _found("exec", what, "subprocess = true")
            if type(error.filename) in (str, bytes):
                return self._file(os.fsdecode(error.filename))
            if axis == "net":
                return self._network(what)
            if axis == "ipc":
                return _found("ipc", what, "")
        elif kind == "gaierror" and self._grants.get("network", "none") != "any":
            return self._network(what if axis == "net" else "")
        elif kind == "OperationalError" and axis == "fs" and "unable to open" in str(error):
            return self._file(what)
        return None

    def _file(self, path: str) -> dict[str, str] | None:
        path = os.path.abspath(path)
        axis, tried, writing = self._last
        writing = writing and axis == "fs" and os.path.abspath(tried) == path
        changing = [*self._grants.get("fs.write", ()), os.environ.get("HOME", path)]
        if _inside(path, changing):
            return None  # its own: the file's mode denied it
        if not writing and _inside(path, self._grants.get("fs.read", ())):
            writing = True  # reading is granted, so it was something else
        kind = "fs.write" if writing else "fs.read"
        return _found("fs", path, f"{kind} = [{_quoted(path)}]")

    def _network(self, what: str) -> dict[str, str]:
        if self._grants.get("network") == "any" or what.startswith(("/", "@")):
            return _found("net", what or "a socket", "")
        if ":" in what:
            return _found("net", what, f"network = [{_quoted(what)}]")
        return _found("net", what or "a socket", 'network = "any"')


def told(plugin: str, denied: dict[str, str]) -> str:
    """The line for the log."""
    line = f"denied by isolation ({denied['axis']}): {denied['what']}"
    if not denied["grant"]:
        return f"{line}; no grant allows it"
    plain = plugin.partition("@")[0]
    return f"{line}; this would grant it: [plugins.{plain}] grants = {{ {denied['grant']} }}"


def _found(axis: str, what: str, grant: str) -> dict[str, str]:
    return {"axis": axis, "what": _text(what), "grant": _text(grant)}


def _chain(error: BaseException | None) -> Iterable[BaseException]:
    for _ in range(CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__


def _address(address: Any) -> str:
    """`host:port`, a path, or `@name` of an abstract socket."""
    if type(address) in (str, bytes):
        name = os.fsdecode(address)
        return f"@{name[1:]}" if name.startswith("\0") else name
    host, port = address[0], address[1] if len(address) > 1 else None
    if type(host) is bytes:
        host = host.decode(errors="backslashreplace")
    if host and ":" in host:
        host = f"[{host}]"
    return f"{host or 'localhost'}:{port}" if port is not None else f"{host}"


def _inside(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(text: str) -> str:
    """Without lone surrogates, which no strict value has."""
    return text.encode(errors="backslashreplace").decode()
