"""What this host knows of incidents: its tools, what they may do, and the form of its verdicts."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

import purra
from purra.contracts.call import CallContext
from purra.contracts.policy import PolicyDecision, PolicyRequest

__all__ = ["VERDICT", "Desk", "OnCall", "Verdict"]


class Verdict(TypedDict):
    """What became of one alert."""

    alert: str
    severity: Literal["info", "page"]
    filed: bool


VERDICT = purra.Output(Verdict, name="verdict")


class Desk:
    """The tools, over a folder of alerts, one of runbooks, and one for notes."""

    def __init__(self, folder: Path, notes: Path) -> None:
        self._folder = folder
        self._notes = notes

    def open_alerts(self) -> dict[str, Mapping[str, Any]]:
        """Alerts by their ids."""
        files = sorted((self._folder / "alerts").glob("*.json"))
        return {file.stem: json.loads(file.read_text()) for file in files}

    @purra.tool(effect="world_read")
    def alerts(self) -> list[dict[str, Any]]:
        """Every open alert: id, service, kind, since when."""
        return [dict(alert) for alert in self.open_alerts().values()]

    @purra.tool(effect="world_read")
    def runbook(self, kind: str) -> str:
        """What to do about a kind of alert."""
        known = {file.stem: file for file in (self._folder / "runbooks").glob("*.txt")}
        if kind not in known:
            raise purra.ToolError(f"no runbook for {kind!r}; there are: {', '.join(sorted(known))}")
        return known[kind].read_text()

    @purra.tool(effect="world_write", idempotency="required")
    def file_note(
        self, alert: str, severity: Literal["info", "page"], text: str, context: CallContext
    ) -> dict[str, str]:
        """File a note on an alert; `page` wakes somebody."""
        # A try after a crash has the same key, hence the same file: there is never a second note.
        self._notes.mkdir(parents=True, exist_ok=True)
        name = f"{alert}-{context.idempotency_key.replace('/', '-')}.txt"
        written = self._notes / f".{name}"
        written.write_text(f"[{severity}] {text}")
        os.replace(written, self._notes / name)
        return {"filed": name}


class OnCall:
    """The policy: notes only on open alerts, and nobody is woken unless a person agrees."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def decide(self, request: PolicyRequest, context: CallContext) -> PolicyDecision:
        if request.tool != "file_note":
            return PolicyDecision("allow")
        if request.arguments["alert"] not in self._desk.open_alerts():
            return PolicyDecision("deny_and_tell", "there is no open alert of that id")
        if request.arguments["severity"] == "page":
            return PolicyDecision("ask", "it wakes somebody")
        return PolicyDecision("allow")
