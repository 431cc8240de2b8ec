"""Variants of a plugin's own manifest: one thing changed, the rest as its author wrote it.

A variant that must be refused is only worth something if the same manifest without the change is
accepted, so the file starts from the subject's and not from an example of the kit's.
"""

from __future__ import annotations

import copy
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from purra.errors import PurraError
from purra.manifest.plugin import FILE_NAME, PluginManifest
from purra_tck.subjects.plugin import PluginSubject
from purra_tck.verdict import Case, RuleViolation, SubjectFailed, Untestable

__all__ = [
    "Change",
    "judge_own",
    "manifest_copy",
    "of_tools",
    "raw_manifest",
    "read",
    "refuses",
    "takes",
    "toml_inline",
    "toml_text",
]

Change = Callable[[dict[str, Any]], None]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


def toml_text(table: Mapping[str, Any]) -> str:
    """The table as TOML: one key a line, tables inside as inline tables."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def toml_inline(value: Any) -> str:
    """A value as TOML within one line."""
    return _value(value)


def _key(key: str) -> str:
    return key if _BARE.match(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def raw_manifest(subject: PluginSubject) -> dict[str, Any]:
    """The subject's manifest as plain tables. Raises `Untestable` if it is no TOML."""
    if subject.tables is None:
        try:
            subject.tables = tomllib.loads(subject.package.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise Untestable(f"the manifest cannot be read: {error}") from None
    return copy.deepcopy(subject.tables)


def read(subject: PluginSubject, content: bytes) -> PluginManifest:
    """What the subject's reader makes of a file with this content. Raises its error."""
    folder = subject.scratch / "variant"
    folder.mkdir(exist_ok=True)
    path = folder / FILE_NAME
    path.write_bytes(content)
    return subject.ways.read(path)


def refuses(case: Case, subject: PluginSubject, what: str, key: str, change: Change) -> None:
    """Demands that the changed manifest is refused, with the file and `key` in the error."""
    table = raw_manifest(subject)
    change(table)
    expected = f"a manifest with {what} is refused, and the error names {key or 'the file'}"
    try:
        read(subject, toml_text(table).encode())
    except PurraError as error:
        named = FILE_NAME in error.where and (not key or key in _keys(error))
        right = error.code == "invalid_manifest" and named
        case.require(right, expected, f"{what}: {error}")
        return
    except Exception as error:  # a reader may only raise the one error
        raise SubjectFailed(expected, f"{what}: {type(error).__name__}: {error}") from error
    raise RuleViolation(expected, f"{what}: accepted")


def takes(case: Case, subject: PluginSubject, what: str, change: Change) -> None:
    """Demands that the changed manifest is accepted."""
    table = raw_manifest(subject)
    change(table)
    try:
        read(subject, toml_text(table).encode())
    except PurraError as error:
        raise RuleViolation(f"a manifest with {what} is accepted", str(error)) from None
    case.saw(f"{what}: accepted")


def _keys(error: PurraError) -> str:
    problems = error.detail.get("problems", ())
    return " ".join([error.where, *(problem["key"] for problem in problems)])


def of_tools(table: Mapping[str, Any]) -> list[int]:
    """Places of the tools among `[[provides]]`."""
    return [place for place, offer in enumerate(table["provides"]) if offer.get("kind") == "tool"]


# --- whose rule a refusal is --------------------------------------------------------------------

_OWNERS: Final = (
    ("MAN-002", re.compile(r"(?:id|version|requires.*|provides\[\d+\]\.name)\Z")),
    ("MAN-003", re.compile(r"host\b")),
    ("MAN-006", re.compile(r"(?:limits|lifecycle)\b|provides\[\d+\]\.timeout_s")),
    (
        "MAN-005",
        re.compile(
            r"provides\[\d+\]\.(?:effect|permission|idempotency|concurrency|approval|shared)\b"
        ),
    ),
    ("TOL-001", re.compile(r"provides\[\d+\]\.input")),
)


def judge_own(case: Case, subject: PluginSubject) -> None:
    """The subject's own manifest, where its refusal is this rule's matter.

    Raises `RuleViolation` with place, reason and mend, or `Untestable` if another rule says so.
    """
    refusal = subject.package.refusal
    if refusal is None:
        case.saw(f"{subject.package.path} is accepted")
        return
    owner = _owner(refusal)
    if owner == case.rule.id:
        raise RuleViolation(
            f"a manifest that is accepted (clause {case.rule.clause})", f"{refusal}"
        )
    raise Untestable(f"the manifest is refused, see {owner}: {refusal}")


def _owner(refusal: PurraError) -> str:
    if refusal.code == "plugin_broken":
        return "MAN-009"
    problems = refusal.detail.get("problems") or [{"key": "", "reason": refusal.message}]
    key, reason = problems[0]["key"], problems[0]["reason"]
    if "is not a known key" in reason:
        return "MAN-001"
    if not key:
        return "MAN-008"
    return next((rule for rule, pattern in _OWNERS if pattern.match(key)), "MAN-001")


def manifest_copy(subject: PluginSubject, change: Change | None = None) -> Path:
    """A copy of the manifest in the scratch folder, to be changed on disk."""
    folder = subject.scratch / "copy"
    folder.mkdir(exist_ok=True)
    path = folder / FILE_NAME
    if change is None:
        path.write_bytes(subject.package.path.read_bytes())
    else:
        table = raw_manifest(subject)
        change(table)
        path.write_text(toml_text(table), encoding="utf-8")
    return path
