"""AGENTS.md memory files as context.

- `memory`: files into blocks, and what they cost, without the SDK
- `plugin`: the only file that knows the SDK
"""

__all__: list[str] = []
