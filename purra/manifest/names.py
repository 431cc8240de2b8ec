"""The grammar of names in manifests, and the near misses that error messages suggest.

A plugin id is compared in many places that do not agree on Unicode: entry points, file systems, log
search, a person's eye. So an id has exactly one spelling: lower-case ASCII. Names of adapters may
have capitals, because tools from elsewhere do (`getUser`), but two names that differ only in case
or width are one name twice, and refused (MAN-002).
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "Address",
    "RefusedError",
    "folded",
    "nearest",
    "parse_address",
    "parse_id",
    "parse_name",
    "suggest",
]

ID_CHARS: Final = 64
NAME_CHARS: Final = 128
"""Longest plugin id and longest adapter name; both are keys in journals and log lines."""

_ID: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*\Z", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\Z", re.ASCII)
_NEAR: Final = 0.6
"""Similarity (difflib) from which a name is taken for a slip of another."""


class RefusedError(ValueError):
    """Why one value of a manifest is refused; whoever knows the file makes the final error of it.

    `place`: keys and indexes from the value that was given to the check down to what is wrong.
    """

    def __init__(self, reason: str, hint: str = "", place: Sequence[str | int] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.place = tuple(place)


@dataclass(frozen=True, slots=True)
class Address:
    """One adapter: `plugin-id/name`."""

    plugin: str
    name: str

    def __str__(self) -> str:
        return f"{self.plugin}/{self.name}"


def folded(name: str) -> str:
    """The form in which two spellings of one name are equal (NFKC, then case-folded)."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def parse_id(text: str) -> str:
    """`text` if it is a plugin id. Raises `RefusedError`, hinting at the nearest legal spelling."""
    if len(text) <= ID_CHARS and _ID.match(text):
        return text
    plain = re.sub(r"[^a-z0-9]+", "-", folded(text)).strip("-")[:ID_CHARS].strip("-")
    hint = f"write {plain!r}" if _ID.match(plain) else ""
    raise RefusedError(
        f"{text!r} is not a plugin id: lower-case ASCII letters, digits and single hyphens, "
        f"a letter first, at most {ID_CHARS} characters",
        hint,
    )


def parse_name(text: str) -> str:
    """`text` if it is an adapter's, agent's or section's name. Raises `RefusedError`."""
    if len(text) <= NAME_CHARS and _NAME.match(text):
        return text
    raise RefusedError(
        f"{text!r} is not a name: ASCII letters, digits, '_', '-' in parts joined by '.', "
        f"a letter first, at most {NAME_CHARS} characters"
    )


def parse_address(text: str) -> Address:
    """The address that `text` spells. Raises `RefusedError`."""
    plugin, slash, name = text.partition("/")
    if not slash:
        raise RefusedError(
            f"{text!r} is not an address", "write PLUGIN-ID/NAME, as in 'files/fs.read'"
        )
    return Address(parse_id(plugin), parse_name(name))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be."""
    spellings = {folded(candidate): candidate for candidate in sorted(known)}
    found = difflib.get_close_matches(folded(name), spellings, n=1, cutoff=_NEAR)
    return spellings[found[0]] if found else None


def suggest(name: str, known: Iterable[str], *, what: str = "known") -> str:
    """A hint for an unknown name: the near miss, else the first few that exist, else nothing."""
    names = sorted(known)
    if near := nearest(name, names):
        return f"did you mean {near!r}?"
    if not names:
        return ""
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{what}: {shown}"
