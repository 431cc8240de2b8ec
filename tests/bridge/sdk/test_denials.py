"""What was denied and which grant would allow it: from what was tried and what was raised."""

from __future__ import annotations

import errno
import socket
import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest

from purra_sdk.denials import Denials, told

JAILED = {"fs": "enforced: x", "net": "enforced: x", "exec": "enforced: x", "ipc": "enforced: x"}
GRANTS = {"fs.read": ["/in"], "fs.write": ["/out"], "network": "none", "subprocess": False}


def denied(path: str | None = None) -> PermissionError:
    if path is None:
        return PermissionError(errno.EPERM, "Operation not permitted")
    return PermissionError(errno.EACCES, "Permission denied", path)


def explained(
    tried: Sequence[tuple[str, tuple[Any, ...]]], error: BaseException, **grants: Any
) -> dict[str, str] | None:
    watcher = Denials({**GRANTS, **grants}, JAILED)
    for event, arguments in tried:
        watcher.hook(event, arguments)
    return watcher.explain(error)


@pytest.mark.parametrize(
    ("tried", "path", "grant"),
    [
        (("open", ("/x", "r", 0)), "/x", 'fs.read = ["/x"]'),
        (("open", (b"/x", "w", 0o1101)), "/x", 'fs.write = ["/x"]'),
        (("open", ("/in/x", "w", 1)), "/in/x", 'fs.write = ["/in/x"]'),
        (("os.mkdir", ("/x", 0o777, -1)), "/x", 'fs.write = ["/x"]'),
        (("os.listdir", ("/x",)), "/x", 'fs.read = ["/x"]'),
        (("open", ("/other", "w", 1)), "/x", 'fs.read = ["/x"]'),
        (("open", ('/a "b"\\', "r", 0)), '/a "b"\\', 'fs.read = ["/a \\"b\\"\\\\"]'),
        (("open", ("/\udcff", "r", 0)), "/\udcff", 'fs.read = ["/\\udcff"]'),
    ],
)
def test_files(tried: tuple[str, tuple[Any, ...]], path: str, grant: str) -> None:
    """Protocol, isolation: the path, and whether reading or writing has to be granted."""
    found = explained([tried], denied(path))
    assert found is not None and (found["axis"], found["grant"]) == ("fs", grant)
    assert found["what"] == path.encode(errors="backslashreplace").decode()


@pytest.mark.parametrize("path", ["/out", "/out/a/b"])
def test_what_is_granted_was_denied_by_somebody_else(path: str) -> None:
    """A file's mode inside the grants is no matter of the manifest."""
    assert explained([("open", (path, "w", 1))], denied(path)) is None


@pytest.mark.parametrize(
    ("tried", "what", "grant"),
    [
        ([("socket.getaddrinfo", ("a.example", 443, 0, 1, 0))], "a.example:443", None),
        ([("socket.connect", (None, ("10.0.0.1", 80)))], "10.0.0.1:80", None),
        ([("socket.connect", (None, ("::1", 80, 0, 0)))], "[::1]:80", None),
        ([("socket.__new__", (None, 2, 1, 0))], "a socket", 'network = "any"'),
        ([("socket.connect", (None, "/run/docker.sock"))], "/run/docker.sock", ""),
        ([("socket.connect", (None, "\0bus"))], "@bus", ""),
        (
            [
                ("socket.getaddrinfo", ("b.example", 5, 0, 1, 0)),
                ("socket.__new__", (None, 2, 1, 0)),
            ],
            "b.example:5",
            None,
        ),
    ],
)
def test_sockets(tried: list[tuple[str, tuple[Any, ...]]], what: str, grant: str | None) -> None:
    """The address, which the exception lacks; UNIX sockets cannot be granted."""
    expected = f'network = ["{what}"]' if grant is None else grant
    assert explained(tried, denied()) == {"axis": "net", "what": what, "grant": expected}


def test_names_that_cannot_be_looked_up() -> None:
    """Without a network this is what an author sees first, and it is no PermissionError."""
    tried = [("socket.getaddrinfo", ("api.example", 443, 0, 1, 0))]
    error = socket.gaierror(-3, "Temporary failure in name resolution")
    found = explained(tried, error)
    assert found is not None and found["grant"] == 'network = ["api.example:443"]'
    assert explained(tried, error, network="any") is None


@pytest.mark.parametrize(
    "tried",
    [
        ("subprocess.Popen", ("git", ["git"], None, None)),
        ("os.posix_spawn", ("git", ["git"], {})),
        ("os.system", (b"git",)),
        ("os.fork", ()),
    ],
)
def test_programs(tried: tuple[str, tuple[Any, ...]]) -> None:
    """Also where the exception blames the file."""
    for error in (denied(), denied("git")):
        found = explained([tried], error)
        assert found is not None and (found["axis"], found["grant"]) == (
            "exec",
            "subprocess = true",
        )
    assert explained([tried], denied(), subprocess=True) is None


def test_signals() -> None:
    """There is no grant for them."""
    found = explained([("os.kill", (1, 9))], denied())
    assert found == {"axis": "ipc", "what": "a signal to process 1", "grant": ""}


def test_a_database_says_only_that_it_cannot_be_opened() -> None:
    """SQLite's error has neither errno nor path."""
    error = sqlite3.OperationalError("unable to open database file")
    found = explained([("sqlite3.connect", ("/x/a.db",))], error)
    assert found is not None and found["grant"] == 'fs.write = ["/x/a.db"]'


def test_causes_are_searched() -> None:
    """A client library wraps it: the denial is four exceptions down (measured with one)."""
    error: BaseException = denied("/x")
    for number in range(4):
        wrapped = ConnectionError(str(number))
        wrapped.__context__ = error
        error = wrapped
    assert explained([], error) is not None
    ring = ValueError("ring")
    ring.__context__ = ring
    assert explained([], ring) is None


def test_other_errors_are_left_alone() -> None:
    """No denial, no word."""
    tried = [("socket.connect", (None, ("10.0.0.1", 80)))]
    assert explained(tried, ConnectionRefusedError(errno.ECONNREFUSED, "refused")) is None
    assert explained(tried, FileNotFoundError(errno.ENOENT, "missing", "/x")) is None
    assert explained(tried, ValueError("x")) is None
    assert explained([], denied()) is None


def test_an_axis_that_is_not_jailed_denied_nothing() -> None:
    """Then it was the system."""
    assert Denials(GRANTS, {**JAILED, "fs": "none"}).explain(denied("/x")) is None


def test_the_hook_never_raises() -> None:
    """Whatever an event carries: an exception from a hook would fail what is being tried."""
    watcher = Denials(GRANTS, JAILED)
    for event in ("open", "socket.connect", "socket.getaddrinfo", "os.kill", "subprocess.Popen"):
        for arguments in ((), (None,), (3, None, None), (None, ())):
            watcher.hook(event, arguments)


def test_the_line_for_the_log() -> None:
    """What an operator can copy into the host manifest."""
    found = {"axis": "fs", "what": "/x", "grant": 'fs.read = ["/x"]'}
    assert told("files@0.1.0", found) == (
        "denied by isolation (fs): /x; this would grant it:"
        ' [plugins.files] grants = { fs.read = ["/x"] }'
    )
    assert told("files@0.1.0", {**found, "grant": ""}).endswith("; no grant allows it")
