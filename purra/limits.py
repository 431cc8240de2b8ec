"""Bounds of the kernel: named, with units, each with the reason for its size."""

from __future__ import annotations

from typing import Final

__all__ = [
    "APPROVAL_TTL_MS",
    "ARGUMENT_CHARS",
    "CANCEL_GRACE_S",
    "CONTEXT_TIMEOUT_S",
    "DELTA_BATCH_BYTES",
    "DELTA_BATCH_S",
    "DISPATCH_MARGIN_S",
    "ERROR_TEXT_CHARS",
    "EVENT_VALUE_DEPTH",
    "FIRST_DELTA_S",
    "INBOX_DELAY_S",
    "LEASE_TOUCH_S",
    "LEASE_TTL_MS",
    "MAX_CALLS_PER_BATCH",
    "MAX_ROUNDS",
    "MAX_TOOL_CALLS",
    "MODEL_IDLE_S",
    "OWN_WATCHES",
    "PARALLEL_CALLS",
    "POLICY_TIMEOUT_S",
    "PROMPT_CHARS",
    "READ_PAGE",
    "RESULT_INLINE_BYTES",
    "RUN_DEADLINE_S",
    "SCHEMA_BYTES",
    "SCHEMA_DEPTH",
    "SCHEMA_NODES",
    "SESSION_RUNS",
    "STORE_PATIENCE_S",
    "STORE_RETRY_S",
    "STREAM_CHARS",
    "STREAM_CHUNKS",
    "SUBSCRIBER_EVENTS",
    "TOOL_GRACE_S",
    "TOOL_TIMEOUT_S",
    "WORKER_BATCH",
    "WORKER_LOOK_S",
    "WORKER_RETRY_S",
]

MAX_ROUNDS: Final = 16
"""Model rounds of one run, unless its agent says otherwise."""
MAX_TOOL_CALLS: Final = 64
"""Tool calls of one run, refused ones included."""
MAX_CALLS_PER_BATCH: Final = 32
"""Calls that one round may announce."""
RUN_DEADLINE_S: Final = 600.0
"""Wall time of one run, waits included."""
TOOL_TIMEOUT_S: Final = 30.0
"""Default time of one tool call (tables, defaults of a tool)."""
TOOL_GRACE_S: Final = 2.0
"""How long the gateway waits after a cancel or timeout to learn the effect state."""
OWN_WATCHES: Final = 16
"""Runs of a kernel that each watch their own inbox; a quarter of the calls that the worker of a
store takes at once."""
PARALLEL_CALLS: Final = 8
"""Calls of one batch that run at once; more wait their turn (TOOL-25)."""
APPROVAL_TTL_MS: Final = 24 * 3600 * 1000
"""How long a call waits for a person, the run's deadline permitting (TOOL-16)."""
CANCEL_GRACE_S: Final = 5.0
"""Within this a cancelled run has ended, whatever its adapters do (RUN-11)."""
MODEL_IDLE_S: Final = 120.0
"""Longest silence of a model's stream."""
CONTEXT_TIMEOUT_S: Final = 30.0
"""Longest time of one context provider."""
POLICY_TIMEOUT_S: Final = 10.0
"""Longest time of one policy decision."""

LEASE_TTL_MS: Final = 15_000
"""Time to live of a run's lease and of a kernel's document (tables, store keys)."""
LEASE_TOUCH_S: Final = 5.0
"""How often an owner extends its lease: three tries before it lapses."""

WORKER_LOOK_S: Final = 1.0
"""How often a worker looks for lapsed leases; what becomes due wakes it at once."""
WORKER_RETRY_S: Final = 30.0
"""How long a worker leaves a run alone that it could not take up."""
WORKER_BATCH: Final = 50
"""Due runs taken up at one look."""
INBOX_DELAY_S: Final = 0.02
"""A run watches its inbox from this age on: most runs of a test end sooner, and the first wake-up
tells what came before."""
STORE_PATIENCE_S: Final = 5.0
STORE_RETRY_S: Final = 0.1
"""How long, and how often, a commit is sent again while the store's host has no instance."""

DELTA_BATCH_BYTES: Final = 1024
DELTA_BATCH_S: Final = 0.040
FIRST_DELTA_S: Final = 0.002
"""A batch of deltas closes at either bound. The first text of an attempt waits only as long as a
round that is over by then needs to be committed whole."""

SESSION_RUNS: Final = 10
"""Earlier runs of a session that the model sees again (CTX-11: at most 20 messages)."""
PROMPT_CHARS: Final = 1_000_000
ARGUMENT_CHARS: Final = 256 * 1024
"""Raw argument text of one call (TOOL-05)."""
EVENT_VALUE_DEPTH: Final = 48
"""Levels of a value that somebody hands in for an event (arguments, a result, a binding): a store
takes 56, with the event around it."""
RESULT_INLINE_BYTES: Final = 64 * 1024
"""A larger tool result goes to a blob and the model sees its beginning (TOOL-23)."""
ERROR_TEXT_CHARS: Final = 500
"""What the model may read of an error."""
STREAM_CHARS: Final = 2_000_000
STREAM_CHUNKS: Final = 200_000
"""Text and chunks of one model attempt (MOD-22)."""
SUBSCRIBER_EVENTS: Final = 4096
"""Events kept for a slow reader before it must read the store again (OUT-13)."""

SCHEMA_BYTES: Final = 64 * 1024
SCHEMA_DEPTH: Final = 32
SCHEMA_NODES: Final = 4096
"""Bounds on one tool schema, checked without recursion (TOOL-02)."""
DISPATCH_MARGIN_S: Final = 0.5
"""A host enforces a call's time itself and knows more of what became of it, so the gateway's own
clock runs a little longer."""
READ_PAGE: Final = 512
"""Records asked for in one store read."""
