"""LIM-001 to 008 and 010: what an instance may use, and what it may see of its host."""

from __future__ import annotations

import os
import signal
import socket
import stat
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.puppets import frames
from purra_tck.subjects.host import Act, HostSubject, hosted
from purra_tck.subjects.machine import Memory
from purra_tck.verdict import Case, NotApplicable

__all__ = ["CHECKS"]

CHECKS = Checks("LIM")

MIB: Final = 1024 * 1024
CAP_BYTES: Final = 64 * MIB
CANARY: Final = "PURRA_TCK_CANARY"
SECRET: Final = "canary-7d21f0b8c4"
OUTPUT_BYTES: Final = 200_000
MESSAGE_BYTES: Final = 16 * MIB
"""The default of the specification."""
KNOWN: Final = {
    "PATH",
    "LANG",
    "TZ",
    "HOME",
    "TMPDIR",
    "PURRA_FD",
    "PURRA_PROTO",
    "PURRA_PLUGIN",
    "PURRA_MANIFEST",
    "PURRA_GENERATION",
    "PURRA_NONCE",
}
"""What a worker's environment may hold, beside `LC_...` and what was granted."""


async def _declared(act: Act, name: str) -> int:
    """The limit as the host says that it enforces it. Raises `NotApplicable` if it does not."""
    found = (await act.status()).limits.get(name, "none")
    if type(found) is not int:
        raise NotApplicable(f"the host advertises {name} as {found}")
    return found


@CHECKS.rule("LIM-001")
@hosted
async def memory_is_bounded(case: Case, subject: HostSubject) -> None:
    """What is more than the cap is not to be had; if that ends the instance, the error says so."""
    act = await subject.act(limits={"memory_bytes": CAP_BYTES})
    puppet = await act.begin()
    case.equal(await _declared(act, "memory_bytes"), CAP_BYTES, "the cap that is advertised")
    memory, own = Memory(subject.driver.pid), Memory(puppet.pid)
    memory.mark()
    own.mark()
    asked, call = await act.asked(puppet)
    got = await puppet.do("allocate", size=16 * MIB)
    case.equal(got, 16 * MIB, "bytes to be had below the cap")
    puppet.order("allocate", size=2 * CAP_BYTES)
    await puppet.until(lambda: puppet.results or puppet.ended, "the end of an allocation")
    if puppet.ended:
        error = await asked.fails("crashed")
        case.equal(error.detail.get("limit"), "memory", "why it ended")
    else:
        case.equal(puppet.results.popleft(), 0, "bytes to be had beyond the cap")
        used = own.peak_growth()
        case.require(used <= CAP_BYTES, f"at most {CAP_BYTES} bytes in use", f"{used} bytes")
        await puppet.write(frames.result(call.id, "goes on"))
        case.equal(await asked.value(), "goes on", "the call meanwhile")
    grown = memory.peak_growth()
    case.require(grown < 8 * MIB, "a host that does not grow with it", f"{grown} bytes")


@CHECKS.rule("LIM-002")
@hosted
async def processor_time_is_bounded(case: Case, subject: HostSubject) -> None:
    """An endless loop ends by its limit, and the error says that it was that."""
    act = await subject.act(limits={"cpu_s": 1})
    puppet = await act.begin()
    case.equal(await _declared(act, "cpu_s"), 1, "the limit that is advertised")
    asked, _ = await act.asked(puppet)
    puppet.order("spin")
    error = await asked.fails("crashed")
    case.equal(error.detail.get("limit"), "cpu", "why it ended")
    await act.down()
    other = await subject.act(id="patient")
    beside = await other.begin()
    await other.answers(beside, "after its sibling has used up its time")


