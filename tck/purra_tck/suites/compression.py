"""CMP-001 to 007: a conversation that is too long becomes one that fits, and stays true."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from purra.values import canonical_text
from purra_tck.checks import Checks
from purra_tck.subjects.plugin import PluginSubject, Reply, Running, about_plugin
from purra_tck.subjects.plugin_hands import picture
from purra_tck.suites.context import tokens
from purra_tck.verdict import Case, NotApplicable, RuleViolation, SubjectFailed

__all__ = ["CHECKS"]

CHECKS = Checks("CMP")

HISTORIES: Final = 40
TURNS: Final = 8
WORDS: Final = ("the", "wire", "carries", "a", "frame", "with", "an", "id", "ж", "漢", "and", "😀")
ROLES: Final = frozenset({"system", "user", "assistant", "tool"})

Messages = list[dict[str, Any]]


def _size(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens of all texts; what the frame of a message costs is left out, for the plugin."""
    return sum(
        tokens(message["content"])
        + sum(tokens(call["name"] + call["arguments"]) for call in message.get("calls", ()))
        for message in messages
    )


def _history(seed: str) -> Messages:
    chance = random.Random(seed)

    def text(least: int = 1) -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(least, 30)))

    messages: Messages = [{"role": "system", "content": f"Rules: {text()}"}]
    for turn in range(chance.randint(1, TURNS)):
        messages.append({"role": "user", "content": f"{turn}: {text()}"})
        if chance.random() < 0.6:
            calls = [
                {"id": f"c{turn}-{n}", "name": "fs.grep", "arguments": f'{{"n": {n}}}'}
                for n in range(chance.randint(1, 3))
            ]
            messages.append({"role": "assistant", "content": "", "calls": calls})
            messages += [
                {"role": "tool", "content": text(), "call_id": call["id"], "name": "fs.grep"}
                for call in calls
            ]
        messages.append({"role": "assistant", "content": f"{turn}: {text()}"})
    messages.append({"role": "user", "content": f"Now: {text()}"})
    return messages


async def _cases(case: Case, subject: PluginSubject) -> tuple[Running, list[str]]:
    """The providers that compress. Raises `NotApplicable` if none does."""
    running = await subject.running()
    names = []
    for name in subject.names("context"):
        reply = await _compress(running, name, _history("probe"), 10**9)
        if reply.error is None or reply.error.code != "unimplemented":
            names.append(name)
    if not names:
        raise NotApplicable("it does not compress")
    return running, names


async def _compress(running: Running, name: str, messages: Messages, budget: int) -> Reply:
    return await running.ask(name, "compress", {"messages": messages, "budget": budget})


def _answer(name: str, reply: Reply) -> Messages | None:
    """The messages; None where it says that they do not fit."""
    if reply.error is not None:
        if reply.error.code in ("resource_exhausted", "failed_precondition"):
            return None
        raise SubjectFailed(f"{name}.compress: messages, or resource_exhausted", str(reply))
    value = reply.value if isinstance(reply.value, dict) else {}
    messages = value.get("messages")
    shaped = isinstance(messages, list) and all(
        isinstance(each, dict) and isinstance(each.get("content"), str) for each in messages
    )
    if not shaped:
        raise SubjectFailed(f"{name}.compress gives a list of messages", str(reply))
    return list(messages or ())


async def _compressed(
    case: Case, subject: PluginSubject
) -> list[tuple[str, Messages, int, Messages]]:
    """(provider, history, budget, result) of many histories; those that do not fit are left out.

    Raises `RuleViolation` if none of them could be made to fit.
    """
    running, names = await _cases(case, subject)
    found = []
    for name in names:
        for messages, budget in _asked(case):
            result = _answer(name, await _compress(running, name, messages, budget))
            if result is not None:
                found.append((name, messages, budget, result))
    if not any(len(result) < len(messages) for _, messages, _, result in found):
        raise RuleViolation("some long conversation is made shorter", "none of them was")
    case.saw(f"{len(found)} of {len(names) * HISTORIES} histories fit")
    return found


def _asked(case: Case) -> Iterator[tuple[Messages, int]]:
    for number in range(HISTORIES):
        messages = _history(f"{case.seed}:{number}")
        part = (0.3, 0.6, 0.9)[number % 3]
        yield messages, max(1, int(_size(messages) * part))


