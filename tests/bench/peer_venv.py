"""`python -m tests.bench.peer_venv`: the bench and its peers in an environment of their own.

The peers are no dependency of the project. They are installed into a folder that is gone
afterwards; the project itself is taken from the environment that runs this.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

__all__ = ["PACKAGES", "main"]

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("mcp", "grpcio", "msgpack")
SAID: Final = 12
"""Last lines of an installer that failed."""


def main(arguments: Sequence[str]) -> int:
    """Makes the environment and measures in it; `arguments` go to `python -m tests.bench`."""
    with TemporaryDirectory(prefix="purra-peers-") as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        print(f"installing {', '.join(PACKAGES)}", flush=True)
        installed = subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES],
            capture_output=True,
            text=True,
        )
        if installed.returncode:
            lines = installed.stderr.strip().splitlines()[-SAID:]
            print("\n".join(lines), file=sys.stderr)
            print(
                f"make bench-peers needs {', '.join(PACKAGES)} from a package registry, and pip "
                "could not install them. Set PIP_INDEX_URL to one that has them.",
                file=sys.stderr,
            )
            return 1
        _share_packages(python)
        return subprocess.run(
            [python, "-m", "tests.bench", "--peers", *arguments], cwd=ROOT
        ).returncode


def _share_packages(python: Path) -> None:
    """Whatever is not in the new environment is found in the project's, editable packages too."""
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    ours = sysconfig.get_path("purelib")
    (Path(purelib) / "zz_project.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
