"""The model over the wire, as a worker serves it."""

from __future__ import annotations

import pytest

from purra_bridge.wire.errors import WireError
from purra_plugin_offline.plugin import plugin
from purra_sdk.testing import connect
from tests.plugins.offline.talking import calls_of, request, respond

USER = {"role": "user", "content": "How does a caller cancel a running tool?"}


def test_the_stream_crosses_unchanged_at_any_window() -> None:
    """Backpressure cuts the stream into batches, never its content (MOD-004)."""
    expected = respond(request([USER]))
    with connect(plugin) as link:
        assert link.call("extractive", "profile")["output_limit"] == 4_096
        for window in (1, 200, 65_536):
            items = link.stream("extractive", "generate", request([USER]), window=window)
            assert list(items) == expected
    assert len(calls_of(expected)) == 5


def test_a_refused_parameter_is_typed() -> None:
    with connect(plugin) as link:
        body = {**request([USER]), "params": {"temperature": 1}}
        with pytest.raises(WireError) as caught:
            list(link.stream("extractive", "generate", body))
        assert caught.value.code == "unimplemented"
