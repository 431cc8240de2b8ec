"""What `load_plugin` makes of a plugin manifest, and how it stands up to hostile files."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purra.errors import PurraError
from purra.manifest.names import RefusedError, parse_id
from purra.manifest.plugin import PluginManifest, load_plugin
from purra.manifest.source import MAX_MANIFEST_BYTES

GOOD = Path(__file__).parents[2] / "manifests" / "good"


@pytest.fixture(scope="module")
def everything() -> PluginManifest:
    return load_plugin(GOOD / "everything.plugin.toml")


def refused(path: Path, content: bytes | str) -> PurraError:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(PurraError) as caught:
        load_plugin(path)
    assert caught.value.code == "invalid_manifest"
    return caught.value


def test_a_tool_gets_every_default_of_its_effect_class() -> None:
    """MAN-005; tables, defaults of a tool."""
    (offer,) = load_plugin(GOOD / "files.plugin.toml").offers
    tool = offer.tool
    assert tool is not None
    assert (tool.name, tool.description) == ("fs.grep", "Find text in files")
    assert (tool.effect, tool.permission, tool.idempotency) == ("world_read", "fs.grep", "none")
    assert (tool.concurrency, tool.approval, tool.timeout_s) == ("parallel", "never", 30.0)
    assert tool.shared is False
    assert (offer.kind, offer.contract, offer.needs) == ("tool", "purra.tool/1", ())


def test_an_irreversible_tool_needs_approval_and_takes_turns(everything: PluginManifest) -> None:
    """CAP-06, tables, defaults of a tool: approval required, one at a time, no arguments."""
    burn = everything.offer("note.burn")
    assert burn is not None and burn.tool is not None
    assert (burn.tool.approval, burn.tool.concurrency) == ("required", "actor_serial")
    assert burn.tool.parameters["additionalProperties"] is False


def test_what_is_declared_wins_over_defaults(everything: PluginManifest) -> None:
    """Each key of a tool arrives as written."""
    offer = everything.offer("note.write")
    assert offer is not None and offer.tool is not None
    tool = offer.tool
    assert tool.permission == "notes.change" and tool.idempotency == "required"
    assert tool.concurrency == "global_exclusive" and tool.approval == "required"
    assert (tool.timeout_s, tool.shared) == (2.5, True)
    assert tool.description.startswith("Writes a note into the first folder.")
    assert offer.needs == ("fs.write", "secret:API_KEY")


def test_a_dynamic_catalog_is_a_prefix_and_a_ceiling(everything: PluginManifest) -> None:
    """Design, plugin manifest: tools that are known only at run time are bounded before."""
    offer = everything.offer("remote")
    assert offer is not None
    assert (offer.dynamic, offer.ceiling, offer.tool) == (True, "external_write", None)


def test_everything_else_arrives_as_written(everything: PluginManifest) -> None:
    """PLG-01: the whole table, in trusted types."""
    assert (everything.id, everything.version) == ("everything", "1.0.0rc1")
    assert everything.requires == {"files": ">=0.1,<1"}
    assert (everything.limits.inflight, everything.limits.threads) == (4, 2)
    assert everything.limits.memory_bytes == 1024**3
    assert (everything.lifecycle.activation, everything.lifecycle.idle_s) == ("eager", 12.5)
    assert everything.capabilities.names == {
        "fs.read",
        "fs.write",
        "network",
        "secret:API_KEY",
        "subprocess",
        "env:LANG",
    }
    assert set(everything.extensions) == {"x-example"}
    required = {name: key.required for name, key in everything.config.items()}
    assert required == {"folders": True, "depth": False, "label": False, "extra": False}
    program = load_plugin(GOOD / "program.plugin.toml")
    assert program.runs.command == ("node", "dist/main.js", "--quiet")
    assert program.runs.entry is None


def test_a_manifest_is_frozen(everything: PluginManifest) -> None:
    """Style: after the edge everything is a frozen trusted type."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        everything.id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        everything.config["more"] = everything.config["depth"]  # type: ignore[index]


