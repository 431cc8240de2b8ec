"""Every way of dying, and what is left of it: an error that tells, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import LaunchLimits
from tests.hosts.process.rig import (
    BOUND_S,
    PLUGINS,
    QUICK,
    alive,
    failing,
    hosting,
    puppet,
    running,
    tool,
    until,
    workbench,
)


def rss_kib() -> int:
    """Resident memory of this process."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


@pytest.mark.parametrize(
    ("args", "exit_status", "number"),
    [
        ({"number": 9}, None, 9),
        ({"number": 11}, None, 11),
        ({"number": 15}, None, 15),
        ({"status": 0}, 0, None),
        ({"status": 1}, 1, None),
    ],
)
def test_a_death_in_a_call_fails_all_its_calls_at_once(
    tmp_path: Path, args: dict[str, Any], exit_status: int | None, number: int | None
) -> None:
    """H44, H62, K68, SUP-005, SUP-014, CAL-010: `crashed` with status or signal, the end of
    stderr and who it was; sent calls are `maybe`, waiting ones `no`; the instance stays down."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench(limits=LaunchLimits(threads=3, inflight=3)))
            await route.start()
            paths = [tmp_path / "one", tmp_path / "two"]
            pending = [
                asyncio.create_task(failing(tool(route, "slow", started=str(path))))
                for path in paths
            ]
            await until(lambda: all(path.exists() for path in paths))
            dying = asyncio.create_task(failing(tool(route, "die", text="my last words\n", **args)))
            queued = [asyncio.create_task(failing(tool(route, "echo"))) for _ in range(200)]
            error = await dying
            loop = asyncio.get_running_loop()
            began = loop.time()
            others = await asyncio.gather(*pending)
            late = await asyncio.gather(*queued)
            assert loop.time() - began < 0.1
            for sent in (error, *others):
                assert (sent.code, sent.origin, sent.executed) == ("crashed", "instance", "maybe")
                assert sent.detail["exit"] == exit_status and sent.detail["signal"] == number
                assert sent.detail["stderr"].endswith("my last words\n") or number == 11
                assert sent.detail["generation"] == 1
                assert sent.detail["instance"] == watched.events[0][1]["instance"]
            assert {(sent.code, sent.executed) for sent in late} == {("crashed", "no")}
            after = await failing(tool(route, "echo"))
            assert (after.code, after.executed) == ("crashed", "no")
            status = route.status()
            assert (status.state, status.reason, status.restarts) == ("down", "crashed", 0)
            assert status.last_error is not None
            assert watched.kinds().count("plugin.starting") == 1
            await route.start()
            assert await tool(route, "echo", value=1) == 1

    running(main)


def test_a_death_while_idle_is_noticed_without_a_call() -> None:
    """SUP-004: by the host itself, within a second."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await route.start()
            pid = route.status().pid
            assert pid is not None
            loop = asyncio.get_running_loop()
            began = loop.time()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: route.status().state == "down")
            assert loop.time() - began < 1
            assert watched.events[-1][0] == "plugin.stopped"
            assert watched.events[-1][1]["code"] == "crashed"

    running(main)


def test_a_death_in_a_stream_keeps_what_has_arrived(tmp_path: Path) -> None:
    """STR-007, SUP-006: the items, then the error, never the end of the stream."""
    code = """
start()
call = called()
session.items(call.id, [1, 2, 3]); flush()
os.kill(os.getpid(), 9)
"""

    async def main() -> None:
        async with hosting() as watched:
            items = watched.host.add(puppet(tmp_path, code)).stream(Request("t", "call", {}))
            seen = []
            with pytest.raises(WireError) as caught:
                async for item in items:
                    seen.append(item)
            assert seen == [1, 2, 3]
            assert (caught.value.code, caught.value.detail["signal"]) == ("crashed", 9)
            assert items.result is None

    running(main)


