"""Start, handshake, stop: what a plugin may do at its gate and on its way out."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from purra_bridge.ports.channel import Request
from purra_hosts.isolation import machine
from purra_hosts.isolation.policy import AXES
from purra_hosts.launch import Isolation, LaunchLimits
from tests.hosts.process.rig import (
    QUICK,
    alive,
    descriptors,
    failing,
    from_folder,
    hosting,
    puppet,
    running,
    swept,
    tool,
    until,
    workbench,
)


def test_a_life_is_announced_step_by_step() -> None:
    """PLG-04, LIF-001, LIF-009: each step once, with its instance; status answers in every
    state."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            status = route.status()
            assert (status.state, status.pid, status.generation) == ("stopped", None, 0)
            await asyncio.gather(*(route.start() for _ in range(32)))
            status = route.status()
            assert (status.state, status.generation, status.restarts) == ("ready", 1, 0)
            assert status.pid and alive(status.pid) and status.started_at_ms
            assert status.isolation.keys() == set(AXES) and status.isolation["fs"] == "none"
            await route.stop()
            await route.stop()
            assert route.status().state == "stopped" and not alive(status.pid)
            assert watched.kinds() == [
                "plugin.starting",
                "plugin.handshaking",
                "plugin.initializing",
                "plugin.ready",
                "plugin.draining",
                "plugin.stopping",
                "plugin.stopped",
            ]
            assert {data["instance"] for _, data in watched.events} == {status.instance}
            error = await failing(tool(route, "echo", value=1))
            assert (error.code, error.executed) == ("not_active", "no")
            await route.start()
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 2
        error = await failing(route.start())
        assert error.code == "not_active"

    running(main)


def test_many_first_callers_make_one_instance() -> None:
    """LIF-002: on-demand start, everybody waits for the same one."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            assert await asyncio.gather(*(tool(route, "echo", value=n) for n in range(32))) == [
                *range(32)
            ]
            assert watched.kinds().count("plugin.starting") == 1

    running(main)


@pytest.mark.parametrize(
    ("module", "code", "words"),
    [
        ("raises:plugin", "internal", "missing_dependency_of_this_plugin"),
        ("exits:plugin", "crashed", "leaving already"),
        ("hangs:plugin", "start_timeout", "still importing"),
        ("nowhere:plugin", "internal", "nowhere"),
        ("prints:absent", "internal", "absent"),
    ],
)
def test_a_plugin_that_does_not_start(module: str, code: str, words: str) -> None:
    """H79, LIF-003, LIF-004, IOC-002, SUP-003: the code and the plugin's own words; nothing stays,
    calls fail at once, and a new start is a new try (LIF-006)."""

    async def main() -> None:
        async with hosting(replace(QUICK, ready_s=0.6)) as watched:
            assert watched.host._folders.root.exists()
            before = swept()
            route = watched.host.add(from_folder("broken", module))
            error = await failing(route.start())
            assert error.code == code
            assert words in error.detail["stderr"] + error.message
            if code == "crashed":
                assert (error.detail["exit"], error.detail["signal"]) == (7, None)
            late = await failing(route.call(Request("t", "call", {})))
            assert (late.code, late.executed) == (code, "no")
            assert (await failing(route.start())).code == code
            assert route.status().generation == 2
            await until(lambda: watched.kinds().count("plugin.stopped") == 2)
            await route.stop()
            assert swept() == before
            left = {path.name for path in watched.host._folders.root.iterdir()}
            assert left == {"boot", "lock", "staged"}

    running(main)


def test_a_plugin_that_prints_at_import_starts() -> None:
    """H01, IOC-003: what it prints is log, whatever road it takes."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(from_folder("broken", "prints:plugin"))
            await route.start()
            await route.stop()
            assert sorted(watched.texts("stdout")) == ["hi", "raw"]
            assert watched.texts("stderr") == ["careful"]

    running(main)


