"""MOD-009 to 017: failures, cancels, limits, and what a model says that it can."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from purra.contracts.call import Stop
from purra_bridge.wire.errors import WireError
from purra_tck.checks import Checks
from purra_tck.subjects.plugin import CANARY, PluginSubject, Reply, Running, about_plugin
from purra_tck.subjects.plugin_models import (
    Heard,
    Nonces,
    Provider,
    ask_model,
    features_of,
    heard,
    is_local,
    provider,
    request,
)
from purra_tck.upstream.scenario import Delivery, Scenario, answer, failure
from purra_tck.verdict import Case, NotApplicable, RuleViolation, SubjectFailed

__all__ = ["CHECKS"]

CHECKS = Checks("MOD")

TRIES_AGAIN: Final = (408, 429, 500, 502, 503, 529)
IS_FINAL: Final = (400, 401, 403, 404, 413, 422)
RETRY_AFTER_S: Final = 7
CANCEL_S: Final = 1.0
DEADLINE_S: Final = 0.7
CALLERS: Final = 32
FEATURES: Final = frozenset(
    {"tools", "parallel_tools", "structured_output", "images", "cache", "reasoning"}
)
USER: Final[Sequence[Mapping[str, Any]]] = ({"role": "user", "content": "Hello?"},)
TOOL: Final[Mapping[str, Any]] = {
    "name": "tck_tool",
    "description": "Nothing",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}


def _pieces(*texts: str) -> list[dict[str, Any]]:
    return [{"t": "content", "text": text} for text in texts]


LONG: Final = answer(*_pieces("One ", "two ", "three ", "four."))


# --- MOD-009, MOD-010 ---------------------------------------------------------------------------


async def _error(case: Case, running: Running, name: str, what: str) -> WireError:
    told = await ask_model(running, name, USER)
    if told.error is None:
        raise RuleViolation(f"{name}: {what} is an error", str(told))
    case.require(not told.finishes, f"{name}: {what}: no finish before the error", told)
    return told.error


@CHECKS.rule("MOD-009")
@about_plugin
async def failures_keep_their_kind(case: Case, subject: PluginSubject) -> None:
    """Whether trying again can help is known at the far end only. If it is lost, it is guessed."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        codes: dict[int, str] = {}
        for status in (*TRIES_AGAIN, *IS_FINAL):
            after_s = RETRY_AFTER_S if status in (429, 503) else None
            await far.says(failure(status, f"the provider says {status}", after_s))
            error = await _error(case, running, name, f"status {status}")
            codes[status] = error.code
            hopeful = error.retry == "same"
            due = (
                "can be tried again" if status in TRIES_AGAIN else "cannot be tried again as it is"
            )
            case.require(
                hopeful == (status in TRIES_AGAIN),
                f"{name}: {status} {due}",
                f"{error.code}, retry {error.retry}",
            )
            if status == 429:
                case.equal(error.code, "rate_limited", f"{name}: code of 429")
                case.equal(error.after_ms, RETRY_AFTER_S * 1000, f"{name}: wait of 429, in ms")
        kinds = {codes[429], codes[500], codes[401]}
        case.require(len(kinds) == 3, f"{name}: 401, 429 and 500 are three kinds", codes)
        await far.says(LONG, Delivery(stop_after=0, then="reset"))
        error = await _error(case, running, name, "a reset")
        case.require(error.retry == "same", f"{name}: a reset can be tried again", str(error))


