"""`purra plugins manifest`: the manifest follows the code, and what people wrote into it stays."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from purra.errors import PurraError
from purra.gateway.schema import admit
from purra.manifest.plugin import load_plugin
from purra_hosts.app.scaffold.describing import Described
from purra_hosts.app.scaffold.package import write_package
from purra_hosts.app.scaffold.specs import specs
from purra_hosts.app.scaffold.subject import described, find_manifest
from tests.hosts.app.authoring import KINDS, PURRA, command, mutate, package_of

ROOT = Path(__file__).parents[3]
FIRST_PARTY = sorted(path.parent for path in (ROOT / "plugins").glob("*/*/purra-plugin.toml"))

MANIFEST = """\
schema = "purra.plugin/1"     # the file's own comment
id = "tides"
version = "0.1.0"
summary = "Tides by harbour"
[host]
kind = "process"
entry = "tides:plugin"

# Before the tools.

[[provides]]
# About high water.
kind = "tool"
name = "high_water"           # kept: nothing about the name changes
summary = "Times of high water in a harbour"
effect = "external_read"
timeout_s = 10

[provides.input]
type = "object"
required = ["harbour"]
additionalProperties = false
properties.harbour = { type = "string", minLength = 1 }   # never empty
properties.days = { type = "integer", minimum = 1 }

# Before the model.

[[provides]]
kind = "model"
name = "moon"
summary = "Knows the moon"

[limits]                      # after the tools
threads = 4
"""
INPUT = {
    "type": "object",
    "properties": {"harbour": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["harbour"],
    "additionalProperties": False,
}
MOON = Described("model", "moon", {}, "Knows the moon", None, None)


def high_water(
    schema: Mapping[str, Any] | None = INPUT,
    doc: str = "Times of high water in a harbour.",
    **facts: Any,
) -> Described:
    facts = {"effect": "external_read", "timeout_s": 10, **facts}
    return Described("tool", "high_water", facts, doc.splitlines()[0], doc, schema)


def changed(schema: Mapping[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    schema = schema or INPUT
    return {**schema, "properties": {**schema["properties"], **properties}}


def tool_of(text: str, index: int = 0) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(text)["provides"][index]
    return table


def test_what_only_the_manifest_says_is_no_difference() -> None:
    """Bounds that the annotations do not have are the author's; unwritten defaults hold."""
    found = specs(MANIFEST, [high_water(), MOON])
    assert found.differences == ()
    assert tool_of(found.text)["input"] == tool_of(MANIFEST)["input"]


def test_every_field_is_written_out_and_nothing_else_changes() -> None:
    """MAN-005, and each line that a person wrote is still there, in its place."""
    text = specs(MANIFEST, [high_water(), MOON]).text
    before, after = MANIFEST.splitlines(), text.splitlines()
    added = [line for line in after if line not in before]
    assert added == [
        'permission = "high_water"',
        'idempotency = "none"',
        'concurrency = "parallel"',
        'approval = "never"',
        "shared = false",
        "needs = []",
    ]
    assert [line for line in after if line not in added] == before
    assert specs(text, [high_water(), MOON]).text == text


def test_the_code_wins_where_it_says_something() -> None:
    doc = "Times of high water.\n\nAs the harbour master has them."
    found = specs(MANIFEST, [high_water(doc=doc, timeout_s=20, idempotency="supported"), MOON])
    assert found.differences == (
        "tool high_water: idempotency is 'none', the code says 'supported'",
        "tool high_water: timeout_s is 10, the code says 20",
        "tool high_water: description is not the docstring",
    )
    tool = tool_of(found.text)
    assert (tool["timeout_s"], tool["idempotency"], tool["description"]) == (20, "supported", doc)
    for comment in ("# Before the tools.", "# About high water.", "# kept:", "# never empty"):
        assert comment in found.text


def test_a_stricter_effect_takes_its_stricter_defaults() -> None:
    """What was the default of the old effect is nobody's wish: approval must not stay `never`."""
    written = specs(MANIFEST, [high_water(), MOON]).text
    found = specs(written, [high_water(effect="irreversible"), MOON])
    tool = tool_of(found.text)
    assert (tool["effect"], tool["approval"]) == ("irreversible", "required")
    assert tool["concurrency"] == "actor_serial"
    by_hand = written.replace('approval = "never"', 'approval = "required"')
    kept = specs(by_hand, [high_water(effect="external_write"), MOON])
    assert tool_of(kept.text)["approval"] == "required"