def test_the_digest_is_of_the_bytes_that_were_read() -> None:
    """MAN-007, H08: one read, hashed and parsed."""
    path = GOOD / "files.plugin.toml"
    assert load_plugin(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_digest_of_an_offer_follows_what_a_run_depends_on(tmp_path: Path) -> None:
    """Invariant 5: same offer, same digest; another schema or effect, another digest."""
    text = (GOOD / "files.plugin.toml").read_text()
    path = tmp_path / "purra-plugin.toml"
    digests = []
    changes = [
        ("", ""),
        ("schema", "# only a comment\nschema"),
        ("minLength = 1", "minLength = 2"),
        ("world_read", "pure"),
    ]
    for old, new in changes:
        path.write_text(text.replace(old, new, 1))
        digests.append(load_plugin(path).offers[0].digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
        (b"a = " + b"[" * 50_000, "is nested too deeply"),
        (b"a = " + b"{ a = " * 50_000, "is nested too deeply"),
        (b"a = " + b"9" * 5000, "is not TOML"),
        (b"." .join([b"a"] * 400_000) + b" = 1", "line 1: a dotted key of more than 64 parts"),
        (b"\n" + b' . '.join([b'"a b"'] * 65) + b" = 1", "line 2: a dotted key of more than 64"),
        (b"[" + b".".join([b"a"] * 65) + b"]", "a dotted key of more than 64 parts"),
        (b"#" * (MAX_MANIFEST_BYTES + 1), f"is larger than {MAX_MANIFEST_BYTES} bytes"),
        (b'schema = "purra.plugin/1"\nid = 2026-01-01', "id: a value of type date is not allowed"),
        (b'schema = "purra.plugin/1"\n[config]\na = 99999999999999999999', "outside int64"),
        (b'schema = "purra.plugin/1"\nid = "a"\nid = "b"', "is not TOML"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_no_time(tmp_path: Path, content: bytes, reason: str) -> None:
    """MAN-008: reading is bounded in size, nesting and time, whatever is in the file."""
    started = time.process_time()
    error = refused(tmp_path / "purra-plugin.toml", content)
    assert reason in str(error)
    assert time.process_time() - started < 5


def test_text_that_looks_like_a_long_key_costs_linear_time(tmp_path: Path) -> None:
    """MAN-008: the scan before the parser is no trap itself."""
    words = ["x" * 300_000, "a " * 150_000, '"' * 100_001, "a.b " * 70_000, "." * 300_000]
    started = time.process_time()
    for word in words:
        refused(tmp_path / "purra-plugin.toml", f"# {word}\n")
    assert time.process_time() - started < 5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are POSIX")
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """MAN-008: discovery opens what it finds under the manifest's name."""
    path = tmp_path / "purra-plugin.toml"
    os.mkfifo(path)
    with pytest.raises(PurraError, match="is not a regular file"):
        load_plugin(path)
    with pytest.raises(PurraError, match="cannot be read: No such file"):
        load_plugin(tmp_path / "missing.toml")


@given(st.text(max_size=40))
def test_an_id_has_one_spelling(text: str) -> None:
    """MAN-002: whatever is accepted is its own NFKC and case-folded form, in ASCII."""
    try:
        accepted = parse_id(text)
    except RefusedError:
        return
    assert (
        accepted == text == text.casefold() and text.isascii() and text.replace("-", "").isalnum()
    )


@pytest.mark.parametrize("text", ["a", "mcp", "my-plugin-2", "a" * 64])
def test_ids_that_are_right(text: str) -> None:
    assert parse_id(text) == text


@pytest.mark.parametrize("text", ["", "-a", "a-", "a--b", "a_b", "2a", "a\n", "a" * 65, "ä"])
def test_ids_that_are_wrong(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_id(text)
