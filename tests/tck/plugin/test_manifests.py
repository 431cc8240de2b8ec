"""What the plugin suites are made from: packages as people name them, fixtures, variants (MAN)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from purra.errors import PurraError
from purra.manifest.plugin import load_plugin
from purra_tck.fixtures import Fixtures, filled, load_fixtures
from purra_tck.plugin_plan import Asked, config_of, judged_package, plan_of
from purra_tck.runner import Report, run
from purra_tck.saboteurs.plugin_notes import NOTES
from purra_tck.saboteurs.plugin_parts import Parts
from purra_tck.subjects.plugin_manifests import toml_text

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXTS
)
TABLES = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def _written(parts: Parts, folder: Path) -> Path:
    for name, text in parts.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "tck.toml").write_text(parts.fixtures)
    (folder / "pyproject.toml").write_text("[project]\nname = 'notes'\nversion = '1.0.0'\n")
    return folder


def _report(folder: Path, only: Sequence[str]) -> Report:
    asked = Asked(str(folder), only=tuple(only), twice=False)
    with judged_package(asked) as package:
        return anyio.run(run, plan_of(package, asked))


@given(TABLES)
@settings(max_examples=60)
def test_what_is_written_as_toml_is_what_is_read(table: dict[str, object]) -> None:
    """A variant differs from the manifest in what was changed, and in nothing else."""
    assert tomllib.loads(toml_text(table)) == table


@pytest.mark.parametrize(
    ("edit", "rule", "told"),
    [
        (("timeout_s = 5", "timeout = 5"), "MAN-001", "did you mean 'timeout_s'?"),
        (('id = "notes"', 'id = "My Notes"'), "MAN-002", "write 'my-notes'"),
        (('entry = "purra_plugin_notes.notes:plugin"', 'command = "run me"'), "MAN-003", "a list"),
        (('effect = "world_read"', 'effect = "reads"'), "MAN-005", "provides[0].effect"),
        (("inflight = 16", "inflight = 0"), "MAN-006", "limits.inflight"),
        (('summary = "Notes in a folder"', "summary = Notes"), "MAN-008", "line 4"),
    ],
)
def test_a_manifest_that_is_refused_is_a_verdict_with_place_and_mend(
    edit: tuple[str, str], rule: str, told: str, tmp_path: Path
) -> None:
    """Issue C: a seeded defect fails with a message that names file, key and mend."""
    folder = _written(NOTES.changed("", edit), tmp_path)
    report = _report(folder, ["MAN-*"])
    failed = {name for name, outcome in report.outcomes.items() if outcome.status == "fail"}
    assert failed == {rule}
    outcome = report.outcomes[rule]
    assert "purra-plugin.toml" in outcome.observed
    assert told in outcome.observed
    others = {o.status for name, o in report.outcomes.items() if name != rule}
    assert others == {"untestable"}
    assert not report.conclusion.conformant


def test_the_fixtures_of_a_project_are_found(tmp_path: Path) -> None:
    """Beside the pyproject.toml, where its author keeps them."""
    with judged_package(Asked(str(_written(NOTES, tmp_path)))) as package:
        assert package.fixtures.path == tmp_path / "tck.toml"
        assert package.fixtures.config == {"root": "{scratch}/notes"}
        assert package.project == tmp_path


def test_a_tck_toml_names_its_subject(tmp_path: Path) -> None:
    folder = _written(NOTES, tmp_path)
    told = folder / "other.toml"
    told.write_text('[subject]\nmanifest = "purra_plugin_notes/purra-plugin.toml"\n')
    with judged_package(Asked(str(told))) as package:
        assert package.name == "notes"
        assert package.fixtures.path == told


def test_an_installed_plugin_is_named_by_its_id() -> None:
    with judged_package(Asked("offline")) as package:
        assert (package.form, package.name) == ("installed", "offline")


@pytest.mark.parametrize("where", ["no-such-plugin", "./tests", "nothing.whl"])
def test_what_is_not_there_is_said_before_anything_runs(where: str) -> None:
    """Exit 2 of the command: no subject."""
    with pytest.raises(PurraError) as caught, judged_package(Asked(where)):
        pass
    assert caught.value.code == "plugin_not_found"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool]\nsave = []", "tool.save"),
        ("[tool]\nsafe = [{ args = {} }]", "tool.safe[0].tool"),
        ('[tool]\nprobe = { folders = "x" }', "tool.probe"),
        ('[context]\nseed = "no-function"', "context.seed"),
        ('[subject]\nplugin = "a"\nwheel = "b"', "subject"),
        ("[config", "is_no_toml.toml"),
    ],
)
def test_wrong_fixtures_are_refused_with_the_key(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "is_no_toml.toml"
    path.write_text(text)
    with pytest.raises(PurraError) as caught:
        load_fixtures(path)
    assert caught.value.code == "invalid_manifest"
    assert told in caught.value.where


def test_values_of_the_command_line_are_toml_or_text() -> None:
    assert config_of(["a=1", 'b=["x"]', "c=plain text", "d="]) == {
        "a": 1,
        "b": ["x"],
        "c": "plain text",
        "d": "",
    }
    with pytest.raises(PurraError, match="KEY=VALUE"):
        config_of(["a"])


def test_placeholders_are_filled_wherever_they_stand() -> None:
    places = {"{scratch}": "/s"}
    assert filled({"a": ["{scratch}/x", 1]}, places) == {"a": ["/s/x", 1]}
    assert Fixtures().folder == Path.cwd()


def test_the_interpreter_may_be_named_as_a_program(tmp_path: Path) -> None:
    """MAN-003, clause 13.3."""
    entry = 'entry = "purra_plugin_notes.notes:plugin"'
    folder = _written(NOTES.changed("", (entry, 'command = ["{python}", "x.py"]')), tmp_path)
    manifest = load_plugin(folder / "purra_plugin_notes" / "purra-plugin.toml")
    assert manifest.runs.command == ("{python}", "x.py")
