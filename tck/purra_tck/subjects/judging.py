"""Whose fault it is that a check could not go on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from purra.errors import PurraError
from purra_tck.verdict import Case, NotApplicable, RuleViolation, SubjectFailed, Untestable

__all__ = ["judged"]

Judged = Callable[[Case, Any], Coroutine[Any, Any, None]]


def judged(check: Judged) -> Judged:
    """An error that the subject answers with, where the check expects success, is the subject's.

    Without this it would count as a fault of the kit. Verdicts that come out of a task group go
    before errors that they only caused.
    """

    @wraps(check)
    async def run(case: Case, subject: Any) -> None:
        try:
            await check(case, subject)
        except PurraError as error:
            raise _unexpected(error) from error
        except ExceptionGroup as group:
            if group.subgroup((RuleViolation, NotApplicable, Untestable)) is not None:
                raise
            errors = group.subgroup(PurraError)
            if errors is None:
                raise
            raise _unexpected(_first(errors)) from group

    return run


def _first(group: ExceptionGroup[PurraError]) -> PurraError:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, ExceptionGroup) else inner


def _unexpected(error: PurraError) -> SubjectFailed:
    return SubjectFailed(
        "each call succeeds unless the rule says otherwise", f"{type(error).__name__}: {error}"
    )
