"""Epochs, pins and the order retire, drain, release."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import anyio
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from purra.errors import PurraError
from purra.registry.snapshot import Binding, Registry, Snapshot


class Value:
    """A thing that is equal only to itself, as a running adapter is."""


def test_a_pinned_step_keeps_its_bindings_through_a_swap() -> None:
    """PLG-07, REG-002: what was resolved stays resolvable; new work gets the successor."""
    registry: Registry[Value] = Registry()
    old, new = Value(), Value()
    registry.publish("files", {"files/read": old})
    with registry.pin() as step:
        registry.publish("files", {"files/read": new})
        assert step.get("files/read") is old
        with registry.pin() as later:
            assert later.get("files/read") is new
    assert registry.current.get("files/read") is new


def test_release_comes_after_the_last_pin_and_once() -> None:
    """PLG-08, REG-003: retire, drain, release; never before, never twice."""
    log: list[str] = []
    registry: Registry[Value] = Registry(lambda binding: log.append(f"released {binding.name}"))
    registry.publish("files", {"a": Value()})
    with registry.pin():
        with registry.pin():
            registry.retire("files")
            log.append("retired")
            assert [item.name for item in registry.draining] == ["a"]
        log.append("one pin left")
    assert log == ["retired", "one pin left", "released a"]
    assert registry.draining == ()


def test_a_value_that_nobody_pinned_is_released_at_once() -> None:
    """REG-003 without a drain."""
    released: list[Binding[Value]] = []
    registry: Registry[Value] = Registry(released.append)
    registry.publish("files", {"a": Value(), "b": Value()})
    registry.retire("files")
    assert [item.name for item in released] == ["a", "b"]


def test_a_release_that_fails_is_reported_and_the_rest_is_released() -> None:
    """PLG-06: by retiring and by the last pin; and what is published stays as it is."""
    released: list[str] = []

    def release(binding: Binding[Value]) -> None:
        released.append(binding.name)
        if binding.name in ("a", "b"):
            raise RuntimeError(f"no end of {binding.name}")

    registry: Registry[Value] = Registry(release)
    for way in ("retired", "last pin"):
        registry.publish("files", {name: Value() for name in "abc"})
        registry.publish("other", {"kept": Value()})
        released.clear()
        with pytest.raises(RuntimeError, match="no end of a"):  # the first one
            if way == "retired":
                registry.retire("files")
            else:
                with registry.pin():
                    registry.retire("files")
        assert released == ["a", "b", "c"] and registry.draining == ()
        assert list(registry.current.bindings) == ["kept"]
        registry.check_invariants()


def test_a_pin_on_a_younger_epoch_does_not_hold_an_older_value() -> None:
    """Drains are exact: only who can reach a value delays its release."""
    released: list[Binding[Value]] = []
    registry: Registry[Value] = Registry(released.append)
    registry.publish("one", {"a": Value()})
    registry.retire("one")
    released.clear()
    registry.publish("two", {"b": Value()})
    with registry.pin():
        registry.publish("one", {"c": Value()})
        registry.retire("one")
        assert [item.name for item in released] == ["c"]


def test_what_is_published_again_unchanged_goes_on() -> None:
    """A reload that changes one adapter of a plugin does not drain the others."""
    released: list[Binding[Value]] = []
    registry: Registry[Value] = Registry(released.append)
    kept = Value()
    registry.publish("files", {"kept": kept, "changed": Value()})
    registry.publish("files", {"kept": kept, "changed": Value()})
    assert [item.name for item in released] == ["changed"]
    assert registry.current.bindings["kept"].born == 1


def test_a_name_of_another_owner_is_a_conflict_and_changes_nothing() -> None:
    """REG-006: the error names both; nobody removes what is not theirs."""
    registry: Registry[Value] = Registry()
    first = Value()
    registry.publish("files", {"read": first})
    with pytest.raises(PurraError, match=r"'files'.*'other'") as caught:
        registry.publish("other", {"mine": Value(), "read": Value()})
    assert caught.value.code == "plugin_conflict"
    assert registry.current.epoch == 1
    assert registry.retire("other") == 1
    assert registry.current.get("read") is first


def test_a_snapshot_cannot_be_changed() -> None:
    """PLG-22, REG-001: not by its holder, not by later changes."""
    registry: Registry[Value] = Registry()
    registry.publish("files", {"a": Value()})
    snapshot = registry.current
    bindings: Any = snapshot.bindings
    with pytest.raises(TypeError):
        bindings["b"] = Value()
    assert isinstance(bindings, MappingProxyType)
    registry.retire("files")
    assert list(snapshot.bindings) == ["a"]


def test_a_cancelled_step_returns_its_pin() -> None:
    """REG-008: cancellation and errors are ways out of the block like any other."""
    released: list[Binding[Value]] = []
    registry: Registry[Value] = Registry(released.append)
    registry.publish("files", {"a": Value()})

    async def main() -> None:
        with anyio.CancelScope() as scope:
            with registry.pin():
                registry.retire("files")
                scope.cancel()
                await anyio.sleep_forever()

    anyio.run(main)
    assert [item.name for item in released] == ["a"]
    registry.publish("files", {"b": Value()})
    with pytest.raises(RuntimeError), registry.pin():
        registry.retire("files")
        raise RuntimeError
    assert [item.name for item in released] == ["a", "b"]


def test_two_registries_do_not_see_each_other() -> None:
    """REG-010: no global state."""
    one: Registry[Value] = Registry()
    two: Registry[Value] = Registry()
    one.publish("files", {"a": Value()})
    assert two.current.epoch == 0 and not two.current.bindings


def test_concurrent_callers_see_some_sequential_order() -> None:
    """REG-009: from many threads, every epoch exists once and every value is released once."""
    released: list[Binding[Value]] = []
    registry: Registry[Value] = Registry(released.append)
    epochs: list[int] = []
    start = threading.Barrier(4)

    def work(owner: str) -> None:
        start.wait()
        for _ in range(200):
            epochs.append(registry.publish(owner, {f"{owner}/a": Value()}))
            with registry.pin() as step:
                assert step.get(f"{owner}/a") is not None
        epochs.append(registry.retire(owner))

    threads = [threading.Thread(target=work, args=(f"p{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == list(range(1, 4 * 201 + 1))
    assert len(released) == len(set(released)) == 4 * 200
    registry.check_invariants()


class Model(RuleBasedStateMachine):
    """The registry against the plainest model: full copies of every snapshot, all pins by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[Binding[Value]] = []
        self.registry: Registry[Value] = Registry(self.released.append)
        self.live: dict[str, tuple[str, Value]] = {}
        self.epoch = 0
        self.every: set[Value] = set()
        self.pins: list[tuple[ExitStack, Snapshot[Value], dict[str, Value]]] = []

    def values(self) -> dict[str, Value]:
        return {name: value for name, (_, value) in self.live.items()}

    @rule(owner=st.sampled_from("ab"), names=st.sets(st.sampled_from("wxyz")), keep=st.booleans())
    def publish(self, owner: str, names: set[str], keep: bool) -> None:
        mine = {name: value for name, (who, value) in self.live.items() if who == owner}
        offers = {name: (keep and mine.get(name)) or Value() for name in names}
        self.every |= set(offers.values())
        taken = {name for name in names if self.live.get(name, (owner, None))[0] != owner}
        if taken:
            with pytest.raises(PurraError):
                self.registry.publish(owner, offers)
            self.every -= set(offers.values()) - set(mine.values())
            return
        self.epoch += 1
        assert self.registry.publish(owner, offers) == self.epoch
        self.live = {name: item for name, item in self.live.items() if item[0] != owner}
        self.live |= {name: (owner, value) for name, value in offers.items()}

    @rule(owner=st.sampled_from("ab"))
    def retire(self, owner: str) -> None:
        rest = {name: item for name, item in self.live.items() if item[0] != owner}
        self.epoch += rest != self.live
        self.live = rest
        assert self.registry.retire(owner) == self.epoch

    @rule()
    def pin(self) -> None:
        stack = ExitStack()
        self.pins.append((stack, stack.enter_context(self.registry.pin()), self.values()))

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1)))[0].close()

    @invariant()
    def what_is_reachable_is_exactly_what_is_not_released(self) -> None:
        """REG-001, 002, 003: snapshots keep their content; release is neither early nor late."""
        self.registry.check_invariants()
        reachable = set(self.values().values())
        for _, snapshot, expected in self.pins:
            assert {name: item.value for name, item in snapshot.bindings.items()} == expected
            reachable |= set(expected.values())
        released = [binding.value for binding in self.released]
        assert len(released) == len(set(released))
        assert set(released) == self.every - reachable

    def teardown(self) -> None:
        for stack, _, _ in self.pins:
            stack.close()


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
