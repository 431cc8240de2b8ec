"""Which step answers a request, and what has been played.

`order`: requests take the steps one after the other. Strict, and right for one run in one process.
`round`: a request takes the step numbered by the answers that its conversation holds already. That
needs no memory, so it survives a restart of this process, a takeover of the run, an attempt that is
made again, and runs at the same time.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from purra_plugin_scripted.expect import problems
from purra_plugin_scripted.script import Script, Step

__all__ = ["Player", "UnexpectedError"]


class UnexpectedError(Exception):
    """A request that the script does not foresee, or steps that were left over at the end.

    `code`: of the wire; `unimplemented` for parameters, which a script cannot honour.
    """

    def __init__(
        self, message: str, detail: dict[str, Any], code: str = "failed_precondition"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.code = code


class Player:
    """One script being played. Any thread may call it."""

    def __init__(self, script: Script, record: str = "") -> None:
        """`record`: a file that gets a JSON line per request that was answered, "" = none."""
        self._script = script
        self._record = record
        self._lock = threading.Lock()
        self._next = 0
        self._played: set[int] = set()

    def take(self, request: Mapping[str, Any]) -> tuple[int, Step]:
        """The number (from 1) and the step that answers `request`; it counts as played.

        Raises `UnexpectedError`, and then no step is used up.
        """
        with self._lock:
            index = self._next if self._script.match == "order" else _answers(request)
            steps = self._script.steps
            if index >= len(steps):
                raise UnexpectedError(
                    f"the script has {len(steps)} steps; this is request {index + 1}",
                    {"step": index + 1, "steps": len(steps)},
                )
            step = steps[index]
            if request.get("params") and "params" not in step.expect:
                names = ", ".join(sorted(request["params"]))
                raise UnexpectedError(
                    f"a script takes no parameters: {names}; a step may expect.params",
                    {"step": index + 1, "params": sorted(request["params"])},
                    "unimplemented",
                )
            found = problems(step.expect, request)
            if found:
                title = f"step {index + 1}" + (f" ({step.name})" if step.name else "")
                raise UnexpectedError(
                    f"{title} did not expect this request: " + "; ".join(found),
                    {"step": index + 1, "name": step.name, "problems": found},
                )
            self._next = index + 1
            self._played.add(index)
            self._write({"step": index + 1, "name": step.name, "request": dict(request)})
        return index + 1, step

    def unplayed(self) -> list[int]:
        """Numbers of the steps that no request has taken."""
        return [
            number
            for number in range(1, len(self._script.steps) + 1)
            if number - 1 not in self._played
        ]

    def finish(self) -> None:
        """Says that there will be no more requests. Raises `UnexpectedError` if steps are left."""
        left = self.unplayed()
        with self._lock:
            self._write({"end": True, "unplayed": left})
        if left:
            raise UnexpectedError(
                "steps of the script were not played: " + ", ".join(map(str, left)),
                {"unplayed": left},
            )

    def _write(self, line: dict[str, Any]) -> None:
        if not self._record:
            return
        data = json.dumps(line, ensure_ascii=False, sort_keys=True).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self._record, flags, 0o666)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)


def _answers(request: Mapping[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in request.get("messages", []))
