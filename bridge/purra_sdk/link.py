"""The worker's end of the channel: who reads, who writes, who waits.

One lock guards the session and everything that hangs on it; it is held for microseconds and never
during a system call that can block, nor while a handler runs. Methods say "lock held" where the
caller has it; such a method may let go of it on the way and has it again when it returns.

**Reading.** The thread that reads a call also runs it: a hand-over to another thread costs tens of
microseconds, more than the rest of a small call. So while a handler runs nobody reads, and PING,
CANCEL and CREDIT would wait for it. A second thread, the *standby*, covers that: it looks every
10 ms whether the reading thread is still where it was, and after `STANDBY_AFTER_TICKS` looks it
takes the descriptor over; the reading thread takes it back when it next wants to read. Between two
bursts of calls the standby sleeps without a timer, so an idle worker costs nothing, and a busy one
a hundred short wake-ups a second, independent of the number of calls.

Rejected: a permanent reader thread (every call pays two thread switches); a timer signal (a plugin
may want SIGALRM, and it does not reach a thread inside C code); leader and followers, where the
standby goes on as the reading thread (then handlers wander between threads, and a sqlite3
connection or an event loop made by one call refuses the next).

**Writing.** What is to be sent collects in the session and is written joined. Whoever flushes
writes everything, also what others add meanwhile; others that flush then leave it to that thread.
So frames never mix, and a thread that only adds never waits for the socket.

**Joining.** An item of a stream that comes alone is written at once. Items that come faster than a
write is worth are kept and leave as one frame: that is most of the speed of a stream, and costs a
lone item nothing (perf, B). What is kept leaves with the next write of anybody, so at the latest
when the standby looks. A timer of its own was rejected: it would be another thread.
"""

from __future__ import annotations

import os
import select
import sys
from _thread import allocate_lock, get_ident, start_new_thread
from time import monotonic, sleep

from purra_bridge.wire.errors import ProtocolViolation, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from purra_bridge.wire.session import Session

__all__ = ["RAW_TYPES", "Feed", "Link"]

TICK_S = 0.010
"""How often the standby looks: the longest that output waits behind a handler (STR-010)."""
STANDBY_AFTER_TICKS = 2
"""Looks without progress before the standby takes the descriptor: 20 to 30 ms."""
QUIET_TICKS = 25
"""Looks at an idle worker before the standby sleeps: waking it costs a call, so not after each."""
DRAIN_LOOK_MS = 20
"""While draining, how often the reading thread looks whether another thread ended the last call."""
WAKE_BYTES = 64
"""Read at once from the pipe that says: the reading thread reads again."""
HAND_OVER_BYTES = 8 * 1024
"""Output is written when it reaches this, so that the host decodes while we still encode (A2)."""
JOIN_BYTES = 64 * 1024
"""A larger piece is written on its own: joining would copy it."""
GAP_S = 0.000_25
"""An item after a longer gap is written at once: about what a write and a wake-up cost, tenfold."""
KEEP_S = 0.001
"""Nothing is kept longer while items keep coming."""
JOINED_BYTES = 8 * 1024
"""Roughly what a joined frame weighs: a frame is also what overshoots the caller's window."""
JOINED_ITEMS = 512

RAW_TYPES = frozenset((bytes, bytearray, memoryview))
"""Items of these types are sent as raw chunks."""


