"""The JSON Schemas of the two manifests, for editors and for other languages.

Generated from the same tables that refuse a manifest, so that the two cannot differ. A schema says
less than the loader: what needs two keys, two files or a grammar of names is judged by it alone.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from purra.manifest import host, plugin
from purra.manifest.host_tables import HostFile
from purra.manifest.plugin_tables import PluginFile

__all__ = ["NAMES", "json_schema"]

NAMES: Final = (plugin.SCHEMA, host.SCHEMA)
"""The schemas that exist: `purra.plugin/1`, `purra.host/1`."""

_FILES: Final[dict[str, type[BaseModel]]] = {plugin.SCHEMA: PluginFile, host.SCHEMA: HostFile}
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of the manifest kind `name`, one of `NAMES`.

    Raises `KeyError` for another name.
    """
    schema = _FILES[name].model_json_schema()
    properties = {"schema": {"const": name, "description": "What this file is"}}
    return {
        "$schema": _DIALECT,
        **schema,
        "title": name,
        "properties": {**properties, **schema["properties"]},
        "required": ["schema", *schema["required"]],
        "patternProperties": {"^x-": {"type": "object", "description": "Not ours to understand"}},
    }