@CHECKS.rule("CMP-001")
@about_plugin
async def the_result_fits(case: Case, subject: PluginSubject) -> None:
    """A result that is a little too long is refused by the provider, in the middle of a run."""
    for name, _, budget, result in await _compressed(case, subject):
        case.require(
            _size(result) <= budget, f"{name}: at most {budget} tokens", f"{_size(result)}"
        )


@CHECKS.rule("CMP-002")
@about_plugin
async def rules_and_question_stay(case: Case, subject: PluginSubject) -> None:
    """What the system says and what is asked now is the run; all else is its past."""
    for name, messages, _, result in await _compressed(case, subject):
        kept = [each for each in messages if each["role"] == "system"] + [messages[-1]]
        for message in kept:
            case.require(
                message in result,
                f"{name}: {message['role']} message {message['content'][:40]!r} stays as it is",
                f"{[each['content'][:40] for each in result if each['role'] == message['role']]}",
            )


@CHECKS.rule("CMP-003")
@about_plugin
async def calls_and_results_stay_together(case: Case, subject: PluginSubject) -> None:
    """A result without its call is refused by most providers, and believed by the others."""
    for name, _, _, result in await _compressed(case, subject):
        open_calls: set[str] = set()
        for message in result:
            if message["role"] == "tool":
                known = message.get("call_id") in open_calls
                case.require(
                    known, f"{name}: a result stays with its call", f"{message.get('call_id')!r}"
                )
                open_calls.discard(str(message.get("call_id")))
            open_calls |= {call["id"] for call in message.get("calls", ())}
        case.require(
            not open_calls, f"{name}: a call stays with its result", f"{sorted(open_calls)}"
        )


@CHECKS.rule("CMP-004")
@about_plugin
async def nothing_is_made_up(case: Case, subject: PluginSubject) -> None:
    """A past in another order, or with calls that nobody made, is another past."""
    for name, messages, _, result in await _compressed(case, subject):
        texts = [canonical_text(each) for each in messages]
        places = [texts.index(text) for text in map(canonical_text, result) if text in texts]
        case.require(places == sorted(places), f"{name}: the order is kept", f"places {places}")
        for message in result:
            if canonical_text(message) in texts:
                continue
            plain = message.get("role") in ROLES - {"tool"} and not message.get("calls")
            case.require(
                plain, f"{name}: what is new is text, no call and no result", f"{message!r}"[:200]
            )


@CHECKS.rule("CMP-005")
@about_plugin
async def what_fits_is_left_alone(case: Case, subject: PluginSubject) -> None:
    """Compressing what fits loses something for nothing."""
    running, names = await _cases(case, subject)
    for name in names:
        for number in range(HISTORIES // 4):
            messages = _history(f"{case.seed}:{number}")
            budget = 2 * _size(messages) + 100 * len(messages)
            result = _answer(name, await _compress(running, name, messages, budget))
            case.require(
                result == messages,
                f"{name}: {_size(messages)} tokens in a budget of {budget} are left alone",
                f"{len(result or ())} of {len(messages)} messages",
            )


@CHECKS.rule("CMP-006")
@about_plugin
async def twice_is_once(case: Case, subject: PluginSubject) -> None:
    """A past that shrinks with each look at it is gone after a few."""
    found = await _compressed(case, subject)
    running = await subject.running()
    for name, _, budget, result in found[:20]:
        again = _answer(name, await _compress(running, name, result, budget))
        case.require(
            again == result,
            f"{name}: compressing what was compressed changes nothing",
            f"{len(result)} messages, then {len(again or ())}",
        )


@CHECKS.rule("CMP-007")
@about_plugin
async def the_past_itself_stays(case: Case, subject: PluginSubject) -> None:
    """The result is for one request; what is kept is not touched."""
    running, names = await _cases(case, subject)
    for name in names:
        messages = _history(f"{case.seed}:x")
        budget = _size(messages) // 2
        before = picture(subject.scratch)
        first = _answer(name, await _compress(running, name, messages, budget))
        for number in range(3):
            await _compress(running, name, _history(f"{case.seed}:{number}"), budget)
        again = _answer(name, await _compress(running, name, messages, budget))
        case.require(picture(subject.scratch) == before, f"{name}: it writes nothing", "it wrote")
        case.require(
            again == first, f"{name}: the same conversation has the same result", "another one"
        )
