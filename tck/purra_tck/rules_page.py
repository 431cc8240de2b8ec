"""The rule table as a page for people: `docs/spec/rules.md`, made by `purra tck list --page`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Final

from purra_tck.rules import Rule, catalogue

__all__ = ["page"]

CHAPTERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "LIF": ("Lifecycle", "01-lifecycle"),
        "HSK": ("Handshake", "02-handshake"),
        "FRM": ("Framing", "03-framing"),
        "CAL": ("Calls", "04-calls"),
        "STR": ("Streams and credit", "05-streams"),
        "CAN": ("Cancel and deadlines", "06-cancel-and-deadlines"),
        "SUP": ("Supervision", "07-supervision"),
        "IOC": ("Standard streams", "08-standard-streams"),
        "CAP": ("Capabilities", "09-capabilities"),
        "REG": ("Registry", "10-registry"),
        "LIM": ("Limits", "11-limits"),
        "SHD": ("Shutdown and reload", "12-shutdown-and-reload"),
        "MAN": ("Manifest", "13-manifest"),
        "MOD": ("Model", "14-model"),
        "TOL": ("Tool", "15-tool"),
        "CTX": ("Context", "16-context"),
        "CMP": ("Compression", "17-compression"),
        "STO": ("Store", "18-store"),
    }
)
"""Group of rules -> title, page of the chapter whose clauses it checks."""
LEVELS: Final[Mapping[str, str]] = MappingProxyType({"IF": "MUST, if declared"})
ALL_HOSTS: Final = ("process", "wasm", "inproc")

INTRODUCTION: Final = """\
# Rules of the conformance kit

Made by `purra tck list --page`; do not edit.

What the kit demands, by the chapters of the specification. An id never changes and is never used
again. *Saboteur* names the subjects, broken on purpose, that the rule has to catch before it
counts; `purra tck selftest` tries them all.

`purra tck list` says which rules this version checks, `purra tck explain STO-013` how one is
checked and why. A rule that is not checked yet is `not-run` in every report.
"""


def page() -> str:
    """The whole page, in the order of the table."""
    rules = catalogue().values()
    parts = [INTRODUCTION]
    for group, members in groupby(rules, key=lambda rule: rule.id.partition("-")[0]):
        title, chapter = CHAPTERS[group]
        parts.append(f"## {title}\n\nChapter: [{chapter}.md]({chapter}.md).\n")
        parts.append("\n".join(_table(members)) + "\n")
    return "\n".join(parts)


def _table(rules: Iterator[Rule]) -> Iterator[str]:
    yield "| rule | clause | level | what holds | saboteur |"
    yield "|---|---|---|---|---|"
    for rule in rules:
        level = LEVELS.get(rule.level, rule.level)
        if rule.hosts and set(rule.hosts) != set(ALL_HOSTS):
            level += f" ({', '.join(rule.hosts)})"
        saboteurs = ", ".join(f"`{name}`" for name in rule.saboteurs)
        yield f"| {rule.id} | {rule.clause} | {level} | {rule.text} | {saboteurs} |"
