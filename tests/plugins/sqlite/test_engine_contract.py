"""The engine passes the checks of the store contract (TST-04), on a file, with a clock of ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.conformance.store_suite import CHECKS, Check, name_of, run_check
from tests.plugins.sqlite.engine_channel import open_subject


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_contract(check: Check, tmp_path: Path) -> None:
    """Contract `purra.store/1`; two openings of one file are peers."""
    run_check(check, partial(open_subject, tmp_path / "folder" / "store.db"))


def test_the_suite_runs_twice_on_one_file(tmp_path: Path) -> None:
    """STO-025: checks meet what earlier ones left, and are not disturbed by it."""
    path = tmp_path / "store.db"
    for round_number in (1, 2):
        for check in CHECKS:
            namespace = f"{round_number}:{name_of(check)}"
            run_check(check, partial(open_subject, path, namespace))