@pytest.mark.parametrize("last", ["os._exit(0)", "os.kill(os.getpid(), 9)", "channel.close()"])
def test_an_answer_before_the_end_wins(tmp_path: Path, last: str) -> None:
    """H40: whatever has arrived is handled before anything fails, 3 MB of it too."""
    code = f"""
start()
call = called()
session.result(call.id, "x" * 3_000_000); flush()
{last}
time.sleep(600)
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            assert len(await route.call(Request("t", "call", {}))) == 3_000_000
            await until(lambda: route.status().state == "down")
            assert route.status().reason == ("closed" if "close" in last else "crashed")

    running(main)


def test_an_answer_wins_also_when_our_write_fails(tmp_path: Path) -> None:
    """H40: a failed write closes the transport, and what was unread is read all the same."""
    code = """
start()
call = called()
session.result(call.id, "answer"); flush()
open(os.environ["HOME"] + "/../answered", "w").close()
channel.shutdown(2)
time.sleep(600)
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            await route.start()
            root = watched.host._folders.root
            first = asyncio.create_task(route.call(Request("t", "call", {})))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # The loop stands still until the answer is in our socket and the other end is shut.
            while not (root / "answered").exists():
                pass
            second = asyncio.create_task(
                failing(route.call(Request("t", "call", {"x": "y" * 9000})))
            )
            assert await first == "answer"
            assert (await second).code in ("closed", "crashed")

    running(main)


def test_a_channel_that_is_held_open_does_not_hide_the_death(tmp_path: Path) -> None:
    """Facts: a forked grandchild holds the channel, so death is judged by the process too."""
    code = """
start()
call = called()
if (pid := os.fork()) == 0:
    os.setsid()
    os.close(1); os.close(2)
    time.sleep(600)
sys.stderr.write(f"{pid}\\n"); sys.stderr.flush()
os.kill(os.getpid(), 9)
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            error = await failing(route.call(Request("t", "call", {})))
            os.kill(int(error.detail["stderr"]), signal.SIGKILL)
            assert (error.code, error.detail["signal"]) == ("crashed", 9)
            await until(lambda: watched.kinds()[-1] == "plugin.stopped")

    running(main)


def test_a_protocol_violation_costs_one_instance(tmp_path: Path) -> None:
    """FRM-013, FRM-011: named with its reason; the neighbour does not notice."""
    code = """
start()
call = called()
channel.sendall(bytes([0, 0, 0, 1, 0, 0, 0, 99, 19, 0, 192]))
time.sleep(600)
"""

    async def main() -> None:
        async with hosting() as watched:
            other = watched.host.add(workbench())
            route = watched.host.add(puppet(tmp_path, code))
            error = await failing(route.call(Request("t", "call", {})))
            assert (error.code, error.executed) == ("protocol_violation", "maybe")
            assert error.detail["reason"] == "unknown_id"
            assert await tool(other, "echo", value=1) == 1

    running(main)


def test_a_stopped_process_is_found_by_its_silence() -> None:
    """SUP-008, H43: PING after silence, then unresponsive; a slow handler is not silent."""

    async def main() -> None:
        timings = replace(QUICK, ping_s=0.1, unresponsive_s=0.5)
        async with hosting(timings) as watched:
            route = watched.host.add(workbench())
            release_after = asyncio.get_running_loop().time() + 1.2
            busy = asyncio.create_task(failing(tool(route, "slow", timeout_s=1.2)))
            assert (await busy).code == "deadline_exceeded"
            assert asyncio.get_running_loop().time() >= release_after - 0.2
            assert route.status().state == "ready"
            error = await failing(tool(route, "stop_itself"))
            assert (error.code, error.executed) == ("unresponsive", "maybe")
            await until(lambda: route.status().state == "down")
            assert "plugin.killed" in watched.kinds()  # TERM does not wake a stopped process

    running(main)


def test_the_hosts_own_stall_is_not_the_plugins_fault() -> None:
    """H68: after the loop stood still for longer than every limit, the plugin is still there."""
    import time

    async def main() -> None:
        timings = replace(QUICK, ping_s=0.05, unresponsive_s=0.2, lag_s=0.1)
        async with hosting(timings) as watched:
            route = watched.host.add(workbench())
            await route.start()
            await asyncio.sleep(0.08)  # a PING is under way
            time.sleep(0.6)
            assert await tool(route, "echo", value=1) == 1
            assert route.status().generation == 1

    running(main)


def test_a_callback_is_denied_and_the_instance_stays(tmp_path: Path) -> None:
    """CAP-001: no host service is granted so far."""
    code = """
