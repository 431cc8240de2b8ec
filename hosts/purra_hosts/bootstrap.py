"""The first file that runs in a Python worker. It belongs to the host, not to the plugin.

The host runs it by path with `-I -S`: no site-packages, no `.pth` line, no PYTHON* variable, so no
foreign code can run before this file has restricted the process. In this order:

1. The channel's descriptor is closed to later programs, before anything else can start one.
2. HELLO goes out: who this is, and the digest of the manifest as it lies on the disk.
3. WELCOME comes in. That is the gate: until then the host sets limits from outside.
4. The process is tied to its parent, then restricted as WELCOME's policy says (`isolation/jail.py`
   beside this file). Where an axis that the host demands is not achieved, it is told
   `isolation_unavailable` and nothing is imported.
5. Only now the import path is set, the SDK's worker imported, and by it the plugin.

This file imports nothing of ours and has its own few lines of msgpack, so that no plugin and no
staged file can replace its own jailer.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["AXES", "main"]

PROTO = [1, 1]
"""Oldest and newest wire version spoken."""
HELLO, WELCOME, ERROR = 1, 2, 20
HEADER_BYTES = 10
FRAME_BYTES_MAX = 1024 * 1024
INFLIGHT_MAX = 1024
"""Calls that the SDK takes at once; how many it gets is for the host to say."""
"""The longest WELCOME taken: the agreed cap's default (protocol, frame)."""
HASH_STEP_BYTES = 64 * 1024
AXES = ("fs", "net", "exec", "ipc", "memory", "cpu", "tree", "env")
"""What isolation is reported by."""
EXIT_START_FAILED = 1


class StartError(Exception):
    """The start cannot go on. `code` goes to the host in an ERROR on id 0."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# The subset of msgpack that HELLO, WELCOME and ERROR need.


def encode(value: Any) -> bytes:
    """None, bool, int64, text, list or map of text, in the shortest form for small values."""
    if value is None:
        return b"\xc0"
    if value is True or value is False:
        return b"\xc3" if value else b"\xc2"
    if type(value) is int:
        return bytes((value,)) if 0 <= value < 128 else _int(value)
    if type(value) is str:
        data = value.encode()
        return _length(data, 0xA0, 32, (0xD9, 0xDA, 0xDB)) + data
    if type(value) is list:
        return _length(value, 0x90, 16, (None, 0xDC, 0xDD)) + b"".join(map(encode, value))
    parts = [_length(value, 0x80, 16, (None, 0xDE, 0xDF))]
    for key, item in value.items():
        parts += (encode(key), encode(item))
    return b"".join(parts)


_INTEGERS = (
    # least, below, layout, first byte (0 = the value is its own)
    (-(1 << 5), 0, ">b", 0),
    (0, 1 << 8, ">BB", 0xCC),
    (0, 1 << 16, ">BH", 0xCD),
    (0, 1 << 32, ">BI", 0xCE),
    (0, 1 << 63, ">BQ", 0xCF),
    (-(1 << 7), 0, ">Bb", 0xD0),
    (-(1 << 15), 0, ">Bh", 0xD1),
    (-(1 << 31), 0, ">Bi", 0xD2),
    (-(1 << 63), 0, ">Bq", 0xD3),
)


def _int(value: int) -> bytes:
    for least, below, layout, mark in _INTEGERS:
        if least <= value < below:
            return struct.pack(layout, mark, value) if mark else struct.pack(layout, value)
    raise StartError("internal", "an integer outside int64")


def _length(value: Any, small: int, below: int, marks: tuple[int | None, ...]) -> bytes:
    size = len(value)
    if size < below:
        return bytes((small | size,))
    for mark, layout, limit in zip(marks, (">BB", ">BH", ">BI"), (8, 16, 32), strict=True):
        if mark is not None and size < 1 << limit:
            return struct.pack(layout, mark, size)
    raise StartError("internal", "a value is too long for the first message")


_SCALARS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZED = {
    0xC4: (">B", "bin"),
    0xC5: (">H", "bin"),
    0xC6: (">I", "bin"),
    0xD9: (">B", "str"),
    0xDA: (">H", "str"),
    0xDB: (">I", "str"),
    0xDC: (">H", "array"),
    0xDD: (">I", "array"),
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
}


class Decoder:
    """Reads one value. The worker's strict codec reads the same bytes again; this one only has to
    be right about what it reads, and to end on everything else.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def value(self) -> Any:
        """The next value. Raises `StartError` on anything that is not a strict value."""
        mark = self._take(1)[0]
        if mark < 0x80:
            return mark
        if mark >= 0xE0:
            return mark - 0x100
        if mark < 0x90:
            return self._container("map", mark & 0x0F)
        if mark < 0xA0:
            return self._container("array", mark & 0x0F)
        if mark < 0xC0:
            return self._container("str", mark & 0x1F)
        if mark in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[mark]
        if mark in _SCALARS:
            return self._scalar(_SCALARS[mark])
        if mark in _SIZED:
            layout, kind = _SIZED[mark]
            return self._container(kind, self._scalar(layout))
        raise StartError(
            "protocol_violation", f"WELCOME holds the byte {mark:#x}, which is no value"
        )

    def _scalar(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _container(self, kind: str, size: int) -> Any:
        if kind == "str":
            return self._take(size).decode()
        if kind == "bin":
            return self._take(size)
        if kind == "array":
            return [self.value() for _ in range(size)]
        return {self.value(): self.value() for _ in range(size)}

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if self._at > len(self._body):
            raise StartError("protocol_violation", "WELCOME is shorter than it says")
        return self._body[start : self._at]


# The channel, one frame at a time.


def send(descriptor: int, kind: int, body: Any) -> None:
    """Writes one connection frame. Raises `OSError`."""
    data = encode(body)
    frame = memoryview(struct.pack(">IIBB", len(data), 0, kind, 0) + data)
    while frame:
        frame = frame[os.write(descriptor, frame) :]


def receive(descriptor: int) -> tuple[int, bytes]:
    """Reads exactly one frame, not a byte more: its type and its body.

    Raises `EOFError` when the host is gone, `StartError` when the frame cannot be WELCOME.
    """
    header = _exactly(descriptor, HEADER_BYTES)
    size, call, kind, flags = struct.unpack(">IIBB", header)
    if size > FRAME_BYTES_MAX or call or flags or kind not in (WELCOME, ERROR):
        raise StartError("protocol_violation", f"expected WELCOME, got a frame of type {kind}")
    return kind, _exactly(descriptor, size)


def _exactly(descriptor: int, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        data = os.read(descriptor, size - len(parts))
        if not data:
            raise EOFError
        parts += data
    return parts


# What is done to the process before foreign code runs in it.


def jail() -> Any:
    """The module that ties and restricts this process: the host's own file, found by its path, for
    nothing else is on the import path that could be it.
    """
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "isolation"))
    try:
        found = __import__("jail")
    finally:
        del sys.path[0]
    del sys.modules["jail"]  # a plugin may have a module of that name
    return found


