"""Makes the pages of `docs/reference` from the tables in the code.

    python -m tests.docs.reference

writes them; a test says when they are old. What the tables do not say (what a wire code means to a
reader) is said here, and a name that is missing here is an error.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from purra.errors import CODES
from purra.journal.events import KINDS
from purra.runs import keys
from purra_bridge.wire.errors import CODES as WIRE_CODES
from purra_bridge.wire.errors import REASONS
from purra_hosts.app import exits
from tests.architecture.public import PUBLIC, public_names
from tests.docs.pages import ROOT

__all__ = ["PAGES", "write"]

FOLDER: Final = ROOT / "docs" / "reference"
MADE: Final = "Made by `python -m tests.docs.reference`\nfrom {source}; do not edit."

_WIRE: Final[Mapping[str, str]] = {
    "spawn_failed": "the process could not be started; `errno` and the program are in the detail",
    "handshake_timeout": "no HELLO in time",
    "version_mismatch": "the two ends speak no common version",
    "manifest_mismatch": "HELLO or READY does not say what the manifest says",
    "start_timeout": "no READY in time",
    "isolation_unavailable": "the required level of isolation is not there",
    "overloaded": "as many calls are open or wait as may",
    "draining": "the connection takes no new calls; this one was not started",
    "retired": "what was called is being taken away",
    "quarantined": "the plugin failed too often and rests",
    "not_active": "the instance is not ready, or was stopped",
    "capability_denied": "the plugin may not do that",
    "too_large": "a message over the agreed bound; both are in the detail",
    "crashed": "the process ended; status or signal, and the end of stderr, are in the detail",
    "closed": "the connection ended, the process did not",
    "unresponsive": "no sign of life for too long",
    "tainted": "a call did not heed its cancel, or passed its hard time",
    "protocol_violation": "the other end broke the protocol; the reason is in the detail",
    "cancelled": "the caller gave the call up",
    "deadline_exceeded": "the call's time was up",
    "parent_gone": "the call that this one was made for is over",
    "invalid_argument": "the request is not what the contract says",
    "unimplemented": "there is no such adapter or method",
    "not_found": "what was asked for is not there",
    "failed_precondition": "the present state does not allow it; a store says more in the detail",
    "resource_exhausted": "the plugin has used up something",
    "rate_limited": "too many requests; `after_ms` says when to come again",
    "upstream": "a service behind the plugin failed; its status is in the detail",
    "contract_violation": "an answer that breaks the contract or the value model",
    "internal": "the handler raised something that it did not mean to",
}
_REASON: Final[Mapping[str, str]] = {
    "bad_frame": "a header or a connection message that cannot be read",
    "before_hello": "the first frame was not HELLO",
    "out_of_order": "legal, but not in this state of the connection or the call",
    "unknown_type": "a type that must be understood and is not",
    "unknown_id": "an id that nobody issued",
    "reused_id": "a CALL on an id that was used before",
    "duplicate_terminal": "RESULT or ERROR after the terminal",
    "after_terminal": "DATA after the terminal",
    "flow": "DATA without credit, or credit that nobody spent",
    "stdout_polluted": "text where the preamble was due",
}
_EXIT: Final[Mapping[str, str]] = {
    "COMPLETED": "the run completed, or the command did what it was asked",
    "FAILED": "the run failed, or an error that is nobody's mistake here",
    "USAGE": "what was typed is wrong",
    "BLOCKED": "the run is blocked or waiting: a person must do something",
    "SETUP": "a manifest, a plugin or isolation; nothing ran",
    "CANCELED": "the run was cancelled",
}


def write() -> None:
    """Writes every page."""
    FOLDER.mkdir(exist_ok=True)
    for path, make in PAGES.items():
        path.write_text(make())


def _page(title: str, source: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", MADE.format(source=source), *parts]) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _events() -> str:
    rows = [
        (
            f"`{name}`",
            kind.meaning + (" (ends the run)" if kind.terminal else ""),
            _names(kind.fields),
            _names(kind.optional),
        )
        for name, kind in KINDS.items()
    ]
    return _page(
        "Events",
        "`purra.journal.events`",
        "An event is `{seq, run, thread, kind, at_ms, parent, data}`. `seq` is dense from 1,\n"
        "`thread` is `root` for the run's own agent, `at_ms` the owner's clock, `parent` the\n"
        "`seq` of the event that caused it, or null.",
        "An optional field may be added to a kind; anything else is a new kind. Old journals\n"
        "fold for ever.",
        _table(("kind", "meaning", "always in `data`", "may be"), rows),
        "A draft is no event: `{kind, attempt, round, provisional, text}` in the output stream,\n"
        "of kind `model.content_delta` or `model.reasoning_delta`.",
    )


def _errors() -> str:
    blames = list(dict.fromkeys(row.blame for row in CODES.values()))
    parts = []
    for blame in blames:
        rows = [
            (f"`{code}`", row.meaning, row.retry)
            for code, row in CODES.items()
            if row.blame == blame
        ]
        table = _table(("code", "meaning", "try again"), rows)
        parts += [f"## Kernel: the fault of the {blame}", table]
    wire = [(f"`{code}`", _WIRE[code], *row) for code, row in WIRE_CODES.items()]
    reasons = [(f"`{reason}`", _REASON[reason]) for reason in REASONS]
    return _page(
        "Errors",
        "`purra.errors` and `purra_bridge.wire.errors`",
        'A code never changes its meaning. "Try again" says whether that can help: never, the\n'
        "same again, or only something other.",
        *parts,
        "## On the wire",
        "What an ERROR says where it does not say otherwise. They reach the kernel unchanged.",
        _table(("code", "meaning", "origin", "executed", "try again"), wire),
        "## Reasons of a `protocol_violation`",
        _table(("reason", "meaning"), reasons),
    )


def _exit_codes() -> str:
    rows = [
        (str(getattr(exits, name)), _EXIT[name])
        for name in exits.__all__
        if name.isupper() and name != "OF_STATUS"
    ]
    statuses = [(f"`{status}`", str(code)) for status, code in exits.OF_STATUS.items()]
    return _page(
        "Exit codes",
        "`purra_hosts.app.exits`",
        _table(("code", "meaning"), sorted(rows, key=lambda row: int(row[0]))),
        "Of a run, by its status:",
        _table(("status", "code"), statuses),
        "Of an error: 4 if an operator can mend it, 2 if the caller can, else 1.",
    )


def _store_keys() -> str:
    rows = []
    for name in keys.__all__:
        make: Callable[[str], str] = getattr(keys, name)
        kind, _, meaning = (inspect.getdoc(make) or "").partition(": ")
        rows.append((f"`{make('ID')}`", kind.lower(), meaning.rstrip(".")))
    return _page(
        "Names in the store",
        "`purra.runs.keys`",
        "Other processes read them, so they do not move. ID is that of the run, session or kernel.",
        _table(("name", "what", "holds"), rows),
        "Reserved, and not used yet: `kernel/ID/inbox`.",
    )


def _public_names() -> str:
    modules = [(name, inspect.getdoc(importlib.import_module(name)) or "") for name in PUBLIC]
    parts = [
        f"## `{name}`\n\n{doc.splitlines()[0]}\n\n{_wrapped(public_names()[name])}"
        for name, doc in modules
    ]
    return _page(
        "Public names",
        "`__all__` of the modules",
        "What a program may import. Everything else may move without notice.",
        *parts,
    )


def _wrapped(names: Iterable[str]) -> str:
    return textwrap.fill(_names(names), 100, break_on_hyphens=False)


PAGES: Final[Mapping[Path, Callable[[], str]]] = {
    FOLDER / "events.md": _events,
    FOLDER / "errors.md": _errors,
    FOLDER / "exit-codes.md": _exit_codes,
    FOLDER / "public-names.md": _public_names,
    FOLDER / "store-keys.md": _store_keys,
}


if __name__ == "__main__":
    write()
