"""The driver of the in-process host: plugins in threads of the kit's own process.

It is the process host with another vessel, so it is driven in the same way. What it cannot do it
does not declare: its plugins are no processes, and the host says HELLO for them.
"""

from __future__ import annotations

from purra_tck.drivers.process import ProcessDriver

__all__ = ["InprocDriver"]


class InprocDriver(ProcessDriver):
    """Implements `purra_tck.drivers.host.HostDriver`."""

    kind = "inproc"
    declares = ProcessDriver.declares - {"apart", "processes", "hello"}