def test_arguments_follow_the_signature_and_keep_their_bounds() -> None:
    schema = {**changed(low={"type": "boolean"}), "required": ["harbour", "days"]}
    del schema["properties"]["days"]
    schema["required"] = ["harbour"]
    found = specs(MANIFEST, [high_water(schema), MOON])
    assert found.differences == (
        "tool high_water: input.properties.low is not in the manifest",
        "tool high_water: input.properties.days is not in the code",
    )
    properties = tool_of(found.text)["input"]["properties"]
    assert properties == {
        "harbour": {"type": "string", "minLength": 1},
        "low": {"type": "boolean"},
    }
    assert "# Before the model." in found.text
    assert tool_of(found.text, 1)["name"] == "moon"


def test_a_bound_of_another_type_does_not_stay() -> None:
    """`minimum` of a text would be refused, or worse, mean nothing."""
    found = specs(MANIFEST, [high_water(changed(days={"type": "string"})), MOON])
    assert tool_of(found.text)["input"]["properties"]["days"] == {"type": "string"}


def test_a_signature_that_is_open_leaves_arguments_to_the_manifest() -> None:
    offer = Described("tool", "high_water", dict(high_water().facts), "Any", None, None)
    found = specs(MANIFEST, [offer, MOON])
    assert found.differences == ()
    assert tool_of(found.text)["input"] == tool_of(MANIFEST)["input"]


def test_new_tools_come_after_the_others_and_old_ones_go() -> None:
    doc = 'Say low water.\n\nIn metres, with a "quote" and a back\\slash.'
    low = Described("tool", "low_water", {"effect": "pure"}, "Say low water", doc, INPUT)
    found = specs(MANIFEST, [MOON, low])
    assert found.differences == (
        "tool low_water: is not in the manifest",
        "tool high_water: is not in the code",
    )
    assert [table["name"] for table in tomllib.loads(found.text)["provides"]] == [
        "moon",
        "low_water",
    ]
    assert tool_of(found.text, 1)["description"] == doc
    assert found.text.index("low_water") < found.text.index("[limits]")
    assert "# after the tools" in found.text
    assert "About high water" not in found.text


def test_a_catalog_that_is_dynamic_is_left_alone() -> None:
    dynamic = '\n[[provides]]\nkind = "tool"\nname = "remote"\nsummary = "Later"\n'
    text = MANIFEST + dynamic + 'catalog = "dynamic"\neffect = "pure"\n'
    assert specs(text, [high_water(), MOON]).differences == ()


def test_what_cannot_be_written_is_said() -> None:
    with pytest.raises(PurraError, match="'retries' is not known") as refused:
        specs(MANIFEST, [high_water(retries=3), MOON])
    assert refused.value.where == "@tool high_water"
    inline = 'provides = [{ kind = "model", name = "moon", summary = "Knows the moon" }]\n'
    with pytest.raises(PurraError, match=r"\[\[provides\]\]"):
        specs(MANIFEST[: MANIFEST.index("\n[host]")] + "\n" + inline, [MOON])


# --- with real code, by the command -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_is_written_exactly_as_the_command_would(kind: str, tmp_path: Path) -> None:
    manifest = find_manifest(write_package("weather-desk", kind, tmp_path))
    found = specs(manifest.read_text(), described(manifest))
    assert (found.differences, found.text) == ((), manifest.read_text())


@pytest.mark.parametrize("folder", FIRST_PARTY, ids=lambda folder: folder.parent.name)
def test_the_manifests_of_our_own_plugins_are_up_to_date(folder: Path) -> None:
    manifest = find_manifest(folder)
    assert specs(manifest.read_text(), described(manifest)).differences == ()


