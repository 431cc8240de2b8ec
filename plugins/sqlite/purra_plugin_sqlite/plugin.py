"""The store adapter: the engine's operations as handlers of the SDK."""

from __future__ import annotations

import threading

from purra_plugin_sqlite import projecting
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.errors import EngineError
from purra_sdk import Plugin, PluginError, StoreError, batched, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from purra_sdk.calls import Call, Setup, Stream

__all__ = ["Journal", "plugin"]


@store("journal")
class Journal:
    """The store on the file that the configuration names. A file that cannot be used, or that a
    newer version has written, fails the start.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._engine = Engine(
            setup.config["path"], projectors=projecting.load(setup.config.get("projectors") or {})
        )

    @batched
    def commit(self, calls: list[Call]) -> list[Any]:
        """All commits that wait, in one transaction."""
        outcomes = self._engine.commit_together([call.args for call in calls])
        return [
            self._error(outcome) if isinstance(outcome, EngineError) else outcome
            for outcome in outcomes
        ]

    def read(self, call: Call, stream: Any = None, after: Any = 0, limit: Any = None) -> Any:
        try:
            return self._engine.read(stream, after, limit)
        except EngineError as error:
            raise self._error(error) from error

    def get(self, call: Call, keys: Any = None) -> Any:
        try:
            return self._engine.get(keys)
        except EngineError as error:
            raise self._error(error) from error

    def scan(self, call: Call, **scan: Any) -> Any:
        try:
            return self._engine.scan(scan)
        except EngineError as error:
            raise self._error(error) from error

    def now(self, call: Call) -> Any:
        return self._engine.now()

    def watch(self, call: Call, prefix: Any = None) -> Stream:
        """Fed by whichever thread commits, or finds another process's commit."""
        stream = call.detach()
        try:
            self._engine.watch(prefix, stream)
        except EngineError as error:
            raise self._error(error) from error
        return stream

    def blob_put(self, call: Call) -> Stream:
        """Collected on a thread of its own: a slow upload must not keep commits waiting."""
        stream = call.detach()
        threading.Thread(
            target=self._collect, args=(call, stream), name="purra-sqlite-upload", daemon=True
        ).start()
        return stream

    def blob_get(
        self, call: Call, digest: Any = None, offset: Any = None, length: Any = None
    ) -> Iterator[bytes]:
        try:
            yield from self._engine.blob_get(digest, offset, length)
        except EngineError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """At the end of the worker."""
        self._engine.close()

    def _collect(self, call: Call, stream: Stream) -> None:
        try:
            stream.finish(self._engine.blob_put(call.chunks()))
        except EngineError as error:
            stream.fail(self._error(error))
        except BaseException as error:  # the caller gave up, or a fault of ours: it ends this call
            stream.fail(error)

    def _error(self, error: EngineError) -> Exception:
        """The SDK's form of `error`. What the medium reported goes to the log as well: the wire
        carries only a code and an errno.
        """
        if error.code == "invalid_argument":
            return PluginError("invalid_argument", error.message, effect_state="not_started")
        if error.code == "storage":
            self._setup.log("error", error.message, **error.detail)
        return StoreError(error.code, **error.detail)


plugin = Plugin(stores=[Journal])
