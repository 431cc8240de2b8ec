"""The worker: what comes in, on which thread it runs, how it starts and ends.

The reading thread is the first *hand*, a thread that runs handlers; `threads = N` adds N - 1 more.
Calls wait in one queue. A hand takes one, lets go of the lock, runs the handler, takes the lock
again and hands its outcome to the ledger. Coroutine handlers run on an event loop in a thread of
its own (`coroutines`), which is loaded only for plugins that have some.

A generator handler is run item by item, always on the hand that started it. When its caller gives
no more credit it is put aside, and the hand takes other work: a slow reader stalls its own stream
only (STR-009). A handler that must wait inside (for an uploaded chunk, an answer of the host,
credit for progress) cannot be put aside. Running other handlers inside its wait was rejected: the
inner one would have to end before the outer one can go on.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, get_ident, start_new_thread
from collections import deque
from time import monotonic, sleep

from purra_bridge.wire import events as wire
from purra_bridge.wire.errors import WireError
from purra_bridge.wire.session import Session

from .calls import DETACHED, QUEUED, RUNNING, STREAMING, Call, Stream
from .declare import Plugin
from .ledger import Ledger, report, unsendable
from .link import Feed, Link
from .outcomes import CallCancelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .coroutines import Loops
    from .declare import Handler

__all__ = ["Worker", "load", "serve"]

EXIT_GRACE_S = 1.0
"""After the end of the channel: time for handlers to notice and for `close`, then the process ends
whatever they do (H47, SUP-015)."""
EXIT_LOOK_S = 0.005
EXIT_START_FAILED = 1
EXIT_FORCED = 1
EXIT_VIOLATION = 1
JAILED = ("fs", "net", "exec", "ipc")
"""Axes on which something can be denied."""

_GENERATOR: Any = type((lambda: (yield))())


class Hand:
    """A thread that runs handlers. `resumed`: its own generators that may go on. Lock held."""

    __slots__ = ("_resting", "bell", "resumed", "turn")

    def __init__(self, resting: list[Hand]) -> None:
        self._resting = resting
        self.bell = allocate_lock()
        self.bell.acquire()
        self.resumed: deque[Call] = deque()
        self.turn = False

    def resume(self, call: Call) -> None:
        """A generator of this hand may go on, or is to be broken off."""
        if call._state == STREAMING:
            self.resumed.append(call)
            self.rouse()

    def rouse(self) -> None:
        """Ends the hand's rest, if it rests."""
        if self in self._resting:
            self._resting.remove(self)
            self.bell.release()


