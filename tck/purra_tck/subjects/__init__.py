"""What the suites are run on: how each kind of subject is opened, and held while it is judged."""

__all__: list[str] = []
