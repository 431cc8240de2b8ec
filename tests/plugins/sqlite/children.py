"""What the tests run in processes of its own: writers that are raced, stopped and killed.

Run as `python children.py TASK PATH ARGUMENTS`; says what it did line by line, each line after the
store has acknowledged it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from purra_plugin_sqlite import schema
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError

HERE = os.path.abspath(__file__)


def command(task: str, path: object, *arguments: object) -> list[str]:
    """The command line that runs a task."""
    return [sys.executable, HERE, task, str(path), *map(str, arguments)]


def say(*words: object) -> None:
    """One line, at once: a kill right after it does not lose it."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def append(stream: str, expect: int, *records: Any) -> dict[str, Any]:
    return {"op": "append", "stream": stream, "expect": expect, "records": list(records)}


def put(key: str, value: Any, expect: int, ttl_ms: int = 0) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, "expect": expect, "ttl_ms": ttl_ms}


def commit(engine: Engine, key: tuple[str, str] | None, *ops: dict[str, Any], **more: Any) -> Any:
    return engine.commit({"ops": list(ops), "key": key and list(key), **more})


def task_append(engine: Engine, name: str, count: str) -> None:
    """Appends `count` records to the shared stream and to one of its own, and counts in a document
    that all writers share.
    """
    for number in range(int(count)):
        key = ("shared", f"{name}:{number}")
        own = append(f"own/{name}", number, number)
        commit(engine, key, append("shared", -1, [name, number]), own, durable=number % 50 == 0)
    for _ in range(int(count) // 10):
        increment(engine, "counter")
    say("done")


def increment(engine: Engine, key: str) -> None:
    """Adds one to a document, as often as it takes."""
    while True:
        (document,) = engine.get([key])["documents"]
        value, revision = (document["value"], document["revision"]) if document else (0, 0)
        try:
            commit(engine, None, put(key, value + 1, revision))
        except EngineError as error:
            if error.code != "conflict":
                raise
        else:
            return


def task_take(engine: Engine, name: str, revision: str, ttl_ms: str) -> None:
    """Takes a lapsed lease, when told to go."""
    say("ready")
    sys.stdin.readline()
    try:
        commit(engine, None, put("lease", name, int(revision), int(ttl_ms)))
    except EngineError as error:
        say("lost", error.code, error.detail["revision"])
    else:
        say("won")


def task_same(engine: Engine, name: str) -> None:
    """Commits what everybody commits, with everybody's key, when told to go."""
    say("ready")
    sys.stdin.readline()
    for number in range(20):
        receipt = commit(engine, ("shared", f"k{number}"), append("shared", -1, number))
        say(receipt["heads"]["shared"])


def task_own(engine: Engine, ttl_ms: str) -> None:
    """Takes the lease and writes under its fence until it is refused."""
    commit(engine, None, put("lease", "first", 0, int(ttl_ms)))
    for number in steps():
        fence = {"lease": 1}
        try:
            commit(engine, ("run", f"{number}"), append("run", -1, "first"), require=fence)
            say("wrote")
        except EngineError as error:
            say("refused", error.code)
            break
    for op in (
        {"op": "touch", "key": "lease", "expect": 1, "ttl_ms": 1000},
        {"op": "delete", "key": "lease", "expect": 1},
        put("lease", "first", 1, 1000),
        {"op": "seal", "stream": "run"},
    ):
        try:
            commit(engine, None, op, require={"lease": 1})
            say("wrote", op["op"])
        except EngineError as error:
            say("refused", error.code)


def task_step(engine: Engine) -> None:
    """Commits steps that change four things together, from where the store stands."""
    number = engine.read("run", 0, 1)["head"]
    while True:
        commit(engine, ("run", f"seq:{number}"), *step_ops(number), durable=number % 4 == 0)
        number += 1
        say(number)


def step_ops(number: int) -> list[dict[str, Any]]:
    """One step: two records, a document replaced, another born and an older one deleted."""
    ops = [
        append("run", number, {"step": number, "text": "x" * (number % 7 * 700)}),
        append("audit", number, number),
        put("status", number + 1, number),
        put(f"step/{number}", number, 0),
    ]
    if number:
        ops.append({"op": "delete", "key": f"step/{number - 1}", "expect": 1})
    return ops


def task_die(engine: Engine, statement: str) -> None:
    """Kills itself before the given statement of its second step; says the first."""
    first = engine.read("run", 0, 1)["head"]
    commit(engine, ("run", f"seq:{first}"), *step_ops(first))
    say(first + 1)
    left = int(statement)

    def count(_text: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    engine._writer.connection.set_trace_callback(count)
    commit(engine, ("run", f"seq:{first + 1}"), *step_ops(first + 1), durable=True)
    say("survived", int(statement) - left)


def task_blob(engine: Engine, size: str) -> None:
    """Stores a blob in pieces, saying each, then its digest."""

    def pieces() -> Iterator[bytes]:
        for number in range(int(size)):
            say("piece", number)
            yield bytes([number % 256]) * 300_000

    say(engine.blob_put(pieces())["digest"])


def migrate(path: str, statements: str) -> None:
    """Brings the file to a format 2 that only this test knows, slowly."""
    more = tuple(f"CREATE TABLE later_{number}(a TEXT)" for number in range(int(statements)))
    say("ready")
    schema.open_file(path, patience_s=20, migrations=(*schema.MIGRATIONS, more)).close()
    say("done")


def steps() -> Iterator[int]:
    """Counts, with a little time between, as a run would."""
    for number in range(100_000):
        yield number
        time.sleep(0.002)


def main(task: str, path: str, *arguments: str) -> None:
    if task == "migrate":
        migrate(path, *arguments)
        return
    engine = Engine(path)
    tasks = {name: function for name, function in globals().items() if name.startswith("task_")}
    tasks["task_" + task](engine, *arguments)
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
