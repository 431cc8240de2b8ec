"""The kernel: submit runs, look at them, cancel them, take them up again.

One kernel owns its adapters, its registry and the leases of its runs; two kernels in one process
do not see each other (invariant 10). Everything it knows that must last is in the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio

from purra import adapters as local
from purra.agent import Agent
from purra.contracts.clock import Clock, SystemClock
from purra.contracts.context import Context
from purra.contracts.model import Model
from purra.contracts.policy import Policy
from purra.contracts.store import Append, Commit, Document, Op, Store
from purra.contracts.tool import Tools
from purra.errors import AdapterError, PurraError, StoreError
from purra.gateway.arguments import validate
from purra.gateway.gates import Gates
from purra.journal.events import Fact, event_value
from purra.journal.fold import fold
from purra.journal.state import RunState
from purra.limits import EVENT_VALUE_DEPTH, PROMPT_CHARS
from purra.registry.snapshot import Binding, Registry
from purra.runs import ending, keys, owner, reader, turns, wakes
from purra.runs.bindings import BOUND, Adapters, Bindings, beside, bind
from purra.runs.directory import Directory
from purra.runs.inboxes import Inboxes
from purra.runs.log import RunLog, place
from purra.runs.patience import PatientStore
from purra.runs.performers import Performers
from purra.runs.result import Result, result_of
from purra.runs.run import Run
from purra.runs.shell import Shell
from purra.runs.tasks import Tasks
from purra.stores.memory import MemoryStore
from purra.values import deeper, freeze

__all__ = ["Kernel"]

SNAPSHOT = 1
"""Version of what `run.started` says of the agent."""


class Kernel:
    """An agent kernel in this process. Use it as an async context manager.

    `model`, `tools`, `context`, `policy`: objects that satisfy the ports of `purra.contracts`; a
    tool may be a plain function marked with `purra.tool(effect=...)`. `store`: None = in memory.
    `agent`: prompt and limits, None = an agent without a prompt of its own.

    Raises `PurraError(invalid_argument)` for objects that are no adapters.
    """

    clock: Clock
    """Where time comes from; may be replaced before the kernel is opened."""
    about: Mapping[str, Any]
    """What the kernel's document says besides its process; may be set before it is opened."""

    def __init__(
        self,
        *,
        model: Model | None = None,
        tools: Iterable[Tools | Callable[..., Any]] = (),
        context: Iterable[Context] = (),
        store: Store | None = None,
        policy: Policy | None = None,
        agent: Agent | None = None,
    ) -> None:
        ports = Adapters(
            local.local_model(model) if model is not None else None,
            (local.local_tools(tools),),
            tuple((f"context[{i}]", local.local_context(c)) for i, c in enumerate(context)),
            local.local_policy(policy) if policy is not None else None,
        )
        self._set_up(
            ports,
            local.local_store(store) if store is not None else MemoryStore(),
            agent or Agent("agent", "1"),
        )

    @classmethod
    def of(
        cls,
        ports: Adapters,
        store: Store,
        agent: Agent,
        *,
        tools: Iterable[Tools | Callable[..., Any]] = (),
        policy: Policy | None = None,
    ) -> Self:
        """A kernel on ports that already check what they carry (hosted plugins).

        `tools`, `policy`: objects of the embedding program beside them, as the class takes them;
        they stay when the ports are bound anew.
        """
        kernel = cls.__new__(cls)
        checked = local.local_policy(policy) if policy is not None else None
        own = Adapters(tools=(local.local_tools(tools),), policy=checked)
        kernel._set_up(ports, store, agent, own)
        return kernel

    def _set_up(
        self, ports: Adapters, store: Store, agent: Agent, own: Adapters | None = None
    ) -> None:
        self.clock = SystemClock()
        self.about = {}
        self.agent = agent
        self.store = PatientStore(store)
        self._own = own or Adapters()
        self._ports = beside(ports, self._own)
        self._gates = Gates()
        self._shells: dict[str, Shell] = {}
        self._handles: dict[str, Run] = {}
        self._registry: Registry[Bindings] = Registry(self._released)
        self._leaving: list[tuple[Bindings, Callable[[], None]]] = []
        self._stack = AsyncExitStack()
        self._tasks: Tasks | None = None

    # -- life ---------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.id = self.clock.token()
        self.runs = Directory(self.store)
        self._heartbeat = owner.Heartbeat(self.store, self.id, self.about)
        bindings = await bind(self.agent, self._ports)
        self._registry.publish(self.agent.id, {BOUND: bindings})
        await self._heartbeat.register()
        self._tasks = await self._stack.enter_async_context(Tasks())
        self._inboxes = Inboxes(self.store, self._tasks.start)
        self._tasks.start(self._heartbeat.beat())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stops working. Runs that go on are left as they are, to be resumed by anyone."""
        if self._tasks is not None:
            self._tasks.stop()
        self._tasks = None
        await self._stack.__aexit__(None, None, None)
        for run in tuple(self._handles.values()):  # whose work was told to end before it began
            self._settle(run, _closed(run))
        with anyio.CancelScope(shield=True):
            await self._heartbeat.leave()

    def _open(self) -> tuple[Tasks, Bindings]:
        bindings = self._registry.current.get(BOUND)
        if self._tasks is None or bindings is None:
            raise PurraError("not_open", "use it as `async with kernel:`", where="kernel")
        return self._tasks, bindings

    # -- runs ---------------------------------------------------------------------------------

    async def submit(
        self, prompt: str, *, session: str = "", binding: Mapping[str, Any] | None = None
    ) -> Run:
        """Creates a run, durably, and starts to work on it (RUN-01).

        `session`: runs of one session are serial and see each other's answers; "" = none.
        `binding`: opaque strict values of the application, stored and never interpreted (RUN-13).

        Raises `PurraError`: `invalid_argument`, `invalid_value`, `session_busy`, `not_open`; then
        nothing was created.
        """
        tasks, bindings = self._open()
        _check_prompt(prompt, session)
        run_id = f"{self.clock.wall_ms():012x}-{self.clock.token(4)}"
        bound = freeze(binding or {}, where="binding")
        if deeper(bound, EVENT_VALUE_DEPTH):
            what = f"nests deeper than {EVENT_VALUE_DEPTH} levels"
            raise PurraError("invalid_argument", what, where="binding")
        started = self._started(bindings, prompt, session, bound)
        run = Run(run_id, self.store, self.cancel)
        while True:
            turn = await self._turn(session)
            if session and not turns.free(turn):
                self._refuse_if_busy(session, turn)
                await self._create_queued(run_id, started, turn)
                self._start(tasks, run, self._queue(run, session))
                return run
            try:
                log = await self._create(run_id, started, turn)
            except StoreError as error:
                if error.detail.get("key") == keys.turn(session):
                    continue  # another run of the session was faster: look again
                raise
            self._start(tasks, run, self._work(run, log))
            return run

    async def resume(self, run_id: str) -> Run:
        """Takes up a run that nobody works on, where its journal ends. One that goes on in
        this kernel, or has ended, is given as it is.

        Waits while a dead owner's lease on another machine lapses. Raises `PurraError`:
        `run_not_found`, `ownership_lost` if another kernel works on it, `preset_mismatch` naming
        the components that differ from what the run was started with.
        """
        tasks, _ = self._open()
        lease = await self.runs.lease(run_id)
        state = await self.runs.state(run_id)
        if run_id in self._handles:
            return self._handles[run_id]
        run = Run(run_id, self.store, self.cancel)
        if state.ended:
            run.settle(result_of(state))
            return run
        self._check_preset(state)
        session = state.started["session"]
        if not state.term and not turns.holds(await self._turn(session), run_id):
            self._start(tasks, run, self._queue(run, session))
            return run
        log = await self._take_over(state, lease)
        self._start(tasks, run, self._work(run, log))
        return run

    async def cancel(self, run_id: str, *, by: str = "") -> bool:
        """Asks a run to end, from any process. False if it had already ended.

        A run that nobody works on is taken up and ended here, at once.
        """
        self._open()
        await self.runs.lease(run_id)
        body = {"kind": "cancel", "by": by}
        if not await self.runs.tell(run_id, f"cancel:{self.clock.token()}", body):
            return False
        await self._nudge(run_id, ends=True)
        return True

    async def decide(
        self, run_id: str, call: str, decision: str, *, by: str = "", **told: Any
    ) -> bool:
        """Puts a person's decision on a waiting call in the run's inbox (HITL-01).

        `decision`: approve, edit (with `arguments`), reject or respond (with `text`). False if the
        run has ended. Raises `PurraError(invalid_argument | run_not_found)`.
        """
        self._open()
        if decision not in ("approve", "edit", "reject", "respond"):
            raise PurraError("invalid_argument", f"unknown decision {decision!r}", where="decide")
        await self.runs.lease(run_id)
        if decision == "edit":
            await self._check_edit(run_id, call, told.get("arguments"))
        body = {"kind": "decision", "call": call, "decision": decision, "by": by, **told}
        entry = f"decision:{call}"  # one-shot: a second decision is a conflict or a repetition
        if not await self.runs.tell(run_id, entry, freeze(body, where="decision")):
            return False
        await self._nudge(run_id)
        return True

    async def reconcile(
        self, run_id: str, call: str, effect_state: str, evidence: str, *, by: str = ""
    ) -> bool:
        """Says, with evidence, what became of a call whose effect is unknown (TOOL-20).

        `call` as `run.blocked` names it; it may be said before anybody has taken the run up. False
        if the run has ended. Raises `PurraError(invalid_argument | run_not_found)`.
        """
        self._open()
        if effect_state not in ("committed", "not_started") or not evidence:
            raise PurraError(
                "invalid_argument",
                "reconciling needs `committed` or `not_started`, and evidence",
                where="reconcile",
            )
        if not await self._doubted(run_id, call):
            return False
        body = {
            "kind": "reconcile",
            "call": call,
            "effect_state": effect_state,
            "evidence": evidence,
            "by": by,
        }
        if not await self.runs.tell(run_id, f"reconcile:{call}:{self.clock.token()}", body):
            return False
        await self._nudge(run_id)
        return True

    async def rebind(self, ports: Adapters, released: Callable[[], None]) -> int:
        """Binds whatever begins from now on to `ports`; the number of the new epoch (REG-001).

        A run that was started with other offers keeps those that it has until it ends (invariant
        5). `released` is called once, when nothing can reach the previous ports any more. Raises
        `PurraError`, e.g. `duplicate_tool`; then nothing has changed.
        """
        ports = beside(ports, self._own)
        bindings = await bind(self.agent, ports)
        _, old = self._open()
        self._ports = ports
        self._leaving.append((old, released))
        return self._registry.publish(self.agent.id, {BOUND: bindings})

    @property
    def epoch(self) -> int:
        """Grows by one with each change of what runs are bound to."""
        return self._registry.current.epoch

    def _released(self, binding: Binding[Bindings]) -> None:
        for item in tuple(self._leaving):
            if item[0] is binding.value:
                self._leaving.remove(item)
                item[1]()

    async def asked(self, after: int = 0) -> AsyncIterator[Mapping[str, Any]]:
        """What other processes ask of this kernel (`kernel/<id>/inbox`), as it comes. Endless."""
        stream = keys.kernel_inbox(self.id)
        async for body in reader.records(self.store, stream, after, None, follow=True):
            yield body

    async def describe(self, about: Mapping[str, Any]) -> None:
        """Sets `about`, a strict value, in a kernel that is open.

        Raises what the store says.
        """
        self.about = freeze(about, where="describe")
        await self._heartbeat.describe(self.about)

    def note(self, fact: Fact, run: str | None = None) -> None:
        """Something that concerns a run that goes on here, or every one of them (None); it rides on
        their next commits.
        """
        for run_id, shell in self._shells.items():
            if run in (None, run_id):
                shell.note(fact)

    # -- creating -----------------------------------------------------------------------------

    def _started(self, bindings: Bindings, prompt: str, session: str, binding: Any) -> Fact:
        limits = self.agent.limits
        data = {
            "snapshot": SNAPSHOT,
            "agent": {"id": self.agent.id, "revision": self.agent.revision},
            "fingerprint": bindings.fingerprint,
            "components": bindings.components,
            "session": session,
            "prompt": prompt,
            "limits": {
                "max_rounds": limits.max_rounds,
                "max_tool_calls": limits.max_tool_calls,
                "max_tokens": limits.max_tokens,
                "write_batch": limits.write_batch,
            },
            "deadline_ms": self.clock.wall_ms() + int(limits.deadline_s * 1000),
        }
        if binding:
            data["binding"] = binding
        return Fact("run.started", data)

    async def _turn(self, session: str) -> Document | None:
        if not session:
            return None
        (turn,) = await self.store.get([keys.turn(session)])
        return turn

    def _refuse_if_busy(self, session: str, turn: Document | None) -> None:
        if self.agent.session_policy == "refuse" and turn is not None:
            raise PurraError(
                "session_busy",
                f"run {turn.value['run']} is going on",
                where=f"session {session}",
                hint="wait for it, cancel it, or let the agent queue",
            )

    async def _create(self, run_id: str, started: Fact, turn: Document | None) -> RunLog:
        """First commit: the run exists and is owned."""
        facts = [started, Fact("run.owned", {"term": 1, "kernel": self.id}, 1)]
        return await self._first_commit(run_id, facts, turn, self.id)

    async def _create_queued(self, run_id: str, started: Fact, turn: Document | None) -> None:
        """First commit of a run that must wait: it exists, nobody owns it."""
        await self._first_commit(run_id, [started], turn, "")

    async def _first_commit(
        self, run_id: str, facts: list[Fact], turn: Document | None, kernel: str
    ) -> RunLog:
        now = self.clock.wall_ms()
        events = [place(fact, run_id, seq, now) for seq, fact in enumerate(facts, 1)]
        state = RunState()
        for event in events:
            fold(state, event)
        session = state.started["session"]
        records = tuple(event_value(event) for event in events)
        lease = owner.take(run_id, kernel, ending.about(state), 0)
        ops: list[Op] = [Append(keys.journal(run_id), 0, records), lease]
        if session:
            ops.append(turns.join(turn, session, run_id))
        commit = Commit(tuple(ops), (keys.journal(run_id), "seq:0"), durable=True)
        await self.store.commit(commit)
        return RunLog(self.store, self.clock, state, recent=events)

    # -- working ------------------------------------------------------------------------------

    def _start(self, tasks: Tasks, run: Run, work: Coroutine[Any, Any, None]) -> None:
        """`run` is the handle on it until `work` settles it."""
        self._handles[run.id] = run
        tasks.start(work)

    def _settle(self, run: Run, outcome: Result | PurraError) -> None:
        if self._handles.get(run.id) is run:  # else somebody has taken it up again meanwhile
            del self._handles[run.id]
        run.settle(outcome)

    async def _work(self, run: Run, log: RunLog) -> None:
        """Drives an owned run until it ends or rests, and again if something came meanwhile."""
        outcome: Result | PurraError = _closed(run)
        try:
            while True:
                outcome = await self._drive(run, log)
                resting = isinstance(outcome, Result) and not log.state.ended
                if not resting or not await self._has_mail(log.state):
                    return
                log = await self._take_over(log.state, await self.runs.lease(run.id))
        except PurraError as fault:
            if fault.code != "ownership_lost":  # else whoever wrote has taken the run up
                outcome = fault
        finally:
            self._settle(run, outcome)

    async def _drive(self, run: Run, log: RunLog) -> Result | PurraError:
        performers = Performers(log, self._registry, self._gates)
        shell = Shell(log, performers, self._inboxes)
        self._shells[run.id] = shell
        self._heartbeat.hold(run.id, log.state.term, shell.lose)
        run.taken(log.feed, log.output.feed)
        try:
            return await shell.run()
        except PurraError as fault:
            return fault
        except Exception as bug:  # a fault of ours must end one run, not the embedding process
            return PurraError("internal_error", repr(bug), where=f"run {run.id}")
        finally:
            performers.close()
            self._heartbeat.release(run.id)
            del self._shells[run.id]

    async def _has_mail(self, state: RunState) -> bool:
        page = await self.store.read(keys.inbox(state.run), state.inbox, 1)
        return bool(page.records)

    async def _take_over(self, state: RunState, lease: Document) -> RunLog:
        """Takes the lease and appends `run.owned`. Raises `PurraError(ownership_lost)`."""
        if not await owner.claimable(self.store, lease):
            raise owner.not_claimable(state.run, lease)
        output_head = await reader.head_of(self.store, keys.output(state.run))
        term = lease.revision + 1
        fact = Fact("run.owned", {"term": term, "kernel": self.id})
        event = place(fact, state.run, state.seq + 1, self.clock.wall_ms())
        take = owner.take(state.run, self.id, ending.about(state), lease.revision)
        append = Append(keys.journal(state.run), state.seq, (event_value(event),))
        (wake,) = await self.store.get([keys.wake(state.run)])
        key = (keys.journal(state.run), f"own:{term}:{self.id}:{self.clock.token(4)}")
        ops: tuple[Op, ...] = (append, take, *wakes.taken(wake))
        try:
            await self.store.commit(Commit(ops, key, durable=True))
        except StoreError as error:
            if error.code in ("conflict", "sealed"):
                raise owner.not_claimable(state.run, lease) from error
            raise
        fold(state, event)
        return RunLog(self.store, self.clock, state, output_head)

    async def _nudge(self, run_id: str, *, ends: bool = False) -> None:
        """Something is in the inbox: let the owner look, or become the owner."""
        shell = self._shells.get(run_id)
        if shell is not None:
            await shell.look()
            return
        lease = await self.runs.lease(run_id)
        if not await owner.claimable(self.store, lease):
            return  # its owner watches
        state = await self.runs.state(run_id)
        if state.ended:
            return
        if not ends and (self._ports.model is None or self._misfit(state)):
            await self.runs.wake(run_id)  # this kernel cannot go on with it: a worker will
            return
        tasks, _ = self._open()
        run = Run(run_id, self.store, self.cancel)
        try:
            log = await self._take_over(state, lease)
        except PurraError as fault:
            if fault.code == "ownership_lost":
                return  # somebody else has just taken it, and will find the entry
            raise
        self._start(tasks, run, self._work(run, log))

    async def _queue(self, run: Run, session: str) -> None:
        """Waits for the run's turn in its session, then works on it."""
        try:
            state = await self._wait_turn(run.id, session)
            if state.ended:
                self._settle(run, result_of(state))
                return
            self._check_preset(state)
            log = await self._take_over(state, await self.runs.lease(run.id))
        except PurraError as fault:
            self._settle(run, fault)
            return
        await self._work(run, log)

    async def _wait_turn(self, run_id: str, session: str) -> RunState:
        """The run's state once it is its turn, or it has ended without one."""
        async with reader.closed_watch(self.store, keys.turn(session)) as wakes:
            async for _ in wakes:
                (turn,) = await self.store.get([keys.turn(session)])
                state = await self.runs.state(run_id)
                if state.ended or turns.holds(turn, run_id):
                    return state
        raise AdapterError("closed", "the store's watch ended", origin="instance", executed="no")

    async def _doubted(self, run_id: str, call_id: str) -> bool:
        """False if the run has ended. Raises `PurraError(invalid_argument)` for a call of which it
        is known what became of it, or will be: evidence for it would be taken in and forgotten."""
        lease = await self.runs.lease(run_id)
        state = await self.runs.state(run_id)
        call = state.batch.calls.get(call_id) if state.batch else None
        doubted = call_id in state.blocked or (call is not None and call.in_doubt)
        if call is not None and call.phase == "claimed" and not call.repeatable:
            doubted = await owner.claimable(self.store, lease)  # else its owner is at it
        if not doubted and not state.ended:
            raise PurraError(
                "invalid_argument", f"call {call_id} is not in doubt", where=f"run {run_id}"
            )
        return not state.ended

    async def _check_edit(self, run_id: str, call_id: str, arguments: object) -> None:
        """Tells the person at once what the owner would refuse (HITL-02)."""
        _, bindings = self._open()
        state = await self.runs.state(run_id)
        call = state.batch.calls.get(call_id) if state.batch else None
        if call is None or call.name not in bindings.catalog or not isinstance(arguments, Mapping):
            raise PurraError(
                "invalid_argument", f"no call {call_id} to edit", where=f"run {run_id}"
            )
        validate(call.name, bindings.catalog[call.name].arguments, arguments)

    def _check_preset(self, state: RunState) -> None:
        misfit = self._misfit(state)
        if misfit is not None:
            raise misfit

    def _misfit(self, state: RunState) -> PurraError | None:
        """Why this kernel may not go on with the run: it was started with something else."""
        _, bindings = self._open()
        if state.started["snapshot"] != SNAPSHOT:
            return PurraError(
                "agent_preset_snapshot_unsupported",
                f"snapshot version {state.started['snapshot']}",
                where=f"run {state.run}",
            )
        drift = bindings.drift(state.started["components"])
        if not drift:
            return None
        return PurraError(
            "preset_mismatch",
            f"{', '.join(drift)} differ from what the run was started with",
            where=f"run {state.run}",
            hint="resume it with what it was started with, or cancel it",
        )


def _closed(run: Run) -> PurraError:
    return PurraError("not_open", "the kernel was closed while it worked", where=f"run {run.id}")


def _check_prompt(prompt: object, session: object) -> None:
    if type(prompt) is not str or not prompt.strip():
        raise PurraError("invalid_argument", "a prompt is text that is not empty", where="prompt")
    if len(prompt) > PROMPT_CHARS:
        raise PurraError(
            "invalid_argument", f"longer than {PROMPT_CHARS} characters", where="prompt"
        )
    freeze(prompt, where="prompt")
    if type(session) is not str or "/" in session:
        raise PurraError("invalid_argument", "a session is text without «/»", where="session")