class Link:
    """One descriptor and its session. `receive(events)` is called, lock held, with what came in."""

    def __init__(self, descriptor: int, session: Session) -> None:
        self.descriptor = descriptor
        self.session = session
        self.lock = allocate_lock()
        self.receive: Callable[[list[Any]], None] = _nobody
        self.reader = get_ident()
        """The thread that reads, when it is not the standby."""
        self.open = True
        """False after the end of the channel, in either direction."""
        self.forked = False
        self.draining = False
        self.violation = ""
        self.held: list[Callable[[], None]] = []
        """What turns items that are kept for joining into frames; called once, before a write."""
        self.busy_since = 0.0
        """When the reading thread was found busy; 0 while it reads itself."""
        self._standing_in = False
        self._writing = False
        self._reading = False
        self._beat = 0
        self._asleep = False
        self._bell = allocate_lock()
        self._wake_read = self._wake_write = -1
        self._glance = select.poll()
        self._glance.register(descriptor, select.POLLIN)

    # Writing. All of it: lock held.

    def flush(self) -> None:
        """Writes everything there is. Lock held."""
        session = self.session
        if self._writing:
            return  # that thread looks again before it stops, under the lock
        self._writing = True
        try:
            while self.open:
                self.frame_held()
                if not session.pending_bytes:
                    break
                if session.pending_bytes > JOIN_BYTES:
                    self.arm()  # this may block
                pieces = session.take()
                self.lock.release()
                try:
                    _write(self.descriptor, pieces)
                finally:
                    self.lock.acquire()
        except OSError:
            self._ended()
        finally:
            self._writing = False

    def frame_held(self) -> None:
        """Makes frames of the items that are kept for joining. Lock held."""
        while self.held:
            self.held.pop()()

    @property
    def settled(self) -> bool:
        """Every call has its terminal and everything is written. Lock held.

        A terminal may stand behind items that wait for credit, and another thread may be writing.
        """
        session = self.session
        return not (session.serving or session.pending_bytes or self._writing)

    def relieve(self) -> None:
        """After each handler: writes if enough has collected, or if calls are slow. Lock held."""
        if self._standing_in:
            self.busy_since = monotonic()
            self.flush()
        elif self.session.pending_bytes >= HAND_OVER_BYTES:
            self.flush()

    # Reading.

    def read(self) -> None:
        """Waits for bytes and hands on what they mean. Reading thread only, lock held."""
        if not self.open:
            return
        if self._standing_in:
            self._standing_in = False
            self.busy_since = 0.0
            os.write(self._wake_write, b"\0")
        self._beat += 1
        buffer = self.session.buffer()
        count = -1
        self._reading = True
        self.lock.release()
        try:
            if not self.draining or self._glance.poll(DRAIN_LOOK_MS):
                count = os.readv(self.descriptor, (buffer,))
        except OSError:
            count = 0
        finally:
            self.lock.acquire()
            self._reading = False
        self._beat += 1
        if count >= 0:
            self._arrived(count)

    def glance(self) -> None:
        """Hands on what has arrived already, without waiting. Reading thread only, lock held.

        For a thread that comes by often, such as one that runs a generator: then it needs no
        standby, and sees a cancel at once.
        """
        if self._standing_in or not self.open:
            return
        self._beat += 1
        if self._glance.poll(0):
            self._fetch()

    def _fetch(self) -> None:
        """Reads what is there. Lock held: it does not block, because nobody else reads."""
        try:
            count = os.readv(self.descriptor, (self.session.buffer(),))
        except OSError:
            count = 0
        self._arrived(count)

    def _arrived(self, count: int) -> None:
        if count == 0:
            self._ended()
            return
        try:
            events = self.session.received(count)
        except ProtocolViolation as violation:
            self.receive(violation.events)
            self.violation = str(violation)
            self.session.refuse(WireError("protocol_violation", self.violation))
            self.flush()
            self._ended()
            return
        self.receive(events)

    def _ended(self) -> None:
        if self.open:
            self.open = False
            self.receive(self.session.eof())
            self.arm()  # so that the standby ends too

    def abandon(self) -> None:
        """After a fork, in the child: the channel stays with the parent (H58)."""
        self.open = False
        self.forked = True
        self.lock = allocate_lock()
        self.session.take()
        for descriptor in (self.descriptor, self._wake_read, self._wake_write):
            if descriptor >= 0:
                os.close(descriptor)
        # A child of this child comes here too: by then the numbers may belong to other files.
        self.descriptor = self._wake_read = self._wake_write = -1

    # The standby.

    def start_standby(self) -> None:
        """Starts the thread; it sleeps until the first call."""
        self._wake_read, self._wake_write = os.pipe()
        self._asleep = True
        self._bell.acquire()
        start_new_thread(self._standby, ())

    def arm(self) -> None:
        """Wakes the standby if it sleeps: the reading thread will be busy. Lock held."""
        if self._asleep:
            self._asleep = False
            self._bell.release()

    def _standby(self) -> None:
        arrivals = select.poll()
        arrivals.register(self.descriptor, select.POLLIN)
        arrivals.register(self._wake_read, select.POLLIN)
        while self.open:
            self._bell.acquire()
            try:
                self._watch(arrivals)
            except BaseException as error:  # without a standby PING and CANCEL would wait for ever
                sys.__excepthook__(type(error), error, error.__traceback__)
                with self.lock:
                    self._standing_in = False
                    self._asleep = True
        with self.lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1

    def _watch(self, arrivals: select.poll) -> None:
        """Looks every tick, until the worker has been quiet for a while."""
        quiet = stuck = 0
        beat = -1
        while self.open:
            sleep(TICK_S)
            if self._reading:
                quiet += 1
                if quiet < QUIET_TICKS:
                    continue
                with self.lock:
                    if self._reading:
                        self._asleep = True
                        return
            quiet = 0
            with self.lock:
                stuck = stuck + 1 if self._beat == beat else 0
                beat = self._beat
                if stuck >= STANDBY_AFTER_TICKS and not self._reading:
                    self._stand_in(arrivals)
                    stuck = 0
                else:
                    self.flush()

    def _stand_in(self, arrivals: select.poll) -> None:
        """Reads until the reading thread takes the descriptor back. Lock held."""
        self._standing_in = True
        self.busy_since = monotonic() - STANDBY_AFTER_TICKS * TICK_S
        while self.open:
            self.flush()
            self.lock.release()
            try:
                ready = {descriptor for descriptor, _ in arrivals.poll()}
            finally:
                self.lock.acquire()
            if not self._standing_in or self._wake_read in ready:
                os.read(self._wake_read, WAKE_BYTES)
            if not self._standing_in:
                return
            if self.descriptor in ready:
                self._fetch()