@CHECKS.rule("MOD-010")
@about_plugin
async def nothing_is_tried_again_in_secret(case: Case, subject: PluginSubject) -> None:
    """The kernel counts tries, and the bill counts requests: they must be the same."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        ways: list[tuple[str, Scenario, Delivery]] = [
            (f"status {status}", failure(status, "no"), Delivery()) for status in (429, 500, 503)
        ]
        ways += [
            (how, LONG, Delivery(stop_after=after, then=how))
            for how in ("reset", "eof")
            for after in (0, 1)
        ]
        for what, scenario, delivery in ways:
            await far.says(scenario, delivery)
            before = far.server.connections
            await _error(case, running, name, what)
            case.equal(far.server.connections - before, 1, f"{name}: connections for {what}")


# --- MOD-011, MOD-012, MOD-013 ------------------------------------------------------------------


@CHECKS.rule("MOD-011")
@about_plugin
async def a_cancel_reaches_the_provider(case: Case, subject: PluginSubject) -> None:
    """An answer that nobody reads goes on to be written, and to be paid for."""
    if is_local(subject):
        await _a_cancel_ends_it(case, subject)
        return
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        await far.says(LONG, Delivery(stop_after=2, then="stall"))
        stop, replies = Stop(), list[Reply]()

        async def call(name: str = name, stop: Stop = stop, replies: Any = replies) -> None:
            replies.append(await running.stopped(name, "generate", request(USER), stop))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            seen = await _stalled(far)
            began_s = time.perf_counter()
            stop.request()
            with anyio.move_on_after(CANCEL_S):
                await seen.left.wait()
            left = seen.left_s is not None
            tasks.cancel_scope.deadline = anyio.current_time() + CANCEL_S
        took_s = time.perf_counter() - began_s
        case.require(
            left,
            f"{name}: a cancel closes the connection to the provider within {CANCEL_S:g} s",
            f"it is open after {took_s:.1f} s",
        )
        for reply in replies:
            told = heard(reply)
            case.require(not told.finishes, f"{name}: no end after a cancel", told)


async def _stalled(far: Provider) -> Any:
    """The request that the provider has begun to answer."""
    with anyio.move_on_after(CANCEL_S * 5):
        while not far.seen or far.seen[-1].sent_chunks < 2:
            await anyio.sleep(0.005)
        return far.seen[-1]
    raise SubjectFailed("the model reads its provider's answer", "it did not begin to")


async def _a_cancel_ends_it(case: Case, subject: PluginSubject) -> None:
    running = await subject.running()
    for name in subject.names("model"):
        stop, replies = Stop(), list[Reply]()

        async def call(name: str = name, stop: Stop = stop, replies: Any = replies) -> None:
            args = request(USER, max_tokens=2048)
            replies.append(await running.stopped(name, "generate", args, stop))

        with anyio.move_on_after(CANCEL_S + 0.05):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await anyio.sleep(0.05)
                stop.request()
        case.require(
            bool(replies), f"{name}: a cancelled answer ends within {CANCEL_S:g} s", len(replies)
        )


@CHECKS.rule("MOD-012")
@about_plugin
async def silence_has_an_end(case: Case, subject: PluginSubject) -> None:
    """A provider may be silent at every step, and each silence ends with the caller's time."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        for what, delivery in {
            "before the first byte": Delivery(before_head=True),
            "before the first piece": Delivery(stop_after=0, then="stall"),
            "in the middle": Delivery(stop_after=2, then="stall"),
        }.items():
            await far.says(LONG, delivery)
            began_s = time.perf_counter()
            told = await ask_model(running, name, USER, how_timeout_s=DEADLINE_S)
            took_s = time.perf_counter() - began_s
            seen = far.last()
            case.require(
                told.error is not None and not told.finishes and took_s < DEADLINE_S + CANCEL_S,
                f"{name}: silence {what} is an error when the time is up",
                f"{told} after {took_s:.2f} s",
            )
            with anyio.move_on_after(CANCEL_S):
                await seen.left.wait()
            case.require(
                seen.left_s is not None,
                f"{name}: silence {what}: the connection is closed within {CANCEL_S:g} s "
                "of the end of the time",
                "it is open",
            )


