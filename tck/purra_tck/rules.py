"""The rules as data: what is demanded, by which clause, of whom. One table, `rules.toml`.

It generates the documentation of the rules, the test ids and every report. A rule of the table
that no check is registered for is `not-run` in every report, so that the table can never say more
than the kit does.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal

__all__ = ["SUITES", "Level", "Rule", "catalogue", "catalogue_digest", "of_suite"]

Level = Literal["MUST", "SHOULD", "IF"]
"""`IF`: a MUST for a subject that declares the capability, else n/a."""

SUITES: Final = ("host", "manifest", "model", "tool", "context", "compression", "store")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `clause`: chapter.paragraph of `docs/spec`. `hosts`: kinds it applies to.

    `saboteurs`: names of the broken subjects that this rule must catch. `untestable`: why nobody
    can test it, "" for every other rule.
    """

    id: str
    clause: str
    level: Level
    suite: str
    text: str
    how: str
    saboteurs: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    untestable: str = ""


@cache
def catalogue() -> Mapping[str, Rule]:
    """Every rule by id, in the order of the table."""
    rules: dict[str, Rule] = {}
    for row in tomllib.loads(_text())["rule"]:
        rule = Rule(
            row["id"],
            row["clause"],
            row["level"],
            row["suite"],
            row["text"],
            row["how"],
            tuple(row["saboteurs"]),
            tuple(row.get("hosts", ())),
            row.get("untestable", ""),
        )
        if rule.id in rules or rule.suite not in SUITES:
            raise ValueError(f"rules.toml: {rule.id} stands twice or names no suite")
        rules[rule.id] = rule
    return MappingProxyType(rules)


def catalogue_digest() -> str:
    """`sha256:` of the table, for reports: `verify` tells a report of another table."""
    return "sha256:" + hashlib.sha256(_text().encode()).hexdigest()


def of_suite(suite: str, host: str = "") -> tuple[Rule, ...]:
    """The rules of a suite; for the host suite those that apply to a kind of host."""
    return tuple(
        rule
        for rule in catalogue().values()
        if rule.suite == suite and (not host or host in rule.hosts)
    )


def _text() -> str:
    return files("purra_tck").joinpath("rules.toml").read_text(encoding="utf-8")
