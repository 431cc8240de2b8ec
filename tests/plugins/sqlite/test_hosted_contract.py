"""The plugin in its process passes the same checks, in real time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.conformance.store_suite import CHECKS, Check, name_of, run_check
from tests.plugins.sqlite.hosting import open_subject


@pytest.mark.parametrize("check", CHECKS, ids=name_of)
def test_contract(check: Check, tmp_path: Path) -> None:
    """Contract `purra.store/1` across the wire; peers are processes of their own (PLG-19)."""
    run_check(check, partial(open_subject, tmp_path / "store.db"))
