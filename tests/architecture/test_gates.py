"""The gates can fail: each finds what it is there for in a file that breaks it."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.architecture import test_habits, test_shape
from tests.architecture.gates import GATES, hold
from tests.architecture.sources import Source, functions


def source(text: str, path: str = "purra/x.py", module: str = "purra.x") -> Source:
    return Source(path, module, text, ast.parse(text))


def breaks(monkeypatch: Any, module: Any, gate: Any, *files: Source) -> str:
    """What `gate` says of a project made of `files`."""
    monkeypatch.setattr(
        "tests.architecture.gates._exceptions", lambda: {name: {} for name in GATES}
    )
    monkeypatch.setattr(module, "sources", lambda: files)
    monkeypatch.setattr(module, "suite", lambda: ())
    monkeypatch.setattr(module, "ALL", files, raising=False)
    with pytest.raises(AssertionError) as caught:
        gate()
    return str(caught.value)


def test_an_unneeded_exception_fails(monkeypatch: Any) -> None:
    listed = {"nesting": {"purra/x.py::f": "a reason that is long enough"}}
    monkeypatch.setattr("tests.architecture.gates._exceptions", lambda: listed)
    hold("nesting", {"purra/x.py::f": "5 levels"})
    with pytest.raises(AssertionError, match="no longer breaks"):
        hold("nesting", {})
    listed["nesting"] = {"purra/x.py::f": ""}
    with pytest.raises(AssertionError, match="no reason given"):
        hold("nesting", {"purra/x.py::f": "5 levels"})


def test_length_is_counted_without_the_docstring() -> None:
    [function] = functions(
        source('def f():\n    """One.\n\n    Two.\n    """\n    a = 1\n    return a\n')
    )
    assert function.lines == 3


@pytest.mark.parametrize(
    ("body", "depth"),
    [
        ("return 1", 0),
        ("if a:\n  pass\n elif b:\n  pass\n elif c:\n  pass", 1),
        ("if a:\n  pass\n else:\n  if b:\n   pass\n  x = 1", 2),
        ("for a in b:\n  try:\n   pass\n  except E:\n   with c:\n    pass", 3),
        ("match a:\n  case 1:\n   if b:\n    pass", 2),
        ("def g():\n  if a:\n   pass", 0),
    ],
)
def test_depth_of_blocks(body: str, depth: int) -> None:
    [function, *_] = functions(source(f"def f():\n {body}\n"))
    assert test_shape._depth(function.body) == depth


def test_deep_wide_and_long_functions_are_found(monkeypatch: Any) -> None:
    deep = "if a:\n  if a:\n   if a:\n    if a:\n     if a:\n      pass"
    assert "purra/x.py::f: 5 levels" in breaks(
        monkeypatch,
        test_shape,
        test_shape.test_blocks_are_not_nested_deeply,
        source(f"def f():\n {deep}\n"),
    )
    wide = "class C:\n    def f(self, a, b, /, c, *d, e, g, **h): ...\n"
    assert "purra/x.py::C.f: 7 parameters" in breaks(
        monkeypatch, test_shape, test_shape.test_signatures_stay_narrow, source(wide)
    )
    long = "def f():\n" + "    a = 1\n" * 70
    assert "purra/x.py::f: 71 lines" in breaks(
        monkeypatch, test_shape, test_shape.test_functions_stay_short, source(long)
    )
    assert "601 lines" in breaks(
        monkeypatch, test_shape, test_shape.test_files_stay_short, source("a = 1\n" * 601)
    )


def test_copies_are_found_under_other_names(monkeypatch: Any) -> None:
    first = ["def f(a):", "b = a.x", "if b:", "  return b", "c = b + 1", "c.go()", "return c"]
    again = ["def g(p: int):", "'Doc.'", "q = p.x", "if q:", "  return q", "r = q + 1", "r.go()"]
    text = "\n    ".join(first) + "\n" + "\n    ".join([*again, "return r"]) + "\n"
    assert "purra/x.py::g: the same as purra/x.py::f" in breaks(
        monkeypatch, test_shape, test_shape.test_no_function_is_written_twice, source(text)
    )
    other = text.replace("r.go()", "r.stop()")
    monkeypatch.setattr(test_shape, "sources", lambda: (source(other),))
    test_shape.test_no_function_is_written_twice()


def test_stacked_classes_relays_and_vague_names_are_found(monkeypatch: Any) -> None:
    stacked = "class A(Exception): ...\nclass B(A): ...\nclass C(B): ...\nclass D(C): ...\n"
    assert "purra/x.py::D: 4 classes deep" in breaks(
        monkeypatch, test_shape, test_shape.test_classes_are_not_stacked, source(stacked)
    )
    relay = "f(a=a, b=b, c=c, d=d, e=e, g=g)\n"
    assert "purra/x.py:1: 6 names" in breaks(
        monkeypatch, test_shape, test_shape.test_names_are_not_relayed, source(relay)
    )
    assert "a vague name" in breaks(
        monkeypatch,
        test_shape,
        test_shape.test_modules_have_names_that_say_something,
        source("", "purra/_utils.py", "purra._utils"),
    )


@pytest.mark.parametrize(
    ("handler", "comment", "broken"),
    [
        ("except Exception:", "", True),
        ("except (OSError, BaseException) as e:", "noqa: BLE001", True),
        ("except:", "noqa: E722", True),
        ("except Exception:", "a plugin may raise anything", False),
        ("except OSError:", "", False),
    ],
)
def test_broad_handlers_are_found(
    monkeypatch: Any, handler: str, comment: str, broken: bool
) -> None:
    file = source(f"try:\n    pass\n{handler}\n    pass\n")
    file.__dict__["comments"] = {3: comment} if comment else {}
    if broken:
        gate = test_habits.test_broad_handlers_give_a_reason
        assert "purra/x.py:3" in breaks(monkeypatch, test_habits, gate, file)
    else:
        monkeypatch.setattr(test_habits, "sources", lambda: (file,))
        monkeypatch.setattr(test_habits, "suite", lambda: ())
        test_habits.test_broad_handlers_give_a_reason()


def test_missing_exports_docstrings_and_units_are_found(monkeypatch: Any) -> None:
    bare = source('"""Doc."""\ndef f(): ...\n')
    gate = test_habits.test_public_modules_say_what_they_offer
    assert "no __all__" in breaks(monkeypatch, test_habits, gate, bare)
    ghost = source('"""Doc."""\n__all__ = ["g"]\n')
    assert "not there: g" in breaks(monkeypatch, test_habits, gate, ghost)
    undocumented = source('"""Doc."""\n__all__ = ["f"]\ndef f(): ...\n')
    gate = test_habits.test_what_is_offered_is_documented
    assert "purra/x.py::f" in breaks(monkeypatch, test_habits, gate, undocumented)
    for text in ("def f(timeout: float): ...", "GRACE: Final = 2.0", "BODY_SIZE = 5"):
        gate = test_habits.test_quantities_have_a_unit
        assert "without a unit" in breaks(monkeypatch, test_habits, gate, source(text))
    unused = source('"""Doc."""\n', "purra/lost.py", "purra.lost")
    gate = test_habits.test_every_file_is_used
    assert "purra/lost.py" in breaks(monkeypatch, test_habits, gate, unused)
