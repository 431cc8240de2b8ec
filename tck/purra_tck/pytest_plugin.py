"""The pytest plugin's entry: it is loaded into every pytest run of the environment that the kit is
installed in, so it imports nothing but the standard library, and does nothing until a test file
asks for a suite.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import pytest

__all__ = ["PROPERTY", "made", "pytest_addoption", "pytest_configure", "pytest_generate_tests"]

SPEC = "__purra_tck__"
"""Attribute of a class that `made` has made: the path of its `tck.toml`."""
PROPERTY = "purra_tck"
"""Name under which verdicts travel with the reports of tests, and suites with a worker's end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tck-report`, `--tck-seed` and `--tck-waivers`."""
    group = parser.getgroup("purra-tck", "conformance to the purra protocol")
    group.addoption("--tck-report", metavar="DIR", help="write tck.json and index.html here")
    group.addoption("--tck-waivers", metavar="FILE", help="known failures: [[waiver]] tables")
    group.addoption("--tck-seed", metavar="N", type=int, default=1, help="for chance in the checks")


def pytest_configure(config: pytest.Config) -> None:
    """Says what the marks mean, and waits for verdicts."""
    for level in ("must", "should"):
        config.addinivalue_line("markers", f"tck_{level}: a rule of the conformance kit")
    config.pluginmanager.register(_arrivals(config), "purra-tck-arrivals")


def _arrivals(config: pytest.Config) -> object:
    """The object that hears of verdicts, also where no suite was collected: in xdist's controller,
    which gets them with the reports of tests, and the list of suites with the end of a worker.
    """
    import pytest

    class Arrivals:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            for name, text in report.user_properties:
                if name == PROPERTY and report.when == "call":
                    _session(config).take(str(text))

        @pytest.hookimpl(optionalhook=True)
        def pytest_testnodedown(self, node: Any, error: object) -> None:
            for path in getattr(node, "workeroutput", {}).get(PROPERTY, ()):
                _session(config).suite_at(path)

    return Arrivals()


def _session(config: pytest.Config) -> Any:
    from purra_tck.pytest_session import session_of

    return session_of(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each rule. A method that somebody put in the place of the kit's own is theirs:
    its rules are not run, and the report says so.
    """
    path = getattr(metafunc.cls, SPEC, None)
    if path is None or metafunc.definition.originalname != "test":
        return
    suite = _session(metafunc.config).suite_at(metafunc.definition.path.parent / path)
    if getattr(metafunc.function, "__func__", metafunc.function) is _test:
        metafunc.parametrize("rule", suite.params())


def _test(self: Any, rule: str, request: pytest.FixtureRequest) -> None:
    """Judges one rule."""
    path = request.path.parent / getattr(type(self), SPEC)
    _session(request.config).judge(path, rule, request.node)


def made(fixtures: str) -> type:
    """The class of `purra_tck.suite`."""
    return type("TestTck", (), {SPEC: fixtures, "test": _test, "__doc__": f"Rules of {fixtures}."})
