"""Where the snippets of one page are tried: a folder of their own, in the order of the page.

| info string | what is done |
|---|---|
| `python` | run as a script, must exit with 0 |
| `python file=NAME` | written, for what follows on the page |
| `toml file=NAME` | written; a manifest is read by its loader |
| `toml in=host`, `toml in=plugin` | read as that part of a manifest |
| `sh` | run by bash, must exit with 0, or with N where `exit=N` stands |
| `sh dry` | `make` only: its targets must exist and be plain commands |
| `sh skip=REASON` | not run |
| `text output` | what the snippet before it printed; `…` stands for anything |
| `text`, `json` | pictures and data; JSON must be JSON |
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

from purra.manifest.host import load_host
from purra.manifest.host_tables import HostFile
from purra.manifest.plugin import load_plugin
from purra.manifest.plugin_tables import PluginFile
from purra.manifest.source import Strict, parse_table
from tests.docs.pages import ROOT, Snippet

__all__ = ["Bench"]

LIMIT_S: Final = 60.0
"""Longest time of one snippet, on a machine that is busy with other tests."""
_MINIMAL: Final[dict[str, dict[str, Any]]] = {
    "host": {"name": "page", "agent": {"id": "page", "revision": "1", "model": "a/b"}},
    "plugin": {
        "id": "page",
        "version": "1",
        "summary": "From a page",
        "host": {"kind": "process", "entry": "page:plugin"},
        "provides": [{"kind": "model", "name": "page", "summary": "From a page"}],
    },
}
_TABLES: Final[dict[str, type[Strict]]] = {"host": HostFile, "plugin": PluginFile}
_TAGS: Final = {
    "python": {"file"},
    "toml": {"file", "in"},
    "sh": {"dry", "skip", "exit"},
    "text": {"output"},
    "json": set[str](),
}


class Bench:
    """Tries the snippets of one page, one after the other. `folder` is empty at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._printed = ""
        for name in ("docs", "manifests"):  # commands on a page are given from the project's root
            shutil.copytree(ROOT / name, folder / name)

    def run(self, snippet: Snippet) -> None:
        """Raises `AssertionError` with the place on the page if the snippet is not right."""
        known = _TAGS.get(snippet.language)
        assert known is not None, f"{snippet.place}: unknown language {snippet.language!r}"
        unknown = snippet.tags.keys() - known
        assert not unknown, f"{snippet.place}: unknown tags {sorted(unknown)}"
        getattr(self, f"_{snippet.language}")(snippet)

    # One method per language.

    def _python(self, snippet: Snippet) -> None:
        compile(snippet.text, snippet.place, "exec")
        if self._written(snippet) is None:
            self._call(snippet, [sys.executable, "-c", snippet.text])

    def _toml(self, snippet: Snippet) -> None:
        path = self._written(snippet)
        if path is None:
            self._part(snippet)
            return
        claimed = str(tomllib.loads(snippet.text).get("schema", ""))
        if claimed.startswith("purra.host/"):
            load_host(path)
        elif claimed.startswith("purra.plugin/"):
            load_plugin(path)

    def _sh(self, snippet: Snippet) -> None:
        if snippet.tags.get("skip"):
            return
        if "dry" in snippet.tags:
            for line in snippet.text.splitlines():
                command = line.partition("#")[0].split()
                assert command[0] == "make", f"{snippet.place}: only make can be run dry"
                subprocess.run(["make", "-n", *command[1:]], cwd=ROOT, check=True, timeout=LIMIT_S)
            return
        self._call(snippet, ["bash", "-euo", "pipefail", "-c", snippet.text])

    def _text(self, snippet: Snippet) -> None:
        if "output" not in snippet.tags:
            return
        parts = [re.escape(part) for part in snippet.text.strip().split("…")]
        wanted = re.compile(".*?".join(parts), re.DOTALL)
        found = wanted.fullmatch(self._printed.strip())
        assert found, f"{snippet.place}: this was printed instead:\n{self._printed}"

    def _json(self, snippet: Snippet) -> None:
        for line in snippet.text.splitlines():
            json.loads(line)

    # What they have in common.

    def _written(self, snippet: Snippet) -> Path | None:
        name = snippet.tags.get("file")
        if name is None:
            return None
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(snippet.text)
        return path

    def _part(self, snippet: Snippet) -> None:
        kind = snippet.tags.get("in", "")
        assert kind in _TABLES, f"{snippet.place}: say file=NAME, in=host or in=plugin"
        data = _MINIMAL[kind] | tomllib.loads(snippet.text)
        if kind == "host":
            data["agent"] = _MINIMAL[kind]["agent"] | data["agent"]
        parse_table(Path(snippet.place), (), data, _TABLES[kind])

    def _call(self, snippet: Snippet, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        due = int(snippet.tags.get("exit", "0"))
        said = f"exit {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == due, f"{snippet.place}: {said}"
        self._printed = done.stdout + done.stderr

    def _environment(self) -> dict[str, str]:
        """That of a person who has just set the project up."""
        tools = Path(sys.executable).parent
        home = self._folder / ".home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": f"{tools}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PYTHONPATH": "",
        }
