"""Names in the store (tables, store keys). Protocol: other processes read them."""

from __future__ import annotations

__all__ = [
    "inbox",
    "journal",
    "kernel",
    "kernel_inbox",
    "lease",
    "output",
    "session",
    "turn",
    "wake",
]


def journal(run: str) -> str:
    """Stream: the run's events."""
    return f"run/{run}"


def output(run: str) -> str:
    """Stream: delta batches and drafts."""
    return f"run/{run}/out"


def inbox(run: str) -> str:
    """Stream: cancel, decisions, steering, wakes; anyone authorised appends."""
    return f"run/{run}/inbox"


def lease(run: str) -> str:
    """Document: who owns the run; its revision when taken is the term."""
    return f"run/{run}/lease"


def wake(run: str) -> str:
    """Document: lapsed = the run is due to be taken up."""
    return f"wake/{run}"


def session(session_id: str) -> str:
    """Stream: one record per ended run."""
    return f"session/{session_id}"


def turn(session_id: str) -> str:
    """Document: which run of the session may go on, and who queues behind it."""
    return f"session/{session_id}/turn"


def kernel(kernel_id: str) -> str:
    """Document: boot id, pid, start time, instances, generations."""
    return f"kernel/{kernel_id}"


def kernel_inbox(kernel_id: str) -> str:
    """Stream: reload and stop, asked from other processes."""
    return f"kernel/{kernel_id}/inbox"
