"""The plugin object: each tool is one call into this package, its `FsError` a `ToolError`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from purra_plugin_files.faults import FsError, fs_error
from purra_plugin_files.places import Root
from purra_plugin_files.reading import Listing, Reading, list_folder, read_file
from purra_plugin_files.searching import Search, grep
from purra_plugin_files.writing import Write, write_file
from purra_sdk import Plugin, PluginError, ToolError, tool

if TYPE_CHECKING:
    from purra_sdk.calls import Call, Setup

__all__ = ["fs_grep", "fs_list", "fs_read", "fs_write", "plugin"]

T = TypeVar("T")

MAX_SEARCH_S = 4.0
"""A part of the tool's timeout: several searches that wait for each other all get their turn, and a
slow disk gives a part of the answer and not a kill."""


def _asked(shape: Callable[..., T], arguments: dict[str, Any]) -> T:
    """The request that the arguments make; the gateway has checked them against the schema."""
    try:
        return shape(**arguments)
    except TypeError as error:
        raise PluginError("invalid_argument", str(error), effect_state="not_started") from None


def _on_root(call: Call, work: Callable[[Root, T], dict[str, Any]], asked: T) -> dict[str, Any]:
    """Opens the root for this one call, so that a folder put in its place since is seen."""
    try:
        root = Root(call.setup.config["root"])
    except OSError as error:
        fault = fs_error(error, "the root")
        raise ToolError(fault.message, code=fault.code) from None
    with root:
        try:
            return work(root, asked)
        except FsError as fault:
            raise ToolError(
                fault.message, code=fault.code, effect_state=fault.effect_state
            ) from None


def _patience(call: Call) -> Callable[[], bool]:
    """Whether a search should stop: nobody waits any more, or its time is nearly up."""
    remaining_s = call.remaining_s
    allowed_s = MAX_SEARCH_S if remaining_s is None else min(MAX_SEARCH_S, remaining_s * 0.8)
    end = time.monotonic() + allowed_s
    return lambda: call.cancelled or time.monotonic() > end


@tool(effect="world_read", name="fs.list", timeout_s=10)
def fs_list(call: Call, **arguments: Any) -> dict[str, Any]:
    """Lists a folder; arguments as in `Listing`."""
    return _on_root(call, list_folder, _asked(Listing, arguments))


@tool(effect="world_read", name="fs.read", timeout_s=10)
def fs_read(call: Call, **arguments: Any) -> dict[str, Any]:
    """Reads lines of a file; arguments as in `Reading`."""
    return _on_root(call, read_file, _asked(Reading, arguments))


@tool(effect="world_read", name="fs.grep", timeout_s=30)
def fs_grep(call: Call, **arguments: Any) -> dict[str, Any]:
    """Finds lines; arguments as in `Search`."""
    expired = _patience(call)
    return _on_root(
        call, lambda root, search: grep(root, search, expired), _asked(Search, arguments)
    )


@tool(effect="world_write", name="fs.write", timeout_s=30, needs=["fs.write"])
def fs_write(call: Call, **arguments: Any) -> dict[str, Any]:
    """Writes a file; arguments as in `Write`."""
    return _on_root(call, write_file, _asked(Write, arguments))


def _check_root(setup: Setup) -> None:
    """A root that cannot be opened is a fault of the set-up: said at the start, not at a call."""
    path = setup.config["root"]
    try:
        Root(path).close()
    except OSError as error:
        raise PluginError("failed_precondition", f"config.root {path}: {error.strerror}") from None


plugin = Plugin(tools=[fs_list, fs_read, fs_grep, fs_write], setup=_check_root)
