"""The reference says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from purra_bridge.wire.errors import CODES, REASONS
from tests.docs import reference


@pytest.mark.parametrize("path", reference.PAGES, ids=lambda path: path.name)
def test_the_reference_is_current(path: Path) -> None:
    """If this fails: `python -m tests.docs.reference`, and look at the difference."""
    assert path.read_text() == reference.PAGES[path]()


def test_nothing_is_explained_that_is_not_there() -> None:
    assert set(reference._WIRE) == set(CODES)
    assert set(reference._REASON) == set(REASONS)
    assert {path.name for path in reference.FOLDER.iterdir()} == {p.name for p in reference.PAGES}