@CHECKS.rule("MOD-013")
@about_plugin
async def breaking_off_is_an_error(case: Case, subject: PluginSubject) -> None:
    """Half an answer that ends well is a whole answer to everybody who reads it."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        for how in ("reset", "eof", "garbage"):
            for after in (1, 3):
                await far.says(LONG, Delivery(stop_after=after, then=how))
                error = await _error(case, running, name, f"{how} after {after} pieces")
                case.saw(f"{how} after {after} pieces: {error}")
        await far.says(Scenario(LONG.items[:-1]))
        told = await ask_model(running, name, USER)
        case.require(
            not told.finishes, f"{name}: an answer without its end has no finish", f"{told}"
        )


# --- MOD-014, MOD-015 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-014")
@about_plugin
async def a_parameter_is_kept_or_refused(case: Case, subject: PluginSubject) -> None:
    """A parameter that is dropped is a promise to whoever set it."""
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    if far is not None:
        await far.says(LONG)
    for name in subject.names("model"):
        for params in ({"tck_unknown": 1}, {"tck_unknown": {"deep": [None]}, "tck_more": "x"}):
            told = await ask_model(running, name, USER, params=params)
            case.require(
                told.error is not None and not told.items,
                f"{name}: the parameter {next(iter(params))} is refused "
                "(raise PluginError('unimplemented', …))",
                told,
            )
            code = told.error.code if told.error else ""
            case.require(
                code in ("unimplemented", "invalid_argument"),
                f"{name}: it is refused with `unimplemented` or `invalid_argument`",
                str(told.error),
            )
        if far is not None:
            case.equal(len(far.seen), 0, f"{name}: requests that were sent all the same")


@CHECKS.rule("MOD-015")
@about_plugin
async def answers_do_not_meet(case: Case, subject: PluginSubject) -> None:
    """What two requests share in an adapter, two people share."""
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        nonces = Nonces(case)
        pairs = [(nonces.word(), nonces.word()) for _ in range(CALLERS)]
        if far is not None:
            for number, (asked, said) in enumerate(pairs):
                scenario = answer(*_pieces("It ", "is ", said, "."))
                wait_s = (CALLERS - number) % 8 * 0.01
                await far.says_to(asked, scenario, Delivery(wait_s=wait_s))
        told: dict[int, Heard] = {}

        async def one(number: int, word: str, name: str = name, told: Any = told) -> None:
            messages = [{"role": "user", "content": f"What is {word}?"}]
            told[number] = await ask_model(running, name, messages, how_timeout_s=20.0)

        async with anyio.create_task_group() as tasks:
            for number, (asked, _) in enumerate(pairs):
                tasks.start_soon(one, number, asked)
        for number, (asked, said) in enumerate(pairs):
            _only_its_own(case, name, told[number], said if far else "", asked, pairs)


def _only_its_own(
    case: Case,
    name: str,
    told: Heard,
    due: str,
    asked: str,
    pairs: Sequence[tuple[str, str]],
) -> None:
    text = json.dumps([told.text, told.reasoning, list(told.calls.values())])
    mine = {asked, due}
    others = [word for pair in pairs for word in pair if word not in mine and word in text]
    case.require(
        told.error is None and (not due or due in told.text),
        f"{name}: each of {CALLERS} callers gets the answer to its own question",
        f"{asked}: {told}",
    )
    case.require(not others, f"{name}: no answer holds what belongs to another one", f"{others}")


# --- MOD-016, MOD-017 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-016")
@about_plugin
async def the_key_stays_where_it_is(case: Case, subject: PluginSubject) -> None:
    """Keys leave with error messages: of clients that show themselves, of providers that give back
    what they were sent.
    """
    if not subject.secrets(subject.manifest):
        raise NotApplicable("it declares no secret")
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        await far.says(answer(*_pieces("x")))
        said: list[Any] = [await ask_model(running, name, USER)]
        sent = json.dumps(dict(far.last().headers)) + far.last().text + far.last().line
        case.saw(f"the key was sent: {CANARY in sent}")
        echo = f"no such key: Bearer {CANARY}-0 {CANARY}-1"
        for scenario, delivery in (
            (failure(401, echo), Delivery()),
            (failure(500, echo), Delivery()),
            (LONG, Delivery(stop_after=1, then="garbage")),
            (LONG, Delivery(stop_after=0, then="reset")),
        ):
            await far.says(scenario, delivery)
            said.append(await ask_model(running, name, USER))
        for told in said:
            body = repr(told.items) + (repr(told.error.to_body()) if told.error else "")
            case.require(
                CANARY not in body, f"{name}: the key is in no item and no error", body[:300]
            )
        lines = [line for line in subject.tap.said if CANARY in line]
        case.require(not lines, f"{name}: the key is in no line of the log", f"{lines[:2]}")


@CHECKS.rule("MOD-017")
@about_plugin
async def it_can_what_it_says(case: Case, subject: PluginSubject) -> None:
    """A feature that is claimed and not there is found by a user; one that is there and not claimed
    by nobody.
    """
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        features = await features_of(running, name)
        strange = sorted(set(features) - FEATURES)
        case.require(
            not strange, f"{name}: features are {', '.join(sorted(FEATURES))}", f"{strange}"
        )
        if far is not None:
            await _says_only_what_it_claims(case, running, far, name, features)
        before = len(far.seen) if far else 0
        told = await ask_model(running, name, USER, tools=[TOOL])
        if "tools" in features:
            case.require(told.error is None, f"{name}: it takes tools, as it says", told)
        else:
            case.require(
                told.error is not None and not told.items,
                f"{name}: it does not claim `tools`, so it refuses a request with some",
                told,
            )
            case.equal((len(far.seen) if far else 0) - before, 0, f"{name}: requests sent")
        if "parallel_tools" not in features:
            case.require(len(told.calls) <= 1, f"{name}: one call at a time", told)
        if "reasoning" not in features:
            case.require(not told.reasoning, f"{name}: no reasoning that it does not claim", told)


async def _says_only_what_it_claims(
    case: Case, running: Running, far: Provider, name: str, features: Sequence[str]
) -> None:
    if "reasoning" in features:
        thought = {"t": "reasoning", "text": "tck thinks"}
        await far.says(answer(thought, *_pieces("said")))
        told = await ask_model(running, name, USER)
        case.require(
            "tck thinks" in told.reasoning and told.text == "said",
            f"{name}: reasoning comes as reasoning, and apart from the answer",
            told,
        )
    await far.says(answer(*_pieces("ok")))
