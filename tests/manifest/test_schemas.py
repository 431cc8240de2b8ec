"""The generated JSON Schemas agree with the loader and with the files in the tree."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from purra.manifest.schemas import NAMES, json_schema

MANIFESTS = Path(__file__).parents[2] / "manifests"

EXPRESSIBLE = (
    "man-001-unknown",
    "man-001-schema-missing",
    "man-003-command-is-a-line",
    "man-005-effect-unknown",
    "man-006-limit-zero",
    "plg-001-unknown",
    "capability-network",
    "isolation-unknown-level",
)
"""Bad examples whose fault a JSON Schema can express."""


def validator(path: Path) -> Draft202012Validator:
    kind = "purra.plugin/1" if path.name.endswith(".plugin.toml") else "purra.host/1"
    return Draft202012Validator(json_schema(kind))


def normal(schema: Any) -> Any:
    """Without wording, which may differ between versions of the generator."""
    if isinstance(schema, dict):
        drop = ("title", "description")
        return {
            key: normal(item)
            for key, item in schema.items()
            if not (key in drop and isinstance(item, str))
        }
    return [normal(item) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_in_the_tree_is_the_generated_one(name: str) -> None:
    """Design, the tree: `manifests/schema` is generated; `purra schema` prints it."""
    path = MANIFESTS / "schema" / f"{name.replace('/', '.')}.json"
    assert normal(json.loads(path.read_text())) == normal(json_schema(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(json_schema(name))


@pytest.mark.parametrize(
    "path", [*sorted((MANIFESTS / "good").iterdir()), MANIFESTS / "quickstart.toml"], ids=str
)
def test_good_manifests_satisfy_the_schema(path: Path) -> None:
    """MAN-001: an editor that knows the schema marks nothing in a right file."""
    validator(path).validate(tomllib.loads(path.read_text()))


@pytest.mark.parametrize(
    "path",
    [path for path in sorted((MANIFESTS / "bad").iterdir()) if path.name.startswith(EXPRESSIBLE)],
    ids=lambda path: path.name,
)
def test_bad_manifests_break_the_schema_where_it_can_say_so(path: Path) -> None:
    """MAN-001, 003, 005, 006, PLG-01 as an editor sees them."""
    assert not validator(path).is_valid(tomllib.loads(path.read_text()))
