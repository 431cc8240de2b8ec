"""From small texts to plugins on disk: what the references and saboteurs of plugins are made of.

A saboteur is its reference with a few lines after it, behind the same manifest, so that what it
breaks is all that is different. It is found, launched and asked as any plugin is.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from purra_tck.fixtures import FILE_NAME as FIXTURES
from purra_tck.subjects.plugin import PluginSubject, Ways, opening
from purra_tck.subjects.plugin_package import Package, find_package

__all__ = ["Parts", "made", "made_of_wheel", "universal"]

MANIFEST = "purra-plugin.toml"

Open = Callable[[], AbstractAsyncContextManager[PluginSubject]]


@dataclass(frozen=True, slots=True)
class Parts:
    """A plugin as texts. `module` is imported from the package `package`; `offers` are (kind, name)
    pairs, for plugins that are not made with the decorators. `fixtures`: its `tck.toml`.
    """

    package: str
    module: str
    manifest: str
    code: str
    offers: tuple[tuple[str, str], ...]
    fixtures: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """The files of the package, by path."""
        named = {"__init__.py": "", MANIFEST: self.manifest, f"{self.module}.py": self.code}
        return {f"{self.package}/{name}": text for name, text in {**named, **self.more}.items()}

    def changed(self, patch: str = "", *edits: tuple[str, str]) -> Parts:
        """With `patch` after the code and each edit (old, new) made in the manifest.

        Raises `ValueError` for an edit that changes nothing: a saboteur that is its reference.
        """
        manifest = self.manifest
        for old, new in edits:
            if old not in manifest:
                raise ValueError(f"{old!r} is not in the manifest")
            manifest = manifest.replace(old, new)
        return Parts(
            self.package,
            self.module,
            manifest,
            f"{self.code}\n\n{patch}",
            self.offers,
            self.fixtures,
            self.more,
        )


def made(parts: Parts, ways: Ways | None = None) -> Open:
    """A folder with the plugin, made anew for each opening."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[PluginSubject, None]:
        with TemporaryDirectory(prefix="purra-tck-") as room:
            source = Path(room, "source")
            _write(source, parts.files())
            if parts.fixtures:
                _write(source, {f"{parts.package}/{FIXTURES}": parts.fixtures})
            package = find_package(str(source), Path(room))
            async with opening(package, ways)() as subject:
                yield subject

    return opened


def made_of_wheel(parts: Parts, *, without: tuple[str, ...] = ()) -> Open:
    """The plugin as a wheel, installed into an environment of its own with the first opening.

    `without`: names of files that the wheel lacks.
    """
    kept: list[tuple[TemporaryDirectory[str], Package]] = []

    def installed() -> Package:
        room = TemporaryDirectory(prefix="purra-tck-")
        place = Path(room.name)
        wheel = _wheel(place, parts, without)
        _write(place, {FIXTURES: parts.fixtures})
        kept.append((room, find_package(str(wheel), place, place / FIXTURES)))
        return kept[0][1]

    @asynccontextmanager
    async def opened() -> AsyncGenerator[PluginSubject, None]:
        package = kept[0][1] if kept else installed()
        async with opening(package)() as subject:
            yield subject

    return opened


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _wheel(folder: Path, parts: Parts, without: tuple[str, ...]) -> Path:
    """A wheel as build backends make them: the files, and three of metadata with a RECORD."""
    name, version = parts.package, "1.0.0"
    info = f"{name}-{version}.dist-info"
    files = {
        path: text for path, text in parts.files().items() if path.rpartition("/")[2] not in without
    }
    plugin = name.removeprefix("purra_plugin_")
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tck\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[purra.plugins]\n{plugin} = {name}\n",
    }
    record = "".join(
        f"{path},{_digest(text)},{len(text.encode())}\n" for path, text in files.items()
    )
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
    return path


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# --- broken in a way that has nothing to do with any one rule ------------------------------------

_ANY = """
import time
from purra_sdk import Plugin, PluginError
from purra_sdk.declare import Handler


class Everything(dict):
    def get(self, key, default=None):
        return Handler(("tool", key[0]), key[1], answer, 1)


class Same(Plugin):
    def offers(self):
        return [{"kind": kind, "name": name} for kind, name in OFFERS]

    def build(self, setup):
        return Everything(), []


plugin = Same()
"""
_ANSWERS: Mapping[str, str] = {
    "null": "def answer(call, request):\n    time.sleep(600)\n",
    "refuse-all": "def answer(call, request):\n"
    '    raise PluginError("failed_precondition", "no")\n',
    "echo-expected": "def answer(call, request):\n    return request\n",
    "crash-at-start": "raise SystemExit(3)\n",
}


def universal(parts: Parts) -> dict[str, Open]:
    """Plugins behind the same manifest that do nothing, refuse everything, give back what they got,
    or do not start.
    """
    return {
        name: made(
            Parts(
                parts.package,
                parts.module,
                parts.manifest,
                f"{_ANY}\n\nOFFERS = {parts.offers!r}\n\n\n{answer}",
                parts.offers,
                parts.fixtures,
                parts.more,
            )
        )
        for name, answer in _ANSWERS.items()
    }
