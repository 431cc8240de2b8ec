"""What the tests for authors share: packages made by the command, and an environment for them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["KINDS", "PURRA", "command", "environment_in", "make", "mutate", "package_of", "pip"]

KINDS: Final = ("tool", "model", "context", "store", "policy")
PURRA: Final = Path(sys.executable).with_name("purra")
LIMIT_S: Final = 120.0


def command(
    argv: Sequence[str | Path], folder: Path, *, code: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command in `folder` as a person would; fails unless it ends with `code`."""
    home = folder / ".home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **more}
    ran = subprocess.run(
        [str(part) for part in argv],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ran.returncode == code, f"{argv}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran


def make(kind: str, into: Path, name: str = "") -> Path:
    """A new plugin of that kind, made by the command; its folder."""
    name = name or f"my-{kind}"
    command([PURRA, "plugins", "new", name, "--kind", kind, "--into", into], into)
    return into / name


def package_of(project: Path) -> Path:
    """The package in the folder of a new plugin."""
    (package,) = project.glob("purra_plugin_*")
    return package


def mutate(file: Path, old: str, new: str) -> None:
    """Replaces what must be there once."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
    file.write_text(text.replace(old, new))


def environment_in(folder: Path) -> Path:
    """A new virtual environment that sees everything of this one; its interpreter.

    What is installed into it is in no way of other tests, and needs no network.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "_parent.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return python


def pip(python: Path, *arguments: str | Path, folder: Path) -> None:
    """pip on the environment of `python`, without a network."""
    argv = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index")
    offline = ("--no-build-isolation", "--no-deps", "--disable-pip-version-check")
    command([*argv, *offline, *arguments], folder)