def test_a_silent_plugin_is_given_up_and_the_host_goes_on(tmp_path: Path) -> None:
    """PLG-11, H02, LIF-004: handshake_timeout at its limit; another plugin answers meanwhile."""

    async def main() -> None:
        async with hosting(replace(QUICK, hello_s=0.4)) as watched:
            code = "sys.stderr.write('here I sit\\n')\nsys.stderr.flush()\nsys.stdin.read()\n"
            silent = watched.host.add(puppet(tmp_path, code + "time.sleep(600)"))
            other = watched.host.add(workbench())
            await other.start()
            starting = asyncio.create_task(failing(silent.start()))
            answers = 0
            while not starting.done():
                answers += await tool(other, "echo", value=1)
            error = await starting
            assert error.code == "handshake_timeout" and "here I sit" in error.detail["stderr"]
            assert answers > 10

    running(main)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("hello(manifest_sha256='0' * 64)", "manifest_mismatch"),
        ("hello(version='9')", "manifest_mismatch"),
        ("hello(plugin='somebody')", "manifest_mismatch"),
        ("hello(proto=[7, 9])", "version_mismatch"),
        ("hello(); welcomed(); ready('t', 'extra')", "manifest_mismatch"),
        (
            "hello(); welcomed(); session.ready({'offers': []}); flush()",
            "manifest_mismatch",
        ),
        ("session.ready({'offers': []})", "crashed"),
        ("channel.sendall(b'hello, world')", "protocol_violation"),
        ("channel.sendall(bytes([0, 0, 0, 1, 0, 0, 0, 1, 19, 0, 192]))", "protocol_violation"),
        ("hello(); welcomed(); hello()", "crashed"),
        ("hello(); channel.close()", "closed"),
        ("channel.close()", "closed"),
        ("channel.sendall(b'\\0\\0'); os.kill(os.getpid(), 9)", "crashed"),
    ],
)
def test_what_hello_and_ready_say_must_hold(tmp_path: Path, code: str, wanted: str) -> None:
    """PLG-11, HSK-001, HSK-002, HSK-005, HSK-008, H08, SUP-002, SUP-007: refused by name, gone,
    once."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code + "\ntime.sleep(600)"))
            error = await failing(route.start())
            assert error.code == wanted, error
            if wanted == "version_mismatch":
                assert error.detail == {"plugin": [7, 9], "host": [1, 1]}
            await until(lambda: "plugin.stopped" in watched.kinds())
            assert watched.kinds().count("plugin.starting") == 1

    running(main)


def test_unknown_fields_of_hello_are_ignored_and_small_limits_are_kept(tmp_path: Path) -> None:
    """HSK-004, HSK-011, CAL-003: the smaller in-flight of both ends is never exceeded."""
    code = """
hello(future={"a": 1}, limits={"inflight": 2})
assert welcomed()["limits"]["inflight"] == 2
ready()
open_calls = []
while True:
    for event in events():
        if type(event).__name__ == "Called":
            open_calls.append(event.id)
            session.result(event.id, len(open_calls))
            open_calls.remove(event.id)
    flush()
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            request = Request("t", "call", {})
            assert max(await asyncio.gather(*(route.call(request) for _ in range(50)))) <= 2

    running(main)


def test_status_extends_the_start(tmp_path: Path) -> None:
    """H04: a slow plugin that says so is not given up; the extension has an end."""
    slow = """
hello(); welcomed()
session.status({"phase": "warming up", "extend_ms": 5000}); flush()
time.sleep(0.8)
ready()
called()
"""

    async def main() -> None:
        timings = replace(QUICK, ready_s=0.3, ready_longest_s=2.0)
        async with hosting(timings) as watched:
            await watched.host.add(puppet(tmp_path, slow)).start()
        async with hosting(replace(timings, ready_longest_s=0.4)) as watched:
            error = await failing(watched.host.add(puppet(tmp_path, slow)).start())
            assert error.code == "start_timeout"

    running(main)


def test_starts_in_parallel_are_capped() -> None:
    """H04: with one slot, the second instance begins when the first is ready."""

    async def main() -> None:
        async with hosting(starts=1) as watched:
            first = watched.host.add(workbench())
            second = watched.host.add(from_folder("broken", "prints:plugin"))
            await asyncio.gather(first.start(), second.start())
            order = [(kind, data["plugin"]) for kind, data in watched.events]
            ready = order.index(("plugin.ready", "workbench"))
            assert ready < order.index(("plugin.starting", "broken"))

    running(main)


