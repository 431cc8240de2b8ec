"""`python -m tests.bench`: what things cost, beside a raw floor and a sketch in the same rounds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench import appends, calls, cold, imports, payloads, steps, streams
from tests.bench.measure import Goal, Section, environment, run_rounds
from tests.bench.report import document, goal_lines, tables, write_page

__all__ = ["GOALS", "SECTIONS", "main"]

PARTS: Final = (calls, streams, payloads, cold, steps, appends, imports)
SECTIONS: Final[Sequence[Section]] = [each.SECTION for each in PARTS]
GOALS: Final[Sequence[Goal]] = [goal for each in PARTS for goal in each.GOALS]
ROUNDS: Final = 5
QUIET: Final = 0.7
"""Load average of a machine on which little else happens."""
BUDGET_S: Final = 225.0
"""A run that was asked for nothing in particular ends within four minutes."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, and says what was found."""
    asked = _parser().parse_args(arguments)
    sections = [one for one in SECTIONS if not asked.only or one.key in asked.only]
    goals = GOALS
    if asked.peers:
        from tests.bench import peers  # their packages are in no environment but their own

        sections, goals = peers.with_peers(sections), [*GOALS, *peers.GOALS]
    about = environment()
    print(json.dumps(about), flush=True)
    if about["load"] > QUIET:
        print(f"the load is over {QUIET}: figures of a busy machine are not to be believed")
    rounds = run_rounds(
        sections,
        asked.rounds or ROUNDS,
        lambda line: print(line, flush=True),
        budget_s=BUDGET_S if asked.rounds is None else float("inf"),
        share=asked.share,
    )
    print("\n".join([*tables(sections, rounds), "", *goal_lines(sections, goals, rounds)]))
    if asked.json:
        found = document(sections, goals, rounds, about)
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    if asked.page:
        write_page(asked.page, sections, goals, rounds, about)


def _parser() -> argparse.ArgumentParser:
    keys = [section.key for section in SECTIONS]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS}, or as many as 4 minutes allow")
    parser.add_argument(
        "--only", action="append", choices=keys, help="this section; may be given again"
    )
    parser.add_argument("--peers", action="store_true", help="see tests/bench/peer_venv.py")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes every figure there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="puts the figures into a page")
    return parser


if __name__ == "__main__":
    main()
