"""The plugin object: the claim and the blocks of `memory`, as the context contract has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from purra_plugin_agentsmd.memory import (
    DEFAULT_MAX_BYTES,
    Block,
    MemoryFileError,
    files_of,
    load,
)
from purra_sdk import Plugin, PluginError, context

if TYPE_CHECKING:
    from purra_sdk.calls import Call, Setup

__all__ = ["Memory", "plugin"]


@context("memory")
class Memory:
    """The configured files, the same for every run. `trusted` decides how they are framed."""

    def __init__(self, setup: Setup) -> None:
        """Raises `PluginError(failed_precondition)` for a relative path."""
        config = setup.config
        self._max_bytes: int = config.get("max_bytes", DEFAULT_MAX_BYTES)
        self._untrusted = not config.get("trusted", False)
        self._priority: int = config.get("priority", 0)
        try:
            self._files = files_of(config["files"])
        except MemoryFileError as error:
            raise PluginError(error.code, error.message) from None

    def demand(self, _call: Call, _request: dict[str, Any]) -> dict[str, Any]:
        """All of it: a part of a memory file is not worth less, but wrong."""
        tokens = sum(block.tokens for block in self._load())
        return {"minimum": tokens, "desired": tokens, "priority": self._priority}

    def provide(self, _call: Call, _request: dict[str, Any], budget: int) -> dict[str, Any]:
        """The blocks, whole. A budget of 0 gives none.

        Raises `PluginError`: resource_exhausted when the files have outgrown what was claimed,
        and as `load` raises.
        """
        if budget <= 0:
            return {"blocks": [], "diagnostics": "no budget"}
        blocks = self._load()
        tokens = sum(block.tokens for block in blocks)
        if tokens > budget:
            raise PluginError(
                "resource_exhausted", f"the memory files need {tokens} tokens, {budget} are granted"
            )
        return {
            "blocks": [self._as_value(block) for block in blocks],
            "diagnostics": f"{len(blocks)} of {len(self._files)} files, {tokens} tokens",
        }

    def _load(self) -> tuple[Block, ...]:
        try:
            return load(self._files, self._max_bytes)
        except MemoryFileError as error:
            raise PluginError(error.code, error.message) from None

    def _as_value(self, block: Block) -> dict[str, Any]:
        return {
            "name": block.name,
            "content": block.content,
            "source": block.source,
            "digest": block.digest,
            "untrusted": self._untrusted,
        }


plugin = Plugin(contexts=[Memory])
