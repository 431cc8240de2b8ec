"""What may be sent when. Everything about legal order is in this file, and nothing else is.

Two rules. Legal = listed: an entry that is absent is a violation. This file does not know which end
it runs in: each entry names the *sender* by its part (host or plugin on the connection, caller or
callee in a call), so what we send and what we receive is judged by one table, and neither end can
allow itself more than the other.

The two ends of a link see frames in different order, because both may send at once. So an entry may
be legal only because its sender could not know better yet: those are marked `# crossing`.

    connection:  START -HELLO-> GREETED -WELCOME-> WELCOMED -READY-> READY -DRAIN-> DRAINING
                 any -ERROR on id 0-> REFUSED        any -EOF-> CLOSED
    call:        IDLE -CALL-> OPEN -END-> SENT      OPEN, SENT -CANCEL-> CANCELLED
                 OPEN, SENT, CANCELLED -RESULT or ERROR-> DONE
"""

from __future__ import annotations

from purra_bridge.wire.errors import ProtocolViolation
from purra_bridge.wire.messages import (
    CALL,
    CANCEL,
    CHANGED,
    CREDIT,
    DATA,
    DRAIN,
    ERROR,
    HELLO,
    LOG,
    PING,
    PONG,
    READY,
    RESULT,
    STATUS,
    WELCOME,
)

__all__ = [
    "CALLEE",
    "CALLER",
    "CALLS",
    "CALL_STATES",
    "CANCELLED",
    "CLOSED",
    "CONNECTION",
    "CONNECTION_STATES",
    "DONE",
    "DRAINING",
    "END_INPUT",
    "GREETED",
    "HOST",
    "IDLE",
    "OPEN",
    "PLUGIN",
    "READY_STATE",
    "REFUSED",
    "REFUSE_INPUT",
    "ROUTABLE",
    "SENT",
    "START",
    "WELCOMED",
    "call_steps",
    "connection_steps",
    "illegal",
]

HOST = "host"
PLUGIN = "plugin"
CALLER = "caller"
CALLEE = "callee"

START = "start"
GREETED = "greeted"
WELCOMED = "welcomed"
READY_STATE = "ready"
DRAINING = "draining"
REFUSED = "refused"
CLOSED = "closed"
CONNECTION_STATES = (START, GREETED, WELCOMED, READY_STATE, DRAINING, REFUSED, CLOSED)

IDLE = "idle"
OPEN = "open"
SENT = "sent"
CANCELLED = "cancelled"
DONE = "done"
CALL_STATES = (IDLE, OPEN, SENT, CANCELLED, DONE)

REFUSE_INPUT = ERROR | 0x100
"""ERROR on id 0: the connection is refused or given up. (Its frame type is ERROR.)"""
END_INPUT = DATA | 0x100
"""DATA with the flag END. (Its frame type is DATA.)"""

ROUTABLE = frozenset((READY_STATE, DRAINING))
"""States in which calls go on."""

_IN_CALLS = (CALL, DATA, CREDIT, RESULT, ERROR, CANCEL)

CONNECTION: dict[tuple[str, str, int], str] = {
    (START, PLUGIN, HELLO): GREETED,
    (START, PLUGIN, REFUSE_INPUT): REFUSED,
    (START, HOST, REFUSE_INPUT): REFUSED,  # crossing: whatever came was no HELLO
    (GREETED, HOST, WELCOME): WELCOMED,
    (GREETED, HOST, REFUSE_INPUT): REFUSED,
    (GREETED, PLUGIN, REFUSE_INPUT): REFUSED,
    (WELCOMED, PLUGIN, READY): READY_STATE,
}
"""(state, sender, message) -> state. Types are those of `messages`, plus `REFUSE_INPUT`."""

