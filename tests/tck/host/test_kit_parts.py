"""The parts of the host suite that are not checks: frames, vectors, patience, the command."""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from purra_bridge.wire.codec import ValueRefused, decode
from purra_tck import patience
from purra_tck.command import app
from purra_tck.puppets import frames
from purra_tck.vectors import bad_values, good_values


@given(st.lists(st.integers(min_value=1, max_value=40)))
def test_frames_are_cut_out_wherever_the_pieces_end(sizes: list[int]) -> None:
    """FRM-001: the kit's own reader keeps the rule that it checks."""
    sent = [(frames.RESULT, n, frames.pack("x" * n)) for n in range(20)]
    whole = b"".join(frames.frame(kind, call, body) for kind, call, body in sent)
    reader = frames.Reader()
    found = []
    for size in [*sizes, len(whole)]:
        found += reader.feed(whole[:size])
        whole = whole[size:]
    assert [(frame.kind, frame.call, frame.body) for frame in found] == sent


def test_good_vectors_are_what_they_say() -> None:
    """TST-06, FRM-009: each form decodes to the value, with another implementation than the
    host's."""
    for good in good_values():
        for form in (good.canonical, *good.other):
            value = msgpack.unpackb(form)
            assert type(value) is type(good.value), good.name
            assert value == good.value, good.name
            if isinstance(value, float):
                assert math.copysign(1, value) == math.copysign(1, good.value)
        assert good.canonical not in good.other, good.name
        if not isinstance(good.value, float):
            assert all(len(form) >= len(good.canonical) for form in good.other), good.name


def test_bad_vectors_are_refused_by_the_wire() -> None:
    """TST-06, FRM-006 to 008: our own codec refuses each of them, with the place."""
    for bad in bad_values():
        with pytest.raises(ValueRefused) as caught:
            decode(bad.body)
        assert caught.value.offset is not None, bad.name


def test_patience_ends_on_a_loop_whose_clock_stands_still() -> None:
    """What moves the subject's clock must not move the kit's."""

    async def main() -> bool:
        loop = asyncio.get_running_loop()
        now = loop.time()
        vars(loop)["time"] = lambda: now
        with patience.limit(0.02) as scope:
            await asyncio.Event().wait()
        return scope.cancelled_caught

    began = time.monotonic()
    assert asyncio.run(main())
    assert time.monotonic() - began < 10


def test_patience_does_not_end_what_is_quick() -> None:
    """A limit that was left in time does nothing later."""

    async def main() -> None:
        with patience.limit(0.01):
            pass
        await asyncio.sleep(0.03)
        with patience.limit(30) as scope:
            await asyncio.sleep(0)
        assert not scope.cancelled_caught

    asyncio.run(main())


def test_the_command_reports_and_has_its_exit_codes(tmp_path: Path) -> None:
    """PLG-21: 0 for what passes, with frames in the report; 2 for no rule and for no host."""
    run = CliRunner().invoke
    found = run(app, ["host", "process", "--only", "FRM-012", "--report", str(tmp_path)])
    assert found.exit_code == 0, found.output
    report = json.loads((tmp_path / "tck.json").read_text())
    row = report["rules"]["FRM-012"]
    assert row["verdict"] == "pass" and len(row["durations_s"]) == 2
    assert {"WELCOME", "CALL", "RESULT"} <= {frame["kind"] for frame in row["frames"]}
    assert report["rules"]["FRM-001"]["verdict"] == "not-run" and report["partial"]
    assert run(app, ["host", "process", "--only", "NO-*"]).exit_code == 2
    assert run(app, ["host", "toaster"]).exit_code != 0
