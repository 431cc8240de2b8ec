"""What people read when something is wrong: one line, of what, where, and what to do; no trace.

Tables: what was typed or set up, and the line that it gives. The lines of bad manifests are held by
`tests/manifest/test_examples.py`, word by word.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from purra_hosts.app.commands import runs
from purra_hosts.app.main import build, main
from purra_hosts.app.printing import harmless
from tests.acceptance.stage import QUICKSTART
from tests.manifest.test_examples import BAD

PLACE = "/the/test's/folder"


class Said(NamedTuple):
    """What a command did."""

    code: int
    out: str
    line: str


@pytest.fixture
def purra(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> Any:
    """Runs a command in a folder of its own; its one line, with the folder named `PLACE`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.toml").write_bytes(b"")
    (tmp_path / "text.toml").write_text("this is no TOML")

    def run(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as left:
            main([argument.replace("QUICKSTART", str(QUICKSTART)) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        line = err.replace(str(tmp_path), PLACE)
        assert line.count("\n") == 1 and line.endswith("\n"), line
        return Said(int(left.value.code or 0), out, line[:-1])

    return run


USAGE = [
    (("frob",), "purra: no such command 'frob' [invalid_argument] (`purra --help` shows how)"),
    (("rums",), "purra: no such command 'rums' [invalid_argument] (did you mean `purra runs`?)"),
    (
        ("runs", "lst"),
        "purra runs: no such command 'lst' [invalid_argument] (did you mean `purra runs list`?)",
    ),
    (
        ("run", "--sesion", "x"),
        "purra run: no such option: --sesion [invalid_argument] (did you mean --session?)",
    ),
    (
        ("run", "QUICKSTART"),
        "purra run: missing argument 'PROMPT' [invalid_argument] (`purra run --help` shows how)",
    ),
    (
        ("approvals", "respond", "r", "1.0"),
        "purra approvals respond: missing option '--text' [invalid_argument] "
        "(`purra approvals respond --help` shows how)",
    ),
    (
        ("plugins", "new", "x", "--kind", "frob"),
        "purra plugins new: invalid value for '--kind': 'frob' is not one of 'tool', 'model', "
        "'context', 'store', 'policy' [invalid_argument] (`purra plugins new --help` shows how)",
    ),
    (
        ("runs", "list", "--limit", "0"),
        "purra runs list: invalid value for '--limit': Input should be greater than or equal to 1 "
        "[invalid_argument] (`purra runs list --help` shows how)",
    ),
    (
        ("run", "QUICKSTART", "hi", "--param", "nope"),
        "--param: 'nope' is not NAME=VALUE [invalid_argument] (as in --param root=docs)",
    ),
    (
        ("run", "QUICKSTART", "hi", "--param", "x=1"),
        "param x: the manifest has no parameter 'x' [invalid_argument] (parameters: root)",
    ),
    (
        ("run", "QUICKSTART", "hi", "--state", "binary.toml"),
        f"the state folder {PLACE}/binary.toml cannot be made: File exists [invalid_argument] "
        "(name another one with --state)",
    ),
    (
        ("approvals", "edit", "r", "1.0", "--arguments", "{"),
        "--arguments: no JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        '(char 1) [invalid_argument] (an object, as in \'{"path": "a.md"}\')',
    ),
    (("schema", "frob"), "schema: no schema 'frob' [invalid_argument] (plugin or host)"),
]


@pytest.mark.parametrize(("arguments", "line"), USAGE, ids=[" ".join(case[0]) for case in USAGE])
def test_what_was_typed_wrongly_is_one_line(
    purra: Any, arguments: tuple[str, ...], line: str
) -> None:
    """Issue D, done when: unknown commands and options, missing arguments, wrong values."""
    assert purra(*arguments) == Said(2, "", f"error {line}")


FILES = {
    "nofile.toml": "cannot be read: No such file or directory [invalid_manifest] "
    "(is the path right? `purra init` makes a host manifest)",
    "folder.toml": "is a folder [invalid_manifest] (name the manifest file itself)",
    "binary.toml": "is not UTF-8 at byte 0 [invalid_manifest] (a manifest is TOML, saved as UTF-8)",
    "empty.toml": 'schema: is missing [invalid_manifest] (write schema = "purra.host/1")',
    "text.toml": "is not TOML: Expected '=' after a key in a key/value pair (at line 1, column 6) "
    "[invalid_manifest] (https://toml.io says how)",
}
TAKES_A_MANIFEST = [
    ("run", "FILE", "hi"),
    ("chat", "FILE"),
    ("worker", "FILE"),
    ("inspect", "-m", "FILE"),
    ("runs", "list", "-m", "FILE"),
    ("approvals", "list", "-m", "FILE"),
    ("plugins", "list", "-m", "FILE"),
    ("plugins", "doctor", "-m", "FILE"),
    ("plugins", "lock", "FILE"),
    ("manifest", "check", "FILE"),
]


@pytest.mark.parametrize("command", TAKES_A_MANIFEST, ids=lambda value: " ".join(value))
def test_a_file_that_is_no_manifest_is_one_line(purra: Any, command: tuple[str, ...]) -> None:
    """Issue D, done when: missing, a folder, binary, empty, not TOML; for every command."""
    for name, line in FILES.items():
        said = purra(*(name if word == "FILE" else word for word in command))
        assert said == Said(4, "", f"error {PLACE}/{name}: {line}")


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_a_bad_manifest_is_one_line(purra: Any, path: Path) -> None:
    """Issue D, done when: what, where and what to do, as `purra manifest check` prints it."""
    said = purra("manifest", "check", str(path))
    assert (said.code, said.out) == (4, "")
    assert re.fullmatch(r"error /\S+\.toml: .+ \[[a-z_]+\](| \(.+\))", said.line), said.line
    assert said.line.endswith(")") or "must" in said.line


def test_a_plugin_manifest_without_a_schema_is_told_the_right_one(purra: Any) -> None:
    said = purra("manifest", "check", str(BAD / "man-001-schema-missing.plugin.toml"))
    assert said.line.endswith('(write schema = "purra.plugin/1")')


def test_a_fault_of_ours_is_one_line_and_a_trace_on_demand(purra: Any, monkeypatch: Any) -> None:
    """Nobody should have to read a trace to learn that it is not their fault."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(runs, "with_store", broken)
    said = purra("runs", "list")
    assert said.code == 1
    assert said.line == (
        "error purra: ZeroDivisionError: of ours [internal_error] "
        "(not your fault: please report it, with the trace that --debug shows)"
    )
    with pytest.raises(ZeroDivisionError):
        main(["runs", "list", "--debug"])


def _commands(group: Any, *path: str) -> Any:
    for name, command in sorted(group.commands.items()):
        yield from (
            _commands(command, *path, name) if hasattr(command, "commands") else [(*path, name)]
        )


COMMANDS = [path for path in _commands(typer.main.get_command(build([]))) if path[0] != "tck"]


def test_every_command_tells_what_it_does_and_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """Issue D, done when: help is a sentence, each argument and option has words of its own."""
    root = typer.main.get_command(build([]))
    for path in COMMANDS:
        command: Any = root
        for name in path:
            command = command.commands[name]
        first = command.help.split("\n")[0]
        assert first.endswith((".", ":")) and first[0].isupper() and len(first) < 100, path
        for parameter in command.params:
            words = getattr(parameter, "help", None)
            assert words or parameter.name == "help", f"{path}: {parameter.name}"
            if parameter.param_type_name == "argument":
                assert (parameter.metavar or "").isupper() or "--" in parameter.metavar, path
    for flag in ("-h", "--help"):
        with pytest.raises(SystemExit) as left:
            main(["runs", "show", flag])
        assert left.value.code == 0
        assert "how it stands" in capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert re.fullmatch(r"purra \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_what_others_wrote_does_not_steer_a_terminal() -> None:
    """A prompt, a result or an error may hold escape sequences; people see them written out."""
    assert harmless("a\x1b[2Jb\x07\x9bc\x7f\td\n") == "a\\x1b[2Jb\\x07\\x9bc\\x7f\td\n"


WRECKS = {
    "model": """
@model("one")
class One:
    def profile(self, call):
        return {"window": 8000, "output_limit": 500, "features": ["tools"]}
    def generate(self, call, request):
        BREAK
        yield
plugin = Plugin(models=[One])
""",
    "tool": """
@tool(effect="world_write")
def one():
    BREAK
plugin = Plugin(tools=[one])
""",
    "context": """
@context("one")
class One:
    def demand(self, call, request):
        return {"minimum": 0, "desired": 100}
    def provide(self, call, request, budget):
        BREAK
plugin = Plugin(contexts=[One])
""",
    "policy": """
@policy("one")
class One:
    def decide(self, call, request):
        BREAK
plugin = Plugin(policies=[One])
""",
    "store": """
@store("one")
class One:
    def commit(self, call, **told):
        BREAK
    read = get = scan = watch = blob_put = blob_get = commit
    def now(self, call):
        return 1
plugin = Plugin(stores=[One])
""",
}
WRECK_MANIFEST = """
schema = "purra.plugin/1"
id = "wreck"
version = "1.0"
summary = "Breaks"
[host]
kind = "process"
entry = "wreck:plugin"
[[provides]]
kind = "KIND"
name = "one"
summary = "One"
"""
WRECK_HOST = """
schema = "purra.host/1"
name = "wreck"
[agent]
id = "a"
revision = "1"
model = "scripted/script"
tools = ["files/fs.list"]
KIND
[plugins.wreck]
[plugins.scripted]
config = { steps = [{ calls = [{ name = "TOOL", arguments = {} }] }, { content = "done" }] }
[plugins.files]
config = { root = "plugins" }
grants = { fs.read = ["plugins"] }
[discovery]
folders = ["plugins"]
"""


def wreck(folder: Path, kind: str, *, top: str = "", inside: str = "pass") -> str:
    """A host manifest with a plugin of that kind that breaks at its start or in a call."""
    home = folder / "plugins" / "wreck"
    home.mkdir(parents=True)
    names = "Plugin, context, model, policy, store, tool"
    code = f"import os\nfrom purra_sdk import {names}\n{top}\n{WRECKS[kind]}"
    (home / "wreck.py").write_text(code.replace("BREAK", inside))
    effect = 'effect = "world_write"\n' if kind == "tool" else ""
    (home / "purra-plugin.toml").write_text(WRECK_MANIFEST.replace("KIND", kind) + effect)
    host = WRECK_HOST.replace("TOOL", "one" if kind == "tool" else "fs.list")
    named = {"tool": 'tools = ["wreck/one"]', "context": 'context = ["wreck/one"]'}
    host = host.replace("KIND", named.get(kind, f'{kind} = "wreck/one"'))
    if kind == "tool":
        host = host.replace('tools = ["files/fs.list"]\n', "")
    if kind == "model":
        host = host.replace('model = "scripted/script"\n', "")
    path = folder / "purra.toml"
    path.write_text(host)
    return str(path)


@pytest.mark.parametrize("kind", WRECKS)
def test_a_plugin_that_does_not_start_is_one_line(purra: Any, tmp_path: Path, kind: str) -> None:
    """Issue D, done when: which plugin, what it said, and where more can be seen; nothing ran."""
    said = purra("run", wreck(tmp_path, kind, top="raise RuntimeError('no licence key')"), "hi")
    assert said == Said(
        4,
        "",
        "error plugin wreck: it does not start: wreck@1.0: the plugin did not start: "
        "RuntimeError: no licence key [plugin_broken] "
        "(`purra plugins doctor --manifest FILE` shows more)",
    )


DOCTOR = "(`purra plugins doctor --manifest FILE` starts it and shows what it says)"
SHOW = "(`purra runs show RUN -m FILE` tells how it came to that)"
CRASHES = {
    "model": (1, f"failed run RUN: wreck@1.0 exited with status 9 [CODE] {SHOW}"),
    "tool": (
        3,
        "blocked run RUN: it is not known whether one (call 1.0) took effect [effect_unknown] "
        "(look what is true, then `purra runs reconcile RUN CALL -m FILE`)",
    ),
    "context": (1, f"failed run RUN: wreck@1.0 exited with status 9 [crashed] {DOCTOR}"),
    "policy": (1, f"failed run RUN: round 1 was refused [policy_denied] {SHOW}"),
    "store": (1, f"error wreck@1.0 exited with status 9 [crashed] {DOCTOR}"),
}


@pytest.mark.parametrize("kind", CRASHES)
def test_a_plugin_that_crashes_in_a_call_is_one_line(purra: Any, tmp_path: Path, kind: str) -> None:
    """Issue D, done when: what became of the run, which run, why, and what to do now."""
    code, line = CRASHES[kind]
    said = purra("run", wreck(tmp_path, kind, inside="os._exit(9)"), "hi")
    found = re.sub(r"[0-9a-f]{12}-[0-9a-f]{8}", "RUN", said.line)
    assert (said.code, found) == (code, line.replace("CODE", "upstream_stream_interrupted"))
