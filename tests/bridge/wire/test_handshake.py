"""HELLO, WELCOME, READY (HSK-001..011), as seen by two real ends."""

from __future__ import annotations

from typing import Any

import pytest

from purra_bridge.wire import events as ev
from purra_bridge.wire import messages
from purra_bridge.wire.errors import ProtocolViolation, WireError
from purra_bridge.wire.header import MAX_BODY_BYTES, pack_header
from purra_bridge.wire.session import HELLO_BYTES, Session
from tests.bridge.wire.links import (
    HELLO_BODY,
    READY_BODY,
    WELCOME_BODY,
    Link,
    frame,
    linked,
    names,
)


def test_a_whole_handshake() -> None:
    """HSK-001, CAP-003: routing starts with READY."""
    link = Link()
    link.plugin.hello(HELLO_BODY)
    (hello,) = link.to_host()
    assert hello == ev.Hello(HELLO_BODY)
    agreed = link.host.negotiate(hello.body["limits"])
    link.host.welcome(WELCOME_BODY | {"limits": agreed, "config": {"root": "/x"}})
    (welcome,) = link.to_plugin()
    assert welcome.body["config"] == {"root": "/x"}
    link.plugin.ready(READY_BODY)
    assert link.to_host() == [ev.Ready(READY_BODY)]
    assert link.host.state == link.plugin.state == "ready"


@pytest.mark.parametrize("first", sorted(set(messages.NAMES) - {messages.HELLO, messages.ERROR}))
def test_the_first_frame_is_hello(first: int) -> None:
    """HSK-001."""
    with pytest.raises(ProtocolViolation) as caught:
        Session("host").receive(frame(first, 1 if first >= messages.CALL else 0, {}))
    assert caught.value.reason == "before_hello"


def test_an_unknown_first_frame_is_no_hello_either() -> None:
    """HSK-001, FRM-010: what may be skipped later may not come first."""
    with pytest.raises(ProtocolViolation, match="before_hello"):
        Session("host").receive(frame(99, 0))


@pytest.mark.parametrize(
    ("theirs", "ours", "common"),
    [
        ([1, 1], (1, 1), 1),
        ([1, 3], (1, 2), 2),
        ([2, 9], (1, 3), 3),
        ([0, 1], (1, 3), 1),
        ([2, 2], (1, 1), None),
        ([0, 0], (1, 1), None),
        ([99, 99], (1, 2), None),
    ],
)
def test_the_highest_common_version_is_chosen(
    theirs: list[int], ours: tuple[int, int], common: int | None
) -> None:
    """HSK-002."""
    assert messages.common_version(theirs, ours) == common


def test_unknown_fields_are_ignored() -> None:
    """HSK-004."""
    host = Session("host")
    (hello,) = host.receive(frame(messages.HELLO, 0, HELLO_BODY | {"shiny": {"new": 1}}))
    assert hello.body["plugin"] == "sample"


@pytest.mark.parametrize("field", ["proto", "plugin", "version", "manifest_sha256"])
def test_a_missing_field_is_named(field: str) -> None:
    """HSK-004."""
    body = {name: value for name, value in HELLO_BODY.items() if name != field}
    with pytest.raises(ProtocolViolation, match=f"HELLO without {field}"):
        Session("host").receive(frame(messages.HELLO, 0, body))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("proto", "1"),
        ("proto", []),
        ("proto", [1]),
        ("proto", [2, 1]),
        ("proto", [1, "1"]),
        ("proto", [True, True]),
        ("proto", [1, 2, 3]),
        ("plugin", None),
        ("version", 1),
        ("manifest_sha256", b""),
        ("limits", []),
        ("pid", -1),
        ("pid", True),
        ("features", {}),
    ],
)
def test_an_ill_typed_field_is_named(field: str, value: Any) -> None:
    """HSK-004."""
    with pytest.raises(ProtocolViolation, match=f"HELLO.{field}"):
        Session("host").receive(frame(messages.HELLO, 0, HELLO_BODY | {field: value}))


@pytest.mark.parametrize("body", [[], None, b"", 1, "text"])
def test_a_hello_that_is_not_a_map(body: Any) -> None:
    """HSK-004, FRM-006: on id 0 a wrong body costs the connection."""
    with pytest.raises(ProtocolViolation, match="bad_frame"):
        Session("host").receive(frame(messages.HELLO, 0, body))


