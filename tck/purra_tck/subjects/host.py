"""Hosts under judgement: what a check gets, and how it asks.

    async def a_check(case, subject):
        act = await subject.act()                  # a plugin on a host, not started
        puppet = await act.begin()                 # started, up to READY
        asked = act.ask({"x": 1})                  # a caller, in a task of its own
        call = await puppet.called()
        await puppet.write(frames.result(call.id, 2))
        case.equal(await asked.value(), 2, "the answer")

Everything that a check opens is closed with its subject. A host's error where success is due, an
error that no host may raise, and one that nobody caught inside the host are the host's fault.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_tck import patience
from purra_tck.drivers.host import Ask, Event, Handle, Host, HostDriver, Settings, Status
from purra_tck.puppets import frames
from purra_tck.puppets.stage import STAGES, Called, Puppet, Stage, Tap
from purra_tck.subjects.machine import Residue, alive, born
from purra_tck.verdict import (
    Case,
    NotApplicable,
    RuleViolation,
    SubjectFailed,
    Untestable,
)

__all__ = ["Act", "Asked", "HostSubject", "Stream", "hosted", "subject_of"]

PATIENCE_S: Final = 10.0
"""Longest wait for something that should come at once; reached only when it does not come."""
SETTLING: Final = 5
"""Passes of the loop from a new task to what it has the host do."""
LOOK_S: Final = 0.002
"""How often is looked at what nobody announces."""


class HostSubject:
    """One check's view of a kind of host."""

    def __init__(self, driver: HostDriver, folder: Path, patience_s: float) -> None:
        self.driver = driver
        self.folder = folder
        self.patience_s = patience_s
        self.tap = Tap()
        self.stack = AsyncExitStack()
        self.hosts: list[Host] = []
        self.excused: set[int] = set()
        """`id` of hosts whose faults are the check's own doing."""
        self._pids: dict[int, str] = {}
        self._stages = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    def needs(self, *capabilities: str) -> None:
        """Raises `NotApplicable` unless the driver declares all of them."""
        missing = [name for name in capabilities if not self.has(name)]
        if missing:
            raise NotApplicable(f"the host does not declare {', '.join(missing)}")

    def has(self, capability: str) -> bool:
        """Whether the driver declares it."""
        return capability in self.driver.declares

    async def host(self, **settings: Any) -> Host:
        """A new host."""
        found = await self.stack.enter_async_context(self.driver.host(Settings(**settings)))
        self.hosts.append(found)
        return found

    async def act(self, host: Host | None = None, **spec: Any) -> Act:
        """A plugin with a stage of its own on `host`, or on the first host of this check.

        `spec`: fields of `PluginSpec`.
        """
        stage = await self.stage(**spec)
        return await self.play(stage, host)

    async def stage(self, **spec: Any) -> Stage:
        """A plugin's folder that no host knows yet."""
        self._stages += 1
        folder = self.folder / str(self._stages)
        kind = STAGES.get(self.driver.kind, Stage)
        stage = kind(folder, self.tap, self.patience_s, self.adopt, **spec)
        return await self.stack.enter_async_context(stage)

    async def play(self, stage: Stage, host: Host | None = None) -> Act:
        """Makes the plugin of `stage` known to a host."""
        if host is None:
            host = self.hosts[0] if self.hosts else await self.host()
        handle = await self.within(host.open(stage.spec), "opening a plugin")
        return Act(self, host, handle, stage)

    async def within(self, waiting: Awaitable[Any], what: str) -> Any:
        """What `waiting` gives; `WireError` passes, anything else is the host's fault.

        It runs in a task of its own, because a host may outlast a cancellation.
        """
        task = asyncio.ensure_future(waiting)
        self._tasks.add(task)
        with patience.limit(self.patience_s):
            await asyncio.wait((task,))
        if not task.done():
            raise SubjectFailed(f"{what} ends within {self.patience_s:g} s", "it did not end")
        self.forget(task)
        try:
            return task.result()
        except (WireError, StopAsyncIteration, RuleViolation, NotApplicable, Untestable):
            raise
        except Exception as error:  # no host may raise anything else, whatever it is
            raise SubjectFailed(
                f"{what}: a value or an error of the specification",
                f"{type(error).__name__}: {error}",
            ) from error

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Waits for what nobody announces. Raises `SubjectFailed` when it does not come."""
        with patience.limit(self.patience_s):
            while not (found := condition()):
                await asyncio.sleep(LOOK_S)
            return found
        raise SubjectFailed(f"{what} within {self.patience_s:g} s", "it did not come")

    def residue(self) -> Residue:
        """What the host's process holds now, its tasks too if they can be seen."""
        return Residue(self.driver.pid, tasks=self.has("inside"))

    async def nothing_left(self, case: Case, residue: Residue, after: str) -> None:
        """Demands that soon nothing is left of what was begun since `residue`."""
        with patience.limit(self.patience_s):
            while residue.left():
                await asyncio.sleep(LOOK_S)
        left = residue.left()
        case.require(not left, f"nothing left {after}", left or f"nothing left {after}")

    async def ended(self, pid: int, what: str) -> None:
        """Waits for the end of a process that is not the kit's. Raises `SubjectFailed`."""
        await self.until(lambda: not alive(pid), what)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """A task whose end was seen: what it holds can go."""
        self._tasks.discard(task)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task that ends with the subject."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    def adopt(self, pid: int) -> int:
        """A process that is to be gone after the check, whatever the host does."""
        self._pids[pid] = born(pid)
        return pid

    async def close(self) -> None:
        """Ends what is left; each part also if another one fails."""
        for task in self._tasks:
            task.cancel()
        try:
            await self.within(self.stack.aclose(), "closing the host")
        finally:
            for pid, birth in self._pids.items():
                if birth and born(pid) == birth:  # else the number is somebody else's by now
                    os.kill(pid, signal.SIGKILL)
            with patience.limit(self.patience_s):
                if self._tasks:
                    await asyncio.wait(self._tasks)
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # nobody asks for it any more

    def check_faults(self) -> None:
        """Raises `RuleViolation` for an error that nobody caught inside a host."""
        for host in self.hosts:
            if host.faults and id(host) not in self.excused:
                raise RuleViolation("no error inside the host that nobody handles", host.faults[0])


