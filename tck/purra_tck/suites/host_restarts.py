"""SUP-009 to 012 and SHD-008: when an instance that fell is started again, and when not."""

from __future__ import annotations

from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.drivers.host import Host, Restarts
from purra_tck.puppets import frames
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.verdict import Case

__all__ = ["CHECKS"]

CHECKS = Checks("SUP", "SHD")

CALLERS: Final = 32
QUANTUM_S: Final = 0.3
"""The kit moves the clock in steps of a quarter of a second."""


async def _falls(act: Act) -> None:
    """The process that is to come next ends before HELLO."""
    puppet = await act.stage.enter()
    await puppet.leave("exit", status=1)


async def _waits(act: Act, host: Host, most_s: float) -> None:
    """Moves the clock until the next process is there, at most by so much."""
    moved_s, before = 0.0, act.starts()
    await act.settled()
    while moved_s < most_s and act.starts() == before:
        await host.advance(0.25)
        moved_s += 0.25


def _pauses(act: Act) -> list[float]:
    """From each end to the next start, by the host's clock."""
    pauses: list[float] = []
    ended_s: float | None = None
    for event in act.events():
        if event.state == "FAILED":
            ended_s = event.at_s
        if event.state == "STARTING" and ended_s is not None:
            pauses.append(event.at_s - ended_s)
            ended_s = None
    return pauses


@CHECKS.rule("SUP-009")
@hosted
async def restarts_wait_longer_each_time(case: Case, subject: HostSubject) -> None:
    """From the first wait, doubling, to the longest; with jitter, so that not all rise at once."""
    subject.needs("restarts", "clock")
    policy = Restarts(most=20, first_s=4.0, longest_s=32.0, jitter=0.25, window_s=10_000.0)
    host = await subject.host(restarts=policy, hello_s=100_000.0, ready_s=100_000.0)
    acts = [await subject.act(host, id=f"p{n}") for n in range(2)]
    for act in acts:
        act.ask("waits for an instance")
        for _ in range(6):
            await _falls(act)
            await act.becomes("BACKOFF")
            await _waits(act, host, 60.0)
        await act.stage.enter()
    due = (4.0, 8.0, 16.0, 32.0, 32.0, 32.0)
    for act in acts:
        pauses = _pauses(act)
        case.equal(len(pauses), len(due), "restarts")
        for wait, pause in zip(due, pauses, strict=True):
            case.require(
                0.75 * wait - 0.01 <= pause <= wait + QUANTUM_S,
                f"a pause of {0.75 * wait:g} to {wait:g} s before the next start",
                f"{pause:.2f} s in {[round(each, 2) for each in pauses]}",
            )
    shares = [p / d for act in acts for p, d in zip(_pauses(act), due, strict=True) if d > 8]
    spread = max(shares) - min(shares)
    case.require(spread > 0.02, "pauses that differ by chance", f"{spread:.3f} of a pause")


@CHECKS.rule("SUP-010")
@hosted
async def too_many_failures_open_the_circuit(case: Case, subject: HostSubject) -> None:
    """Then calls fail at once, and nothing is started until its time."""
    subject.needs("restarts", "clock")
    policy = Restarts(most=3, first_s=0.5, jitter=0.0, quarantine_s=100.0, window_s=60.0)
    host = await subject.host(restarts=policy)
    act = await subject.act(host)
    waiting = act.ask("waits")
    for fallen in range(4):
        await _falls(act)
        if fallen < 3:
            await act.becomes("BACKOFF")
            await _waits(act, host, 10.0)
    error = await waiting.fails("quarantined")
    case.equal(error.executed, "no", "executed of a call that waited")
    case.require(
        error.after_ms is not None and 90_000 <= error.after_ms <= 100_000,
        "the time to wait for, 100 s",
        f"{error.after_ms} ms",
    )
    before = act.starts()
    for _ in range(5):
        await act.ask().fails("quarantined")
        await host.advance(15.0)
    case.equal(act.starts(), before, "processes started while quarantined")
    case.equal((await act.status()).reason, "quarantined", "the reason of the plugin's state")


