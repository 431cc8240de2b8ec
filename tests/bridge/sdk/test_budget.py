"""What a start costs, counted in modules: a count does not depend on the machine (perf, D)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

import purra_sdk

IMPORT_MODULES_MAX = 40
SERVE_MODULES_MAX = 70
BOOTSTRAP_MODULES = {"_ctypes", "_sha256", "_sha2"}
"""What the host's file loads beside them: PDEATHSIG and the manifest's digest."""
NEVER = {
    "asyncio",
    "contextlib",
    "ctypes",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "inspect",
    "json",
    "logging",
    "re",
    "site",
    "socket",
    "threading",
    "traceback",
    "typing",
}

COUNT = """
import sys
sys.path[:0] = {path!r}
import {module}
print(*sys.modules)
"""


def modules_after(module: str) -> set[str]:
    """What a bare interpreter has loaded after one import."""
    path = [
        str(Path(next(iter(purra_sdk.__path__))).parent),
        str(Path(next(iter(msgpack.__path__))).parent),
    ]
    code = COUNT.format(path=path, module=module)
    command = [sys.executable, "-I", "-S", "-c", code]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("module", "most"),
    [("purra_sdk", IMPORT_MODULES_MAX), ("purra_sdk.worker", SERVE_MODULES_MAX)],
)
def test_the_import_stays_within_its_budget(module: str, most: int) -> None:
    """perf, D; style, start-up budget: an import that creeps in shows here by name."""
    loaded = modules_after(module)
    assert len(loaded) <= most, sorted(loaded)
    assert not loaded & NEVER


def test_the_author_s_import_loads_no_wire_and_no_codec() -> None:
    """pluggy's lesson: a plugin is declared without machinery."""
    loaded = modules_after("purra_sdk")
    assert not [name for name in loaded if name.startswith(("purra_bridge", "msgpack"))]


def test_a_running_worker_stays_within_its_budget(launch: Any) -> None:
    """perf, D: the whole process, bootstrap and served call included."""
    worker = launch("small:plugin")
    loaded = set(worker.run("modules")) - {"small"} - BOOTSTRAP_MODULES
    assert len(loaded) <= SERVE_MODULES_MAX, sorted(loaded)
    assert not loaded & NEVER


def test_the_loop_is_loaded_only_for_coroutines(launch: Any) -> None:
    """perf, D: `import asyncio` costs three times the rest of a worker."""
    assert "asyncio" not in launch("small:plugin").run("modules")
    worker = launch("awaiting:plugin")
    assert worker.run("plain", left=1)
