"""A model that plays a script and fails on anything unexpected; for tests.

- `script`: the form of a script, checked when it is loaded
- `expect`: what a step demands of its request
- `playing`: which step is next, what has been played
- `acting`: what a step does: text, calls, silence, crashes
- `plugin`: the model
"""

__all__: list[str] = []
