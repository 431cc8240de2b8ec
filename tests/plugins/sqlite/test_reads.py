"""Reading: pages that fit a message, and a range for each prefix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from purra import values
from purra_plugin_sqlite import text
from purra_plugin_sqlite.engine import Engine
from purra_plugin_sqlite.reads import PAGE_BYTES
from purra_plugin_sqlite.requests import prefix_range
from tests.plugins.sqlite import children

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def test_pages_fit_a_message(tmp_path: Path) -> None:
    """K62, contract Page: bounded by size; one item is always there, however large."""
    engine = Engine(str(tmp_path / "store.db"))
    for number in range(6):
        large = "x" * (PAGE_BYTES // 3)
        ops = [children.append("run", number, large), children.put(f"doc/{number}", large, 0)]
        children.commit(engine, ("run", f"{number}"), *ops)
    huge = "x" * (PAGE_BYTES + 1)
    last = [children.append("run", 6, huge), children.put("doc/6", huge, 0)]
    children.commit(engine, ("run", "6"), *last)
    pages = [engine.read("run", after, 1000)["records"] for after in range(7)]
    assert [len(page) for page in pages] == [2, 2, 2, 2, 2, 1, 1]
    scan = {"prefix": "doc/", "limit": 1000}
    after, sizes = "", []
    while True:
        page = engine.scan({**scan, "after": after})
        sizes.append(len(page["documents"]))
        if not page["more"]:
            break
        after = page["documents"][-1]["key"]
    assert sizes == [2, 2, 2, 1]
    engine.close()


@given(prefix=TEXTS, name=TEXTS)
def test_a_range_holds_what_begins_with_its_prefix(prefix: str, name: str) -> None:
    """Design 6, scan: exactly those texts, in the order of UTF-8 bytes."""
    for each in (name, prefix + name, prefix):
        first, end = prefix_range(prefix)
        above = isinstance(end, bytes) or each < end
        assert (each >= first and above) == each.startswith(prefix)


def test_ranges_at_the_edges_of_unicode() -> None:
    """Design 6, scan: where the next character is not the next number, or there is none."""
    assert prefix_range("") == ("", b"")
    assert prefix_range("a\ud7ff") == ("a\ud7ff", "a\ue000")
    assert prefix_range("a\U0010ffff") == ("a\U0010ffff", "b")
    assert prefix_range("\U0010ffff") == ("\U0010ffff", b"")


@given(value=VALUES)
def test_text_is_exact(value: Any) -> None:
    """STO-022: what is written comes back with its types and bits, and its maps in their order."""
    assert json.dumps(text.decode(text.encode(value))) == json.dumps(value)


@given(value=VALUES)
def test_digests_are_the_kernels(value: Any) -> None:
    """Contract, order of checks, 2: the same digest as `purra.values.digest`."""
    assert "sha256:" + text.digest([value]).hex() == values.digest([value])
