"""How an owner lets go of a run: the commit that ends it, and the one that only gives it up."""

from __future__ import annotations

from typing import Any

from purra.contracts.store import ANY, Append, Op, Put
from purra.errors import StoreError
from purra.journal.state import RunState
from purra.runs import keys, turns, wakes
from purra.runs.log import RunLog
from purra.runs.owner import lease_value

__all__ = ["about", "commit_end", "release"]

PROMPT_SHOWN_CHARS = 200
"""Of a prompt in a lease, for lists of runs."""


def about(state: RunState) -> dict[str, Any]:
    """What a lease says of its run."""
    return {
        "agent": state.started["agent"]["id"],
        "session": state.started["session"],
        "status": state.status,
        "prompt": state.started["prompt"][:PROMPT_SHOWN_CHARS],
        "started_ms": state.started_ms,
    }


async def commit_end(log: RunLog) -> None:
    """Commits the terminal event with everything that ends with it, or nothing (RUN-07).

    Terminal event, answer, seals, the session's record, the turn's next holder and the last state
    of the lease stand in one commit.
    """
    state = log.state
    final = Put(keys.lease(state.run), lease_value("", about(state)), state.term)
    session = state.started["session"]
    if not session:
        await log.flush([final])
        return
    while True:
        (turn,) = await log.store.get([keys.turn(session)])
        leave = turns.leave(turn, session, state.run)
        ops: list[Op] = [
            Append(keys.session(session), ANY, (_session_record(state),)),
            leave,
            final,
        ]
        if heir := leave.value["run"]:
            (wake,) = await log.store.get([keys.wake(heir)])
            ops.append(wakes.due(wake, heir))
        try:
            await log.flush(ops)
            return
        except StoreError as error:
            # Somebody joined the queue meanwhile: look again. Each try is a joiner's success.
            if error.detail.get("key") not in (leave.key, keys.wake(heir)):
                raise


async def release(log: RunLog) -> bool:
    """Gives a resting run's lease up, so that whoever brings the decision can take it (HITL-05).

    The run is due again at its deadline, which goes on while it rests. False if something is in the
    inbox that this owner has not seen: then it must go on.
    """
    state = log.state
    page = await log.store.read(keys.inbox(state.run), state.inbox, 1)
    if page.records:
        return False
    (wake,) = await log.store.get([keys.wake(state.run)])
    lease = Put(keys.lease(state.run), lease_value("", about(state)), state.term)
    left_ms = state.started["deadline_ms"] - log.clock.wall_ms()
    try:
        due = wakes.due(wake, state.run, left_ms)
        await log.flush([lease, due], key=f"release:{state.term}:{state.seq}")
    except StoreError:
        return False  # somebody wants it taken up this very moment: look at the inbox again
    return True


def _session_record(state: RunState) -> dict[str, Any]:
    return {
        "run": state.run,
        "status": state.status,
        "prompt": state.started["prompt"],
        "text": (state.terminal or {}).get("text", ""),
    }
