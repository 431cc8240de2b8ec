"""Who may know what: the rings, and the one knower of each foreign library (design, section 4)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT, imports, sources

OURS = ("purra", "purra_hosts", "purra_bridge", "purra_sdk", "purra_tck")

KNOWERS = {
    "pluggy": ("purra/registry/", "purra_hosts/app/"),
    "msgpack": (
        "purra_bridge/wire/codec.py",
        # The kit judges the codec, so it has its own way to msgpack; some saboteurs are lax ones.
        "purra_tck/puppets/frames.py",
        "purra_tck/saboteurs/host_framing.py",
    ),
    # `tck.toml` is an edge as manifests are; a judge of schemas takes a second opinion.
    "pydantic": ("purra/manifest/", "purra_tck/fixtures.py"),
    "jsonschema": ("purra/manifest/config.py", "purra_tck/schema_cases.py"),
    "subprocess": (
        "purra_hosts/process/",
        "purra_hosts/isolation/machine.py",
        "purra_hosts/app/",
        "purra_tck/",
    ),
    "signal": ("purra_hosts/", "purra_sdk/", "purra_tck/"),
    "multiprocessing": (),
    "sqlite3": ("purra_plugin_sqlite/",),
    "random": ("purra_hosts/restarts.py", "purra_tck/"),
    "typer": ("purra_hosts/app/", "purra_tck/command"),
    "rich": ("purra_hosts/app/",),
}
"""Library -> the only places that may import it."""


def test_imports_point_inwards() -> None:
    """API-02: the contracts of `[tool.importlinter]`: rings, and what wire and SDK must never
    load."""
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("library", KNOWERS)
def test_each_library_has_one_knower(library: str) -> None:
    """API-01: a driver, a codec, a process: one place each may know it, and none is the
    kernel's."""
    found = [
        file.path
        for file in sources()
        if any(name.split(".")[0] == library for name in imports(file))
        and not any(place in file.path for place in KNOWERS[library])
    ]
    assert found == []


def test_plugins_know_the_sdk_and_nothing_else_of_ours() -> None:
    """A plugin needs nothing of ours at run time but what the host stages (design, bootstrap)."""
    for file in sources():
        if not file.path.startswith("plugins/"):
            continue
        own = file.module.split(".")[0]
        for name in imports(file):
            top = name.split(".")[0]
            assert top not in OURS or top == "purra_sdk", f"{file.path} imports {name}"
            assert not top.startswith("purra_plugin_") or top == own, f"{file.path}: {name}"


def test_the_kernel_names_no_adapter() -> None:
    """API-01, invariant 9: none of the plugins, none of the other packages but for the lazy front
    door."""
    for file in sources():
        if file.module.split(".")[0] != "purra":
            continue
        for name in imports(file):
            top = name.split(".")[0]
            assert not top.startswith("purra_plugin_"), f"{file.path} imports {name}"
            if file.path != "purra/__init__.py":
                assert top not in OURS or top == "purra", f"{file.path} imports {name}"


def test_one_place_calls_tools() -> None:
    """CAP-01, invariant 2: the gateway's last step, made by whoever performs a run's effects."""
    callers = {
        file.path
        for file in sources()
        if file.module.split(".")[0] == "purra"
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "call"
    }
    makers = {file.path for file in sources() if "purra.gateway.dispatch.Dispatch" in imports(file)}
    # The second file holds a program's own objects to the contract, so it is a port itself; the
    # third one calls the gateway.
    known = {"purra/gateway/dispatch.py", "purra/adapters.py", "purra/runs/performers.py"}
    assert (callers, makers) == (known, {"purra/runs/performers.py"})


def test_the_bootstrap_imports_nothing_of_ours_before_the_gate() -> None:
    """Design, bootstrap: the first file in a worker has its own codec; only after the gate, inside
    a function, does it import the SDK.
    """
    bootstrap = next(file for file in sources() if file.path.endswith("purra_hosts/bootstrap.py"))
    first = [node for node in bootstrap.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in first for alias in node.names}
    names |= {node.module or "" for node in first if isinstance(node, ast.ImportFrom)}
    assert names
    assert not {name.split(".")[0] for name in names} & {*OURS, "msgpack"}


def test_no_init_beside_the_packages() -> None:
    """`hosts/`, `bridge/`, `tck/`, `plugins/` are folders, not packages."""
    for folder in ("hosts", "bridge", "tck", "plugins", "tests", "docs"):
        assert not (ROOT / folder / "__init__.py").exists()
