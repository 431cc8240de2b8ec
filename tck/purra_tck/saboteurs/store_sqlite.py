"""The SQLite store with one hook changed: each name here is a plugin, run in processes of its own.

A worker is told `module:name`, and asking for that name makes the change in its process. So this
file imports nothing but the plugin and the SDK; the kit itself is not in the worker.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time

from purra_plugin_sqlite import commit, reads, schema, statements
from purra_plugin_sqlite.database import Database
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from purra_plugin_sqlite.ledger import Ledger
from purra_plugin_sqlite.plugin import Journal, plugin
from purra_plugin_sqlite.watching import Hub
from purra_sdk import Plugin, PluginError, StoreError, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["BROKEN"]


def events_then_status() -> None:
    """Writes the events of a commit in one transaction and its documents in the next."""
    real = Engine.commit_together

    def together(self: Any, batch: Any) -> Any:
        outcomes = []
        for args in batch:
            events = [op for op in args["ops"] if op["op"] == "append"]
            rest = [op for op in args["ops"] if op["op"] != "append"]
            (done,) = real(self, [{**args, "ops": events}])
            if not isinstance(done, EngineError) and rest:
                real(self, [{**args, "ops": rest, "key": None}])
                done["revisions"] = {op["key"]: 1 for op in rest if "key" in op}
            outcomes.append(done)
        return outcomes

    Engine.commit_together = together  # type: ignore[method-assign]


def ack_before_fsync_buffer() -> None:
    """Answers with what a commit would give, and carries it out a little later."""
    real = Engine._transaction

    def later(self: Any, batch: Any) -> Any:
        settled: list[Any] = []

        def look(connection: Any) -> None:
            settled.append(commit.settle(connection, batch, self._clock_ms(), self._projectors))
            raise EngineError("storage", "only looked")

        try:
            self._writer.transaction(look, durable=False)
        except EngineError:
            threading.Timer(0.05, real, (self, batch)).start()
        return settled[0]

    Engine._transaction = later  # type: ignore[method-assign]


def commit_order_is_not_seq_order() -> None:
    """Numbers are given at the beginning of a commit, and can be seen some time after that."""
    real = reads.read_stream
    seen_from_s: dict[tuple[str, int], float] = {}

    def read(connection: Any, stream: str, after: int, limit: int) -> Any:
        page = real(connection, stream, after, limit)
        now_s = time.monotonic()
        kept = []
        for number, record in enumerate(page["records"], after + 1):
            from_s = seen_from_s.setdefault((stream, number), now_s + random.uniform(0, 0.004))
            kept += [record] if from_s <= now_s else []
        return {**page, "records": kept}

    reads.read_stream = read


def _looked_up_before(find: str, names: Callable[[Any], Any], keep: bool) -> None:
    """Looks something up before the transaction, and believes it inside."""
    real, look = Engine._transaction, getattr(Ledger, find)

    def early(self: Any, batch: Any) -> Any:
        def known_of(connection: Any) -> Any:
            return {name: look(Ledger(connection), name) for name in names(batch)}

        known = self._reader.reading(known_of)
        time.sleep(0.003)

        def believed(ledger: Any, name: Any) -> Any:
            if keep:
                return ledger._documents.setdefault(name, known.get(name) or look(ledger, name))
            return known.get(name)

        setattr(Ledger, find, believed)
        return real(self, batch)

    Engine._transaction = early  # type: ignore[method-assign]


def key_check_outside_tx() -> None:
    """Looks whether a key is known, and begins the transaction afterwards."""
    statements.ADD_PLACE = statements.ADD_PLACE.replace("INSERT", "INSERT OR IGNORE")
    _looked_up_before("receipt", lambda batch: [r.key for r in batch if r.key], keep=False)


def read_modify_write() -> None:
    """Reads the revision, and begins the transaction afterwards."""

    def keys(batch: Any) -> Any:
        kinds = ("put", "touch", "delete")
        return [op[1] for request in batch for op in request.ops if op[0] in kinds]

    _looked_up_before("document", keys, keep=True)


def per_process_lock() -> None:
    """Knows only of leases that this process has taken."""
    mine: set[str] = set()
    real_get, real_commit = Engine.get, Engine.commit_together

    def get(self: Any, keys: Any) -> Any:
        found = real_get(self, keys)
        for document in found["documents"]:
            if document and document["expires_ms"] and document["key"] not in mine:
                document["lapsed"] = True
        return found

    def together(self: Any, batch: Any) -> Any:
        mine.update(op["key"] for args in batch for op in args["ops"] if op.get("ttl_ms"))
        return real_commit(self, batch)

    Engine.get, Engine.commit_together = get, together  # type: ignore[method-assign]


def fence_on_claim_only() -> None:
    """Looks at the fence of a commit that takes a lease, and of no other."""
    real = commit._Judgement.judge

    def judge(self: Any, request: Any) -> Any:
        if not any(op[0] == "put" and op[3] for op in request.ops):
            request.require = {}
        return real(self, request)

    commit._Judgement.judge = judge  # type: ignore[method-assign]


def in_memory_flag() -> None:
    """Keeps what is asked of a run in the process that was asked."""
    private = Engine(os.path.join(tempfile.mkdtemp(), "inbox.db"))
    real_commit, real_read = Engine.commit_together, Engine.read

    def together(self: Any, batch: Any) -> Any:
        asked = "/inbox" in str(batch)
        return real_commit(private if asked else self, batch)

    def read(self: Any, stream: Any, after: Any, limit: Any) -> Any:
        asked = str(stream).endswith("/inbox")
        return real_read(private if asked else self, stream, after, limit)

    Engine.commit_together, Engine.read = together, read  # type: ignore[method-assign]


def clears_claim() -> None:
    """Tidies up at its start: what nobody has finished is removed."""
    real = Engine.__init__

    def start(self: Any, *args: Any, **more: Any) -> None:
        real(self, *args, **more)
        clear = "DELETE FROM purra_documents WHERE key LIKE '%/claim/%'"
        self._writer.transaction(lambda connection: connection.execute(clear), durable=True)

    Engine.__init__ = start  # type: ignore[method-assign]


def tells_own_process_only() -> None:
    """Wakes the watchers of the process that commits."""
    real = Hub._start

    def start(self: Any) -> None:
        real(self)
        self._round = lambda _database: True

    Hub._start = start  # type: ignore[method-assign]


def lost_update() -> None:
    """Judges by documents that it remembers from its last commit."""
    remembered: dict[str, Any] = {}
    real_find, real_accept = Ledger.document, Ledger.accept

    def find(self: Any, key: str) -> Any:
        return remembered.get(key) or real_find(self, key)

    def accept(self: Any, streams: Any, documents: Any, records: Any) -> None:
        remembered.update(documents)
        real_accept(self, streams, documents, records)

    Ledger.document, Ledger.accept = find, accept  # type: ignore[method-assign]


def migrates_in_place() -> None:
    """Takes a newer file for one of its own."""
    real = schema._judge

    def judge(path: str, mark: Any, newest: int) -> int:
        application, version, empty = mark
        return real(path, (application, min(version, newest), empty), newest)

    schema._judge = judge


def swallows_io_error() -> None:
    """Answers as if it had been written."""
    real = Engine._settle

    def settle(self: Any, batch: Any) -> Any:
        outcomes = real(self, batch)
        for place, (request, outcome) in enumerate(zip(batch, outcomes, strict=True)):
            if isinstance(outcome, EngineError) and outcome.code == "storage":
                heads = {op[1]: 1 for op in request.ops if op[0] == "append"}
                revisions = {op[1]: op[2] + 1 for op in request.ops if op[0] == "put"}
                outcomes[place] = {"heads": heads, "revisions": revisions}
        return outcomes

    Engine._settle = settle  # type: ignore[method-assign]


def never_syncs() -> None:
    """Leaves it to the system when anything reaches the disk."""
    real = Database._begin

    def begin(self: Any, durable: bool) -> None:
        self._connection.executescript("PRAGMA synchronous = OFF")
        self._durable = durable
        real(self, durable)

    Database._begin = begin  # type: ignore[method-assign]


def one_flush_each() -> None:
    """Carries commits out one after the other, however many wait."""
    real = Engine.commit_together

    def together(self: Any, batch: Any) -> Any:
        return [real(self, [args])[0] for args in batch]

    Engine.commit_together = together  # type: ignore[method-assign]


def right_verdict_wrong_reason() -> None:
    """Refuses what it has to refuse, and gives one reason for all of it."""
    real = Journal._error

    def error(self: Any, found: EngineError) -> Exception:
        return real(self, EngineError("storage", found.message, errno=5))

    Journal._error = error  # type: ignore[assignment, method-assign]


def crash_at_start() -> None:
    """Is gone before anybody could ask it anything."""
    os._exit(3)


def _made(journal: type) -> Any:
    return Plugin(stores=[store("journal")(journal)])


class Null:
    """Does nothing, in the right form."""

    def __init__(self, setup: Any) -> None:
        """Nothing is kept."""

    def commit(self, call: Any, **args: Any) -> Any:
        ops = args["ops"]
        heads = {op["stream"]: 0 for op in ops if op["op"] == "append"}
        return {"heads": heads, "revisions": {op["key"]: 0 for op in ops if "key" in op}}

    def read(self, call: Any, **args: Any) -> Any:
        return {"records": [], "head": 0, "sealed": False}

    def get(self, call: Any, **args: Any) -> Any:
        return {"documents": [None for _ in args["keys"]]}

    def scan(self, call: Any, **args: Any) -> Any:
        return {"documents": [], "more": False}

    def now(self, call: Any) -> Any:
        return {"now_ms": time.time_ns() // 1_000_000}

    def watch(self, call: Any, **args: Any) -> Any:
        stream = call.detach()
        stream.send("")
        return stream

    def blob_put(self, call: Any) -> Any:
        for _ in call.chunks():
            pass
        return {"digest": "sha256:" + "0" * 64}

    def blob_get(self, call: Any, **args: Any) -> Iterator[bytes]:
        yield b""


class EchoExpected(Null):
    """Answers what the question lets one hope for; keeps the last value it was given."""

    _last: Any = None

    def commit(self, call: Any, **args: Any) -> Any:
        heads, revisions = {}, {}
        for op in args["ops"]:
            if op["op"] == "append":
                heads[op["stream"]] = max(op["expect"], 0) + len(op["records"])
                self._last = op["records"]
            elif "key" in op:
                revisions[op["key"]] = op["expect"] + (op["op"] == "put")
        return {"heads": heads, "revisions": revisions}

    def read(self, call: Any, **args: Any) -> Any:
        records = list(self._last or [])[: args["limit"]]
        return {"records": records, "head": args["after"] + len(records), "sealed": False}

    def get(self, call: Any, **args: Any) -> Any:
        return {
            "documents": [
                {"key": key, "value": 1, "revision": 1, "lapsed": False, "expires_ms": 0}
                for key in args["keys"]
            ]
        }


class RefuseAll(Null):
    """Refuses everything, in the right form."""

    def commit(self, call: Any, **args: Any) -> Any:
        raise StoreError("conflict", key="x", revision=0)

    def read(self, call: Any, **args: Any) -> Any:
        raise PluginError("invalid_argument", "no", effect_state="not_started")

    get = scan = blob_put = blob_get = read


BROKEN = {
    change.__name__: change
    for change in (
        events_then_status,
        ack_before_fsync_buffer,
        commit_order_is_not_seq_order,
        key_check_outside_tx,
        read_modify_write,
        per_process_lock,
        fence_on_claim_only,
        in_memory_flag,
        clears_claim,
        tells_own_process_only,
        lost_update,
        migrates_in_place,
        swallows_io_error,
        never_syncs,
        one_flush_each,
        right_verdict_wrong_reason,
        crash_at_start,
    )
}
"""By name: what makes the plugin of this process a broken one."""


PREFIX = "broken_"


def __getattr__(name: str) -> Any:
    """The plugin `broken_NAME` (PEP 562): `module:attribute` of a launch."""
    short = name.removeprefix(PREFIX)
    others = {"null": Null, "echo_expected": EchoExpected, "refuse_all": RefuseAll}
    if not name.startswith(PREFIX) or short not in {*others, *BROKEN}:
        raise AttributeError(name)
    if short in others:
        return _made(others[short])
    BROKEN[short]()
    return plugin