start()
call = called()
session.call("memory", "get", {}, {"parent": call.id}); flush()
while True:
    for event in events():
        if type(event).__name__ == "Failed":
            session.result(call.id, [event.error.code, event.error.executed]); flush()
"""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(puppet(tmp_path, code))
            answer = await route.call(Request("t", "call", {}))
            assert answer == ["capability_denied", "no"]

    running(main)


def test_a_flood_of_logs_is_drained_in_bounded_memory() -> None:
    """PLG-28, IOC-001, H28: 20 MiB of stderr; the call goes on, memory does not."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            await tool(route, "flood", mib=1)
            before = rss_kib()
            assert await tool(route, "flood", mib=20) == "done"
            assert rss_kib() - before < 8 * 1024
            await until(lambda: watched.texts("host"))
            assert any("dropped" in text for text in watched.texts("host"))
            error = await failing(tool(route, "die", number=9))
            assert len(error.detail["stderr"]) < 5000

    running(main)


def test_output_in_the_middle_of_a_call_is_log() -> None:
    """PLG-12, H11, H58, IOC-003, IOC-005: printed, written to descriptor 1, or by a child of the
    worker."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            assert await tool(route, "noise") == "clean"
            await until(lambda: len(watched.texts("stdout")) == 3)
            assert sorted(watched.texts("stdout")) == ["by a child", "printed", "written"]
            record = next(r for r in watched.logs if r["stream"] == "stdout")
            assert (record["plugin"], record["instance"]) == (
                "workbench",
                route.status().instance,
            )

    running(main)


def test_a_stop_takes_the_whole_group() -> None:
    """PLG-10, SUP-016: also after a crash, what the worker started in its group is gone."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            for way in ("stop", "crash"):
                await route.start()
                pid = await tool(route, "child")
                assert alive(pid)
                if way == "stop":
                    await route.stop()
                else:
                    await failing(tool(route, "die", number=9))
                async with asyncio.timeout(BOUND_S):
                    while alive(pid):
                        await asyncio.sleep(0.005)

    running(main)


HOST_SCRIPT = """
import asyncio, os, sys
from tests.hosts.process.rig import hosting, tool, workbench

async def main():
    async with hosting() as watched:
        route = watched.host.add(workbench())
        busy = asyncio.create_task(tool(route, "deaf", seconds=600))
        await route.start()
        print(route.status().pid, watched.host._folders.root, flush=True)
        END
        await busy

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), 9)",
        "os._exit(3)",
        "raise RuntimeError('the host has a fault')",
        "import signal; signal.raise_signal(signal.SIGINT)",
        "asyncio.get_running_loop().stop()",
    ],
)
def test_no_way_of_ending_the_host_leaves_a_child(end: str) -> None:
    """PLG-10, H46, K73, SUP-015, SHD-005: the worker is in a deaf call; it is gone within two
    seconds."""
    host = subprocess.run(
        [sys.executable, "-c", HOST_SCRIPT.replace("END", end)],
        cwd=PLUGINS.parents[3],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )
    pid, root = host.stdout.split()
    assert host.returncode != 0

    async def gone() -> None:
        async with asyncio.timeout(2):
            await until(lambda: not alive(int(pid)))

    asyncio.run(gone())
    if "kill" not in end and "_exit" not in end:
        assert not Path(root).exists()


@pytest.mark.parametrize("end", ["stop", "crash", "close"])
def test_what_left_its_group_is_found_by_its_mark(end: str) -> None:
    """SUP-016: a process in a session of its own; one of another instance is left alone."""

    async def main() -> None:
        async with hosting() as watched:
            route = watched.host.add(workbench())
            pid = await tool(route, "child", detach=True)
            assert alive(pid) and os.getsid(pid) == pid
            bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
            try:
                if end == "stop":
                    await route.stop()
                elif end == "crash":
                    await failing(tool(route, "die", number=9))
                    await until(lambda: "plugin.stopped" in watched.kinds())
                else:
                    await watched.host.aclose()
                assert not alive(pid) and alive(bystander.pid)
            finally:
                bystander.kill()
                bystander.wait()

    running(main)
