"""A plugin's configuration: JSON Schemas in its manifest, values in the host manifest.

`[config.KEY]` is a JSON Schema of that key's value. A key without `default` must be configured,
unless it says `required = false` (our one addition to the vocabulary, since a schema of a single
value cannot say it). The plugin gets every key that has a value, defaults included.

Text with `format = "path"` is a path, and the host makes it absolute, so that a plugin never
depends on anybody's current folder. To do that for every path, a schema must keep `format = "path"`
where values can be walked with it: in `properties`, `additionalProperties`, `items`, `prefixItems`
and the `allOf`, `anyOf`, `oneOf` branches. Elsewhere it is refused rather than overlooked, and so
are references, which would also let a manifest name a URL to be fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from purra.manifest.names import RefusedError, suggest
from purra.values import freeze, thaw

__all__ = ["Config", "ConfigKey", "config_key", "resolve_config"]

REASON_CHARS: Final = 200
"""Longest text of a JSON Schema error: it quotes the value, which may be large."""

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef", "$id", "$schema")
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")

Place = tuple[str | int, ...]
Locate = Callable[[str, Place], str]
"""Makes the path at a place of the given configuration absolute."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One declared key: its JSON Schema, and what holds when nothing is configured.

    `default` counts only if `has_default`. `has_paths`: whether the value can contain paths.
    """

    schema: Mapping[str, Any]
    required: bool
    has_default: bool
    default: Any
    has_paths: bool


@dataclass(frozen=True, slots=True)
class Config:
    """Checked values. `paths`: per key, every absolute path in its value (for capabilities)."""

    values: Mapping[str, Any]
    paths: Mapping[str, tuple[str, ...]]


def config_key(declared: Mapping[str, Any]) -> ConfigKey:
    """The key that the table `[config.KEY]` declares. Raises `RefusedError`."""
    schema = thaw(declared)
    has_default = "default" in schema
    required = schema.pop("required", not has_default)
    if isinstance(required, list):
        # The standard keyword, of a key whose value is a table.
        schema["required"], required = required, not has_default
    if not isinstance(required, bool):
        raise RefusedError("must be true, false or a list of keys", place=["required"])
    if required and has_default:
        raise RefusedError("a key with a default is never missing", "remove one", ["required"])
    for place, part in _tables(schema, ()):
        for word in _REFERENCES:
            if word in part:
                what = f"{word!r} is not allowed in a config schema"
                raise RefusedError(what, "write out what it refers to", place)
    _check_schema(schema)
    paths = _count_paths(schema)
    if paths != sum(part.get("format") == "path" for _, part in _tables(schema, ())):
        raise RefusedError(
            "format = 'path' stands where paths cannot be found",
            "allowed below properties, additionalProperties, items, prefixItems, "
            "allOf, anyOf, oneOf",
        )
    if has_default and (problem := _first_error(schema, schema["default"])):
        hint = "a default must fit the key's own schema"
        raise RefusedError(problem.reason, hint, ["default", *problem.place])
    default = freeze(schema.get("default"))
    return ConfigKey(freeze(schema), required, has_default, default, paths > 0)


def resolve_config(
    keys: Mapping[str, ConfigKey], given: Mapping[str, Any], locate: Locate
) -> Config:
    """The full configuration: `given` checked, defaults added, paths made absolute by `locate`.

    Raises `RefusedError` whose place begins with the key.
    """
    for name in given:
        if name not in keys:
            raise RefusedError("is not a key of this plugin", suggest(name, keys), [name])
    values: dict[str, Any] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for name, key in keys.items():
        if name in given:
            value = thaw(given[name])
            if problem := _first_error(thaw(key.schema), value):
                hint = problem.hint or str(key.schema.get("description", ""))
                raise RefusedError(problem.reason, hint, [name, *problem.place])
        elif key.has_default:
            value = thaw(key.default)
        elif key.required:
            raise RefusedError("is missing", str(key.schema.get("description", "")), [name])
        else:
            continue
        walk = _Walk(locate)
        values[name] = walk.located(thaw(key.schema), value, (name,))
        paths[name] = tuple(walk.found)
    return Config(freeze(values), freeze(paths))


class _Walk:
    """Goes through a value with its schema and makes the paths in it absolute."""

    def __init__(self, locate: Locate) -> None:
        self._locate = locate
        self.found: list[str] = []

    def located(self, schema: Any, value: Any, place: Place) -> Any:
        if not isinstance(schema, dict):
            return value
        for word in _BRANCHES:
            for branch in schema.get(word, ()):
                if _first_error(branch, value) is None:
                    value = self.located(branch, value, place)
        if isinstance(value, str) and schema.get("format") == "path":
            path = self._locate(value, place)
            self.found.append(path)
            return path
        if isinstance(value, dict):
            known, other = schema.get("properties", {}), schema.get("additionalProperties")
            return {
                key: self.located(known.get(key, other), item, (*place, key))
                for key, item in value.items()
            }
        if isinstance(value, list):
            first, rest = schema.get("prefixItems", []), schema.get("items")
            return [
                self.located(first[index] if index < len(first) else rest, item, (*place, index))
                for index, item in enumerate(value)
            ]
        return value


def _count_paths(schema: Any) -> int:
    """How many times `_Walk` can meet `format = "path"` in this schema."""
    if not isinstance(schema, dict):
        return 0
    below = [*schema.get("properties", {}).values(), *schema.get("prefixItems", [])]
    below += [schema.get("additionalProperties"), schema.get("items")]
    for word in _BRANCHES:
        below += schema.get(word, [])
    return (schema.get("format") == "path") + sum(map(_count_paths, below))


def _tables(value: Any, place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    if isinstance(value, dict):
        yield place, value
        for key, item in value.items():
            yield from _tables(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tables(item, (*place, index))


def _check_schema(schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise RefusedError(
            f"not a JSON Schema: {_short(error.message)}",
            "json-schema.org says what may stand here (draft 2020-12)",
            _parts(error),
        ) from None


def _first_error(schema: Any, value: Any) -> RefusedError | None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(value))
    return None if error is None else RefusedError(_short(error.message), place=_parts(error))


def _parts(error: Any) -> Sequence[str | int]:
    return list(error.absolute_path)


def _short(text: str) -> str:
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 3] + "..."