@CHECKS.rule("LIM-003")
@hosted
async def open_files_are_bounded(case: Case, subject: HostSubject) -> None:
    """As many as were allowed, and an error of the system for one more."""
    act = await subject.act(limits={"nofile": 64})
    puppet = await act.begin()
    case.equal(await _declared(act, "nofile"), 64, "the limit that is advertised")
    count, number = await puppet.do("open_files", most=500)
    case.require(40 <= count < 64, "fewer than 64 files that can be opened", f"{count} files")
    case.equal(number, 24, "the errno of one more (EMFILE)")
    await act.answers(puppet, "after it had no descriptors left")
    limits = await puppet.do("limits")
    case.equal(limits["RLIMIT_NOFILE"], (64, 64), "soft and hard limit of open files")
    case.equal(limits["RLIMIT_CORE"], (0, 0), "soft and hard limit of core dumps")


@CHECKS.rule("LIM-004")
@hosted
async def bytes_are_bounded_both_ways(case: Case, subject: HostSubject) -> None:
    """Arguments, a result, and all items of a stream together; each error names its bound."""
    act = await subject.act(limits={"output_bytes": OUTPUT_BYTES})
    small: dict[str, Any] = {"max_frame": 4096, "max_message": 16384, "window": 1 << 20}
    says = subject.has("hello")
    puppet = await act.begin(**({"limits": small} if says else {}))
    frame, limit = (4096, 16384) if says else (MIB // 2, MESSAGE_BYTES)
    error = await act.ask("x" * (limit + 4000)).fails("too_large")
    case.equal(error.executed, "no", "executed of a call with too large arguments")
    case.equal(error.detail.get("limit"), limit, "the bound in the error")
    asked, call = await act.asked(puppet)
    whole = frames.pack("y" * (limit + 14_000))
    pieces = [whole[at : at + frame] for at in range(0, len(whole), frame)]
    for piece in pieces[:-1]:
        await puppet.write(frames.frame(frames.RESULT, call.id, piece, frames.MORE))
    await puppet.write(frames.frame(frames.RESULT, call.id, pieces[-1]))
    error = await asked.fails("too_large")
    case.equal(error.detail.get("limit"), limit, "the bound in the error of a result")
    stream = act.stream(window_bytes=4 * MIB)
    taking = subject.spawn(stream.rest())
    call = await puppet.called(skip=(frames.CANCEL,))
    for _ in range(OUTPUT_BYTES // 4000 + 2):
        await puppet.write(frames.data(call.id, "z" * 4000))
    items, failed = await subject.within(taking, "a stream without an end")
    code = "no error" if failed is None else failed.code
    case.equal(code, "resource_exhausted", f"the end of a stream of more than {OUTPUT_BYTES} bytes")
    got = sum(len(item) for item in items)
    case.require(got <= OUTPUT_BYTES, f"at most {OUTPUT_BYTES} bytes of items", f"{got} bytes")
    await puppet.frame(frames.CANCEL, what="CANCEL of a stream that was too long")
    await puppet.write(frames.error(call.id, "cancelled"))
    await act.answers(puppet, "after too much output")


@CHECKS.rule("LIM-005")
@hosted
async def the_environment_is_a_list(case: Case, subject: HostSubject) -> None:
    """What the host was started with stays with the host; what was granted is passed on."""
    subject.needs("inside")
    granted = {"API_REGION": "eu-1"}
    before = dict(os.environ)
    os.environ |= {CANARY: "leaked", "LC_TCK": "C", "TZ": "UTC", "LD_TCK_PRELOAD": "/evil.so"}
    try:
        act = await subject.act(env=granted)
        puppet = await act.begin()
        facts = puppet.facts
    finally:
        os.environ.clear()
        os.environ |= before
    env: dict[str, str] = facts["env"]
    case.require(CANARY not in env, "no variable that nobody granted", f"{CANARY} is there")
    raw: bytes = facts["environ"]
    case.require(CANARY.encode() not in raw, "nothing of it in the process's memory", "it is there")
    allowed = KNOWN | set(granted)
    more = sorted(name for name in env if name not in allowed and not name.startswith("LC_"))
    case.equal(more, [], "variables beyond the list")
    case.equal(env.get("API_REGION"), "eu-1", "the variable that was granted")
    case.equal(env.get("TZ"), "UTC", "the time zone of the host")
    case.require(bool(env.get("PATH")) and bool(env.get("LANG")), "PATH and LANG", str(env))
    home, tmp = env.get("HOME", ""), env.get("TMPDIR", "")
    case.require(home != before.get("HOME"), "a HOME of its own", home)
    case.require(tmp.startswith(home + "/"), "TMPDIR below HOME", tmp)
    case.equal(env["PURRA_PLUGIN"], "puppet@0.1.0", "PURRA_PLUGIN")


@CHECKS.rule("LIM-006")
@hosted
async def no_descriptor_is_inherited(case: Case, subject: HostSubject) -> None:
    """Not even one that the host's program has made inheritable."""
    subject.needs("inside")
    canary = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(canary, True)
    with socket.socket() as listening:
        listening.set_inheritable(True)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        try:
            act = await subject.act()
            puppet = await act.begin()
        finally:
            os.close(canary)
    channel = int(puppet.facts["env"]["PURRA_FD"])
    open_there: dict[int, str] = dict(puppet.facts["descriptors"])
    more = {
        number: what
        for number, what in open_there.items()
        if number not in (0, 1, 2, channel) and what and not what.startswith("/proc/")
    }
    case.equal(more, {}, "descriptors beside the channel and the standard streams")
    case.require(open_there[channel].startswith("socket:"), "a channel", open_there[channel])
    case.equal(open_there[0], os.devnull, "standard input")


@CHECKS.rule("LIM-007")
@hosted
async def its_folders_are_its_own(case: Case, subject: HostSubject) -> None:
    """Nobody else may look into them, they are no other instance's, and they go with it."""
    act, other = await subject.act(id="one"), await subject.act(id="two")
    puppet, beside = await act.begin(), await other.begin()
    folders: list[str] = []
    for end in ("a stop", "a crash"):
        facts = puppet.facts
        home, tmp = facts["cwd"], facts["env"]["TMPDIR"]
        folders += [home, tmp]
        case.equal(oct(facts["umask"]), "0o77", "the umask")
        for folder in (home, tmp):
            mode = stat.S_IMODE(os.stat(folder).st_mode)
            case.equal(oct(mode), "0o700", f"the mode of {os.path.basename(folder)}")
        await puppet.do("make", path=f"{tmp}/made", mode=0o666)
        mode = stat.S_IMODE(os.stat(f"{tmp}/made").st_mode)
        case.equal(oct(mode), "0o600", "the mode of a file that it made")
        case.require(home != beside.facts["cwd"], "a folder that is no other's", home)
        if end == "a stop":
            await act.stop()
        else:
            await puppet.leave("signal", number=9)
            await act.down()
        await _removed(subject, home, f"its folder goes with {end}")
        case.saw(f"{home} is gone after {end}")
        puppet = await act.begin()
    case.equal(len(set(folders)), 4, "different folders of two instances")


async def _removed(subject: HostSubject, folder: str, what: str) -> None:
    await subject.until(lambda: not os.path.exists(folder), what)


@CHECKS.rule("LIM-010")
@hosted
async def secrets_come_through_the_channel(case: Case, subject: HostSubject) -> None:
    """No argument and no variable holds one, of the plugin or of the host."""
    act = await subject.act(secrets={"token": SECRET}, config={"public": "value-of-config"})
    starting = act.start()
    puppet = await act.stage.enter()
    welcome = await puppet.handshake()
    await starting.value()
    case.equal(welcome.get("secrets"), {"token": SECRET}, "the secrets of WELCOME")
    for name in ("cmdline", "environ"):
        case.require(
            SECRET.encode() not in puppet.facts[name], f"no secret in {name}", "the secret is there"
        )
    told = f"{act.host.events} {act.host.logs} {await act.status()}"
    case.require(SECRET not in told, "no secret in events, logs and status", "it is there")
    await puppet.leave("signal", number=int(signal.SIGKILL))
    error = await act.ask().fails()
    case.require(SECRET not in f"{error} {error.detail}", "no secret in errors", "it is there")
