"""The reference of the tool suite: notes in a folder, with tools of every kind."""

from __future__ import annotations

from purra_tck.saboteurs.plugin_parts import Parts

__all__ = ["NOTES"]

_MANIFEST = """
schema = "purra.plugin/1"
id = "notes"
version = "1.0.0"
summary = "Notes in a folder"

[host]
kind = "process"
entry = "purra_plugin_notes.notes:plugin"

[config.root]
type = "string"
format = "path"

[capabilities]
fs.read = ["{config.root}"]
fs.write = ["{config.root}"]

[limits]
inflight = 16
threads = 4

[[provides]]
kind = "tool"
name = "note.read"
summary = "Read a note"
effect = "world_read"
timeout_s = 5

[provides.input]
type = "object"
additionalProperties = false
required = ["name"]
properties.name = { type = "string", minLength = 1, maxLength = 40 }

[[provides]]
kind = "tool"
name = "note.add"
summary = "Add a line to a note"
effect = "world_write"
timeout_s = 5

[provides.input]
type = "object"
additionalProperties = false
required = ["name", "text"]
properties.name = { type = "string", minLength = 1, maxLength = 40 }
properties.text = { type = "string", maxLength = 200 }

[[provides]]
kind = "tool"
name = "note.order"
summary = "Add a line, once for each key"
effect = "world_write"
idempotency = "supported"
concurrency = "target_serial"
timeout_s = 5

[provides.input]
type = "object"
additionalProperties = false
required = ["item"]
properties.item = { type = "string", maxLength = 40 }

[[provides]]
kind = "tool"
name = "note.shape"
summary = "Describe a shape"
effect = "pure"
timeout_s = 5

[provides.input]
type = "object"
additionalProperties = false
required = ["kind", "sizes"]

[provides.input.properties]
kind = { enum = ["circle", "square", 7, true] }
label = { anyOf = [{ type = "string", maxLength = 8 }, { type = "null" }] }
fixed = { const = "yes" }

[provides.input.properties.sizes]
type = "array"
minItems = 1
maxItems = 4
uniqueItems = true
items = { type = "integer", minimum = 1, maximum = 99 }

[provides.input.properties.style]
type = "object"
required = ["line"]
properties.line = { type = "number", minimum = 0, maximum = 9.5 }
properties.fill = { type = "boolean" }
"""

_CODE = """
import hashlib
import os
import threading
import time

from purra_sdk import Plugin, PluginError, ToolError, tool

LOCK = threading.Lock()
DONE = {}


def path_of(call, name):
    safe = hashlib.sha256(name.encode()).hexdigest()[:16] if not name.isalnum() else name
    return os.path.join(call.setup.config["root"], safe + ".txt")


def append(call, name, text):
    with open(path_of(call, name), "a", encoding="utf-8") as file:
        file.write(text + "\\n")


@tool(effect="world_read", name="note.read")
def read(call, name):
    try:
        with open(path_of(call, name), encoding="utf-8") as file:
            return {"name": name, "text": file.read()}
    except FileNotFoundError:
        raise ToolError("there is no such note", code="not_found") from None


@tool(effect="world_write", name="note.add")
def add(call, name, text):
    if text == "refuse me":
        raise ToolError("not that", code="invalid_argument")
    append(call, name, text)
    return {"name": name, "added": len(text)}


@tool(effect="world_write", name="note.order", idempotency="supported")
def order(call, item):
    if item == "refuse me":
        raise ToolError("not that", code="invalid_argument")
    with LOCK:
        if call.key in DONE:
            known, answer = DONE[call.key]
            if known != item:
                raise ToolError("another item was ordered with this key", code="conflict")
            return answer
        append(call, "orders", item)
        answer = {"item": item, "number": len(DONE) + 1}
        if call.key:
            DONE[call.key] = (item, answer)
        return answer


@tool(effect="pure", name="note.shape")
def shape(call, kind, sizes, label=None, style=None, fixed="yes"):
    return {"kind": kind, "area": sum(sizes), "label": label, "line": (style or {}).get("line")}


plugin = Plugin(tools=[read, add, order, shape])
"""

_FIXTURES = """
[config]
root = "{scratch}/notes"

[files]
"notes/hello.txt" = "hello"
"notes/other.txt" = "other"

[tool]
safe = [
  { tool = "note.read", args = { name = "hello" } },
  { tool = "note.read", args = { name = "other" } },
  { tool = "note.add", args = { name = "log", text = "a line" } },
  { tool = "note.order", args = { item = "tea" } },
  { tool = "note.order", args = { item = "coffee" } },
  { tool = "note.shape", args = { kind = "circle", sizes = [1, 2] } },
]
invalid = [
  { tool = "note.read", args = { name = "nothing here" } },
  { tool = "note.add", args = { name = "log", text = "refuse me" } },
  { tool = "note.order", args = { item = "refuse me" } },
]
generate = ["note.add"]
probe = { folder = "{scratch}/notes" }
"""

NOTES = Parts(
    package="purra_plugin_notes",
    module="notes",
    manifest=_MANIFEST.strip() + "\n",
    code=_CODE,
    offers=(
        ("tool", "note.read"),
        ("tool", "note.add"),
        ("tool", "note.order"),
        ("tool", "note.shape"),
    ),
    fixtures=_FIXTURES,
)
