"""Hosts that let the wrong ones in, or agree on the wrong things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import purra_hosts.restarts
from purra_bridge.wire import session as wire_session
from purra_bridge.wire.errors import ProtocolViolation
from purra_bridge.wire.header import MAX_BODY_BYTES
from purra_bridge.wire.messages import FIELDS, HELLO, PROTOCOL_VERSIONS, fault
from purra_bridge.wire.session import Session
from purra_bridge.wire.tables import START
from purra_hosts.process import handshake
from purra_hosts.process.pump import Pump
from purra_tck.saboteurs import Saboteur
from purra_tck.saboteurs.host import Patch, broken

__all__ = ["SABOTEURS"]


def _waits_for_hello(patch: Patch) -> None:
    unusual = Session._unusual

    def patient(self: Session, kind: int, *rest: Any) -> None:
        if self.state is not START:
            unusual(self, kind, *rest)

    patch(Session, "_unusual", patient)


def _assumes_latest(patch: Patch) -> None:
    patch(handshake, "common_version", lambda theirs: PROTOCOL_VERSIONS[1])


def _restarts_on_mismatch(patch: Patch) -> None:
    permanent = purra_hosts.restarts.PERMANENT
    patch(purra_hosts.restarts, "PERMANENT", permanent - {"version_mismatch"})


def _knows_all_fields(patch: Patch) -> None:
    def strict(number: int, body: Any) -> str:
        if number == HELLO and type(body) is dict and not body.keys() <= FIELDS[HELLO].keys():
            return "HELLO has unknown fields"
        return fault(number, body)

    patch(wire_session, "fault", strict)


def _looks_before_it_checks(patch: Patch) -> None:
    def blind(number: int, body: Any) -> str:
        if number == HELLO:
            body["proto"], body["plugin"], body["version"], body["manifest_sha256"]
        return fault(number, body)

    patch(wire_session, "fault", blind)


def _trusts_hello(patch: Patch) -> None:
    patch(handshake, "check_hello", lambda launch, body: PROTOCOL_VERSIONS[1])
    patch(handshake, "check_ready", lambda launch, body: None)


def _limits_after_hello(patch: Patch) -> None:
    patch(wire_session, "HELLO_BYTES", MAX_BODY_BYTES)


def _shakes_hands_again(patch: Patch) -> None:
    illegal = Session._illegal
    move = Session._move

    def forgiving(self: Session, sender: str, kind: int) -> None:
        if kind != HELLO or self.state is START:
            move(self, sender, kind)

    def enter(self: Session, *frame: Any) -> None:
        if frame[0] != HELLO or self.state is START:
            raise illegal(self, frame[0])

    patch(Session, "_move", forgiving)
    patch(Session, "_unusual", enter)


def _waits_for_a_whole_frame(patch: Patch) -> None:
    updated = Pump.buffer_updated

    def patient(self: Pump, nbytes: int) -> None:
        if self._session.state is START and self._session.buffer()[0]:
            return  # some text: the frame will surely follow
        updated(self, nbytes)

    patch(Pump, "buffer_updated", patient)


def _wants_new_fields(patch: Patch) -> None:
    check = handshake.check_hello

    def modern(launch: Any, body: Mapping[str, Any]) -> Any:
        if "features" not in body:
            raise ProtocolViolation("bad_frame", "HELLO without features")
        return check(launch, body)

    patch(handshake, "check_hello", modern)


def _own_limits(patch: Patch) -> None:
    negotiate = Session.negotiate
    patch(Session, "negotiate", lambda self, theirs: negotiate(self, {}))


SABOTEURS: tuple[Saboteur, ...] = (
    broken("accepts-any-first-frame", "HSK-001", "error protocol_violation", _waits_for_hello),
    broken("assumes-latest", "HSK-002", "error version_mismatch", _assumes_latest),
    broken("restarts-on-mismatch", "HSK-003", "error version_mismatch", _restarts_on_mismatch),
    broken("rejects-unknown-field", "HSK-004", "fields of a newer peer", _knows_all_fields),
    broken("KeyError-leak", "HSK-004", "error protocol_violation", _looks_before_it_checks),
    broken("trusts-hello", "HSK-005", "error manifest_mismatch", _trusts_hello),
    broken("limit-after-hello", "HSK-007", "error protocol_violation", _limits_after_hello),
    broken("re-handshake", "HSK-008", "error protocol_violation", _shakes_hands_again),
    broken("hangs-on-banner", "HSK-009", "no end within", _waits_for_a_whole_frame),
    broken("drops-N-1", "HSK-010", "1.0, the least that is legal", _wants_new_fields),
    broken("uses-own-limits", "HSK-011", "the limits of WELCOME", _own_limits),
)
