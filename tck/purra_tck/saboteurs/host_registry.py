"""Hosts that mix up what is routable with what was, or whose it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Any

from purra.manifest import order
from purra.registry.snapshot import Binding, Registry, Snapshot
from purra_hosts.process.fleet import Fleet, Member
from purra_hosts.process.instance import Instance
from purra_hosts.process.states import State
from purra_hosts.process.supervisor import ProcessHost
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _mutable(patch: Patch) -> None:
    become = Registry._become
    shared: dict[int, dict[str, Any]] = {}

    def in_place(self: Registry[Any], snapshot: Snapshot[Any]) -> None:
        names = shared.setdefault(id(self), {})
        become(self, snapshot)
        names.clear()
        names.update(snapshot.bindings)
        self._current = Snapshot(snapshot.epoch, MappingProxyType(names))

    patch(Registry, "_become", in_place)


def _resolves_live(patch: Patch) -> None:
    @contextmanager
    def pin(self: Registry[Any]) -> Iterator[Any]:
        class Live:
            epoch = self.current.epoch

            def get(_live, name: str) -> Any:  # noqa: N805  # `self` is the registry here
                return self.current.get(name)

        yield Live()

    patch(Registry, "pin", pin)


def _releases_first(patch: Patch) -> None:
    patch(Registry, "_held", lambda self, item: False)


def _drops_in_flight(patch: Patch) -> None:
    leave = Instance.leave
    patch(Instance, "leave", lambda self, reason, drain_s: leave(self, reason, 0.0))


def _drains_forever(patch: Patch) -> None:
    leave = Instance.leave
    patch(Instance, "leave", lambda self, reason, drain_s: leave(self, reason, 10_000.0))


def _releases_twice(patch: Patch) -> None:
    announce = Fleet._announce

    def again(self: Fleet, member: Member, state: State) -> None:
        announce(self, member, state)
        if state is State.REAPED:
            announce(self, member, state)

    patch(Fleet, "_announce", again)


def _last_wins(patch: Patch) -> None:
    def publish(self: Registry[Any], owner: str, offers: Mapping[str, Any]) -> int:
        epoch = self._current.epoch + 1
        kept = {n: b for n, b in self._current.bindings.items() if b.owner != owner}
        kept |= {name: Binding(name, owner, value, epoch) for name, value in offers.items()}
        self._become(Snapshot(epoch, MappingProxyType(kept)))
        return epoch

    patch(Registry, "publish", publish)


def _manifest_order(patch: Patch) -> None:
    patch(order, "start_order", lambda plugins: tuple(plugins))


def _leaks_on_cancel(patch: Patch) -> None:
    @contextmanager
    def pin(self: Registry[Any]) -> Iterator[Snapshot[Any]]:
        snapshot = self._current
        self._pins[snapshot.epoch] = self._pins.get(snapshot.epoch, 0) + 1
        try:
            yield snapshot
        except Exception:  # a cancellation is no Exception
            self._unpin(snapshot.epoch)
            raise
        self._unpin(snapshot.epoch)

    patch(Registry, "pin", pin)


def _checks_then_sets(patch: Patch) -> None:
    init, become = Registry.__init__, Registry._become

    def unlocked(self: Registry[Any], *arguments: Any) -> None:
        init(self, *arguments)
        self._lock = nullcontext()  # type: ignore[assignment]

    def slow(self: Registry[Any], snapshot: Snapshot[Any]) -> None:
        time.sleep(0.0005)
        become(self, snapshot)

    patch(Registry, "__init__", unlocked)
    patch(Registry, "_become", slow)


def _module_global(patch: Patch) -> None:
    init = ProcessHost.__init__
    routes: dict[str, Any] = {}

    def shared(self: ProcessHost, **options: Any) -> None:
        init(self, **options)
        self._routes = routes

    patch(ProcessHost, "__init__", shared)


SABOTEURS: tuple[Saboteur, ...] = (
    broken("mutable-snapshot", "REG-001", "what was routable in epoch", _mutable),
    broken("resolves-live", "REG-002", "what the step resolves", _resolves_live),
    broken("release-then-drain", "REG-003", "retiring and releasing", _releases_first),
    broken("drops-in-flight", "REG-004", "the calls that were begun before", _drops_in_flight),
    broken("drains-forever", "REG-005", "error retired", _drains_forever),
    broken("double-release", "REG-005", "how often", _releases_twice),
    broken("last-wins", "REG-006", "a conflict of first and second", _last_wins),
    broken("manifest-order", "REG-007", "after those that need them", _manifest_order),
    broken("pin-leak-on-cancel", "REG-008", "after a cancel", _leaks_on_cancel),
    broken("check-then-set", "REG-009", "given out twice", _checks_then_sets),
    broken("module-global", "REG-010", "is there already", _module_global),
)
