"""Runs the command line in this process and reports what this process did meanwhile.

    python witness.py REPORT ARGUMENTS...

An audit hook sees each file that is opened and each module that is imported, in whatever way, from
before the first import of the product to the end. REPORT gets JSON: `opened`, `imported`,
`modules` (at the end), `descriptors` (targets seen in /proc/self/fd at each print), `children`
(whether this process ever had one).
"""

from __future__ import annotations

import json
import os
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

opened: set[str] = set()
imported: set[str] = set()
descriptors: set[str] = set()


def look() -> None:
    """Notes what the descriptors of this process lead to."""
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        opened.add(os.fsdecode(arguments[0]))
    elif event == "sqlite3.connect":
        opened.add(str(arguments[0]))
    elif event == "import":
        imported.add(arguments[0])


def had_children() -> bool:
    """One that is there, or one that was waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
    return True


class Looking:
    """Stdout that looks at the descriptors with each write."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        look()
        return int(self._stream.write(data))

    @property
    def buffer(self) -> Looking:
        return Looking(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> None:
    report, *arguments = sys.argv[1:]
    sys.addaudithook(hook)
    sys.stdout = Looking(sys.stdout)
    from purra_hosts.app.main import main as purra

    try:
        purra(arguments)
    finally:
        found = {
            "opened": sorted(opened),
            "imported": sorted(imported),
            "modules": sorted(sys.modules),
            "descriptors": sorted(descriptors),
            "children": had_children(),
        }
        with open(report, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