@asynccontextmanager
async def subject_of(
    driver: HostDriver, patience_s: float = PATIENCE_S
) -> AsyncGenerator[HostSubject, None]:
    """A subject with a folder of its own, for one check."""
    with tempfile.TemporaryDirectory(prefix="tck-") as folder:
        subject = HostSubject(driver, Path(folder), patience_s)
        try:
            yield subject
        except BaseException as first:  # what the check says goes before what closing says
            try:
                await subject.close()
            except Exception as second:  # whatever it is, the first one is the verdict
                first.add_note(f"and closing failed: {second}")
            raise
        await subject.close()


HostCheck = Callable[[Case, HostSubject], Coroutine[Any, Any, None]]


def hosted(check: HostCheck) -> HostCheck:
    """Makes a function a check of hosts: keeps the frames, and judges what nobody expected."""

    @wraps(check)
    async def run(case: Case, subject: HostSubject) -> None:
        try:
            await check(case, subject)
            subject.check_faults()
        except WireError as error:
            raise SubjectFailed(
                "success, where the rule does not say otherwise", str(error)
            ) from error
        finally:
            case.frames.extend(subject.tap.rows())

    return run


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: `value`, `error`, or `cancelled` for its caller."""

    how: str
    value: Any = None
    error: WireError | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"error {self.error} (executed {self.error.executed})"
        return self.how if self.how == "cancelled" else f"value {self.value!r:.200}"


class Asked:
    """Somebody who waits for `what`, in a task of its own."""

    def __init__(
        self, subject: HostSubject, work: Coroutine[Any, Any, Any], what: str = "a call"
    ) -> None:
        self._subject = subject
        self._what = what
        self.task = subject.spawn(work)

    @property
    def done(self) -> bool:
        return self.task.done()

    def cancel(self) -> None:
        """The caller gives up."""
        self.task.cancel()

    async def ended(self, due: str = "an end") -> Ended:
        """How it ended, whichever way that was. Raises `SubjectFailed` if it does not end."""
        patience_s = self._subject.patience_s
        with patience.limit(patience_s):
            await asyncio.wait((self.task,))
        if not self.task.done():
            raise SubjectFailed(f"{due} of {self._what}", f"no end within {patience_s:g} s")
        self._subject.forget(self.task)
        if self.task.cancelled():
            return Ended("cancelled")
        error = self.task.exception()
        if error is None:
            return Ended("value", self.task.result())
        if isinstance(error, WireError):
            return Ended("error", error=error)
        raise SubjectFailed(
            f"{self._what} ends with a value or an error of the specification",
            f"{type(error).__name__}: {error}",
        )

    async def answer(self) -> Any:
        """What a tool of the SDK answered: the value in its result. Raises `SubjectFailed`."""
        found = await self.value()
        if not isinstance(found, Mapping) or "value" not in found:
            raise SubjectFailed("what a tool answered, with its value", f"{found!r:.200}")
        return found["value"]

    async def value(self) -> Any:
        """Its value. Raises `SubjectFailed` for any other end."""
        found = await self.ended("the value")
        if found.how != "value":
            raise SubjectFailed(f"the value of {self._what}", str(found))
        return found.value

    async def fails(self, *codes: str) -> WireError:
        """Its error, which has one of `codes`. Raises `RuleViolation` for any other end."""
        due = f"error {' or '.join(codes)}" if codes else "an error"
        found = await self.ended(due)
        if found.error is None or (codes and found.error.code not in codes):
            raise RuleViolation(f"{due} of {self._what}", str(found))
        return found.error


class Stream:
    """A consumer that takes items as the check says."""

    def __init__(self, subject: HostSubject, items: Any) -> None:
        self._subject = subject
        self.items = items

    async def take(self, count: int = 1) -> list[Any]:
        """The next `count` items. Raises `SubjectFailed` if the stream ends before."""
        found: list[Any] = []
        while len(found) < count:
            try:
                found.append(await self._subject.within(anext(self.items), "the next item"))
            except StopAsyncIteration:
                raise SubjectFailed(f"{count} items", f"the end after {found!r:.200}") from None
        return found

    async def rest(self) -> tuple[list[Any], WireError | None]:
        """All items to the end, and the error that ended it, if one did."""
        found: list[Any] = []

        async def drain() -> WireError | None:
            try:
                async for item in self.items:
                    found.append(item)
            except WireError as error:
                return error
            return None

        error = await self._subject.within(drain(), "a stream")
        return found, error

    async def leave(self) -> None:
        """Takes no more."""
        await self._subject.within(self.items.aclose(), "leaving a stream")


class Act:
    """One plugin on one host, with the stage that it is run from."""

    def __init__(self, subject: HostSubject, host: Host, handle: Handle, stage: Stage) -> None:
        self.subject = subject
        self.host = host
        self.handle = handle
        self.stage = stage

    def start(self) -> Asked:
        """Somebody who wants it to be ready."""
        return Asked(self.subject, self.handle.start(), "a start")

    async def begin(self, **hello: Any) -> Puppet:
        """Starts it, up to READY. `hello`: what HELLO says otherwise."""
        starting = self.start()
        puppet = await self.stage.enter()
        await puppet.handshake(**hello)
        await starting.value()
        return puppet

    def ask(self, args: Any = None, **more: Any) -> Asked:
        """A call. `more`: fields of `Ask`, and `on_item`."""
        on_item = more.pop("on_item", None)
        return Asked(self.subject, self.handle.call(Ask(args, **more), on_item))

    async def asked(self, puppet: Puppet, args: Any = None, **more: Any) -> tuple[Asked, Called]:
        """A call that has reached the plugin."""
        asked = self.ask(args, **more)
        return asked, await puppet.called()

    def stream(self, args: Any = None, **more: Any) -> Stream:
        """A call for its items; it is sent when the first one is wanted."""
        return Stream(self.subject, self.handle.stream(Ask(args, **more)))

    async def answers(self, puppet: Puppet, after: str = "") -> None:
        """It still works, `after` whatever was done. Raises `SubjectFailed` if it does not."""
        due = f"an instance that answers {after}".rstrip()
        try:
            asked, call = await self.asked(puppet, "are you there?")
        except SubjectFailed as failed:
            raise SubjectFailed(due, failed.observed) from failed
        await puppet.write(frames.result(call.id, "yes"))
        ended = await asked.ended(due)
        if ended.value != "yes":
            raise SubjectFailed(due, str(ended))

    async def settled(self) -> None:
        """Lets what was asked for get on its way."""
        for _ in range(SETTLING):
            await asyncio.sleep(0)

    async def answers_all(self, puppet: Puppet) -> None:
        """Answers a call of its own, passing by CANCELs; so all that was sent before has come."""
        asked = self.ask("are you there?")
        call = await puppet.called(skip=(frames.CANCEL,))
        await puppet.write(frames.result(call.id, "yes"))
        await asked.value()

    async def status(self) -> Status:
        """How it is."""
        found: Status = await self.subject.within(self.handle.status(), "status")
        return found

    async def stop(self, drain_s: float | None = None) -> None:
        """Ends the instance in order."""
        await self.subject.within(self.handle.stop(drain_s), "stop")

    async def becomes(self, *states: str) -> Status:
        """Waits until its state is one of `states`. Raises `SubjectFailed` if it does not."""
        found = await self.status()
        with patience.limit(self.subject.patience_s):
            while (found := await self.status()).state not in states:
                await asyncio.sleep(LOOK_S)
            return found
        raise SubjectFailed(
            f"state {' or '.join(states)} within {self.subject.patience_s:g} s", found.state
        )

    def starts(self) -> int:
        """How many instances were started: announced, or seen on the stage, whichever is more."""
        announced = sum(event.state == "STARTING" for event in self.events())
        return max(announced, len(self.stage.puppets))

    async def announced(self, *states: str) -> None:
        """Waits until the last step that was announced of it is one of `states`."""
        await self.subject.until(
            lambda: self.events() and self.events()[-1].state in states,
            f"{' or '.join(states)} is announced",
        )

    async def down(self) -> Status:
        """Waits until no instance of it is left."""
        return await self.becomes("DOWN", "STOPPED", "BACKOFF", "QUARANTINED")

    def events(self, instance: str | None = None) -> list[Event]:
        """What was announced of it, or of one instance."""
        return [
            event
            for event in self.host.events
            if event.plugin == self.stage.spec.id and instance in (None, event.instance)
        ]
