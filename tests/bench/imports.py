"""G: what loading costs: a process that only imports, beside one that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from tests.bench.measure import Column, Contender, Goal, Section, part
from tests.bench.sketch import ROOT

__all__ = ["GOALS", "SECTION"]

TIMES: Final = 3
KIB_IN_MIB: Final = 1024
LEAST_S: Final = 1e-5
"""What costs less is not told from nothing."""
NOTHING: Final = "pass"
TELL: Final = """
import sys
print(len(sys.modules), open('/proc/self/smaps_rollup').read().split('Rss:')[1].split()[0])
"""

QUICKSTART: Final = ROOT / "manifests" / "quickstart.toml"
QUESTION: Final = "How does a caller cancel a running tool?"
REQUESTED: Final = "stream.opened"


def _run(code: str) -> tuple[float, float, float]:
    """Seconds, modules, MiB."""
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", code + TELL], check=True, cwd=ROOT, capture_output=True
    )
    took_s = time.perf_counter() - began
    modules, kib = map(float, ran.stdout.split()[-2:])
    return took_s, modules, kib / KIB_IN_MIB


def _import(code: str) -> Callable[[float], dict[str, float]]:
    """`over_ms`: beyond an interpreter that does nothing, which runs in between; by the fastest of
    each, as what disturbs only adds.
    """

    def run(share: float) -> dict[str, float]:
        pairs = [(_run(NOTHING), _run(code)) for _ in range(part(TIMES, share))]
        bares, wholes = ([one[0] for one in side] for side in zip(*pairs, strict=True))
        return {
            "ms": median(wholes) * 1e3,
            "over_ms": max(LEAST_S, min(wholes) - min(bares)) * 1e3,
            "modules": pairs[-1][1][1],
            "rss": pairs[-1][1][2],
        }

    return run


def _first_request(share: float) -> dict[str, float]:
    """`purra run` with four plugins: from exec to the model's first request, by the journal."""
    command = [sys.executable, "-m", "purra_hosts.app", "run", str(QUICKSTART), "--json", QUESTION]
    found = []
    for _ in range(part(TIMES, share)):
        with TemporaryDirectory() as state:
            began_ms = time.time() * 1e3
            ran = subprocess.run(
                [*command, "--state", state], check=True, cwd=ROOT, capture_output=True
            )
        events = map(json.loads, ran.stdout.splitlines())
        found.append(next(e["at_ms"] for e in events if e["kind"] == REQUESTED) - began_ms)
    return {"ms": median(found)}


BARE: Final = "python"
MSGPACK: Final = "msgpack"
SKETCH: Final = "sketch: asyncio, sqlite3, msgpack"
PURRA: Final = "purra: import purra"
EVERYTHING: Final = "purra: all that a run needs"
SDK: Final = "purra: the SDK"
SERVING: Final = "purra: the SDK and its worker"
FIRST: Final = "purra run, 4 plugins, to the first request"

CODE: Final = {
    BARE: NOTHING,
    MSGPACK: "import msgpack",
    SKETCH: "import asyncio, sqlite3, msgpack",
    PURRA: "import purra",
    EVERYTHING: "import purra, anyio._backends._asyncio; purra.Kernel, purra.open_kernel",
    SDK: "import purra_sdk",
    SERVING: "import purra_sdk, purra_sdk.worker",
}

SECTION: Final = Section(
    "imports",
    "G. imports",
    (
        Column("ms", "ms", 1),
        Column("over_ms", "ms over python", 1),
        Column("modules", "modules", compared=False),
        Column("rss", "RSS MiB", 1, compared=False),
    ),
    (
        *(Contender(name, _import(code)) for name, code in CODE.items()),
        Contender(FIRST, _first_request),
    ),
    {BARE: "python", SKETCH: "sketch"},
)

GOALS: Final = (
    Goal("G1", "ms of `import purra` over python", "imports", "over_ms", PURRA, "", 2.0),
    Goal("G2", "all that a run needs / sketch", "imports", "over_ms", EVERYTHING, SKETCH, 3.5),
    Goal("G2m", "its memory, MiB", "imports", "rss", EVERYTHING, "", 34.0),
    Goal("G3", "the SDK / msgpack alone", "imports", "over_ms", SDK, MSGPACK, 3.0),
    Goal("G4", "first request of a cold `purra run` / python", "imports", "ms", FIRST, BARE, 53.0),
)
