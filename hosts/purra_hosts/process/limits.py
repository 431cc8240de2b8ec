"""What a host says that it holds a plugin to: each limit by name, `none` where nothing enforces it.

Said is what is done, both ways (LIM-008): whoever adds a limit adds it here, and the kit tries each
one that is said.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from purra_bridge.wire.messages import LIMITS
from purra_hosts.launch import Launch
from purra_hosts.process.callbacks import DEPTH_MAX
from purra_hosts.process.logs import LINE_BYTES, RATE

__all__ = ["advertised"]


def advertised(launch: Launch) -> Mapping[str, int | str]:
    """Bytes, unless the name says otherwise. Counts are per instance; `queue` is per plugin.
    `late_write`: what becomes of a call that may write and passes its time.
    """
    limits = launch.limits
    process = sys.platform == "linux" and launch.kind == "process"

    def enforced(bound: int | None) -> int | str:
        return bound if bound is not None and process else "none"

    return {
        "frame_bytes": limits.max_frame_bytes,
        "message_bytes": LIMITS["max_message"][0],
        "raw_message_bytes": LIMITS["max_raw"][0],
        "output_bytes": limits.output_bytes,
        "inflight": limits.inflight,
        "callback_depth": DEPTH_MAX,
        "queue": limits.queue,
        "instances": limits.instances,
        "log_line_bytes": LINE_BYTES,
        "log_lines_per_s": RATE,
        "late_write": "killed" if launch.kind == "process" else "none",
        "nofile": enforced(limits.nofile),
        "cpu_s": enforced(limits.cpu_s),
        "memory_bytes": enforced(limits.memory_bytes),
    }