@CHECKS.rule("SUP-011")
@hosted
async def one_start_probes(case: Case, subject: HostSubject) -> None:
    """After its time exactly one is tried, however many ask; if it fails, the next takes longer."""
    subject.needs("restarts", "clock")
    policy = Restarts(most=1, first_s=0.5, jitter=0.0, quarantine_s=20.0, window_s=1000.0)
    host = await subject.host(restarts=policy)
    act = await subject.act(host, limits={"inflight": CALLERS})
    waiting = act.ask("waits")
    await _falls(act)
    await _waits(act, host, 5.0)
    await _falls(act)
    first = await waiting.fails("quarantined")
    await host.advance(25.0)
    before = act.starts()
    callers = [act.ask(n) for n in range(CALLERS)]
    await _falls(act)
    errors = [await caller.fails("quarantined") for caller in callers]
    case.equal(act.starts() - before, 1, f"starts for {CALLERS} callers")
    longer = errors[0].after_ms or 0
    case.require(
        longer > 1.5 * (first.after_ms or 0), "a longer wait after the probe failed", f"{longer} ms"
    )
    await host.advance(30.0)
    await act.ask().fails("quarantined")
    await host.advance(15.0)
    callers = [act.ask(n) for n in range(CALLERS)]
    puppet = await act.stage.enter()
    await puppet.handshake()
    for _ in callers:
        call = await puppet.called()
        await puppet.write(frames.result(call.id, call.args))
    values = [await caller.value() for caller in callers]
    case.equal(values, list(range(CALLERS)), "the answers once the probe is ready")
    case.equal(act.starts() - before, 2, "starts in all")
    case.equal((await act.status()).reason, "", "the reason of the state after success")


@CHECKS.rule("SUP-012")
@hosted
async def being_well_forgets(case: Case, subject: HostSubject) -> None:
    """Crashes far apart never add up; and what cannot become better is not tried again."""
    subject.needs("restarts", "clock")
    policy = Restarts(most=2, first_s=0.5, jitter=0.0, healthy_s=60.0, window_s=10_000.0)
    host = await subject.host(restarts=policy, ping_s=100_000.0)
    act = await subject.act(host, activation="eager")
    puppet = await act.begin()
    for _ in range(5):
        await host.advance(61.0)
        await act.answers(puppet, "after a minute")
        await puppet.leave("signal", number=9)
        await act.becomes("BACKOFF")
        await _waits(act, host, 5.0)
        puppet = await act.stage.enter()
        await puppet.handshake()
        await act.becomes("READY")
    pauses = _pauses(act)
    case.require(
        len(pauses) == 5 and max(pauses) <= 0.5 + QUANTUM_S,
        "the first pause of 0.5 s after each of 5 crashes that are a minute apart",
        f"{[round(pause, 2) for pause in pauses]}",
    )
    hopeless: tuple[tuple[str, dict[str, Any]], ...] = (
        ("manifest_mismatch", {"version": "9"}),
        ("version_mismatch", {"proto": [7, 7]}),
    )
    if not subject.has("hello"):
        hopeless = (("manifest_mismatch", {}),)
    for code, hello in hopeless:
        act = await subject.act(host, id=code.replace("_", "-"))
        waiting = act.ask()
        puppet = await act.stage.enter()
        await puppet.write(puppet.hello(**hello) if hello else puppet.ready(("tool", "no")))
        await waiting.fails(code)
        await host.advance(70.0)
        await act.ask().fails(code)
        await host.advance(70.0)
        case.equal(act.starts(), 1, f"starts after {code}")


@CHECKS.rule("SHD-008")
@hosted
async def a_stop_ends_every_wait(case: Case, subject: HostSubject) -> None:
    """While it waits for a restart, or is quarantined: nothing starts after the stop."""
    subject.needs("restarts", "clock")
    policy = Restarts(most=1, first_s=10.0, jitter=0.0, quarantine_s=30.0, window_s=1000.0)
    host = await subject.host(restarts=policy)
    acts = {name: await subject.act(host, id=name) for name in ("stopped", "closed", "open")}
    for name, act in acts.items():
        waiting = act.ask("waits")
        await _falls(act)
        await act.becomes("BACKOFF")
        if name == "open":
            await _waits(act, host, 15.0)
            await _falls(act)
            await waiting.fails("quarantined")
        elif name == "stopped":
            await act.stop()
            await waiting.fails("not_active")
            await host.advance(40.0)
            case.equal(act.starts(), 1, "starts after a stop while it waited")
    await subject.within(host.close(), "closing")
    before = {name: act.starts() for name, act in acts.items()}
    await host.advance(100.0)
    for act in acts.values():
        await act.ask().fails("not_active", "quarantined", "crashed")
    await act.settled()
    after = {name: act.starts() for name, act in acts.items()}
    case.equal(after, before, "processes started after the close")
