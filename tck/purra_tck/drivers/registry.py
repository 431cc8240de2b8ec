"""What is routable, as the kit asks about it: the kernel's registry, and the order of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from purra.errors import PurraError
from purra.manifest import order
from purra.manifest.plugin import load_plugin
from purra.registry.snapshot import Registry
from purra_bridge.wire.errors import WireError

__all__ = ["KernelRegistry", "RegistryDriver", "SnapshotView", "start_order"]


class SnapshotView(Protocol):
    """What was routable in one epoch."""

    @property
    def epoch(self) -> int: ...

    def get(self, name: str) -> Any:
        """The value under a name, None without one."""


class RegistryDriver(Protocol):
    """A registry that nobody else has. Refusals are `WireError`."""

    def publish(self, owner: str, offers: Mapping[str, Any]) -> int:
        """Makes `offers` everything that `owner` has; the new epoch."""

    def retire(self, owner: str) -> int:
        """Takes away everything that `owner` has; the epoch."""

    def look(self) -> SnapshotView:
        """The newest snapshot, not held."""

    def names(self, snapshot: Any) -> Mapping[str, Any]:
        """Everything in a snapshot."""

    def pin(self) -> AbstractContextManager[SnapshotView]:
        """Holds the newest snapshot for a block."""


class KernelRegistry:
    """Implements `RegistryDriver` with the kernel's registry. `released` gets (name, value)."""

    def __init__(self, released: Callable[[str, Any], None]) -> None:
        self._registry: Registry[Any] = Registry(lambda item: released(item.name, item.value))

    def publish(self, owner: str, offers: Mapping[str, Any]) -> int:
        try:
            return self._registry.publish(owner, offers)
        except PurraError as error:
            raise WireError(error.code, error.message) from error

    def retire(self, owner: str) -> int:
        return self._registry.retire(owner)

    def look(self) -> SnapshotView:
        return self._registry.current

    def names(self, snapshot: Any) -> Mapping[str, Any]:
        return {name: item.value for name, item in snapshot.bindings.items()}

    def pin(self) -> AbstractContextManager[SnapshotView]:
        return self._registry.pin()


def start_order(folders: Sequence[Path]) -> tuple[str, ...]:
    """Ids in the order in which these plugins are started. Raises `WireError`."""
    try:
        manifests = [load_plugin(folder / "purra-plugin.toml") for folder in folders]
        return order.start_order({manifest.id: manifest for manifest in manifests})
    except PurraError as error:
        raise WireError(error.code, error.message) from error