def isolate(policy: Any, parent: int) -> dict[str, str]:
    """Restricts the process as the host's policy says; what was achieved, for every axis.

    Raises `StartError(isolation_unavailable)` when an axis that the policy demands is not achieved.
    """
    inside = jail()
    inside.tie_to_parent(parent)
    wanted = policy if type(policy) is dict else {}
    if "axes" not in wanted and wanted.get("require") and wanted.get("level") != "none":
        wanted = {"demanded": ["fs", "net", "exec", "ipc"]}
    try:
        return {**dict.fromkeys(AXES, "none"), **inside.restrict(wanted, parent)}
    except inside.UnavailableError as missing:
        raise StartError("isolation_unavailable", str(missing)) from None


def digest_of(path: str) -> str:
    """SHA-256 of a file as 64 hex digits. Raises `OSError`."""
    # `hashlib` loads OpenSSL, which takes longer than everything else here together.
    try:
        from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            from hashlib import sha256
    state = sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while data := os.read(descriptor, HASH_STEP_BYTES):
            state.update(data)
    finally:
        os.close(descriptor)
    return str(state.hexdigest())


def hello(settings: dict[str, str]) -> dict[str, Any]:
    """The body of HELLO. Raises `OSError` when the manifest cannot be read."""
    plugin, _, version = settings.get("PLUGIN", "").partition("@")
    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "proto": PROTO,
        "plugin": plugin,
        "version": version,
        "manifest_sha256": digest_of(settings.get("MANIFEST", "")),
        "features": [],
        "limits": {"max_frame": FRAME_BYTES_MAX, "inflight": INFLIGHT_MAX},
        "sdk": f"purra-sdk/1 python/{python}",
        "pid": os.getpid(),
        "nonce": settings.get("NONCE", ""),
    }


def prepare_streams() -> None:
    """print() must not wait in a buffer, nor fail on a character, whatever the locale (H01)."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(  # type: ignore[union-attr]
                encoding="utf-8", errors="backslashreplace", line_buffering=True
            )


def main() -> int:
    """From the spawn to the end of the worker; the exit status."""
    parent = os.getppid()
    descriptor = int(os.environ["PURRA_FD"])
    os.set_inheritable(descriptor, False)
    settings = {}
    for name in [name for name in os.environ if name.startswith("PURRA_")]:
        settings[name.removeprefix("PURRA_")] = os.environ.pop(name)
    prepare_streams()
    try:
        greeting = hello(settings)
        send(descriptor, HELLO, greeting)
        kind, body = receive(descriptor)
        welcome = Decoder(body).value()
        if kind == ERROR:
            sys.stderr.write(f"the host refused this plugin: {welcome.get('message', '')}\n")
            return EXIT_START_FAILED
        isolation = isolate(welcome.get("isolation"), parent)
        sys.path.insert(0, settings["STAGED"])
        # After the standard library: a plugin's folder must not stand in for a module of it.
        sys.path.extend(welcome.get("sys_path") or ())
        from purra_sdk.worker import serve
    except EOFError:
        return EXIT_START_FAILED
    except StartError as refused:
        refuse(descriptor, refused.code, refused.message)
        return EXIT_START_FAILED
    except BaseException as error:  # whatever it was, the host must be told before this ends
        sys.excepthook(type(error), error, error.__traceback__)
        refuse(descriptor, "internal", f"{type(error).__name__}: {error}")
        return EXIT_START_FAILED
    return serve(settings.get("ENTRY", ""), descriptor, greeting, welcome, isolation)


def refuse(descriptor: int, code: str, message: str) -> None:
    """ERROR on id 0: this instance will not start."""
    sys.stderr.write(f"start failed: {message} [{code}]\n")
    origin = "host" if code == "isolation_unavailable" else "plugin"
    body = {"code": code, "message": message, "origin": origin, "executed": "no", "retry": "never"}
    try:
        send(descriptor, ERROR, body)
    except OSError:
        pass  # the host is gone; the exit status is all that is left to say


def leave() -> None:
    """What an interpreter does at its end and `os._exit` does not: exit functions, buffers."""
    import atexit

    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # whatever the plugin registered or closed, the process ends now
        pass


if __name__ == "__main__":
    try:
        status = main()
    except BaseException as fault:  # a fault of ours: it must be seen, and must end the process
        sys.excepthook(type(fault), fault, fault.__traceback__)
        status = EXIT_START_FAILED
    leave()
    # Not sys.exit(): a thread that the plugin left behind would keep the process for ever (H47).
    os._exit(status)
