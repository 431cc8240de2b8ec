"""The ports: one file per kind, each a Protocol whose docstrings say what is guaranteed.

An adapter is anything that satisfies one of them: an object in this process, or the near end of a
plugin in another. The same conformance tests (`tests/conformance`) pass on both.
"""