class Feed:
    """What a stream has produced and not framed yet. All of it: lock held.

    `fault`: why an item could not be sent; the stream must end then.
    """

    __slots__ = ("_call_id", "_items", "_last_s", "_limit", "_link", "_written_s", "fault")

    def __init__(self, link: Link, call_id: int) -> None:
        self._link = link
        self._call_id = call_id
        self._items: list[Any] = []
        self._limit = 1
        self._last_s = 0.0
        self._written_s = 0.0
        self.fault: BaseException | None = None

    def add(self, item: Any) -> bool:
        """Takes one item; whether it is time to write."""
        if type(item) in RAW_TYPES:
            self.frame()
            self._link.session.chunk(self._call_id, bytes(item))
            return True
        items = self._items
        items.append(item)
        if len(items) == 1:
            self._link.held.append(self.frame)
        now = monotonic()
        due = (
            now - self._last_s > GAP_S
            or len(items) >= self._limit
            or now - self._written_s > KEEP_S
        )
        self._last_s = now
        if due:
            self._written_s = now
        return due

    def frame(self) -> None:
        """Makes frames of what was kept."""
        items, self._items = self._items, []
        if not items:
            return
        session = self._link.session
        before = session.pending_bytes
        try:
            session.items(self._call_id, items)
        except (ValueError, WireError):
            self._one_by_one(items)
            return
        weight = max(1, session.pending_bytes - before)
        fit = JOINED_BYTES * len(items) // weight
        self._limit = max(1, min(fit, self._limit * 2, JOINED_ITEMS))

    def _one_by_one(self, items: list[Any]) -> None:
        """Sends what stands before the item that is no strict value, then says which it was."""
        for item in items:
            try:
                self._link.session.items(self._call_id, [item])
            except (ValueError, WireError) as refused:
                self.fault = refused
                return


def _nobody(events: list[Any]) -> None:
    """Before a worker is attached nothing is due."""


def _write(descriptor: int, pieces: list[Any]) -> None:
    """Writes all of it, small pieces joined. Blocks. Raises `OSError`."""
    small: list[Any] = []
    for piece in pieces:
        if len(piece) <= JOIN_BYTES:
            small.append(piece)
            continue
        if small:
            _write_all(descriptor, b"".join(small))
            small.clear()
        _write_all(descriptor, piece)
    if small:
        _write_all(descriptor, b"".join(small))


def _write_all(descriptor: int, data: Any) -> None:
    count = os.write(descriptor, data)
    if count < len(data):
        rest = memoryview(data)
        while len(rest := rest[count:]):
            count = os.write(descriptor, rest)