def test_a_stop_wins_over_a_start() -> None:
    """LIF-005, SHD-008: also in the line for a slot, where no process is made any more."""

    async def main() -> None:
        async with hosting(starts=1) as watched:
            hanging = watched.host.add(from_folder("broken", "hangs:plugin"))
            waiting = watched.host.add(workbench())
            starts = [asyncio.create_task(failing(route.start())) for route in (hanging, waiting)]
            await until(lambda: hanging.status().state == "init")
            await waiting.stop()
            assert (await starts[1]).code == "not_active"
            assert all(data["pid"] is None for _, data in watched.events[3:])
            await hanging.stop()
            assert (await starts[0]).code == "not_active"
            assert "plugin.crashed" not in watched.kinds()

    running(main)


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 4, 6, 8, 12, 16, 20, 60])
def test_a_cancelled_start_leaves_nothing(delay_ms: int) -> None:
    """H10, H53: at any moment; the other plugin's calls go on."""

    async def main() -> None:
        async with hosting() as watched:
            other = watched.host.add(workbench())
            await other.start()
            before = swept()
            route = watched.host.add(from_folder("broken", "hangs:plugin"))
            calls = [asyncio.create_task(tool(other, "echo", value=n)) for n in range(10)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(route.start(), delay_ms / 1000)
            assert await asyncio.gather(*calls) == [*range(10)]
            await until(lambda: route.status().state == "stopped")
            await until(lambda: descriptors() == before)
            pids = [data["pid"] for _, data in watched.events if data["plugin"] == "broken"]
            assert not any(alive(pid) for pid in pids if pid)

    running(main)


def test_a_cancelled_close_finishes_first() -> None:
    """H52: however often it is cancelled, the process is gone when it raises."""

    async def main() -> None:
        for rounds in range(6):
            async with hosting() as watched:
                route = watched.host.add(workbench())
                await route.start()
                pid = route.status().pid
                assert pid is not None
                closing = asyncio.create_task(watched.host.aclose())
                for _ in range(rounds):
                    await asyncio.sleep(0)
                    closing.cancel()
                if rounds:
                    with pytest.raises(asyncio.CancelledError):
                        await closing
                else:
                    await closing
                assert not alive(pid)
                assert not watched.host._folders._root

    running(main)


def test_stop_lets_calls_finish(tmp_path: Path) -> None:
    """PLG-09, SHD-001, REG-004: what runs ends within the drain time; the rest is `retired`,
    unasked."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=2)))
            paths = [tmp_path / name for name in ("one", "two")]
            release = tmp_path / "release"
            good = asyncio.create_task(
                tool(route, "slow", started=str(paths[0]), release=str(release))
            )
            bad = asyncio.create_task(failing(tool(route, "deaf", started=str(paths[1]))))
            await until(lambda: all(path.exists() for path in paths))
            stopping = asyncio.create_task(route.stop(drain_s=1.0))
            await until(lambda: route.status().state == "draining")
            refused = [failing(tool(route, "echo", value=n)) for n in range(100)]
            assert {error.code for error in await asyncio.gather(*refused)} == {"not_active"}
            release.touch()
            assert await good == "released"
            error = await bad
            assert (error.code, error.executed) == ("retired", "maybe")
            await stopping

    running(main)


def test_a_deaf_plugin_goes_down_the_whole_ladder(tmp_path: Path) -> None:
    """PLG-09, SHD-002, SHD-003: half-close, TERM, KILL, in their times, also with a full
    channel."""
    code = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
start()
called()
time.sleep(600)
"""

    async def main() -> None:
        timings = replace(QUICK, drain_s=0.2, exit_s=0.2, term_s=0.2)
        async with hosting(timings) as watched:
            route = watched.host.add(puppet(tmp_path, code))
            loop = asyncio.get_running_loop()
            big = Request("t", "call", {"x": "x" * 900_000}, timeout_s=30)
            calls = [asyncio.create_task(failing(route.call(big))) for _ in range(40)]
            await until(lambda: route.status().calls > 1)
            began = loop.time()
            await route.stop()
            assert 0.6 <= loop.time() - began < 3
            assert watched.kinds()[-5:] == [
                "plugin.draining",
                "plugin.stopping",
                "plugin.terminated",
                "plugin.killed",
                "plugin.stopped",
            ]
            codes = {error.code for error in await asyncio.gather(*calls)}
            assert codes <= {"retired", "not_active"}

    running(main)


def test_plugins_stop_at_the_same_time(tmp_path: Path) -> None:
    """SHD-004: the time of the slowest, not the sum."""
    code = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nstart()\ntime.sleep(600)"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        timings = replace(QUICK, exit_s=0.4, term_s=0.4)
        async with hosting(timings) as watched:
            for number in range(6):
                folder = tmp_path / str(number)
                folder.mkdir()
                launch = puppet(folder, code, plugin=f"puppet{number}")
                await watched.host.add(launch).start()
            began = loop.time()
            await watched.host.aclose()
            assert 0.8 <= loop.time() - began < 2.4

    running(main)


def test_a_plugin_may_ask_to_leave(tmp_path: Path) -> None:
    """DRAIN from the plugin: it finishes what it has, and the next call wakes a new generation."""
    code = """
start()
call = called()
session.drain("tired", 1000)
session.result(call.id, os.environ["PURRA_GENERATION"])
flush()
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            for generation in "123":
                assert await route.call(Request("t", "call", {})) == generation
            assert "plugin.crashed" not in watched.kinds()

    running(main)


def test_a_demanded_isolation_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol, isolation: nothing is run without a level that is required and missing."""
    monkeypatch.setattr(machine, "probe", lambda: machine.Findings(True, 0, None, "off", "off"))

    async def main() -> None:
        async with hosting() as watched:
            launch = workbench(isolation=Isolation("standard", require=True))
            error = await failing(watched.host.add(launch).start())
            assert (error.code, error.retry) == ("isolation_unavailable", "never")
            assert error.detail["axes"] == dict.fromkeys(("fs", "net", "exec", "ipc"), "none: off")
            assert all(data["pid"] is None for _, data in watched.events)

    running(main)


def test_a_program_that_is_missing_is_named() -> None:
    """SUP-018: errno and program, no traceback."""

    async def main() -> None:
        async with hosting() as watched:
            launch = workbench(python="/nowhere/python3")
            error = await failing(watched.host.add(launch).start())
            assert (error.code, error.detail["errno"]) == ("spawn_failed", 2)
            assert "/nowhere/python3" in error.message

    running(main)


def test_the_worker_sees_a_clean_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """K80, LIM-005, LIM-007, LIM-010: no canary in the environment, by any road; secrets are
    nowhere but in WELCOME; home, tmp and working directory are private, and removed."""
    monkeypatch.setenv("PURRA_TEST_CANARY", "canary-in-env")
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")

    async def main() -> None:
        async with hosting() as watched:
            launch = workbench(secrets={"token": "canary-secret"}, env={"GRANTED": "yes"})
            route = watched.host.add(launch)
            world = await tool(route, "environ")
            assert "canary" not in str(world)
            names = {line.partition("=")[0] for line in world["block"].split("\0") if line}
            lc = {name for name in os.environ if name.startswith("LC_")}
            assert names - lc - {"TZ"} == {
                "PATH",
                "LANG",
                "HOME",
                "TMPDIR",
                "GRANTED",
                "PURRA_FD",
                "PURRA_PROTO",
                "PURRA_PLUGIN",
                "PURRA_MANIFEST",
                "PURRA_GENERATION",
                "PURRA_NONCE",
                "PURRA_ENTRY",
                "PURRA_STAGED",
            }
            home = Path(world["environ"]["HOME"])
            assert world["cwd"] == str(home) and home.stat().st_mode & 0o777 == 0o700
            await route.stop()
            assert not home.exists()

    running(main)


def test_a_configuration_that_cannot_be_sent_is_a_failed_start() -> None:
    """Protocol, frame: WELCOME has one frame; a value that is not strict is named."""
    import datetime

    async def main() -> None:
        async with hosting() as watched:
            for config, words in (
                ({"day": datetime.date(2026, 1, 1)}, "date"),
                ({"text": "x" * 1_100_000}, "too_large"),
            ):
                route = watched.host.add(workbench(plugin=f"workbench-{words}", config=config))
                error = await failing(route.start())
                assert error.code == "invalid_argument" and words in error.message

    running(main)


def test_a_broken_event_sink_breaks_nothing_else() -> None:
    """RUN-23, LIF-001: lives go on; the fault goes to the loop's handler."""
    from purra_hosts.process.supervisor import ProcessHost

    async def main() -> None:
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))

        def sink(kind: str, data: object) -> None:
            raise RuntimeError(kind)

        async with ProcessHost(timings=QUICK, events=sink) as host:
            assert await tool(host.add(workbench()), "echo", value=1) == 1
        assert len(faults) == 7

    running(main)