class Worker:
    """One plugin on one channel. `die(status)` ends the process from any thread."""

    def __init__(
        self, link: Link, plugin: str, welcome: dict[str, Any], die: Callable[[int], Any]
    ) -> None:
        self.link = link
        self.ledger = ledger = Ledger(link, plugin, welcome)
        self._die = die
        self._plugin = Plugin()
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._closing: list[Callable[[], Any]] = []
        self._queue: deque[Call] = deque()
        self._resting: list[Hand] = []
        self._main = Hand(self._resting)
        self._threads = max(1, (welcome.get("limits") or {}).get("threads") or 1)
        self._on: dict[type, Callable[[Any], None]] = {
            wire.Called: self._called,
            wire.Cancelled: self._cancelled,
            wire.Credited: ledger.on_credited,
            wire.Chunk: ledger.on_chunk,
            wire.Items: ledger.on_items,
            wire.Returned: ledger.on_returned,
            wire.Failed: ledger.on_returned,
            wire.Ping: self._ping,
            wire.Drain: self._drain,
        }
        link.receive = self._receive

    # Start and end. Lock not held.

    def prepare(self, plugin: Plugin) -> None:
        """Runs the plugin's own set-up, on this thread. Raises what that raises."""
        self._plugin = plugin
        setup = self.ledger.setup
        if plugin.setup is not None:
            setup.state = plugin.setup(setup)
        self._handlers, closing = plugin.build(setup)
        self._closing = [part.close for part in closing]
        if plugin.close is not None:
            close = plugin.close
            self._closing.append(lambda: close(setup))

    def explain_denials(self, grants: dict[str, Any], isolation: dict[str, str]) -> None:
        """From now on a jailed worker's errors say which grant they lack."""
        if all(how.startswith("none") for axis, how in isolation.items() if axis in JAILED):
            return
        from .denials import Denials

        self.ledger.denials = Denials(grants, isolation)
        sys.addaudithook(self.ledger.denials.hook)

    def refuse_start(self, error: BaseException) -> None:
        """ERROR on id 0: this plugin does not start."""
        detail, reason = {}, f"{type(error).__name__}: {error}"
        denied = self.ledger.denials.explain(error) if self.ledger.denials is not None else None
        if denied is not None:
            detail = {"denied": denied}
            reason += f" ({self.ledger.line_of(denied)})"
        with self.link.lock:
            told = WireError("internal", f"the plugin did not start: {reason}", detail=detail)
            self.link.session.refuse(told)
            self.link.flush()

    def run(self, isolation: dict[str, str]) -> int:
        """READY, then serves until the channel ends or is drained; the exit status."""
        link = self.link
        link.reader = get_ident()
        link.start_standby()
        with link.lock:
            link.session.ready({"offers": self._plugin.offers(), "isolation": isolation})
            link.flush()
        # After READY: the host can route while a loop is still being imported.
        if any(handler.asynchronous for handler in self._handlers.values()):
            self._start_loops()
        self._start_hands()
        link.lock.acquire()
        while link.open and not (link.draining and link.settled):
            call = self._next_flushed(self._main)
            if call is not None:
                self._serve(self._main, call)
                link.relieve()
            else:
                link.read()
        link.lock.release()
        return self._leave()

    def _start_hands(self) -> None:
        if self._threads > 1:
            # Imported by this thread first, `threading` takes it for the main one, as it should.
            import threading  # noqa: F401

        for _ in range(self._threads - 1):
            start_new_thread(self._work, (Hand(self._resting),))

    def _start_loops(self) -> Loops:
        """The event loop's thread, started once."""
        if self.ledger.loops is None:
            from .coroutines import Loops

            self.ledger.loops = Loops(self.ledger, self._die)
        return self.ledger.loops

    def _leave(self) -> int:
        """The orderly end: waits for what still runs, then closes the plugin's parts."""
        if self.link.forked:
            self._die(0)  # a handler forked and came back: that copy has nothing to say or close
        with self.link.lock:
            self.link.arm()  # the end of the channel must be seen also while `close` takes its time
        until = monotonic() + EXIT_GRACE_S
        while monotonic() < until and any(call._state == RUNNING for call in self._open()):
            sleep(EXIT_LOOK_S)
        for call in self._open():
            if call._state == STREAMING:
                _close_generator(call)
        for close in self._closing:
            try:
                close()
            except BaseException as error:  # one part's fault must not keep the others open
                report(error)
        if self.ledger.loops is not None:
            self.ledger.loops.stop()
        if self.link.violation:
            sys.stderr.write(f"the host broke the protocol: {self.link.violation}\n")
            return EXIT_VIOLATION
        return 0

    def _open(self) -> list[Call]:
        with self.link.lock:
            return list(self.ledger.calls.values())

    def _watch_exit(self) -> None:
        sleep(EXIT_GRACE_S)
        self._die(EXIT_FORCED)

    # Hands. All of it: lock held, except while a handler runs.

    def _work(self, hand: Hand) -> None:
        """The life of a further hand. Lock not held."""
        lock = self.link.lock
        lock.acquire()
        while self.link.open:
            call = self._next_flushed(hand)
            if call is not None:
                self._serve(hand, call)
                self.link.relieve()
                continue
            self._resting.append(hand)
            lock.release()
            hand.bell.acquire()
            lock.acquire()
        lock.release()

    def _next_flushed(self, hand: Hand) -> Call | None:
        """The hand's next work. None: there is none, and everything that was to be written is."""
        call = self._next(hand)
        if call is None:
            self.link.flush()
            call = self._next(hand)  # the lock was let go of: something may have come
        return call

    def _next(self, hand: Hand) -> Call | None:
        """New calls and generators that may go on take turns, so that neither starves."""
        hand.turn = not hand.turn
        if hand.resumed and (hand.turn or not self._queue):
            return hand.resumed.popleft()
        while self._queue:
            call = self._queue.popleft()
            if call._state == QUEUED:
                return call
        return None

    def _serve(self, hand: Hand, call: Call) -> None:
        self.link.arm()
        if call._state == STREAMING:
            self._advance(hand, call)
        elif call._handler.batched:
            self._serve_batch(call)
        else:
            self._start(hand, call)

    def _start(self, hand: Hand, call: Call) -> None:
        lock = self.link.lock
        call._state = RUNNING
        call._hand = hand
        lock.release()
        try:
            outcome = call._handler.invoke(call)
        except BaseException as error:  # whatever a handler raises is the answer to its call only
            report(error)
            lock.acquire()
            self.ledger.fail(call, error)
            return
        lock.acquire()
        kind = type(outcome)
        if kind is _GENERATOR:
            call._generator = outcome
            call._feed = Feed(self.link, call.id)
            call._state = STREAMING
            self._advance(hand, call)
        elif kind is Stream:
            self.ledger.detach(call, outcome)
        elif hasattr(outcome, "__await__") or hasattr(outcome, "__anext__"):
            lock.release()  # a wrapper hid that the handler is a coroutine function
            loops = self._start_loops()
            lock.acquire()
            loops.adopt(call, outcome)
        else:
            self.ledger.succeed(call, outcome)

    def _serve_batch(self, first: Call) -> None:
        """All waiting calls of one method, taken together: group commit."""
        handler, lock = first._handler, self.link.lock
        batch, others = [first], deque[Call]()
        for call in self._queue:
            mine = call._handler is handler and call._state == QUEUED
            (batch if mine else others).append(call)
        self._queue = others
        for call in batch:
            call._state = RUNNING
        lock.release()
        try:
            outcomes = handler.function(batch)
        except BaseException as error:  # as for a single call, for each of them
            report(error)
            outcomes = error
        lock.acquire()
        self.ledger.settle_batch(batch, outcomes)

    def _advance(self, hand: Hand, call: Call) -> None:
        """Runs a generator until it ends, has no credit, or others wait."""
        link, lock, feed = self.link, self.link.lock, call._feed
        while not (call.cancelled or feed.fault):
            if not link.session.sendable(call.id):
                self.ledger.park(call)
                return
            lock.release()
            try:
                item = next(call._generator)
            except StopIteration as end:
                lock.acquire()
                feed.frame()
                if feed.fault is None:
                    self.ledger.succeed(call, end.value)
                    return
                break
            except BaseException as error:  # as for a plain function
                report(error)
                lock.acquire()
                feed.frame()
                self.ledger.fail(call, error)
                return
            lock.acquire()
            if feed.add(item):
                link.flush()
                if hand is self._main:
                    link.glance()
                if self._queue or hand.resumed:
                    hand.resumed.append(call)
                    return
        self._break_off(call)

    def _break_off(self, call: Call) -> None:
        """Ends a generator that nobody wants any more, or whose item could not be sent."""
        call._state = RUNNING
        self.link.lock.release()
        _close_generator(call)
        self.link.lock.acquire()
        fault = call._feed.fault
        self.ledger.fail(call, CallCancelled() if fault is None else unsendable(fault))

    # What comes in. All of it: lock held, on whichever thread has the descriptor.

    def _receive(self, events: list[Any]) -> None:
        for event in events:
            handle = self._on.get(type(event))
            if handle is not None:
                handle(event)
        if not self.link.open:
            self._give_up()
        if self._resting:
            # The reading thread takes one call itself, unless it reads from inside a handler.
            mine = get_ident() == self.link.reader and not self.ledger.reading_inside
            for hand in self._resting[: max(0, len(self._queue) - mine)]:
                hand.rouse()
        self.ledger.wake()

    def _called(self, event: wire.Called) -> None:
        handler = self._handlers.get((event.adapter, event.method))
        if handler is None:
            name = f"{event.adapter}.{event.method}"
            self._refuse(event.id, WireError("unimplemented", f"there is no {name} here"))
        elif self.link.draining:
            self._refuse(event.id, WireError("draining", "the plugin is stopping"))
        elif handler.asynchronous and self.ledger.loops is not None:
            self.ledger.calls[event.id] = self.ledger.loops.begin(handler, event)
        else:
            call = self.ledger.calls[event.id] = Call(self.ledger, handler, event)
            self._queue.append(call)

    def _refuse(self, call_id: int, error: WireError) -> None:
        self.link.session.error(call_id, error)

    def _cancelled(self, event: wire.Cancelled) -> None:
        ledger = self.ledger
        call = ledger.calls.get(event.id)
        if call is None:
            return
        call.cancelled = True
        if call._state == QUEUED:
            if ledger.close(call):
                error = WireError("cancelled", "cancelled before it started", executed="no")
                self._refuse(call.id, error)
        elif call._state == DETACHED:
            ledger.shut(call._feed)
        elif ledger.loops is not None and call._hand is ledger.loops:
            ledger.loops.cancel(call)
        elif call.id in ledger.parked:
            ledger.resume(call)

    def _ping(self, event: wire.Ping) -> None:
        busy, loops = self.link.busy_since, self.ledger.loops
        lag_ms = int((monotonic() - busy) * 1000) if busy else 0
        if loops is not None:
            lag_ms = max(lag_ms, loops.lag_ms())
        self.link.session.pong(event.token, lag_ms, len(self.ledger.calls), _rss_bytes())

    def _drain(self, event: wire.Drain) -> None:
        self.link.draining = True
        for call in list(self.ledger.calls.values()):
            if call._state == DETACHED:
                self.ledger.shut(call._feed, WireError("draining", "the plugin is stopping"))

    def _give_up(self) -> None:
        """The channel has ended: nobody waits for anything any more."""
        start_new_thread(self._watch_exit, ())
        ledger = self.ledger
        for call in list(ledger.calls.values()):
            call.cancelled = True
            if call._state == DETACHED:
                ledger.shut(call._feed)
            elif call._state == QUEUED:
                ledger.close(call)
            elif ledger.loops is not None and call._hand is ledger.loops:
                ledger.loops.cancel(call)
        for hand in list(self._resting):
            hand.rouse()


