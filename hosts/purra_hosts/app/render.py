"""A run as people see it: plugins starting, tool calls, drafts; then the answer.

On a terminal the text of a round is shown while it is written, dimmed, in a region that is
redrawn; what it was (commentary, answer, nothing) is known at the round's end, and only then it is
printed for good. On a pipe the answer alone is printed, once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from purra.journal.events import Event, event_value
from purra.journal.fold import result_text
from purra.runs.result import Result, result_value
from purra_hosts.app.advice import next_step
from purra_hosts.app.printing import console, harmless, json_line

if TYPE_CHECKING:
    from rich.live import Live

__all__ = [
    "JsonView",
    "PipeView",
    "TerminalView",
    "View",
    "arguments_line",
    "log_line",
    "result_line",
    "view",
]

DRAFT_LINES = 8
"""Of a draft that is shown at once."""
LINE_CHARS = 100
"""Of one argument list or result in a line about a call."""


class View(Protocol):
    """Where a run goes. All methods are called on the event loop, in order."""

    def plugin(self, kind: str, data: Mapping[str, Any]) -> None: ...
    def event(self, event: Event) -> None: ...
    def draft(self, record: Mapping[str, Any]) -> None: ...
    def end(self, result: Result) -> None: ...
    def close(self) -> None: ...


def view(*, json: bool) -> View:
    """The view for this stdout."""
    if json:
        return JsonView()
    return TerminalView() if sys.stdout.isatty() else PipeView()


class JsonView:
    """One object per committed event, last one of kind `result`."""

    def plugin(self, kind: str, data: Mapping[str, Any]) -> None:
        """Not part of the journal."""

    def event(self, event: Event) -> None:
        json_line(event_value(event))

    def draft(self, record: Mapping[str, Any]) -> None:
        """Not part of the journal."""

    def end(self, result: Result) -> None:
        json_line({"kind": "result", **result_value(result)})

    def close(self) -> None:
        """Nothing is held."""


class PipeView:
    """The answer as plain text, and how it ended on stderr."""

    def plugin(self, kind: str, data: Mapping[str, Any]) -> None:
        """Of no interest to a pipe."""

    def event(self, event: Event) -> None:
        """Of no interest to a pipe."""

    def draft(self, record: Mapping[str, Any]) -> None:
        """Of no interest to a pipe."""

    def end(self, result: Result) -> None:
        if result.status == "completed":
            sys.stdout.write(result.text.rstrip("\n") + "\n")
        else:
            sys.stderr.write(outcome_line(result) + "\n")

    def close(self) -> None:
        """Nothing is held."""


class TerminalView:
    """What goes on, live."""

    def __init__(self) -> None:
        self._out = console()
        self._live: Live | None = None
        self._draft = ""

    def plugin(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "plugin.ready":
            self._say(f"[dim]● {data['plugin']} ready (pid {data.get('pid', '?')})[/]")
        elif kind in ("plugin.crashed", "plugin.failed"):
            self._say(f"[red]● {data['plugin']} {kind.removeprefix('plugin.')}[/]")

    def event(self, event: Event) -> None:
        show = _SHOWN.get(event.kind)
        if event.kind in ("output.promoted", "attempt.failed", "attempt.superseded"):
            self._settle(event)
        elif show is not None:
            self._say(show(event.data))

    def draft(self, record: Mapping[str, Any]) -> None:
        from rich.live import Live
        from rich.text import Text

        self._draft += harmless(record["text"])
        if self._live is None:
            self._live = Live(console=self._out, transient=True, refresh_per_second=15)
            self._live.start()
        tail = "\n".join(self._draft.splitlines()[-DRAFT_LINES:])
        self._live.update(Text(tail, style="dim"))

    def end(self, result: Result) -> None:
        self.close()
        if result.status == "completed":
            self._out.print(harmless(result.text.rstrip("\n")), markup=False)
        else:
            self._out.print(outcome_line(result), style="bold red", markup=False)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _settle(self, event: Event) -> None:
        """The draft was something; the answer itself is printed at the end."""
        self.close()
        if event.data.get("as") == "commentary" and self._draft.strip():
            self._out.print(self._draft.strip(), style="italic", markup=False)
        if event.kind != "output.promoted":
            self._say(f"[yellow]● attempt given up: {event.data['code']}[/]")
        self._draft = ""

    def _say(self, line: str) -> None:
        self._out.print(line)


def _claimed(data: Mapping[str, Any]) -> str:
    return f"[cyan]→[/] call {data['call']}"


def _admitted(data: Mapping[str, Any]) -> str:
    from rich.markup import escape

    lines = [
        f"[cyan]→[/] [bold]{escape(call['name'])}[/] {escape(arguments_line(call['arguments']))}"
        for call in data["calls"]
    ]
    return "\n".join(lines)


def _completed(data: Mapping[str, Any]) -> str:
    from rich.markup import escape

    mark = "[red]✗[/]" if data["is_error"] else "[green]✓[/]"
    return f"  {mark} [dim]{escape(data['name'])}: {escape(result_line(data))}[/]"


def _asked(data: Mapping[str, Any]) -> str:
    return f"[yellow]? call {data['call']} waits for a person[/]"


_SHOWN = {
    "tool.batch.admitted": _admitted,
    "tool.call.completed": _completed,
    "approval.requested": _asked,
}


def arguments_line(arguments: Mapping[str, Any]) -> str:
    """Arguments of a call in one short line: `pattern="cancel" max_matches=20`."""
    import json

    from purra.values import thaw

    parts = (f"{k}={json.dumps(thaw(v), ensure_ascii=False)}" for k, v in arguments.items())
    return _short(" ".join(parts))


def result_line(data: Mapping[str, Any]) -> str:
    """What a call gave, in one short line."""
    value = data["value"]
    if isinstance(value, Mapping) and not data["is_error"]:
        counts = [f"{len(v)} {k}" for k, v in value.items() if isinstance(v, (list, tuple))]
        if counts:
            return _short(", ".join(counts))
    return _short(f"{data['code']} {result_text(data)}".strip())


def log_line(record: Mapping[str, Any]) -> None:
    """A line that a plugin printed or logged, on stderr; its text has been made harmless."""
    sys.stderr.write(f"{record['plugin']} {record['level']}: {record['text'].rstrip()}\n")


def outcome_line(result: Result) -> str:
    """How a run ended that did not complete, and what to do about it, in one line."""
    error = result.error or {}
    step = next_step(result)
    what = f"{error.get('message', '')} [{error.get('code', '')}]" + (f" ({step})" if step else "")
    return harmless(f"{result.status} run {result.run}: {' '.join(what.split())}")


def _short(text: str) -> str:
    text = harmless(" ".join(text.split()))
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"