def test_an_old_manifest_is_found_shown_and_mended(tmp_path: Path) -> None:
    """Exit 4 for a check in a pipeline; --write, and it is current."""
    project = write_package("weather", "tool", tmp_path)
    code = package_of(project) / "plugin.py"
    mutate(code, "timeout_s=10", "timeout_s=20")
    mutate(code, "text: Annotated[str,", "text: Annotated[str | None,")
    manifest = package_of(project) / "purra-plugin.toml"
    before = manifest.read_bytes()
    base = [PURRA, "plugins", "manifest"]
    checked = command([*base, "--check"], project, code=4)
    assert f"{manifest}: tool weather.count: timeout_s is 10, the code says 20" in checked.stdout
    assert checked.stderr.startswith("mend: purra plugins manifest ")
    shown = command([*base, "."], project)
    assert "-timeout_s = 10\n+timeout_s = 20\n" in shown.stdout
    assert manifest.read_bytes() == before
    told = json.loads(command([*base, "--check", "--json"], project, code=4).stdout)
    assert (told["current"], len(told["differences"])) == (False, 3)
    command([*base, "--write"], project)
    assert command([*base, "--check"], project).stdout == f"{manifest}: says what the code says\n"
    (offer,) = load_plugin(manifest).offers
    assert offer.tool is not None and offer.tool.timeout_s == 20
    command([PURRA, "run", "try.toml", "What now?"], project)


def test_what_would_be_no_manifest_is_not_written(tmp_path: Path) -> None:
    """TOOL-001: a keyword outside the subset is refused here, and not when an agent starts."""
    project = write_package("weather", "tool", tmp_path)
    mutate(package_of(project) / "plugin.py", '{"minimum": 1}', '{"multipleOf": 2}')
    manifest = package_of(project) / "purra-plugin.toml"
    before = manifest.read_bytes()
    ran = command([PURRA, "plugins", "manifest", "--write"], project, code=4)
    assert ran.stderr.startswith(f"error {manifest}: provides[0].input: with what the code says")
    assert "'multipleOf' is not in the admitted subset" in ran.stderr
    assert manifest.read_bytes() == before


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit('no')", "SystemExit: no"),
        ("import os; os._exit(7)", "exit 7"),
        ("print('{}'); plugin = 3", "AttributeError"),
        ("import os; os.mkdir(os.path.dirname(__file__) + '/made')", "PermissionError"),
        ("import socket; socket.socket()", "PermissionError"),
    ],
)
def test_code_that_cannot_be_read_is_one_error(code: str, said: str, tmp_path: Path) -> None:
    """Invariant 1: it runs elsewhere, and there as a worker without grants: it may print, fail,
    leave, and reach for files and network, and nothing comes of it."""
    project = write_package("weather", "tool", tmp_path)
    (package_of(project) / "plugin.py").write_text(code + "\n")
    with pytest.raises(PurraError) as refused:
        described(find_manifest(project))
    assert refused.value.code == "plugin_broken"
    assert said in refused.value.message
    assert not (package_of(project) / "made").exists()
    assert not [name for name in sys.modules if name.startswith("purra_plugin_weather")]


def test_annotations_for_type_checkers_alone_are_no_hindrance(tmp_path: Path) -> None:
    """Of `call` and of the result; one of an argument is said with the remedy."""
    project = write_package("weather", "tool", tmp_path)
    code = package_of(project) / "plugin.py"
    mutate(code, "    text: Annotated", "    call: Call,\n    text: Annotated")
    mutate(code, "-> dict[str, Any]:", "-> Answer:")
    assert [offer.name for offer in described(find_manifest(project))] == ["weather.count"]
    mutate(code, "letters: Annotated[int,", "letters: Annotated[Number,")
    with pytest.raises(PurraError, match="import it outside `if TYPE_CHECKING`"):
        described(find_manifest(project))


def test_a_dict_among_annotations_adds_keywords_that_the_kernel_admits(tmp_path: Path) -> None:
    """A plugin needs no package to say a bound."""
    (offer,) = described(find_manifest(write_package("weather", "tool", tmp_path)))
    assert offer.input is not None
    assert offer.input["properties"]["text"]["maxLength"] == 100000
    admit(offer.input)


def test_a_program_has_no_annotations(tmp_path: Path) -> None:
    with pytest.raises(PurraError, match="is a program") as refused:
        described(find_manifest(ROOT / "docs" / "examples" / "node"))
    assert refused.value.code == "unsupported"


def test_a_folder_without_a_manifest_is_said(tmp_path: Path) -> None:
    ran = command([PURRA, "plugins", "manifest", "."], tmp_path, code=4)
    assert ran.stderr.startswith(f"error no manifests in {tmp_path}")