def _close_generator(call: Call) -> None:
    """Lets a generator clean up. Lock not held."""
    try:
        call._generator.close()
    except BaseException as error:  # its clean-up failed; the reason for the end stays
        report(error)


def _rss_bytes() -> int:
    """Resident memory, 0 where it cannot be known cheaply."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(descriptor, 256).split()[1]) * os.sysconf("SC_PAGESIZE")
    finally:
        os.close(descriptor)


def load(entry: str) -> Plugin:
    """The plugin object that `module:attribute` names. Raises what its import raises."""
    name, _, path = entry.partition(":")
    __import__(name)
    found: Any = sys.modules[name]
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, Plugin):
        raise TypeError(f"{entry} is a {type(found).__name__}, not a purra_sdk.Plugin")
    return found


def serve(
    entry: str,
    descriptor: int,
    hello: dict[str, Any],
    welcome: dict[str, Any],
    isolation: dict[str, str],
) -> int:
    """The life of a worker after the gate; the exit status.

    `hello`: the body that was sent. `welcome`: the body that came back. `isolation`: what was
    achieved, per axis.
    """
    session = Session("plugin", hello["limits"])
    session.adopt(welcome)
    link = Link(descriptor, session)
    os.register_at_fork(after_in_child=link.abandon)
    worker = Worker(link, f"{hello['plugin']}@{hello['version']}", welcome, os._exit)
    worker.explain_denials(welcome.get("grants") or {}, isolation)
    try:
        worker.prepare(load(entry))
    except BaseException as error:  # the plugin's import may raise anything, SystemExit included
        report(error)
        worker.refuse_start(error)
        return EXIT_START_FAILED
    return worker.run(isolation)
