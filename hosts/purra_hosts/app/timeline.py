"""A run's journal as a person reads it afterwards: one line per thing that mattered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.markup import escape

from purra.journal.events import Event
from purra.journal.state import RunState
from purra.runs.directory import RunInfo
from purra_hosts.app.render import arguments_line, result_line

__all__ = ["summary_value", "timeline"]


def timeline(event: Event, started_ms: int) -> str:
    """The line of an event, with its time since the start; "" for events that only keep books."""
    tell = _LINES.get(event.kind)
    if tell is None:
        return ""
    return f"[dim]{(event.at_ms - started_ms) / 1000:8.3f} s[/]  {tell(event.data)}"


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


def _calls(data: Mapping[str, Any]) -> str:
    calls = (
        f"{escape(call['name'])} {escape(arguments_line(call['arguments']))}"
        for call in data["calls"]
    )
    return "tools     " + "; ".join(calls)


def _result(data: Mapping[str, Any]) -> str:
    mark = "[red]✗[/]" if data["is_error"] else "[green]✓[/]"
    effect = f" [{data['effect_state']}]" if data["effect_state"] != "not_started" else ""
    return f"result    {mark} {escape(data['name'] + ': ' + result_line(data) + effect)}"


def _round(data: Mapping[str, Any]) -> str:
    usage = data["usage"]
    tokens = f"{usage['input_tokens']}+{usage['output_tokens']} tokens"
    return f"round {data['round']:<4}[bold]{data['finish']['reason']}[/], {tokens}"


def _ended(word: str) -> Callable[[Mapping[str, Any]], str]:
    def tell(data: Mapping[str, Any]) -> str:
        error = data.get("error")
        why = f" {error['message']} [{error['code']}]" if error else ""
        text = f"\n\n{data['text']}" if data.get("text") else ""
        return f"[bold]{word}[/]{escape(why)}{escape(text)}"

    return tell


_LINES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "run.started": lambda data: f"started   {escape(data['prompt'])}",
    "run.owned": lambda data: f"[dim]owned     by {data['kernel']}, term {data['term']}[/]",
    "context.assembled": lambda data: f"context   {len(data['blocks'])} blocks",
    "context.failed": lambda data: f"context   [red]{escape(data['message'])}[/]",
    "model.round": _round,
    "attempt.failed": lambda data: f"attempt   [red]{escape(data['code'])}[/]",
    "attempt.superseded": lambda data: f"attempt   [yellow]given up: {data['code']}[/]",
    "tool.batch.admitted": _calls,
    "tool.batch.refused": lambda data: f"tools     [red]refused: {data['code']}[/]",
    "tool.call.completed": _result,
    "approval.requested": lambda data: f"approval  call {data['call']} waits for a person",
    "approval.decided": lambda data: f"approval  {data['decision']} by {escape(data['by'])}",
    "recovery.decided": lambda data: f"recovery  {data['cause']}: {data['action']}",
    "run.blocked": lambda data: f"[yellow]blocked   {escape(data['message'])}[/]",
    "run.reconciled": lambda data: f"reconciled call {data['call']}: {data['effect_state']}",
    "run.completed": _ended("completed"),
    "run.failed": _ended("failed"),
    "run.canceled": _ended("canceled"),
}
