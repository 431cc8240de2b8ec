"""The bench itself: that every section still runs, and that a verdict says what was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import peers
from tests.bench.__main__ import GOALS, SECTIONS
from tests.bench.measure import Column, Contender, Goal, Rounds, Section, environment, run_rounds
from tests.bench.report import BEGIN, END, document, goal_lines, tables, verdict, write_page

SHARE = 0.01
"""Of the usual counts: enough to take every figure, too little to believe one."""

GOAL = Goal("X1", "something", "x", "cost_us", "ours", "theirs", 2.0)


def two(ours: float, theirs: float, rate: bool = False) -> tuple[Section, Rounds]:
    section = Section(
        "x",
        "X",
        (Column("cost_us", "us", rate=rate),),
        (
            Contender("theirs", lambda share: {"cost_us": theirs}),
            Contender("ours", lambda share: {"cost_us": ours}),
        ),
        {"theirs": "theirs"},
    )
    return section, run_rounds([section], 3, lambda line: None)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.key)
def test_every_section_runs(section: Section) -> None:
    """Every contender takes a figure, every base and every goal names one that is there."""
    rounds = run_rounds([section], 1, lambda line: None, share=SHARE)
    taken = rounds.taken[section.key]
    names = [contender.name for contender in section.contenders]
    assert list(taken) == names and set(section.bases) <= set(names)
    shown = {column.figure for column in section.columns}
    for figures in taken.values():
        assert figures and set(figures) <= shown
        assert all(value >= 0 for values in figures.values() for value in values)
    goals = [goal for goal in GOALS if goal.section == section.key]
    assert goals
    for goal in goals:
        assert {goal.of, goal.over or goal.of} <= set(names) and goal.figure in shown
    assert len(tables([section], rounds)) == len(names) + 3
    assert json.dumps(document([section], GOALS, rounds, environment()))


def test_peers_stand_beside_those_that_do_the_same() -> None:
    """Without running them: their packages are not here."""
    for section in peers.with_peers(SECTIONS):
        names = [contender.name for contender in section.contenders]
        assert names[-2:] == list(peers.PEERS[section.key])
        for goal in peers.GOALS:
            if goal.section == section.key:
                assert {goal.of, goal.over} <= set(names) and goal.most < 1
                assert goal.figure in {column.figure for column in section.columns}


@pytest.mark.parametrize(
    ("ours", "theirs", "rate", "said"),
    [
        (3.0, 2.0, False, "met 1.50x of 2.00x"),
        (6.0, 2.0, False, "not met by 1.50x (3.00x of 2.00x)"),
        (2.0, 3.0, True, "met 1.50x of 2.00x"),
        (0.0, 3.0, False, "not taken"),
    ],
)
def test_a_verdict_is_a_ratio_within_a_round(
    ours: float, theirs: float, rate: bool, said: str
) -> None:
    section, rounds = two(ours, theirs, rate)
    assert goal_lines([section], [GOAL], rounds)[2].endswith(f"  {said}")


def test_a_goal_of_its_own_has_no_ratio() -> None:
    assert verdict(Goal("X2", "", "x", "ms", "ours", "", 2.0), 1.5) == "met 1.50 of 2.00"


def test_rounds_end_with_the_budget() -> None:
    section, _ = two(1.0, 1.0)
    said: list[str] = []
    assert run_rounds([section], 9, said.append, budget_s=0.0).count == 1
    assert "budget" in said[-1]


def test_figures_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    section, rounds = two(3.0, 2.0)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(page, [section], [GOAL], rounds, environment())
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n")
    assert "| X1 | something | met 1.50x of 2.00x |" in text and "old" not in text
    assert all(len(line) <= 100 for line in text.splitlines() if not line.startswith("|"))
    page.write_text("nothing\n")
    with pytest.raises(ValueError, match="no place for figures"):
        write_page(page, [section], [GOAL], rounds, environment())
