"""Faults that the kit makes, and instruments that look at a subject from outside."""

__all__: list[str] = []
