"""In which order plugins start: what a plugin requires starts before it, whatever order is written.

Judged before anything is spawned (PLG-03, REG-007): a requirement that is not there, one of a
wrong version and a circle are each an error that names the chain.
"""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet

from purra.errors import PurraError
from purra.manifest.plugin import PluginManifest

__all__ = ["start_order"]


def start_order(plugins: Mapping[str, PluginManifest]) -> tuple[str, ...]:
    """Ids with requirements first, ties by id; stopping goes the other way round.

    Raises `PurraError(plugin_broken)`.
    """
    for plugin in plugins.values():
        for required, specifier in plugin.requires.items():
            _check_present(plugin, required, specifier, plugins)
    ordered: list[str] = []
    waiting = sorted(plugins)
    while waiting:
        ready = [name for name in waiting if set(plugins[name].requires) <= set(ordered)]
        if not ready:
            chain = " -> ".join(_circle(waiting, plugins))
            raise PurraError("plugin_broken", f"plugins require each other in a circle: {chain}")
        ordered += ready
        waiting = [name for name in waiting if name not in ready]
    return tuple(ordered)


def _check_present(
    plugin: PluginManifest, required: str, specifier: str, plugins: Mapping[str, PluginManifest]
) -> None:
    found = plugins.get(required)
    wish = f"{plugin.id} {plugin.version} -> {required} {specifier}".rstrip()
    if found is None:
        raise PurraError(
            "plugin_broken",
            f"{wish}: the host manifest does not name {required!r}",
            where=f"plugin {plugin.id}",
            hint=f"add a section [plugins.{required}]",
        )
    if not SpecifierSet(specifier).contains(found.version, prereleases=True):
        raise PurraError(
            "plugin_broken",
            f"{wish}: version {found.version} is installed",
            where=f"plugin {plugin.id}",
        )


def _circle(waiting: list[str], plugins: Mapping[str, PluginManifest]) -> list[str]:
    """One circle among the waiting: each of them requires another one of them."""
    path = [waiting[0]]
    while True:
        step = min(name for name in plugins[path[-1]].requires if name in waiting)
        if step in path:
            return [*path[path.index(step) :], step]
        path.append(step)
