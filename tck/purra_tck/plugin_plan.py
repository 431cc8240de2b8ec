"""Which suites a plugin is asked, and by whom: from its manifest to a plan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final

from purra.errors import PurraError
from purra_tck import suites
from purra_tck.checks import Check
from purra_tck.rules import of_suite
from purra_tck.runner import Plan, SubjectInfo
from purra_tck.subjects.plugin import Ways, opening
from purra_tck.subjects.plugin_package import Package, find_package

__all__ = ["NOT_BUILT", "SUITES_OF_KIND", "Asked", "config_of", "judged_package", "plan_of"]

SUITES_OF_KIND: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "model": ("model",),
        "tool": ("tool",),
        "context": ("context", "compression"),
        "policy": (),
        "store": (),
        "memory": (),
        "sandbox": (),
    }
)
"""Kind of a `[[provides]]` -> suites beside that of the manifest. Stores: `purra tck store`."""

NOT_BUILT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CTX-008": "the kernel asks providers once, at the beginning of a run (clause 16.7)",
        "CMP-008": "the contract has no way to mark a summary (clause 17.7)",
        "CMP-009": "a provider cannot call a model: host services are refused (clause 17.8)",
    }
)
"""Rules of the plugin suites that nothing checks yet -> what they wait for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for. `config`: values by key, over those of the `tck.toml`."""

    where: str
    fixtures: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    seed: int = 1
    twice: bool = True

    def argv(self) -> tuple[str, ...]:
        """The command that asks the same again."""
        words = ["plugin", self.where]
        if self.fixtures is not None:
            words += ["--fixtures", str(self.fixtures)]
        for key, value in self.config.items():
            words += ["--config", f"{key}={json.dumps(value)}"]
        return tuple(words)


def config_of(words: Iterable[str]) -> dict[str, Any]:
    """The values of `KEY=VALUE` words; VALUE is read as TOML if it is any, else it is text.

    Raises `PurraError(invalid_argument)`.
    """
    config: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise PurraError("invalid_argument", f"{word!r} is not KEY=VALUE", where="--config")
        try:
            config[key] = tomllib.loads(f"value = {text}")["value"]
        except (ValueError, KeyError):
            config[key] = text
    return config


@contextmanager
def judged_package(asked: Asked) -> Iterator[Package]:
    """The plugin, with a room for what is built once; the room goes with the block.

    Raises the `PurraError` of `find_package`.
    """
    with TemporaryDirectory(prefix="purra-tck-") as room:
        package = find_package(asked.where, Path(room), asked.fixtures)
        fixtures = replace(package.fixtures, config={**package.fixtures.config, **asked.config})
        yield replace(package, fixtures=fixtures)


def suites_of(package: Package) -> tuple[str, ...]:
    """The suites that apply, in the order of the rule table."""
    found = dict.fromkeys(["manifest"])
    if package.manifest is None:
        # TOL-001 judges the schemas in it, which may be what it was refused for.
        return ("manifest", "tool") if "input" in str(package.refusal) else ("manifest",)
    for offer in package.manifest.offers:
        found |= dict.fromkeys(SUITES_OF_KIND[offer.kind])
    return tuple(name for name in _ORDER if name in found)


_ORDER: Final = ("manifest", "model", "tool", "context", "compression")


def plan_of(package: Package, asked: Asked, ways: Ways | None = None) -> Plan:
    """All rules of the suites that apply to the plugin."""
    names = suites_of(package)
    checks: dict[str, Check] = {}
    for name in names:
        checks.update(suites.of(name))
    manifest = package.manifest
    offers = [f"{offer.kind} {offer.name}" for offer in manifest.offers] if manifest else []
    return Plan(
        suite="+".join(names),
        subject=SubjectInfo(
            name=package.name,
            version=manifest.version if manifest else "",
            digest=package.digest,
            kind="plugin",
            declared={"offers": offers, "form": package.form},
            argv=asked.argv(),
        ),
        rules=tuple(rule for name in names for rule in of_suite(name)),
        checks=checks,
        open=opening(package, ways),
        only=asked.only,
        twice=asked.twice,
        seed=asked.seed,
    )
