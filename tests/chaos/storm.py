"""A storm over eight plugins: seeded, replayable, counted.

    python -m tests.chaos.storm --seed 7 --calls 20000        one storm, with a report
    python -m tests.chaos.storm --minutes 20                   the soak: one storm after another

Callers call all the time: small and large values, streams that are read slowly or given up, tools
that raise, flood or answer nonsense. Meanwhile processes are killed, stopped for a moment, made to
write garbage, and replaced. The seed decides what happens in which order; how many calls have
ended decides when, never the clock, so a storm is as strong on a slow machine.

What must hold: each call ends exactly once, with its own value or one coded error of a kind that
the storm explains; the plugin that is only reloaded loses no call; the one that is left alone has
no error at all; when the host is closed nothing is left.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch
from purra_hosts.process.route import Route
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.restarts import RestartPolicy
from tests.hosts.process.rig import PLUGINS, TOOLS, from_folder

PLUGIN_COUNT: Final = 8
CALLERS: Final = 6
"""Per plugin, at the same time."""
ALONE: Final = 0
RELOADED: Final = 1
"""Plugins that nobody harms; the others are killed and stopped."""
EXPLAINED: Final = frozenset({"crashed", "closed", "tainted", "unresponsive", "overloaded"})
"""How a call may end whose process was killed under it."""
GARBLED: Final = "protocol_violation"
"""How calls end whose process wrote garbage into its channel."""
OWN: Final = {"fail": "rate_limited", "unencodable": "contract_violation"}
"""How a tool that misbehaves ends its own call, and no other."""
STALL_S: Final = 60.0
"""No call lasts longer, whatever the machine does: then something hangs."""
RESTARTS: Final = RestartPolicy(most=10_000, first_s=0.01, longest_s=0.05, healthy_s=1.0)


@dataclass
class Tally:
    """What happened. `wrong` is empty, or says what must not be."""

    seed: int
    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    harm: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        """One line for people."""
        counts = ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items()))
        harm = ", ".join(f"{n} {name}" for name, n in sorted(self.harm.items()))
        return (
            f"seed {self.seed}: {self.calls} calls in {self.seconds:.1f} s ({counts});"
            f" {harm}; {len(self.wrong)} wrong"
        )


class Storm:
    """One storm: `calls` calls, a harm every `every` of them."""

    def __init__(self, seed: int, calls: int, every: int) -> None:
        self.tally = Tally(seed)
        self._dice = random.Random(seed)
        self._goal = calls
        self._every = every
        self._routes: list[Route] = []
        self._turn = asyncio.Event()

    async def rage(self, folder: Path) -> Tally:
        """The whole storm, from the first start to the last reaping."""
        began = time.monotonic()
        async with ProcessHost(restarts=RESTARTS) as host:
            self._routes = [host.add(_copy(folder, number)) for number in range(PLUGIN_COUNT)]
            async with asyncio.TaskGroup() as tasks:
                for number in range(PLUGIN_COUNT * CALLERS):
                    dice = random.Random(self._dice.random())
                    tasks.create_task(self._caller(number % PLUGIN_COUNT, dice))
                tasks.create_task(self._harm())
            for route in self._routes:  # the last kill may be half a second old
                await asyncio.wait_for(_echo(route, "after"), STALL_S)
        self.tally.seconds = time.monotonic() - began
        return self.tally

    @property
    def _over(self) -> bool:
        return self.tally.calls >= self._goal

    async def _caller(self, plugin: int, dice: random.Random) -> None:
        while not self._over:
            act = dice.choices(_ACTS, _WEIGHTS)[0]
            outcome = await self._one(plugin, act, dice)
            self.tally.calls += 1
            self.tally.outcomes[outcome] += 1
            if self.tally.calls % self._every == 0 or self._over:
                self._turn.set()

    async def _one(self, plugin: int, act: str, dice: random.Random) -> str:
        """One call, to its end; what it came to."""
        try:
            async with asyncio.timeout(STALL_S):
                await _do(self._routes[plugin], act, dice)
        except WireError as error:
            return self._judge(plugin, act, error)
        except TimeoutError:
            self.tally.wrong.append(f"plugin {plugin}: {act} hangs")
            return "hung"
        except AssertionError as error:
            self.tally.wrong.append(f"plugin {plugin}: {act}: {error}")
            return "wrong value"
        if act in OWN:
            self.tally.wrong.append(f"plugin {plugin}: {act} did not fail")
        return "ok"

    def _judge(self, plugin: int, act: str, error: WireError) -> str:
        if OWN.get(act) == error.code:
            return "ok"
        unharmed = plugin in (ALONE, RELOADED)
        if unharmed or error.code not in EXPLAINED | {GARBLED}:
            self.tally.wrong.append(f"plugin {plugin}: {act}: {error.code}: {error.message[:200]}")
        return error.code

    async def _harm(self) -> None:
        while not self._over:
            await self._turn.wait()
            self._turn.clear()
            if self._over:
                return
            kind = self._dice.choices(("kill", "stop", "garble", "reload"), (6, 1, 1, 2))[0]
            await getattr(self, f"_{kind}")()
            self.tally.harm[kind] += 1

    async def _kill(self) -> None:
        pid = self._victim()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    async def _stop(self) -> None:
        """A moment of deafness: calls wait, nobody is blamed."""
        pid = self._victim()
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(0.1, _continue, pid)

    async def _garble(self) -> None:
        """Its plugin writes what is no frame into its channel, in the middle of its calls."""
        route = self._dice.choice(self._routes[RELOADED + 1 :])
        try:
            async with asyncio.timeout(STALL_S):
                await _call(route, "garble")
        except WireError as error:
            if error.code not in EXPLAINED | {GARBLED}:
                self.tally.wrong.append(f"garble: {error.code}: {error.message[:200]}")
            return
        self.tally.wrong.append("garble: nobody noticed")

    async def _reload(self) -> None:
        await self._routes[RELOADED].reload()

    def _victim(self) -> int | None:
        return self._dice.choice(self._routes[RELOADED + 1 :]).status().pid


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass  # killed meanwhile, and reaped


def _copy(folder: Path, number: int) -> Launch:
    """The workbench under an id of its own."""
    home = folder / f"bench{number}"
    shutil.copytree(PLUGINS / "workbench", home)
    manifest = home / "purra-plugin.toml"
    manifest.write_text(manifest.read_text().replace('"workbench"', f'"bench{number}"'))
    offers = (*(("tool", name) for name in TOOLS), ("store", "bench"))
    base = from_folder("workbench", "workbench:plugin", offers)
    launch = replace(base, plugin=f"bench{number}", folder=home, manifest_path=manifest)
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    return replace(launch, manifest_sha256=digest, sys_path=(str(home),))


async def _call(route: Route, name: str, **arguments: Any) -> Any:
    answer = await route.call(Request(name, "call", {"arguments": arguments}))
    return answer["value"]


async def _echo(route: Route, value: Any) -> None:
    got = await _call(route, "echo", value=value)
    assert got == value, "another call's answer"


async def _do(route: Route, act: str, dice: random.Random) -> None:
    if act == "echo":
        await _echo(route, {"n": dice.getrandbits(60), "t": "ü" * dice.randint(0, 40)})
    elif act == "large":
        await _echo(route, "x" * dice.randint(60_000, 200_000) + str(dice.random()))
    elif act == "stream":
        count = dice.randint(1, 200)
        items = route.stream(Request("progress", "call", {"arguments": {"count": count}}))
        seen = [item async for item in items]
        assert seen == list(range(count)), "an item was lost, doubled or moved"
    elif act == "read slowly":
        read = {"count": 60, "size": 2000}
        rows = route.stream(Request("bench", "read", read, window_bytes=4096))
        got = []
        async for number, _ in rows:
            got.append(number)
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        assert got == list(range(60)), "an item was lost, doubled or moved"
    elif act == "give up":
        items = route.stream(Request("progress", "call", {"arguments": {"count": 500}}))
        assert await anext(items) == 0, "not the first item"
        await items.aclose()
    elif act == "cancel":
        task = asyncio.ensure_future(_echo(route, dice.random()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    else:
        await _call(route, act, **({"mib": 1} if act == "flood" else {}))


_ACTS: Final = (
    *("echo", "large", "stream", "read slowly", "give up"),
    *("cancel", "fail", "unencodable", "flood"),
)
_WEIGHTS: Final = (700, 20, 60, 10, 30, 60, 40, 40, 2)


async def storm(seed: int, calls: int, every: int) -> Tally:
    """One storm in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="storm") as folder:
        return await Storm(seed, calls, every).rage(Path(folder))


def main() -> int:
    """The soak, and single storms by hand. Exit 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=400, help="calls between two harms")
    parser.add_argument("--minutes", type=float, default=0.0, help="storms until then; 0 = one")
    options = parser.parse_args()
    until = time.monotonic() + options.minutes * 60
    seed = options.seed
    while True:
        tally = asyncio.run(storm(seed, options.calls, options.every))
        print(tally.line(), flush=True)
        for wrong in tally.wrong[:20]:
            print(f"  {wrong}")
        if tally.wrong:
            return 1
        if time.monotonic() >= until:
            return 0
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
