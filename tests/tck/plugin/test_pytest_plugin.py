"""The kit as a pytest plugin: one item for each rule, and a report that no test file can edit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from purra_tck.report import verify
from purra_tck.rules import of_suite
from purra_tck.saboteurs.plugin_notes import NOTES

pytestmark = pytest.mark.trial

FILE = "import purra_tck\n\nTestTck = purra_tck.suite('tck.toml')\n"
SOME = "MAN-001 or MAN-005 or MAN-006"


def _project(folder: Path, test_file: str = FILE, *edits: tuple[str, str]) -> Path:
    for name, text in NOTES.changed("", *edits).files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    subject = '[subject]\nmanifest = "purra_plugin_notes/purra-plugin.toml"\n'
    (folder / "tck.toml").write_text(subject + NOTES.fixtures)
    (folder / "test_tck.py").write_text(test_file)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return folder


def _pytest(folder: Path, *words: str) -> tuple[int, str]:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tck-report=report", *words]
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout + done.stderr


def _report(folder: Path) -> dict[str, Any]:
    path = folder / "report" / "tck.json"
    assert verify(path) == []
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _verdicts(folder: Path) -> dict[str, str]:
    rows = _report(folder)["rules"].items()
    return {rule: row["verdict"] for rule, row in rows if row["verdict"] != "not-run"}


def test_one_item_per_rule_and_what_is_left_out_has_not_run(tmp_path: Path) -> None:
    """Deselected items become not-run: a partial run shows its denominators."""
    code, told = _pytest(_project(tmp_path), "-v", "-k", SOME)
    assert code == 0, told
    assert "test_tck.py::TestTck::test[MAN-005] PASSED" in told
    assert _verdicts(tmp_path) == dict.fromkeys(("MAN-001", "MAN-005", "MAN-006"), "pass")
    report = _report(tmp_path)
    assert report["partial"]
    assert len(report["rules"]) == len(of_suite("manifest")) + len(of_suite("tool"))
    assert "not-run 20" in told


def test_under_xdist_the_report_is_the_same(tmp_path: Path) -> None:
    code, told = _pytest(_project(tmp_path), "-n", "2", "-k", SOME)
    assert code == 0, told
    assert _verdicts(tmp_path) == dict.fromkeys(("MAN-001", "MAN-005", "MAN-006"), "pass")


def test_a_suite_whose_tests_were_all_deselected_is_reported(tmp_path: Path) -> None:
    code, told = _pytest(_project(tmp_path), "-n", "2", "-k", "nothing_of_that_name")
    assert code == 5, told
    assert _verdicts(tmp_path) == {}
    assert not _report(tmp_path)["conformant"]


@pytest.mark.parametrize(
    "test_file",
    [
        FILE + "\n\nclass TestMine(TestTck):\n    def test(self):\n        pass\n\n\ndel TestTck\n",
        FILE + "\n\nTestTck.test = lambda self: None\n",
    ],
    ids=["overridden", "replaced"],
)
def test_a_test_that_was_replaced_judges_nothing(test_file: str, tmp_path: Path) -> None:
    """The verdict cannot be edited from the test file."""
    code, told = _pytest(_project(tmp_path, test_file))
    assert (code, _verdicts(tmp_path)) == (0, {}), told
    assert not _report(tmp_path)["conformant"]


def test_an_expected_failure_is_a_failure(tmp_path: Path) -> None:
    marked = "import pytest\n" + FILE + "TestTck = pytest.mark.xfail(TestTck)\n"
    edit = ("inflight = 16", "inflight = 0")
    code, told = _pytest(_project(tmp_path, marked, edit), "-k", "MAN-006")
    assert (code, _verdicts(tmp_path)) == (0, {"MAN-006": "fail"}), told
    assert not _report(tmp_path)["conformant"]


def test_a_red_rule_says_what_a_person_needs(tmp_path: Path) -> None:
    edit = ("inflight = 16", "inflight = 0")
    code, told = _pytest(_project(tmp_path, FILE, edit), "-k", "MAN-006")
    assert code == 1
    assert "limits.inflight: must be at least 1" in told
    assert "purra tck explain MAN-006" in told


def test_a_file_without_a_subject_is_an_error_of_the_file(tmp_path: Path) -> None:
    folder = _project(tmp_path)
    (folder / "tck.toml").write_text("[config]\n")
    code, told = _pytest(folder)
    assert code != 0
    assert "names no subject" in told


def test_the_entry_loads_nothing_but_the_standard_library() -> None:
    """It is in every pytest run of the environment, also where nobody proves anything."""
    program = (
        "import sys; before = set(sys.modules); import purra_tck, purra_tck.pytest_plugin;"
        "print(sorted({m.split('.')[0] for m in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['purra_tck']"


def test_a_known_failure_is_skipped_and_a_stale_waiver_fails_the_run(tmp_path: Path) -> None:
    """`--tck-waivers`: the failure is in the report, waived; what is green needs none."""
    edit = ("inflight = 16", "inflight = 0")
    folder = _project(tmp_path, FILE, edit)
    row = '[[waiver]]\nrule = "MAN-006"\nmessage = "{}"\nissue = "issue 17"\nexpires = 2999-01-01\n'
    file = folder / "tck-waivers.toml"
    place = folder / "purra_plugin_notes" / "purra-plugin.toml"
    file.write_text(row.format(f"{place}: limits.inflight"))
    words = ("-k", "MAN-006", "-rs", "--tck-waivers=tck-waivers.toml")
    code, told = _pytest(folder, *words)
    assert (code, _verdicts(folder)) == (0, {"MAN-006": "waived"}), told
    assert "waived: issue 17, until 2999-01-01" in told
    place.write_text(place.read_text().replace(edit[1], edit[0]))
    code, told = _pytest(folder, *words)
    assert (code, _verdicts(folder)) == (1, {"MAN-006": "pass"}), told
    assert "✗ waiver MAN-006" in told
