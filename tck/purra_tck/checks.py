"""Which function checks which rule. Suites register theirs; nothing else knows them by name.

A check takes the `Case` and the subject of its suite. There is no global registry: a suite module
holds a `Checks`, and `suites.of` names the modules of a suite (invariant 10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from purra_tck.rules import catalogue
from purra_tck.verdict import Case

__all__ = ["Check", "Checks"]

Check = Callable[[Case, Any], Awaitable[None]]
F = TypeVar("F", bound=Check)


class Checks:
    """The checks of one suite module."""

    def __init__(self, *groups: str) -> None:
        """`groups`: prefixes of the rule ids that this module may check, e.g. `LIF`."""
        self._groups = groups
        self._checks: dict[str, Check] = {}

    def rule(self, rule_id: str) -> Callable[[F], F]:
        """Registers the decorated coroutine function as the check of one rule.

        Raises `ValueError` for an unknown rule, another group's, or one that has a check.
        """
        if rule_id not in catalogue() or not rule_id.startswith(self._groups):
            raise ValueError(f"{rule_id} is not a rule of {', '.join(self._groups)}")
        if rule_id in self._checks:
            raise ValueError(f"{rule_id} has two checks")

        def register(check: F) -> F:
            self._checks[rule_id] = check
            return check

        return register

    def all(self) -> Mapping[str, Check]:
        """Every check by rule id."""
        return dict(self._checks)
