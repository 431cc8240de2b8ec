"""Where in a plugin's own files a verdict is about, and what to do: for who has to mend it.

Found by what is there to be seen: a traceback that the plugin printed, a line of the manifest, an
example of the `tck.toml`, or the line of the code that names the adapter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from purra.gateway.schema import admit
from purra.gateway.validation import CompiledSchema
from purra.values import freeze
from purra_tck.subjects.plugin_package import Package

__all__ = ["cause_of"]

FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
CODE_BYTES: Final = 256 * 1024
"""Larger files are no code that a person wrote."""
NOT_CODE: Final = frozenset({"tck.toml", "purra-plugin.toml"})
ARGUMENTS: Final = ("invalid_argument", "invalid_tool_arguments")
"""Codes of refused arguments."""


MENDS: Final = (
    (
        "the handler raised",
        "Mend the line, or raise ToolError or PluginError with a code of its own.",
    ),
    (
        "cannot be sent",
        "Return JSON values: finite numbers, text that is Unicode, no bytes, no objects.",
    ),
    (
        "did not start",
        "Mend what the line raises: importing the module must neither fail nor end it.",
    ),
)
"""What to do about causes that are the same whatever the rule."""


def cause_of(package: Package, words: str, said: Sequence[str]) -> tuple[str, str]:
    """`file:line` with what stands there, and what to do; "" for what cannot be told.

    `words`: of the verdict. `said`: what the plugin printed, line by line.
    """
    if package.manifest is None or str(package.path) in words:
        return "", ""  # the message of a refused manifest names file and key
    for find, mend in (
        (_mismatch, "Write one name in the manifest and in the code."),
        (_entry, "Write the module and the object as they are in the package: `module:object`."),
        (_example, "Give the example arguments that its tool takes."),
    ):
        place = find(package, words)
        if place:
            return place, mend
    mend = next((told for sign, told in MENDS if sign in words), "")
    return _frame(package, words, said) or _adapter(package, words), mend


def _mismatch(package: Package, words: str) -> str:
    """The table of the manifest that the code does not serve, or where a new one belongs."""
    if "manifest_mismatch" not in words or package.manifest is None:
        return ""
    for offer in package.manifest.offers:
        if re.search(rf"not offered: [^;]*\b{re.escape(offer.name)}(?![\w.-])", words):
            return _line(package.path, rf'^\s*name\s*=\s*"{re.escape(offer.name)}"')
    return f"{package.path}: [[provides]]"


def _entry(package: Package, words: str) -> str:
    entry = (package.manifest and package.manifest.runs.entry) or ""
    module, _, attribute = entry.partition(":")
    told = (f"No module named '{module}'", f"'{module}' has no attribute '{attribute}'")
    if entry and any(each in words for each in told):
        return _line(package.path, r"^\s*entry\s*=")
    return ""


def _example(package: Package, words: str) -> str:
    """An example of a safe call whose arguments its own tool does not take."""
    fixtures, manifest = package.fixtures, package.manifest
    if manifest is None or fixtures.path is None or not any(code in words for code in ARGUMENTS):
        return ""
    schemas = {offer.name: offer.tool.parameters for offer in manifest.offers if offer.tool}
    for number, example in enumerate(fixtures.tool.safe):
        if example.tool in schemas:
            compiled = CompiledSchema(admit(schemas[example.tool]))
            wrong = [str(each) for each in compiled.violations(freeze(example.args))]
            if wrong:
                return f"{fixtures.path}: tool.safe[{number}].args: {wrong[0]}"
    return ""


def _frame(package: Package, words: str, said: Sequence[str]) -> str:
    """The innermost line of the plugin's own code in the last traceback."""
    if "internal" not in words:
        return ""
    inside = str(package.path.parent)
    for text in reversed(said):
        for path, line, function in reversed(FRAME.findall(text)):
            if path.startswith(inside):
                return f"{path}:{line}, in {function}"
    return ""


def _adapter(package: Package, words: str) -> str:
    """The line of the code that names the adapter which the words are about."""
    names = [offer.name for offer in package.manifest.offers] if package.manifest else []
    for name in sorted(names, key=len, reverse=True):
        if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", words):
            for path in _code(package.path.parent):
                found = _line(path, rf"""["']{re.escape(name)}["']""")
                if found:
                    return found
    return ""


def _code(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.name not in NOT_CODE and path.is_file() and path.stat().st_size <= CODE_BYTES:
            yield path


def _line(path: Path, pattern: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    for number, line in enumerate(lines, 1):
        if re.search(pattern, line):
            return f"{path}:{number}  {line.strip()}"
    return ""
