"""What two reports tell together, and one at a glance: differences and badges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

__all__ = ["Difference", "badge_of", "differences", "heads"]

RANKS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "pass": 0,
        "n/a": 1,
        "warn": 2,
        "waived": 2,
        "not-run": 3,
        "untestable": 4,
        "flaky": 4,
        "fail": 4,
        "error": 4,
    }
)
"""How bad a verdict is. Not to be asked any more is worse than to pass: nobody knows then."""
ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """One rule whose verdict changed. `words`: why it is what it is now."""

    rule: str
    before: str
    after: str
    words: str

    @property
    def worse(self) -> bool:
        """Whether the later verdict says less for the subject."""
        bad = RANKS["not-run"]
        return RANKS.get(self.after, bad) > RANKS.get(self.before, bad)

    def __str__(self) -> str:
        mark = "✗" if self.worse else "✓"
        tail = f"  {self.words}" if self.words else ""
        return f"{mark} {self.rule}  {self.before} → {self.after}{tail}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """The rules of two reports that do not have the same verdict, in the order of the later one."""
    found: list[Difference] = []
    for rule in dict.fromkeys([*after["rules"], *before["rules"]]):
        old, new = before["rules"].get(rule, {}), after["rules"].get(rule, {})
        first, second = old.get("verdict", ABSENT), new.get("verdict", ABSENT)
        if first != second:
            words = new.get("observed") or new.get("reason") or ""
            found.append(Difference(rule, first, second, str(words)[:200]))
    return found


def heads(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What else is not the same: the subject, the kit, its rules, the seed."""
    for what, path in (
        ("subject", ("subject", "name")),
        ("version", ("subject", "version")),
        ("digest", ("subject", "digest")),
        ("kit", ("kit",)),
        ("rules", ("rulesDigest",)),
        ("seed", ("seed",)),
    ):
        old, new = _at(before, path), _at(after, path)
        if old != new:
            yield f"  {what}: {old} → {new}"


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name)
    return value


def badge_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """The badge as shields.io reads it. The report has been verified before."""
    must, should = report["totals"]["MUST"], report["totals"]["SHOULD"]
    whole = sum(must.values()) - must.get("n/a", 0)
    kind = report["subject"]["kind"]
    words = [f"{must.get('pass', 0)}/{whole} MUST"]
    words += [f"{must['waived']} waived"] if must.get("waived") else []
    words += [kind] if report["suite"] == "host" else [report["suite"]]
    return {
        "schemaVersion": 1,
        "label": "purra tck",
        "message": " · ".join(words),
        "color": _color(report, must.get("pass", 0) == whole, should),
    }


def _color(report: Mapping[str, Any], all_passed: bool, should: Mapping[str, int]) -> str:
    """Grey: parts of it were not asked; red: not conformant; yellow: with gaps."""
    if report["partial"] or report["cutShort"]:
        return "lightgrey"
    if not report["conformant"]:
        return "red"
    gaps = any(count for status, count in should.items() if status not in ("pass", "n/a"))
    return "brightgreen" if all_passed and not gaps else "yellow"
