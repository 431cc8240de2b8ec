"""The first lines of every puppet: a worker that speaks frames itself (see `rig.puppet`)."""

# mypy: ignore-errors

import hashlib
import os
import socket
import sys
import time

sys.path[:0] = os.environ["PUPPET_PATH"].split(os.pathsep)
from purra_bridge.wire.session import Session  # noqa: E402

channel = socket.socket(fileno=int(os.environ["PURRA_FD"]))
channel.set_inheritable(False)
session = Session("plugin")


def flush():
    channel.sendall(b"".join(bytes(part) for part in session.take()))


def events():
    """One read; exits at the end of the channel, as a worker must."""
    count = channel.recv_into(session.buffer())
    if not count:
        os._exit(0)
    return session.received(count)


def hello(**changes):
    plugin, _, version = os.environ["PURRA_PLUGIN"].partition("@")
    with open(os.environ["PURRA_MANIFEST"], "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    body = {"proto": [1, 1], "plugin": plugin, "version": version, "manifest_sha256": digest}
    session.hello({**body, **changes})
    flush()


def welcomed():
    while True:
        for event in events():
            if type(event).__name__ == "Welcome":
                return event.body


def ready(*names):
    session.ready({"offers": [{"kind": "tool", "name": name} for name in names or ("t",)]})
    flush()


def start():
    hello()
    welcome = welcomed()
    ready()
    return welcome


def called():
    """Waits for a CALL, answering PINGs meanwhile."""
    while True:
        for event in events():
            if type(event).__name__ == "Called":
                return event
            if type(event).__name__ == "Ping":
                session.pong(event.token)
                flush()


_ = time
