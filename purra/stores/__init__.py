"""Stores that need no plugin. `memory` is the executable specification of `purra.store/1`."""

__all__: list[str] = []
