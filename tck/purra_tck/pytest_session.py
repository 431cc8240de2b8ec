"""What one pytest run knows of the suites in it: who is judged, what came out, what was left out.

The report is made of verdicts and not of test results: a test that was deselected, replaced or
expected to fail changes nothing in it but that its rule has not run. Under xdist each worker judges
its share; verdicts come to the controller with the test reports, and the list of suites with the
end of each worker, so that a suite whose tests were all deselected is reported, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from purra.errors import PurraError
from purra_tck import report as reports
from purra_tck.plugin_plan import Asked, judged_package, plan_of
from purra_tck.pytest_plugin import PROPERTY
from purra_tck.rules import Rule, catalogue, catalogue_digest
from purra_tck.runner import Plan, Report, run, today
from purra_tck.verdict import RED, Outcome
from purra_tck.waivers import Waiver, load_waivers, stale

__all__ = ["Session", "Suite", "session_of"]

NAME: Final = "purra-tck-session"
FRAMES: Final = 60
"""Frames that travel with a verdict."""


def session_of(config: pytest.Config) -> Session:
    """The one of this pytest run; made when it is first asked for."""
    found = config.pluginmanager.get_plugin(NAME)
    if found is None:
        found = Session(config)
        config.pluginmanager.register(found, NAME)
    return found


class Suite:
    """One `tck.toml`: its plan, and the verdicts so far."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.outcomes: dict[str, Outcome] = {}

    def params(self) -> list[Any]:
        """A parameter for each rule with a check."""
        return [
            pytest.param(rule.id, id=rule.id, marks=getattr(pytest.mark, f"tck_{_level(rule)}"))
            for rule in self.plan.rules
            if rule.id in self.plan.checks
        ]

    def report(self, *, cut_short: bool) -> Report:
        """What is known; a rule that no test judged is not-run."""
        due = {rule.id for rule in self.plan.rules if rule.id in self.plan.checks}
        return Report(
            self.plan.suite,
            self.plan.subject,
            self.plan.rules,
            self.outcomes,
            self.plan.seed,
            partial=bool(due - self.outcomes.keys()),
            cut_short=cut_short,
            rules_digest=catalogue_digest(),
            waivers=self.plan.waivers,
        )


def _level(rule: Rule) -> str:
    return "should" if rule.level == "SHOULD" else "must"


class Session:
    """A pytest plugin object, registered once there is a suite."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._suites: dict[Path, Suite] = {}
        self._stack = ExitStack()

    def suite_at(self, path: Path | str) -> Suite:
        """The suite of a `tck.toml`. Raises `pytest.UsageError` if it names no subject."""
        path = Path(path).resolve()
        if path not in self._suites:
            asked = Asked(str(path), seed=self._config.getoption("--tck-seed"))
            try:
                package = self._stack.enter_context(judged_package(asked))
                waivers = self._waivers()
            except PurraError as error:
                raise pytest.UsageError(str(error)) from error
            plan = replace(plan_of(package, asked), waivers=waivers)
            self._suites[path] = Suite(path, plan)
        return self._suites[path]

    def _waivers(self) -> tuple[Waiver, ...]:
        file = self._config.getoption("--tck-waivers")
        return load_waivers(Path(file)) if file else ()

    def judge(self, path: Path, rule: str, node: pytest.Item) -> None:
        """Judges one rule, and fails or skips the test accordingly."""
        suite = self.suite_at(path)
        plan = replace(suite.plan, only=(rule,))
        outcome = anyio.run(run, plan).outcomes[rule]
        node.user_properties.append((PROPERTY, _sent(suite.path, outcome)))
        if outcome.status in RED:
            lines = reports.lines_of(catalogue()[rule], outcome)
            pytest.fail("\n".join(lines), pytrace=False)
        if outcome.status in ("n/a", "waived"):
            pytest.skip(f"{outcome.status}: {outcome.reason.removeprefix('waived: ')}")

    def take(self, text: str) -> None:
        """A verdict has arrived."""
        path, outcome = _received(text)
        self.suite_at(path).outcomes[outcome.rule] = outcome

    # What comes out.

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A worker tells its suites; the controller writes the reports."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[PROPERTY] = [str(path) for path in self._suites]
            return
        old = (stale(each.plan.waivers, each.outcomes, today()) for each in self._suites.values())
        if any(old) and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        folder = session.config.getoption("--tck-report")
        if folder:
            stopped = exitstatus == pytest.ExitCode.INTERRUPTED or bool(session.shouldstop)
            for place, report in self._placed(Path(folder), cut_short=stopped):
                reports.write_report(report, place)

    def _placed(self, folder: Path, *, cut_short: bool) -> Iterator[tuple[Path, Report]]:
        """Each report and its folder: several suites have one each, below the given one."""
        for suite in self._suites.values():
            report = suite.report(cut_short=cut_short)
            several = len(self._suites) > 1
            yield folder / report.subject.name if several else folder, report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The denominators, which pytest's own line does not have."""
        for suite in self._suites.values():
            for waiver, why in stale(suite.plan.waivers, suite.outcomes, today()):
                terminalreporter.write_line(f"✗ waiver {waiver}: {why}")
            line = reports.footer(suite.report(cut_short=False))
            terminalreporter.write_line(f"{suite.plan.subject.name}: {line}")

    def pytest_unconfigure(self) -> None:
        """Removes what was built."""
        self._stack.close()


def _sent(path: Path, outcome: Outcome) -> str:
    kept = replace(outcome, frames=outcome.frames[-FRAMES:])
    return json.dumps({"path": str(path), "outcome": asdict(kept)}, default=str)


def _received(text: str) -> tuple[Path, Outcome]:
    value: Mapping[str, Any] = json.loads(text)
    told = {field.name: value["outcome"][field.name] for field in fields(Outcome)}
    for name in ("observations", "durations_s", "frames"):
        told[name] = tuple(told[name])
    return Path(value["path"]), Outcome(**told)
