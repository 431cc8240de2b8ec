"""MAN-001 to 003, 005, 006, 008: the manifest as a text, and whoever reads it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME
from purra_tck.checks import Checks
from purra_tck.subjects.plugin import PluginSubject, about_plugin
from purra_tck.subjects.plugin_manifests import (
    Change,
    judge_own,
    of_tools,
    raw_manifest,
    read,
    refuses,
    takes,
    toml_text,
)
from purra_tck.verdict import Case, RuleViolation, SubjectFailed

__all__ = ["CHECKS"]

CHECKS = Checks("MAN")

BOMB_S: Final = 5.0
"""Longest time to refuse a file that was made to take long."""
MEBI: Final = 1024 * 1024
SENTINEL: Final = "tck_sentinel_module"


def _set(*path: Any) -> Change:
    """A change that puts the last of `path` where the others lead; tables on the way are made."""

    def change(table: dict[str, Any]) -> None:
        *way, key, value = path
        at: Any = table
        for step in way:
            at = at[step] if isinstance(at, list) else at.setdefault(step, {})
        at[key] = value

    return change


def _without(*path: Any) -> Change:
    def change(table: dict[str, Any]) -> None:
        at: Any = table
        for step in path[:-1]:
            at = at[step]
        at.pop(path[-1], None)

    return change


@CHECKS.rule("MAN-001")
@about_plugin
async def the_schema_is_the_first_claim(case: Case, subject: PluginSubject) -> None:
    """A reader that guesses at another version, or passes over a key that it does not know, runs a
    plugin that its author described differently.
    """
    judge_own(case, subject)
    takes(case, subject, "nothing changed", lambda table: None)
    for claimed in ("purra.plugin/2", "purra.plugin/0", "purra.plugin/01", "purra.plugin", 1, ""):
        refuses(case, subject, f"schema = {claimed!r}", "schema", _set("schema", claimed))
    refuses(case, subject, "another kind of schema", "schema", _set("schema", "purra.host/1"))
    refuses(case, subject, "no schema", "schema", _without("schema"))
    tables: list[tuple[Any, ...]] = [(), ("host",), ("limits",), ("lifecycle",), ("capabilities",)]
    tables += [("provides", place) for place in range(len(raw_manifest(subject)["provides"]))]
    for place in tables:
        where = "[" + ".".join(map(str, place)) + "]" if place else "the top"
        key = "tck-unknown"
        refuses(case, subject, f"an unknown key in {where}", key, _set(*place, key, True))
    refuses(case, subject, "an extension that is no table", "x-tck", _set("x-tck", 1))
    takes(case, subject, "an extension", _set("x-tck", {"any": [{"thing": 1.5}], "schema": "?"}))


@CHECKS.rule("MAN-002")
@about_plugin
async def names_have_one_spelling(case: Case, subject: PluginSubject) -> None:
    """File systems, indexes and eyes do not agree on what is the same name, so ids have one form
    and names that fold to one are one name twice.
    """
    judge_own(case, subject)
    wrong = (
        "Files",
        "fi les",
        "",
        "9lives",
        "-a",
        "a-",
        "a--b",
        "a_b",
        "a.b",
        "ﬁles",
        "é",
        "a" * 65,
    )
    for name in (*wrong, "a\n", 7):
        refuses(case, subject, f"id = {name!r}", "id", _set("id", name))
    for text in ("", "one", "1..0", "1.0-", "v 1", "1.0\n2", 1):
        refuses(case, subject, f"version = {text!r}", "version", _set("version", text))
    for text in ("1.0", "~1", ">=x", ">=1 <2"):
        change = _set("requires", "other", text)
        refuses(case, subject, f"requires.other = {text!r}", "requires.other", change)
    refuses(case, subject, "a required id", "requires", _set("requires", "Other", ">=1"))
    for name in ("", "1st", "a b", "a..b", ".a", "naïve", "a" * 129):
        change = _set("provides", 0, "name", name)
        refuses(case, subject, f"an adapter called {name!r}", "provides[0].name", change)

    def twice(spell: Callable[[str], str]) -> Change:
        def change(table: dict[str, Any]) -> None:
            first = table["provides"][0]
            table["provides"].append({**first, "name": spell(first["name"])})

        return change

    refuses(case, subject, "one name twice", "name", twice(str))
    refuses(case, subject, "two names that differ in case only", "name", twice(str.swapcase))
    takes(case, subject, "a version of PEP 440", _set("version", "1!2.0rc1.post3+local.4"))


@CHECKS.rule("MAN-003")
@about_plugin
async def a_command_is_a_list_and_no_shell_runs(case: Case, subject: PluginSubject) -> None:
    """A line that a shell splits is an injection that waits for its data."""
    judge_own(case, subject)

    def command(value: Any) -> Change:
        return _set("host", {"kind": "process", "command": value})

    for what, value in {
        "a command that is a line": "run --fast; touch x",
        "a line in one item": ["run --fast; touch x"],
        "an empty command": [],
        "an empty item": ["run", ""],
        "an item with a newline": ["run", "a\nb"],
        "an item with a NUL": ["run", "a\0b"],
        "a program outside the package": ["../run"],
        "an argument that leaves the package": ["run", "../../etc/passwd"],
        "an option that leaves the package": ["run", "--from=../x"],
        "an absolute program": ["/bin/true"],
        "a shell": ["sh", "-c", "true"],
        "a shell in the package": ["bin/bash", "run"],
        "a launcher": ["env", "run"],
        "a substitution as program": ["$(run)"],
        "an item that is no text": ["run", 1],
    }.items():
        refuses(case, subject, what, "host.command", command(value))
    for what, entry in {
        "an entry without attribute": "module",
        "an entry that is a path": "a/b.py:plugin",
        "an entry that is code": "os:system('x')",
        "an entry outside the package": "..module:plugin",
    }.items():
        refuses(
            case, subject, what, "host.entry", _set("host", {"kind": "process", "entry": entry})
        )
    refuses(case, subject, "neither entry nor command", "host", _set("host", {"kind": "process"}))
    both = {"kind": "process", "entry": "a:b", "command": ["run"]}
    refuses(case, subject, "both entry and command", "host", _set("host", both))
    for program in ("run.sh", "bin/run", "node", "{python}"):
        argv = [program, "main.py", "--sign=$HOME;|&"]
        takes(case, subject, f"the command {argv}", command(argv))


@CHECKS.rule("MAN-005")
@about_plugin
async def every_tool_declares_what_it_does(case: Case, subject: PluginSubject) -> None:
    """What may be retried, run twice or left alone is decided by these words, before any code of
    the tool has run.
    """
    judge_own(case, subject)
    places = of_tools(raw_manifest(subject))
    if not places:
        refuses(
            case,
            subject,
            "an effect of what is no tool",
            "effect",
            _set("provides", 0, "effect", "pure"),
        )
        return
    for place in places:
        at = ("provides", place)
        key = f"provides[{place}]."
        refuses(case, subject, "a tool without effect", f"{key}effect", _without(*at, "effect"))
        for name, value in {
            "effect": "harmless",
            "idempotency": "maybe",
            "concurrency": "fast",
            "approval": "sometimes",
            "permission": "",
            "timeout_s": "long",
            "shared": "yes",
        }.items():
            refuses(case, subject, f"{name} = {value!r}", f"{key}{name}", _set(*at, name, value))
    if subject.package.manifest is None:
        return
    for schema in subject.tool_schemas():
        full = bool(schema.permission and schema.effect) and schema.timeout_s > 0
        case.require(full, "every field has a value", f"{schema.name}: {schema.effect}")


@CHECKS.rule("MAN-006")
@about_plugin
async def limits_are_positive_and_finite(case: Case, subject: PluginSubject) -> None:
    """Zero for "no limit" is how a bound that somebody set turns into none."""
    judge_own(case, subject)
    endless = (0, -1, math.inf, math.nan, 10**12, True, "1")
    for place, values in {
        ("limits", "inflight"): (*endless, 1.5),
        ("limits", "threads"): (*endless, 1.5),
        ("limits", "memory"): ("0MiB", "1KiB", "9999999GiB", "lots", "256", 256, ""),
        ("lifecycle", "idle_s"): endless,
    }.items():
        for value in values:
            key = ".".join(place)
            refuses(case, subject, f"{key} = {value!r}", key, _set(*place, value))
    for index in of_tools(raw_manifest(subject)):
        for value in endless:
            key = f"provides[{index}].timeout_s"
            change = _set("provides", index, "timeout_s", value)
            refuses(case, subject, f"{key} = {value!r}", key, change)
    if subject.package.manifest is not None:
        limits = subject.manifest.limits
        case.require(
            limits.inflight > 0 and limits.threads > 0,
            "positive limits",
            f"inflight {limits.inflight}, threads {limits.threads}",
        )


# --- MAN-008 ------------------------------------------------------------------------------------


@CHECKS.rule("MAN-008")
@about_plugin
async def reading_is_only_reading(case: Case, subject: PluginSubject) -> None:
    """Every manifest on the machine is read at every start, also those of plugins that nobody
    asked for: nothing in one may run, and none may take long.
    """
    judge_own(case, subject)
    await _no_code_runs(case, subject)
    for what, content in _bombs():
        await _refused_soon(case, subject, what, content)
    await _no_pipe_is_waited_for(case, subject)


async def _no_code_runs(case: Case, subject: PluginSubject) -> None:
    folder = subject.scratch / "variant"
    folder.mkdir(exist_ok=True)
    trace = folder / "it-ran"
    code = f"open({str(trace)!r}, 'w').close()\nplugin = None\n"
    names = (f"{SENTINEL}.py", "__init__.py", "conftest.py", "sitecustomize.py", "setup.py")
    for name in names:
        (folder / name).write_text(code, encoding="utf-8")
    table = raw_manifest(subject)
    table["host"] = {"kind": "process", "entry": f"{SENTINEL}:plugin"}
    text = toml_text(table)
    try:
        read(subject, text.encode())
    finally:
        sys.modules.pop(SENTINEL, None)
        for name in names:
            (folder / name).unlink()
    case.require(not trace.exists(), "nothing runs when a manifest is read", _ran(trace))


def _ran(trace: Path) -> str:
    return "code of the package ran" if trace.exists() else "no code ran"


def _bombs() -> Iterator[tuple[str, bytes]]:
    head = b'schema = "purra.plugin/1"\nid = "a"\n'
    yield "more than a mebibyte", head + b"# x\n" * (MEBI // 4)
    yield "a key of 50,000 parts", head + b"a." * 50_000 + b"b = 1\n"
    yield "a table header of 20,000 parts", head + b"[" + b"a." * 20_000 + b"b]\n"
    yield "100,000 nested lists", head + b"a = " + b"[" * 100_000 + b"]" * 100_000
    yield "1,000 nested tables", head + b"a = " + b"{a = " * 1000 + b"1" + b"}" * 1000
    yield "an integer of 100,000 digits", head + b"a = " + b"9" * 100_000
    yield "an integer outside 64 bits", head + b"x-a = {b = 9223372036854775808}\n"
    yield "bytes that are not UTF-8", head + b'summary = "\xff"\n'
    yield "a NUL", head + b'summary = "a\x00b"\n'
    yield "a key twice", head + b'id = "b"\n'
    yield "half a file", head + b"[host\n"
    yield "YAML", b"!!python/object/apply:os.system ['true']\n"
    yield "an empty file", b""


async def _refused_soon(case: Case, subject: PluginSubject, what: str, content: bytes) -> None:
    expected = f"a file with {what} is refused within {BOMB_S:g} s"
    began = anyio.current_time()
    try:
        with anyio.fail_after(BOMB_S):
            await anyio.to_thread.run_sync(read, subject, content, abandon_on_cancel=True)
    except PurraError as error:
        case.require(error.code == "invalid_manifest", expected, f"{what}: {error.code}")
        return
    except TimeoutError:
        raise RuleViolation(expected, f"{what}: nothing after {BOMB_S:g} s") from None
    except Exception as error:  # a reader may only raise the one error
        raise SubjectFailed(expected, f"{what}: {type(error).__name__}: {error}") from error
    raise RuleViolation(expected, f"{what}: accepted after {anyio.current_time() - began:.1f} s")


async def _no_pipe_is_waited_for(case: Case, subject: PluginSubject) -> None:
    folder = subject.scratch / "pipe"
    folder.mkdir(exist_ok=True)
    path = folder / FILE_NAME
    os.mkfifo(path)
    expected = "a named pipe under the manifest's name is refused, not waited for"
    try:
        with anyio.fail_after(BOMB_S):
            await anyio.to_thread.run_sync(subject.ways.read, path, abandon_on_cancel=True)
    except PurraError as error:
        case.saw(str(error))
        return
    except TimeoutError:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # lets the thread go
        os.close(descriptor)
        raise RuleViolation(expected, "it waits") from None
    raise RuleViolation(expected, "accepted")
