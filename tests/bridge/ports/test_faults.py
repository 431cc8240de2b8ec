"""Failures on the wire as errors of the kernel: nothing lost, nothing believed without reason."""

from __future__ import annotations

import pytest

from purra.errors import AdapterError, PurraError, StoreError
from purra_bridge.ports.faults import adapter_error, store_error
from purra_bridge.wire.errors import CODES, WireError


@pytest.mark.parametrize("code", CODES)
def test_every_code_keeps_what_the_table_says(code: str) -> None:
    """PLG-19: code, origin, executed, retry and wait."""
    error = adapter_error(WireError(code, "why", after_ms=5, detail={"exit": 1}))
    origin, executed, retry = CODES[code]
    assert (error.code, error.message, error.origin, error.executed) == (
        code,
        "why",
        origin,
        executed,
    )
    assert error.detail == {"exit": 1, "retry": retry}
    assert error.retry_after_ms == 5
    assert error.effect_state is None


def test_only_the_plugin_itself_can_speak_of_its_effect() -> None:
    """Tables, effect states: a host that lost the plugin knows `executed` and no more."""
    for state in ("not_started", "committed", "unknown"):
        told = {"effect_state": state}
        assert adapter_error(WireError("upstream", detail=told)).effect_state == state
        assert adapter_error(WireError("crashed", detail=told)).effect_state is None
    for nonsense in ("done", 1, None, ["committed"]):
        odd = {"effect_state": nonsense}
        assert adapter_error(WireError("upstream", detail=odd)).effect_state is None


def test_a_word_that_is_unknown_claims_nothing() -> None:
    """A newer peer's `executed` counts as maybe."""
    assert adapter_error(WireError("internal", executed="partly")).executed == "maybe"


@pytest.mark.parametrize("code", ["conflict", "sealed", "lapsed", "storage", "not_found"])
def test_the_stores_own_refusals(code: str) -> None:
    """Contract `purra.store/1`: with what it was refused."""
    told = {"store": {"code": code, "key": "run/1/lease", "revision": 3}}
    error = store_error(WireError("failed_precondition", "why", detail=told))
    assert isinstance(error, StoreError)
    assert (error.code, error.message) == (code, "why")
    assert error.detail == {"key": "run/1/lease", "revision": 3}


@pytest.mark.parametrize(
    "detail", [{}, {"store": "conflict"}, {"store": {}}, {"store": {"code": "x"}}]
)
def test_a_refusal_that_is_none_stays_an_adapter_error(detail: dict[str, object]) -> None:
    """Only the five codes of the contract are a store's word."""
    error = store_error(WireError("failed_precondition", detail=detail))
    assert isinstance(error, AdapterError)
    assert error.code == "failed_precondition"


def test_a_malformed_call_and_a_lost_store() -> None:
    """The contract's `invalid_argument`; a crash says nothing about the commit."""
    error = store_error(WireError("invalid_argument", "expect"))
    assert type(error) is PurraError
    assert error.code == "invalid_argument"
    lost = store_error(WireError("crashed", detail={"store": {"code": "conflict"}}))
    assert isinstance(lost, AdapterError)
    assert (lost.code, lost.executed, lost.origin) == ("crashed", "maybe", "instance")
