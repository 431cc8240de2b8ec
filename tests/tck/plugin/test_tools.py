"""What the tool suite is made from: arguments, and snippets for missing fixtures (TOL)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.gateway.schema import admit
from purra.gateway.validation import CompiledSchema
from purra.manifest.plugin import load_plugin
from purra.values import freeze
from purra_tck.plugin_plan import Asked, judged_package, plan_of
from purra_tck.runner import Report, run
from purra_tck.saboteurs.plugin_notes import NOTES
from purra_tck.saboteurs.plugin_parts import Parts
from purra_tck.schema_cases import NONCE, broken_arguments, valid_arguments

FILES = Path(__file__).parents[3] / "plugins/files/purra_plugin_files/purra-plugin.toml"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["a", "b~/c"],
    "properties": {
        "a": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"enum": [1, "x", None]}},
        "b~/c": {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "string", "minLength": 2}]},
        "deep": {"type": "object", "properties": {"n": {"type": ["number", "null"]}}},
    },
}


def _write(parts: Parts, folder: Path, fixtures: str) -> Path:
    for name, text in parts.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / parts.package / "tck.toml").write_text(fixtures)
    return folder


def _report(folder: Path, *only: str) -> Report:
    asked = Asked(str(folder), only=only, twice=False)
    with judged_package(asked) as package:
        return anyio.run(run, plan_of(package, asked))


def _schemas() -> list[dict[str, Any]]:
    offers = load_plugin(FILES).offers
    return [SCHEMA, *(dict(offer.tool.parameters) for offer in offers if offer.tool)]


@pytest.mark.parametrize("schema", _schemas(), ids=lambda schema: ",".join(schema["properties"]))
def test_made_arguments_are_what_the_kernel_takes_them_for(schema: dict[str, Any]) -> None:
    """TOL-002: two validators that share no line agree on every vector."""
    compiled = CompiledSchema(admit(schema))
    made = valid_arguments(schema, 7, 6)
    assert len(made) >= 3
    assert not any(compiled.violations(freeze(each)) for each in made)
    broken = list(broken_arguments(schema, 7))
    assert all(compiled.violations(freeze(each.arguments)) for each in broken)
    assert {"type", "additionalProperties"} <= {each.keyword for each in broken}


def test_each_keyword_is_broken_where_it_stands() -> None:
    wrong = {(each.path, each.keyword) for each in broken_arguments(SCHEMA, 1)}
    assert {
        ("", "required"),
        ("/a", "minItems"),
        ("/a", "maxItems"),
        ("/a/0", "enum"),
        ("/b~0~1c", "oneOf"),
        ("/deep", "type"),
        ("/deep/n", "type"),
    } <= wrong
    assert any(NONCE in str(each.arguments) for each in broken_arguments(SCHEMA, 1))


def test_arguments_are_the_same_for_the_same_seed() -> None:
    assert valid_arguments(SCHEMA, 3, 4) == valid_arguments(SCHEMA, 3, 4)
    assert valid_arguments(SCHEMA, 3, 4) != valid_arguments(SCHEMA, 4, 4)


def test_a_missing_example_is_untestable_with_the_snippet_to_add(tmp_path: Path) -> None:
    """A silent skip is how a kit goes green by itself; the snippet is TOML that can be pasted."""
    bare = '[config]\nroot = "{scratch}/notes"\n[files]\n"notes/x.txt" = ""\n'
    report = _report(_write(NOTES, tmp_path, bare), "TOL-013", "TOL-010")
    assert {outcome.status for outcome in report.outcomes.values()} == {"untestable"}
    reason = report.outcomes["TOL-013"].reason
    assert str(tmp_path / "purra_plugin_notes" / "tck.toml") in reason
    snippet = tomllib.loads(reason[reason.index("[tool]") :])
    assert [each["tool"] for each in snippet["tool"]["safe"]] == [
        "note.read",
        "note.add",
        "note.order",
        "note.shape",
    ]
    assert set(snippet["tool"]["safe"][0]["args"]) == {"name"}
    assert not report.conclusion.conformant


def test_an_example_of_another_tool_is_named(tmp_path: Path) -> None:
    wrong = NOTES.fixtures.replace("safe = [", 'safe = [{ tool = "note.raed" },')
    outcome = _report(_write(NOTES, tmp_path, wrong), "TOL-013").outcomes["TOL-013"]
    assert outcome.status == "fail"
    assert "note.raed" in outcome.observed
    assert "note.read" in outcome.expected
