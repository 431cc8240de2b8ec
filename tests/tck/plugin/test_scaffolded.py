"""What `purra plugins new` makes passes the kit; one defect is told with its place and mend."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from purra_tck import suites
from purra_tck.plugin_plan import NOT_BUILT, Asked, judged_package, plan_of
from purra_tck.report import Told, lines_of
from purra_tck.rules import catalogue, of_suite
from purra_tck.runner import Plan, Report, SubjectInfo, run
from purra_tck.subjects.store import subject_of
from purra_tck.subjects.store_plugin import PluginStorage, find_store

pytestmark = pytest.mark.trial

KINDS = ("tool", "model", "context", "policy", "store")
STORE_RULES = ("STO-003", "STO-005", "STO-008", "STO-011", "STO-013", "STO-022", "STO-023")
"""Of the store's rules those that take a second; `purra tck store` asks all of them."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new plugin of each kind, by the command that the documentation gives."""
    folder = tmp_path_factory.mktemp("made")
    for kind in KINDS:
        words = ["plugins", "new", f"acme-{kind}", "--kind", kind]
        argv = [sys.executable, "-m", "purra_hosts.app", *words]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def _report(folder: Path, *only: str) -> Report:
    asked = Asked(str(folder), only=only, twice=False)
    with judged_package(asked) as package:
        return anyio.run(run, plan_of(package, asked))


