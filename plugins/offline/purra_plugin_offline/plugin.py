"""The model `offline/extractive`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from purra_plugin_offline.answering import next_step
from purra_plugin_offline.streaming import estimate_request, stream
from purra_sdk import CallCancelled, Plugin, PluginError, model

if TYPE_CHECKING:
    from purra_sdk.calls import Call

__all__ = ["Extractive", "plugin"]

WINDOW_TOKENS = 32_768
OUTPUT_TOKENS = 4_096
CHARS_PER_TOKEN = 2
"""Of results, which are JSON."""
SPARE = 0.8
"""The part of the window's rest that results may fill: the estimate is one."""


@model("extractive")
class Extractive:
    """Plans searches with the tools it is offered and quotes what it found. Keeps no state."""

    def profile(self, _call: Call) -> dict[str, Any]:
        """Window and ceiling in tokens; tools, several at once."""
        return {
            "window": WINDOW_TOKENS,
            "output_limit": OUTPUT_TOKENS,
            "features": ["tools", "parallel_tools"],
        }

    def generate(self, call: Call, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """One answer. Raises `PluginError(unimplemented)` for any parameter, `CallCancelled`."""
        if request.get("params"):
            names = ", ".join(sorted(request["params"]))
            raise PluginError("unimplemented", f"this model takes no parameters: {names}")
        left = WINDOW_TOKENS - estimate_request(request) - request["max_tokens"]
        room_chars = max(0, int(left * CHARS_PER_TOKEN * SPARE))
        for item in stream(next_step(request, room_chars), request):
            if call.cancelled:
                raise CallCancelled
            yield item


plugin = Plugin(models=[Extractive])
