"""Start-up budgets, by the number of modules loaded: unlike time, that number does not flake."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT

SDK_MODULES = 40
"""`import purra_sdk` in a bare interpreter."""
SERVE_MODULES = 70
"""All that a worker with synchronous handlers loads before its first call."""
FRONT_DOOR_MODULES = 12
"""`import purra` beyond a bare interpreter: names are lazy."""
KERNEL_MODULES = 420
"""A kernel with everything that a run needs, beyond a bare interpreter."""


def loaded(statement: str, *flags: str, path: tuple[str, ...] = ()) -> set[str]:
    """Modules in `sys.modules` after `statement` in a fresh interpreter."""
    code = f"import sys; sys.path[:0] = {list(path)!r}\n{statement}\n"
    code += "print(chr(10).join(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
    )
    assert ran.returncode == 0, ran.stderr
    return set(ran.stdout.split())


def bare(statement: str) -> set[str]:
    """As a worker starts: no site, no user paths; then only our folder and msgpack's."""
    import msgpack  # type: ignore[import-untyped]

    folders = (str(ROOT / "bridge"), msgpack.__path__[0].removesuffix("/msgpack"))
    return loaded(statement, "-I", "-S", path=folders)


def test_importing_the_sdk_is_cheap() -> None:
    """Design, start-up budget: what every plugin pays before its own code."""
    modules = bare("import purra_sdk")
    assert len(modules) <= SDK_MODULES, sorted(modules)
    assert not modules & {"typing", "dataclasses", "enum", "logging", "asyncio", "inspect", "re"}


def test_serving_is_cheap() -> None:
    """The worker, the wire and msgpack; no event loop unless a handler is a coroutine."""
    modules = bare("import purra_sdk, purra_sdk.worker")
    assert "msgpack" in modules
    assert len(modules) <= SERVE_MODULES, sorted(modules)
    assert not modules & {"typing", "dataclasses", "enum", "logging", "asyncio", "inspect", "re"}


def test_the_front_door_is_lazy() -> None:
    """`import purra` costs next to nothing; the names behind it are loaded when used."""
    modules = loaded("import purra") - loaded("pass")
    ours = {name for name in modules if name.split(".")[0] == "purra"}
    assert len(modules) <= FRONT_DOOR_MODULES, sorted(modules)
    assert ours <= {"purra"}


def test_the_kernel_loads_no_adapter_and_no_host() -> None:
    """API-01, invariant 9, and its size: every module of `purra`, and what they need."""
    walk = (
        "import purra, pkgutil, importlib\n"
        "for found in pkgutil.walk_packages(purra.__path__, 'purra.'):\n"
        "    importlib.import_module(found.name)"
    )
    modules = loaded(walk) - loaded("pass")
    tops = {name.split(".")[0] for name in modules}
    foreign = {name for name in tops if name.startswith("purra_")}
    assert foreign == set(), sorted(foreign)
    assert not tops & {"sqlite3", "msgpack", "multiprocessing", "typer", "rich"}
    assert len(modules) <= KERNEL_MODULES, len(modules)


def test_a_kernel_finds_nothing_by_itself() -> None:
    """APP-02: manifests are read and plugins looked for by the application around it."""
    modules = loaded("import purra.kernel")
    assert "purra.registry.snapshot" in modules
    finders = ("purra.registry.discovery", "purra.registry.installed", "purra.manifest.host")
    assert not modules & {*finders, "purra.manifest.plugin", "tomllib", "pluggy", "pydantic"}