def test_hello_has_its_own_limit() -> None:
    """HSK-007: 64 KiB, before anything is agreed; the true length is named (H13)."""
    host = Session("host")
    with pytest.raises(ProtocolViolation, match=f"bad_frame.*{HELLO_BYTES + 1}"):
        host.receive(pack_header(HELLO_BYTES + 1, 0, messages.HELLO, 0))
    largest = HELLO_BODY | {"sdk": ""}
    room = HELLO_BYTES - len(frame(messages.HELLO, 0, largest)) + 10
    data = frame(messages.HELLO, 0, largest | {"sdk": "x" * (room - 2)})  # str 16 costs two more
    assert len(data) == HELLO_BYTES + 10
    assert names(Session("host").receive(data)) == ["Hello"]
    with pytest.raises(WireError, match="too_large"):
        Session("plugin").hello(HELLO_BODY | {"sdk": "x" * HELLO_BYTES})


def test_a_second_hello_is_a_violation() -> None:
    """HSK-008."""
    link = linked()
    with pytest.raises(ProtocolViolation, match="out_of_order"):
        link.host.receive(frame(messages.HELLO, 0, HELLO_BODY))


def test_limits_are_the_smaller_of_both() -> None:
    """PLG-11, HSK-011: each alone, and used thereafter at both ends."""
    link = linked(
        {"max_frame": 8192, "inflight": 256, "window": 4096},
        {"max_frame": 65536, "inflight": 300, "window": 2048},
    )
    for session in (link.host, link.plugin):
        assert session.limits["max_frame"] == 8192
        assert session.limits["inflight"] == 256
        assert session.limits["window"] == 2048
        assert session.limits["max_message"] == 16 * 1024 * 1024
    link.host.call("a", "m", None)
    (called,) = link.to_plugin()
    assert called.window == 2048


@pytest.mark.parametrize(
    "limits",
    [
        {"max_frame": 0},
        {"max_frame": 4095},
        {"max_frame": "1"},
        {"max_frame": MAX_BODY_BYTES + 1},
        {"inflight": 0},
        {"inflight": True},
        {"window": -1},
        {"link_window": None},
    ],
)
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    """HSK-011: nobody is talked into a window of nothing."""
    (name,) = limits
    with pytest.raises(ProtocolViolation, match=f"limits.{name}"):
        Session("host").negotiate(limits)
    with pytest.raises(ValueError, match=f"limits.{name}"):
        Session("host", limits)


def test_unknown_limits_are_ignored() -> None:
    assert "speed" not in Session("host").negotiate({"speed": 9})


def test_the_host_may_refuse() -> None:
    """HSK-002: ERROR on id 0, and nothing after it."""
    link = Link()
    link.plugin.hello(HELLO_BODY)
    link.to_host()
    link.host.refuse(WireError("version_mismatch", "1 is not 2", detail={"ours": [2, 2]}))
    link.host.refuse(WireError("internal"))  # once is enough
    (refused,) = link.to_plugin()
    assert refused.error.code == "version_mismatch"
    assert refused.error.retry == "never"
    assert refused.error.detail == {"ours": [2, 2]}
    with pytest.raises(WireError, match="closed"):
        link.plugin.ready(READY_BODY)
    with pytest.raises(ProtocolViolation):
        link.plugin.receive(frame(messages.PING, 0, {}))


def test_a_plugin_that_cannot_start_says_so() -> None:
    """A failing import: ERROR on id 0 instead of READY."""
    link = Link().greet()
    link.plugin.status({"phase": "importing", "extend_ms": 5000})
    link.plugin.refuse(WireError("internal", "ImportError: no module named x"))
    status, refused = link.to_host()
    assert status.body["extend_ms"] == 5000
    assert refused.error.message.startswith("ImportError")


def test_a_session_may_take_over_after_the_handshake() -> None:
    """The bootstrap of a worker shakes hands before the SDK is imported."""
    link = Link()
    link.plugin.hello(HELLO_BODY)
    link.to_host()
    agreed = link.host.negotiate({"max_frame": 8192})
    link.host.welcome(WELCOME_BODY | {"limits": agreed})
    link.host.take()
    second = Session("plugin")
    second.adopt(WELCOME_BODY | {"limits": agreed})
    assert second.state == "welcomed"
    assert second.limits["max_frame"] == 8192
    assert second.pending_bytes == 0
    second.ready(READY_BODY)
    assert names(link.host.receive(b"".join(second.take()))) == ["Ready"]


def test_a_ping_does_not_overtake_the_welcome() -> None:
    link = Link()
    link.plugin.hello(HELLO_BODY)
    link.to_host()
    link.host.welcome(WELCOME_BODY | {"limits": {}})
    link.host.ping("soon")
    assert names(link.to_plugin()) == ["Welcome", "Ping"]


def test_a_role_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="role"):
        Session("client")
