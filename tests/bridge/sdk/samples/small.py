"""The smallest plugin that can tell what its process has loaded."""

from __future__ import annotations

import sys

from purra_sdk import Plugin, tool


@tool(effect="pure")
def modules() -> list[str]:
    return sorted(sys.modules)


plugin = Plugin(tools=[modules])