# While the plugin imports, both ends may ping, and the plugin tells how it gets on. A correct host
# does not call yet; a plugin that is called all the same answers `not_active` (H07), so that a
# confused host learns it from one call and not from a lost link.
CONNECTION |= {
    (WELCOMED, HOST, number): WELCOMED for number in (PING, PONG, CALL, DATA, CREDIT, CANCEL)
}
CONNECTION |= {(WELCOMED, PLUGIN, number): WELCOMED for number in (PING, PONG, STATUS, LOG, ERROR)}

for _state in (READY_STATE, DRAINING):
    CONNECTION |= {(_state, HOST, number): _state for number in (PING, PONG, *_IN_CALLS)}
    CONNECTION |= {
        (_state, PLUGIN, number): _state
        for number in (PING, PONG, STATUS, LOG, CHANGED, *_IN_CALLS)
    }
# Either end may drain, both may at once, and a later DRAIN may shorten the deadline. CALL stays
# legal: it may cross the DRAIN, and callbacks of calls in flight go on.
for _state in (READY_STATE, DRAINING):
    CONNECTION |= {(_state, sender, DRAIN): DRAINING for sender in (HOST, PLUGIN)}
for _state in (WELCOMED, READY_STATE, DRAINING):
    CONNECTION |= {(_state, sender, REFUSE_INPUT): REFUSED for sender in (HOST, PLUGIN)}

CALLS: dict[tuple[str, str, int], str] = {
    (IDLE, CALLER, CALL): OPEN,
    (OPEN, CALLER, DATA): OPEN,
    (OPEN, CALLER, END_INPUT): SENT,
    (CANCELLED, CALLER, DATA): CANCELLED,  # crossing: CANCEL goes ahead of DATA
    (CANCELLED, CALLER, END_INPUT): CANCELLED,  # crossing, likewise
    (DONE, CALLER, DATA): DONE,  # crossing
    (DONE, CALLER, END_INPUT): DONE,  # crossing
    (CANCELLED, CALLER, CREDIT): CANCELLED,
    (CANCELLED, CALLER, CANCEL): CANCELLED,  # cancelling is idempotent
    (CANCELLED, CALLEE, DATA): CANCELLED,  # crossing
    (CANCELLED, CALLEE, CREDIT): CANCELLED,
    (CANCELLED, CALLEE, RESULT): DONE,
    (CANCELLED, CALLEE, ERROR): DONE,
    (DONE, CALLER, CREDIT): DONE,  # crossing
    (DONE, CALLER, CANCEL): DONE,  # crossing
    (DONE, CALLEE, CREDIT): DONE,  # CREDIT may overtake and be overtaken
}
"""(state, sender, message) -> state. Types are those of `messages`, plus `END_INPUT`."""

for _state in (OPEN, SENT):
    CALLS |= {
        (_state, CALLER, CREDIT): _state,
        (_state, CALLER, CANCEL): CANCELLED,
        (_state, CALLEE, DATA): _state,
        (_state, CALLEE, CREDIT): _state,
        (_state, CALLEE, RESULT): DONE,
        (_state, CALLEE, ERROR): DONE,
    }
del _state


def connection_steps(sender: str) -> dict[str, dict[int, str]]:
    """`CONNECTION` for one sender: state -> message -> state."""
    return {
        state: {key[2]: to for key, to in CONNECTION.items() if key[:2] == (state, sender)}
        for state in CONNECTION_STATES
    }


def call_steps(sender: str) -> dict[int, dict[str, str]]:
    """`CALLS` for one sender: message -> state -> state."""
    return {
        number: {key[0]: to for key, to in CALLS.items() if key[1:] == (sender, number)}
        for number in (CALL, DATA, END_INPUT, CREDIT, RESULT, ERROR, CANCEL)
    }


def illegal(what: str, number: int, state: str) -> ProtocolViolation:
    """The violation of sending `number`, described by `what`, in a state that does not list it."""
    if state is START:
        reason = "before_hello"
    elif state is not DONE:
        reason = "out_of_order"
    elif number in (RESULT, ERROR):
        reason = "duplicate_terminal"
    else:
        reason = "after_terminal"
    return ProtocolViolation(reason, f"{what} while {state}")
