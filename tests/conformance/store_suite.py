"""All checks of the store contract, and how to run one.

For a store of your own: write a factory that opens a `Subject`, and in a test module

    @pytest.mark.parametrize("check", CHECKS, ids=name_of)
    def test_contract(check): run_check(check, open_my_subject)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final

import anyio
import pytest

from tests.conformance.store_subject import OpenSubject, Subject

__all__ = ["CHECKS", "Check", "name_of", "run_check"]

Check = Callable[[Subject], Awaitable[None]]

_MODULES: Final = (
    "tests.conformance.store_streams",
    "tests.conformance.store_documents",
    "tests.conformance.store_scans",
    "tests.conformance.store_values",
    "tests.conformance.store_watches",
    "tests.conformance.store_blobs",
)
CHECK_S: Final = 60.0
"""Longest time of one check: a store that hangs fails it."""


def _collect() -> tuple[Check, ...]:
    pytest.register_assert_rewrite(*_MODULES)
    found: list[Check] = []
    for module in _MODULES:
        members = vars(import_module(module))
        found += [member for name, member in members.items() if name.startswith("check_")]
    return tuple(found)


CHECKS: Final = _collect()


def name_of(check: Check) -> str:
    """The check's name, as a test id."""
    return getattr(check, "__name__", "check").removeprefix("check_")


def run_check(check: Check, open_subject: OpenSubject) -> None:
    """Runs one check on a fresh subject."""

    async def main() -> None:
        with anyio.fail_after(CHECK_S):
            async with open_subject() as subject:
                await check(subject)

    anyio.run(main)
