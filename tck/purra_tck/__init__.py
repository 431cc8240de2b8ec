"""The conformance kit: proves plugins, hosts and stores, also those of strangers.

By command, `purra tck --help`; in a test file:

    import purra_tck

    TestTck = purra_tck.suite("tck.toml")
"""

from __future__ import annotations

__all__ = ["suite"]


def suite(fixtures: str = "tck.toml") -> type:
    """A class with one test for each rule that applies to the plugin which `fixtures` names.

    `fixtures`: a `tck.toml` with a `[subject]`, relative to the test file. Nothing is read before
    the tests are collected.
    """
    from purra_tck.pytest_plugin import made

    return made(fixtures)
