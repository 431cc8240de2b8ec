"""A run's journal as a person reads it afterwards: how it stands, then one line per thing that
mattered, with its time since the start.

A line names tools, not call numbers alone, says how long a call or a person took, and who took the
run over and what that cut off. Everything that others wrote is made harmless and kept short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rich.markup import escape

from purra.journal.events import Event
from purra.journal.state import RunState
from purra.runs.directory import RunInfo
from purra_hosts.app.printing import harmless, moment
from purra_hosts.app.render import arguments_line, result_line

__all__ = ["Timeline", "heading", "summary_value"]

TEXT_CHARS: Final = 100
"""Of a text in a line."""
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def summary_value(info: RunInfo, state: RunState) -> dict[str, Any]:
    """The strict value of `runs show --json`."""
    end = state.terminal or {}
    return {
        "run": info.run,
        "agent": info.agent,
        "session": info.session,
        "status": state.status,
        "owner": info.owner,
        "lapsed": info.lapsed,
        "prompt": state.started["prompt"],
        "started_ms": info.started_ms,
        "events": state.seq,
        "rounds": state.rounds,
        "tool_calls": state.calls_used,
        "usage": state.usage.value(),
        "effects": [dict(effect) for effect in state.effects],
        "text": end.get("text", ""),
        "error": end.get("error"),
        "blocked": list(state.blocked),
    }


def heading(info: RunInfo, state: RunState) -> Iterator[str]:
    """How the run stands, above its timeline."""
    abandoned = info.lapsed and info.owner
    session = f", session {info.session}" if info.session else ""
    usage = state.usage
    attempts = _counted(usage.unreported, "attempt")
    unreported = f", {attempts} not reported" if usage.unreported else ""
    yield _row("run", f"{info.run}, {moment(info.started_ms)}")
    yield _row("agent", f"{info.agent} {state.started['agent']['revision']}{session}")
    yield _row("status", "abandoned: its owner is gone" if abandoned else state.status)
    yield _row(
        "used",
        f"{_counted(state.rounds, 'round')}, {_counted(state.calls_used, 'tool call')}, "
        f"{usage.input_tokens}+{usage.output_tokens} tokens{unreported}",
    )
    for effect in state.effects:
        yield _row("effect", f"{effect['tool']} (call {effect['call']}): {effect['effect_state']}")
    yield ""


def _row(name: str, text: str) -> str:
    return f"[dim]{name:<9}[/] {escape(_short(text))}"


class Timeline:
    """Tells the events of one run, in their order."""

    def __init__(self, started_ms: int) -> None:
        self._started_ms = started_ms
        self._names: dict[str, str] = {}
        self._since: dict[str, int] = {}
        self._told: Mapping[str, Callable[[Event], str]] = {
            "model.round": self._round,
            "tool.batch.admitted": self._admitted,
            "tool.call.claimed": self._claimed,
            "tool.call.completed": self._result,
            "approval.requested": self._asked,
            "approval.decided": self._decided,
            "approval.expired": self._expired,
            "run.owned": self._owned,
            "run.reconciled": self._reconciled,
        }

    def line(self, event: Event) -> str:
        """The line of an event, with markup; "" for events that only keep books."""
        tell = self._told.get(event.kind)
        if tell is None:
            plain = _LINES.get(event.kind)
            text = "" if plain is None else plain(event.data)
        else:
            text = tell(event)
        return f"[dim]{_clock(event.at_ms - self._started_ms):>10}[/]  {text}" if text else ""

    def _round(self, event: Event) -> str:
        data = event.data
        self._names |= {f"{data['attempt']}.{c['ordinal']}": c["name"] for c in data["calls"]}
        used = (data["usage"]["input_tokens"], data["usage"]["output_tokens"])
        tokens = "tokens not reported" if None in used else f"{used[0]}+{used[1]} tokens"
        said = f": {_short(data['text'])}" if data["text"].strip() else ""
        reason = data["finish"]["reason"]
        return f"round {data['round']:<4}[bold]{escape(reason)}[/], {tokens}{escape(said)}"

    def _admitted(self, event: Event) -> str:
        calls = []
        for call in event.data["calls"]:
            self._names[call["call"]] = call["name"]
            calls.append(f"{call['name']} {arguments_line(call['arguments'])}".rstrip())
        return _about("tools", "; ".join(calls))

    def _claimed(self, event: Event) -> str:
        self._since[event.data["call"]] = event.at_ms
        return ""

    def _result(self, event: Event) -> str:
        data = event.data
        mark = "[red]✗[/]" if data["is_error"] else "[green]✓[/]"
        effect = f" [{data['effect_state']}]" if data["effect_state"] != "not_started" else ""
        text = f"{data['name']}{self._took(event)}: {result_line(data)}{effect}"
        return f"result    {mark} {escape(text)}"

    def _asked(self, event: Event) -> str:
        self._since[event.data["call"]] = event.at_ms
        return _about("approval", f"{self._call(event)} waits for a person", "yellow")

    def _decided(self, event: Event) -> str:
        data = event.data
        by = f" by {data['by']}" if data["by"] else ""
        text = f"{self._call(event)}: {data['decision']}{by}{self._took(event)}"
        return _about("approval", text)

    def _expired(self, event: Event) -> str:
        return _about("approval", f"{self._call(event)}: nobody decided in time", "red")

    def _owned(self, event: Event) -> str:
        data = event.data
        if event.seq <= FIRST_SEQS:
            return f"[dim]owned     by kernel {data['kernel']}[/]"
        cut = [self._named(call) for call in self._since]
        tail = f"; open then: {', '.join(cut)}" if cut else ""
        return _about(
            "taken up", f"by kernel {data['kernel']}, term {data['term']}{tail}", "yellow"
        )

    def _reconciled(self, event: Event) -> str:
        data = event.data
        by = f" by {data['by']}" if data["by"] else ""
        text = f"{self._call(event)}: {data['effect_state']}{by}: {data['evidence']}"
        return _about("evidence", text)

    def _call(self, event: Event) -> str:
        return self._named(event.data["call"])

    def _named(self, call: str) -> str:
        return f"{self._names.get(call, 'call')} (call {call})"

    def _took(self, event: Event) -> str:
        since_ms = self._since.pop(event.data["call"], None)
        return "" if since_ms is None else f" ({_duration(event.at_ms - since_ms)})"


FIRST_SEQS: Final = 2
"""`run.started`, and with it the first `run.owned`."""


def _about(name: str, text: str, style: str = "") -> str:
    text = escape(_short(text))
    return f"{name:<9} " + (f"[{style}]{text}[/]" if style else text)


def _context(data: Mapping[str, Any]) -> str:
    blocks = [f"{block['name']} {block['tokens']} tokens" for block in data["blocks"]]
    earlier = [f"{data['history']} messages of the session"] if data["history"] else []
    return _about("context", ", ".join([*blocks, *earlier]) or "nothing")


def _failed_attempt(data: Mapping[str, Any]) -> str:
    return _about("attempt", f"{data['message']} [{data['code']}]", "red")


def _recovery(data: Mapping[str, Any]) -> str:
    what = _ACTIONS.get(data["action"], data["action"])
    used = f" ({data['used']} of {data['budget']})" if data["budget"] else ""
    return _about("recovery", f"{data['cause']}: {what}{used}")


def _inbox(data: Mapping[str, Any]) -> str:
    """Decisions and evidence are told where they take effect."""
    body = data["body"]
    if body.get("kind") != "cancel":
        return ""
    by = f" by {body['by']}" if body.get("by") else ""
    return _about("cancel", f"asked for{by}", "yellow")


def _plugin(data: Mapping[str, Any]) -> str:
    pid = f", pid {data['pid']}" if data.get("pid") else ""
    return f"[dim]{_about('plugin', data['plugin'])} generation {data['generation']} ready{pid}[/]"


def _plugin_gone(data: Mapping[str, Any]) -> str:
    reason = str(data.get("reason", "")).removeprefix("plugin.") or "stopped"
    return _about("plugin", f"{data['plugin']} generation {data['generation']} {reason}", "red")


def _denied(data: Mapping[str, Any]) -> str:
    text = f"{data['plugin']} was denied {data['grant']}, which it was not granted"
    return _about("plugin", text, "yellow")


def _ended(word: str) -> Callable[[Mapping[str, Any]], str]:
    def tell(data: Mapping[str, Any]) -> str:
        error = data.get("error")
        why = f" {_short(error['message'])} [{error['code']}]" if error else ""
        text = f"\n\n{data['text']}" if data.get("text") else ""
        return f"[bold]{word}[/]{escape(why)}{escape(harmless(text))}"

    return tell


_ACTIONS: Final[Mapping[str, str]] = {
    "retry": "tried again",
    "tell_model": "the model is told",
    "stop": "no second chance",
}
_LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "run.started": lambda data: _about("started", data["prompt"]),
    "context.assembled": _context,
    "context.failed": lambda data: _about("context", f"{data['message']} [{data['code']}]", "red"),
    "attempt.failed": _failed_attempt,
    "attempt.superseded": lambda data: _about("attempt", f"given up [{data['code']}]", "yellow"),
    "tool.batch.refused": lambda data: _about("tools", f"refused [{data['code']}]", "red"),
    "recovery.decided": _recovery,
    "inbox.taken": _inbox,
    "plugin.started": _plugin,
    "plugin.stopped": _plugin_gone,
    "plugin.denied": _denied,
    "run.blocked": lambda data: _about("blocked", data["message"], "yellow"),
    "run.completed": _ended("completed"),
    "run.failed": _ended("failed"),
    "run.canceled": _ended("canceled"),
}


def _clock(ms: int) -> str:
    """Time since the start: `1.234 s`, from a minute on `1:02:03`."""
    if ms < MINUTE_MS:
        return f"{ms / 1000:.3f} s"
    return f"{ms // HOUR_MS}:{ms // MINUTE_MS % 60:02}:{ms // 1000 % 60:02}"


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1000 else _clock(ms).replace("000 s", " s")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _short(text: str) -> str:
    text = harmless(" ".join(text.split()))
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 1] + "…"
