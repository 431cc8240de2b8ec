"""What is routable: immutable snapshots with epochs, and pins that hold one of them.

A registry maps names to values and knows who owns each. Every change makes a new snapshot and a new
epoch; a snapshot itself never changes. Whoever works through several calls (a step) takes a pin and
resolves from its snapshot only, so that a change in the middle of the work changes nothing for it
(design, invariant 5).

A value leaves in three acts, always in this order (REG-003):

1. *retire*: it is not in the current snapshot any more, so no new pin can reach it;
2. *drain*: pins on older snapshots may still reach it; nothing waits and nothing is forced;
3. *release*: the last such pin is returned, and `on_release` is told, exactly once.

Invariants, checked by `check_invariants` after every step of the property test:

1. The epoch grows by one with every change and never otherwise (REG-001).
2. A name has one owner; only that owner replaces or removes it (REG-006).
3. A value is released if and only if it is retired and no pin holds an epoch in which it was live.
4. A snapshot that is not current is kept only while it is pinned.

Rejected: one reference count per value, because a pin would then cost as much as there are names.
Counting pins per epoch costs a pin nothing, and a release looks at the pinned epochs, of which
there are as many as there are overlapping changes. Rejected: weak references and finalizers,
because "released" must be a moment that the host can rely on, also under a cancelled task.

Every operation is one short critical section without awaits, so concurrent callers see some
sequential order (REG-009). `on_release` runs outside of it, in the thread that caused the release.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from purra.errors import KernelBug, PurraError

__all__ = ["Binding", "Registry", "Snapshot"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Binding(Generic[T]):
    """One value under one name. `born`: the first epoch that has it. Compared by identity."""

    name: str
    owner: str
    value: T
    born: int


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """What was routable in one epoch. Never changes."""

    epoch: int
    bindings: Mapping[str, Binding[T]]

    def get(self, name: str) -> T | None:
        """The value under that name."""
        binding = self.bindings.get(name)
        return None if binding is None else binding.value


@dataclass(frozen=True, slots=True)
class _Retired(Generic[T]):
    binding: Binding[T]
    died: int
    """The first epoch that does not have it."""


class Registry(Generic[T]):
    """The one changing thing: which snapshot is current. See the head of this file.

    `on_release` is called once for each value that can be reached no more. It must not raise; it
    starts whatever takes time and returns.
    """

    def __init__(self, on_release: Callable[[Binding[T]], None] = lambda _: None) -> None:
        self._on_release = on_release
        self._lock = threading.Lock()
        self._current: Snapshot[T] = Snapshot(0, MappingProxyType({}))
        self._pins: dict[int, int] = {}
        self._retired: list[_Retired[T]] = []

    @property
    def current(self) -> Snapshot[T]:
        """The newest snapshot, unpinned: good for a look, not for work."""
        return self._current

    @property
    def draining(self) -> tuple[Binding[T], ...]:
        """Retired values that pins still hold."""
        return tuple(item.binding for item in self._retired)

    def publish(self, owner: str, offers: Mapping[str, T]) -> int:
        """Makes `offers` everything that `owner` has, in one step; returns the new epoch.

        What `owner` had before under the same name and with the same (identical) value goes on; all
        else of its own is retired. Raises `PurraError(plugin_conflict)` naming both owners if a
        name belongs to another one, and then changes nothing.
        """
        with self._lock:
            old, epoch = self._current.bindings, self._current.epoch + 1
            bindings = {name: item for name, item in old.items() if item.owner != owner}
            for name, value in offers.items():
                if (other := bindings.get(name)) is not None:
                    raise PurraError(
                        "plugin_conflict",
                        f"{name!r} belongs to {other.owner!r}; {owner!r} cannot offer it too",
                    )
                same = old.get(name)
                kept = same is not None and same.value is value
                bindings[name] = same if same and kept else Binding(name, owner, value, epoch)
            self._become(Snapshot(epoch, MappingProxyType(bindings)))
            released = self._released()
        self._tell(released)
        return epoch

    def retire(self, owner: str) -> int:
        """Retires everything that `owner` has; returns the epoch, a new one if there was any."""
        with self._lock:
            old, epoch = self._current.bindings, self._current.epoch + 1
            bindings = {name: item for name, item in old.items() if item.owner != owner}
            if len(bindings) == len(old):
                return self._current.epoch
            self._become(Snapshot(epoch, MappingProxyType(bindings)))
            released = self._released()
        self._tell(released)
        return epoch

    @contextmanager
    def pin(self) -> Iterator[Snapshot[T]]:
        """Holds the current snapshot for a `with` block.

        The pin is returned on every way out of the block, cancellation included (REG-008).
        """
        with self._lock:
            snapshot = self._current
            self._pins[snapshot.epoch] = self._pins.get(snapshot.epoch, 0) + 1
        try:
            yield snapshot
        finally:
            with self._lock:
                self._unpin(snapshot.epoch)
                released = self._released()
            self._tell(released)

    def check_invariants(self) -> None:
        """Raises `KernelBug` if one of the invariants above does not hold. For tests."""
        with self._lock:
            live = self._current
            for name, binding in live.bindings.items():
                _require(binding.name == name, "a binding stands under another name")
                _require(binding.born <= live.epoch, "a binding is younger than its snapshot")
            for item in self._retired:
                _require(live.bindings.get(item.binding.name) is not item.binding, "not retired")
                _require(self._held(item), "a value that nobody holds is not released")
            _require(all(count > 0 for count in self._pins.values()), "an empty pin is kept")

    def _become(self, snapshot: Snapshot[T]) -> None:
        gone = set(self._current.bindings.values()) - set(snapshot.bindings.values())
        ordered = sorted(gone, key=lambda item: item.name)
        self._retired += [_Retired(item, snapshot.epoch) for item in ordered]
        self._current = snapshot

    def _unpin(self, epoch: int) -> None:
        self._pins[epoch] -= 1
        if not self._pins[epoch]:
            del self._pins[epoch]

    def _held(self, item: _Retired[T]) -> bool:
        return any(item.binding.born <= epoch < item.died for epoch in self._pins)

    def _released(self) -> list[Binding[T]]:
        """Takes out what nobody holds any more; whoever gets the list tells of it."""
        released = [item.binding for item in self._retired if not self._held(item)]
        if released:
            self._retired = [item for item in self._retired if self._held(item)]
        return released

    def _tell(self, released: list[Binding[T]]) -> None:
        """All of them, whatever telling of one comes to; then the first fault comes out."""
        first: Exception | None = None
        for binding in released:
            try:
                self._on_release(binding)
            except Exception as fault:  # raised below: one fault must not keep the others open
                first = first or fault
        if first is not None:
            raise first


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise KernelBug(what)