def _shown(report: Report) -> str:
    """What the terminal shows of all that is not green."""
    told: Told = {}
    lines: list[str] = []
    for rule, outcome in report.outcomes.items():
        if outcome.status not in ("pass", "n/a"):
            lines += lines_of(catalogue()[rule], outcome, told=told)
    return "\n".join(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_of_each_kind_keeps_every_rule(kind: str, made: Path) -> None:
    """PLG-21, issue C: as it is made, before anybody has written a line of it."""
    report = _report(made / f"acme-{kind}")
    assert _shown(report) == ""
    assert report.conclusion.conformant
    assert {rule.id for rule in report.rules} - report.outcomes.keys() <= set(NOT_BUILT)


def _store_report(folder: Path, storage: Path, *only: str) -> Report:
    found = PluginStorage(find_store(str(folder), {}), storage)
    plan = Plan(
        "store",
        SubjectInfo("journal", kind="store"),
        of_suite("store"),
        suites.of("store"),
        lambda: subject_of(found),
        only=only,
        twice=False,
    )
    return anyio.run(run, plan)


def test_a_new_store_keeps_the_rules_of_stores(made: Path, tmp_path: Path) -> None:
    report = _store_report(made / "acme-store", tmp_path, *STORE_RULES)
    assert _shown(report) == ""
    assert set(report.outcomes) == set(STORE_RULES)


@dataclass(frozen=True, slots=True)
class Defect:
    """One edit of a plugin, the rule that it breaks, and what a person is told about it."""

    name: str
    kind: str
    file: str
    edit: tuple[str, str]
    rule: str
    told: tuple[str, ...]


def _raising(text: str) -> tuple[str, str]:
    return (text, f'        raise RuntimeError("boom")\n{text}')


DEFECTS = (
    Defect(
        "a key of the manifest",
        "tool",
        "purra-plugin.toml",
        ("timeout_s = 10", "timeout = 10"),
        "MAN-001",
        ("purra-plugin.toml: provides[0].timeout", "did you mean 'timeout_s'?"),
    ),
    Defect(
        "a module that is not there",
        "tool",
        "purra-plugin.toml",
        (".plugin:plugin", ".plugn:plugin"),
        "MAN-004",
        ("purra-plugin.toml:8  entry =", "as they are in the package"),
    ),
    Defect(
        "a name that the code has otherwise",
        "policy",
        "plugin.py",
        ('@policy("rules")', '@policy("rule")'),
        "MAN-004",
        (r"purra-plugin.toml:\d+  name = \"rules\"", "in the manifest and in the code"),
    ),
    Defect(
        "a handler that raises",
        "tool",
        "plugin.py",
        ("    words = [", '    raise KeyError("x")\n    words = ['),
        "TOL-005",
        (r"plugin.py:\d+, in count", "raise ToolError or PluginError with a code"),
    ),
    Defect(
        "a number that is none",
        "tool",
        "plugin.py",
        ('"words": len(words)', '"words": float("nan")'),
        "TOL-005",
        (r"plugin.py:\d+  @tool\(", "'words'", "finite numbers"),
    ),
    Defect(
        "a parameter that the manifest does not know",
        "tool",
        "plugin.py",
        ("    letters: Ann", "    least: Ann"),
        "TOL-002",
        (r"plugin.py:\d+", "'letters'", "purra plugins manifest --write"),
    ),
    Defect(
        "a module that ends the process",
        "tool",
        "plugin.py",
        ("from typing import", "raise SystemExit\nfrom typing import"),
        "TOL-004",
        (r"plugin.py:\d+, in <module>", "importing the module must neither fail"),
    ),
    Defect(
        "an example that does not fit",
        "tool",
        "tck.toml",
        ('text = "one two', 'txt = "one two'),
        "TOL-013",
        (r"tck.toml: tool.safe\[0\].args: .*required text", "arguments that its tool takes"),
    ),
    Defect(
        "an answer without an end",
        "model",
        "plugin.py",
        ('yield finish("length" if len(answer) > most else "stop")', "pass"),
        "MOD-003",
        (r"plugin.py:\d+  @model\(", "Yield exactly one"),
    ),
    Defect(
        "a feature that is only claimed",
        "model",
        "plugin.py",
        ('        if request["tools"]:', "        if False:"),
        "MOD-017",
        (r"plugin.py:\d+  @model\(", "Claim a feature in `profile`"),
    ),
    Defect(
        "an answer that breaks",
        "model",
        "plugin.py",
        _raising('        answer = "You'),
        "MOD-003",
        (r"plugin.py:\d+, in generate", "raise ToolError or PluginError"),
    ),
    Defect(
        "more than the budget",
        "context",
        "plugin.py",
        ("            if left < 0:", "            if False:"),
        "CTX-001",
        (r"plugin.py:\d+  @context\(", "stop before the budget is passed"),
    ),
    Defect(
        "a digest of something else",
        "context",
        "plugin.py",
        ("paragraph.encode()).hex", 'b"x").hex'),
        "CTX-004",
        (r"plugin.py:\d+  @context\(", "of exactly its content"),
    ),
    Defect(
        "text of others as one's own",
        "context",
        "plugin.py",
        ('"untrusted": True', '"untrusted": False'),
        "CTX-003",
        (r"plugin.py:\d+  @context\(", "`untrusted: True`"),
    ),
    Defect(
        "a key of the configuration",
        "context",
        "purra-plugin.toml",
        ("{config.file}", "{config.fil}"),
        "MAN-001",
        ("purra-plugin.toml: capabilities.fs.read", "did you mean 'file'?"),
    ),
    Defect(
        "a kind that does not exist",
        "store",
        "purra-plugin.toml",
        ('kind = "store"', 'kind = "stor"'),
        "MAN-001",
        (r"purra-plugin.toml: provides\[0\].kind", "did you mean 'store'?"),
    ),
)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_one_defect_is_told_with_its_place_and_its_mend(
    defect: Defect, made: Path, tmp_path: Path
) -> None:
    """Issue C: it fails with a message that names file and key or line, and the fix."""
    folder = tmp_path / f"acme-{defect.kind}"
    shutil.copytree(made / folder.name, folder)
    (path,) = folder.rglob(defect.file)
    text = path.read_text()
    assert defect.edit[0] in text
    path.write_text(text.replace(*defect.edit))
    report = _report(folder, defect.rule)
    shown = _shown(report)
    assert not report.conclusion.conformant
    assert defect.rule in shown
    assert str(folder) in shown
    for part in defect.told:
        assert re.search(part if "\\" in part else re.escape(part), shown), f"{part}\n{shown}"


def test_a_store_that_ignores_its_cursor_is_told(made: Path, tmp_path: Path) -> None:
    folder, storage = tmp_path / "acme-store", tmp_path / "storage"
    shutil.copytree(made / "acme-store", folder)
    storage.mkdir(mode=0o700)
    path = folder / "purra_plugin_acme_store" / "plugin.py"
    old = "self._file.read(stream, after, limit)"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, "self._file.read(stream, 0, limit)"))
    report = _store_report(folder, storage, "STO-005")
    assert report.outcomes["STO-005"].status == "fail"
    assert "records after 1" in _shown(report)


def test_one_cause_is_shown_once(made: Path, tmp_path: Path) -> None:
    """A plugin that does not start fails every rule: the first says why, the others refer to it."""
    folder = tmp_path / "acme-tool"
    shutil.copytree(made / "acme-tool", folder)
    path = folder / "purra_plugin_acme_tool" / "plugin.py"
    path.write_text("raise SystemExit(3)\n")
    shown = _shown(_report(folder, "TOL-00[2-5]"))
    assert shown.count("observed") == 1
    assert shown.count("    as TOL-002") == 3
