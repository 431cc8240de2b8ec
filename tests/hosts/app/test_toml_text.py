"""TOML as text: statements join to the whole file, and what is written is read as it was."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra_hosts.app.toml_text import key_text, replace_file, statements, value_text

ROOT = Path(__file__).parents[3]
FILES = sorted(
    path
    for pattern in ("pyproject.toml", "manifests/good/*.toml", "plugins/*/*/purra-plugin.toml")
    for path in ROOT.glob(pattern)
)
HARD = '''
a."b.c".'d' = """ [x] # no comment
" still
\\""" [[not.a.header]]
"""""
[t]   # a comment with a " quote
list = [ # one
  "]", ']', # ] two
  { x = "}" },
]
[[ "q.r" . s ]]
lit = \'\'\'
[z]
\'\'\'
'''
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=8), inner)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_statements_are_the_whole_file(path: Path) -> None:
    """Every byte once; each pair and each header by itself is TOML."""
    text = path.read_text()
    found = statements(text)
    assert "".join(statement.text for statement in found) == text
    for statement in found:
        tomllib.loads(statement.text)


def test_strings_brackets_and_comments_do_not_end_a_statement() -> None:
    tomllib.loads(HARD)
    found = statements(HARD)
    assert "".join(statement.text for statement in found) == HARD
    assert [(s.keys, s.header) for s in found if s.keys] == [
        (("a", "b.c", "d"), 0),
        (("t",), 1),
        (("list",), 0),
        (("q.r", "s"), 2),
        (("lit",), 0),
    ]


@given(VALUES, st.booleans())
def test_values_are_read_as_they_were_written(value: Any, long_text: bool) -> None:
    assert tomllib.loads(f"k = {value_text(value, long_text=long_text)}") == {"k": value}


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_keys_are_read_as_they_were_written(key: str) -> None:
    assert tomllib.loads(f"{key_text(key)} = 1") == {key: 1}


def test_whole_floats_are_written_as_people_write_them() -> None:
    """`timeout_s = 10`, not 10.0; a manifest takes both."""
    assert value_text(10.0) == "10"


def test_null_is_refused() -> None:
    with pytest.raises(ValueError, match="no None"):
        value_text({"a": [None]})


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("a = 1\n")
    path.chmod(0o640)
    replace_file(path, "a = 2\n")
    assert path.read_text() == "a = 2\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.toml"]
