"""MOD-001 to 008: what reaches the provider, and what comes back of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from purra_tck.checks import Checks
from purra_tck.subjects.plugin import PluginSubject, Running, about_plugin
from purra_tck.subjects.plugin_models import (
    Heard,
    Nonces,
    Provider,
    ask_model,
    features_of,
    is_local,
    provider,
)
from purra_tck.upstream.scenario import Delivery, Scenario, answer
from purra_tck.verdict import Case, NotApplicable

__all__ = ["CHECKS"]

CHECKS = Checks("MOD")

ODD_TEXT: Final = 'Zoë 漢字 😀 \u2028 \\ "quoted" \t end'
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"system", "developer"}),
    "user": frozenset({"user", "human"}),
    "assistant": frozenset({"assistant", "model", "ai"}),
    "tool": frozenset({"tool", "function", "user"}),
}
"""What providers call the contract's roles."""
USED: Final = {"t": "usage", "input_tokens": 11, "output_tokens": 7}
SMALL_WINDOW_BYTES: Final = 256
USER: Final[Sequence[Mapping[str, Any]]] = (
    {"role": "user", "content": "How does a caller cancel a tool?"},
)


def _content(text: str) -> dict[str, Any]:
    return {"t": "content", "text": text}


def _call(index: int, name: str, *pieces: str) -> Iterator[dict[str, Any]]:
    head = {"t": "call", "index": index, "id": f"call_{index}", "name": name}
    yield {**head, "arguments": pieces[0]}
    yield from ({"t": "call", "index": index, "arguments": piece} for piece in pieces[1:])


def _tool(name: str, field: str = "city") -> dict[str, Any]:
    properties = {field: {"type": "string"}}
    parameters = {"type": "object", "properties": properties, "required": [field]}
    return {"name": name, "description": f"Weather of a {field}", "parameters": parameters}


def _good(case: Case, told: Heard, what: str) -> None:
    """The answer came to its end."""
    case.require(
        told.error is None and len(told.finishes) == 1, f"{what}: an answer with one finish", told
    )


# --- MOD-001, MOD-002 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-001")
@about_plugin
async def both_ways_are_open(case: Case, subject: PluginSubject) -> None:
    """A model that never reads its request passes every test of shape."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        nonces = Nonces(case)
        prompt, system, tool, field, said = (nonces.word() for _ in range(5))
        await far.says(answer(_content(f"It is {said}."), USED))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        sent = {"the prompt": prompt, "the system's text": system}
        tools: list[Any] = []
        if "tools" in await features_of(running, name):
            tools = [_tool(f"tool_{tool}", field)]
            sent |= {"the tool's name": tool, "a key of its schema": field}
        told = await ask_model(running, name, messages, tools=tools)
        body = far.last().text
        for what, word in sent.items():
            case.require(
                word in body, f"{name}: {what} reaches the provider", f"{word} not in {body[:200]}"
            )
        _good(case, told, name)
        case.require(
            said in told.text, f"{name}: what the provider says reaches the caller: {said}", told
        )


@CHECKS.rule("MOD-002")
@about_plugin
async def the_conversation_arrives_as_it_is(case: Case, subject: PluginSubject) -> None:
    """Roles that are merged or put in another order make a stranger's text an instruction."""
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        tools = "tools" in await features_of(running, name)
        messages = _conversation(Nonces(case), with_tools=tools)
        await far.says(answer(_content("ok")))
        _good(case, await ask_model(running, name, messages, tools=[_tool("w")] * tools), name)
        _judge_body(case, name, messages, far.last().text)


def _conversation(nonces: Nonces, *, with_tools: bool) -> list[dict[str, Any]]:
    call = {"id": "call_1", "name": "w", "arguments": json.dumps({"city": nonces.word()})}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": nonces.word()},
        {"role": "user", "content": f"{nonces.word()} {ODD_TEXT}"},
    ]
    if with_tools:
        messages += [
            {"role": "assistant", "content": "", "calls": [call]},
            {"role": "tool", "content": nonces.word(), "call_id": "call_1", "name": "w"},
        ]
    return [
        *messages,
        {"role": "assistant", "content": nonces.word()},
        {"role": "user", "content": nonces.word()},
    ]


def _judge_body(case: Case, name: str, messages: Sequence[Mapping[str, Any]], body: str) -> None:
    try:
        document = json.loads(body)
    except ValueError:
        raise NotApplicable("the provider's requests are not JSON") from None
    case.require(
        any(ODD_TEXT in text for text in _texts(document)),
        f"{name}: every character of {ODD_TEXT!r} arrives",
        f"it is in no text of {body[:300]}",
    )
    places: list[int] = []
    owners: dict[int, str] = {}
    for message in messages:
        word = message["content"].split(" ")[0]
        if not word:
            continue
        case.require(word in body, f"{name}: the {message['role']} message arrives", word)
        if message["role"] != "system":
            places.append(body.index(word))
        owner = _owner(document, word)
        if owner is None:
            continue  # this provider has another form than a list of messages with roles
        role = str(owner.get("role"))
        case.require(
            role in ROLES[message["role"]],
            f"{name}: a {message['role']} message stays one",
            f"it arrives with role = {role!r}",
        )
        other = owners.setdefault(id(owner), message["role"])
        case.require(
            other == message["role"],
            f"{name}: messages of different roles are not merged",
            f"{other} and {message['role']} in one message",
        )
    case.require(places == sorted(places), f"{name}: the order is kept", f"places {places}")


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)


def _owner(document: Any, word: str) -> dict[str, Any] | None:
    """The innermost object with a role that holds `word`."""
    inner: Iterable[Any] = ()
    if isinstance(document, dict):
        inner = document.values()
    elif isinstance(document, list):
        inner = document
    for value in inner:
        found = _owner(value, word)
        if found is not None:
            return found
    if isinstance(document, dict) and "role" in document:
        return document if any(word in text for text in _texts(document)) else None
    return None


# --- MOD-003, MOD-004 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-003")
@about_plugin
async def a_stream_has_one_end(case: Case, subject: PluginSubject) -> None:
    """Whoever reads two ends acts twice, or on half."""
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        tools = [_tool("fs.grep", "pattern")] if "tools" in await features_of(running, name) else []
        if far is not None:
            await far.says(answer(*map(_content, ("One ", "two ", "three.")), USED))
        for offered in ([], tools):
            told = await ask_model(running, name, USER, tools=offered)
            _good(case, told, name)
            kinds = [item["t"] for item in told.items]
            after = kinds[kinds.index("finish") + 1 :]
            case.require(
                set(after) <= {"usage"}, f"{name}: after the finish only usage", f"{after}"
            )


@CHECKS.rule("MOD-004")
@about_plugin
async def pieces_join_to_the_whole(case: Case, subject: PluginSubject) -> None:
    """A text that hangs on where the network cut it is another text each time."""
    if is_local(subject):
        await _the_same_through_a_small_window(case, subject)
        return
    far = await provider(subject)
    running = await subject.running()
    pieces = ("Hel", "lo ", "wörld", " 😀", "", "\n\n", "  two  spaces ", '"}\\', "漢字", ".")
    thought = {"t": "reasoning", "text": "hidden thought"}
    for name in subject.names("model"):
        features = await features_of(running, name)
        first = [thought] if "reasoning" in features else []
        scenario = answer(*first, *map(_content, pieces))
        for slices in (0, 1, 3, 7, 100_000):
            await far.says(scenario, Delivery(slices=slices))
            told = await ask_model(running, name, USER)
            _good(case, told, f"{name}, cut into {slices or 'chunks'}")
            case.equal(told.text, "".join(pieces), f"{name}, cut into {slices or 'chunks'}: text")


async def _the_same_through_a_small_window(case: Case, subject: PluginSubject) -> None:
    running = await subject.running()
    asked = 0
    for name in subject.names("model"):
        plain = [await ask_model(running, name, USER) for _ in range(2)]
        if plain[0].text != plain[1].text:
            continue  # it draws its answers: no two can be compared
        asked += 1
        small = await ask_model(running, name, USER, how_window_bytes=SMALL_WINDOW_BYTES)
        _good(case, small, name)
        case.equal(small.text, plain[0].text, f"{name}: the text through a small window")
    if not asked:
        raise NotApplicable("it answers differently each time, and it has no provider")


# --- MOD-005, MOD-006 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-005")
@about_plugin
async def pieces_of_calls_join_to_calls(case: Case, subject: PluginSubject) -> None:
    """Arguments come in pieces, of several calls at once, and are cut in the middle of a letter."""
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    asked = False
    for name in subject.names("model"):
        features = await features_of(running, name)
        if "tools" not in features:
            continue
        asked = True
        if far is None:
            told = await ask_model(running, name, USER, tools=[_tool("fs.grep", "pattern")])
            _judge_calls(case, name, told)
            continue
        due = {0: {"city": "Zürich 😀", "n": [1, 2]}}
        if "parallel_tools" in features:
            due[1] = {"city": 'quoted " and \\', "n": []}
        await _calls_arrive(case, running, far, name, due)
    if not asked:
        raise NotApplicable("it declares no tools")


async def _calls_arrive(
    case: Case, running: Running, far: Provider, name: str, due: Mapping[int, Any]
) -> None:
    pieces: list[list[dict[str, Any]]] = []
    for index, arguments in due.items():
        text = json.dumps(arguments, ensure_ascii=False)
        third = max(1, len(text) // 3)
        parts = [text[:third], text[third : 2 * third], text[2 * third :]]
        pieces.append(list(_call(index, f"w{index}", *parts)))
    mixed = [one for some in zip(*pieces, strict=True) for one in some]
    tools = [_tool(f"w{index}") for index in due]
    for slices in (0, 1, 5):
        await far.says(answer(*mixed, finish="tool_calls"), Delivery(slices=slices))
        told = await ask_model(running, name, USER, tools=tools)
        what = f"{name}, cut into {slices or 'chunks'}"
        _good(case, told, what)
        _judge_calls(case, what, told)
        case.equal(sorted(told.calls), sorted(due), f"{what}: numbers of the calls")
        for index, arguments in due.items():
            found = told.calls[index]
            case.equal(found["name"], f"w{index}", f"{what}: name of call {index}")
            case.equal(
                json.loads(found["arguments"]), arguments, f"{what}: arguments of call {index}"
            )


def _judge_calls(case: Case, what: str, told: Heard) -> None:
    """Calls are whole, whatever they are."""
    ids = [call["id"] for call in told.calls.values()]
    case.require(
        all(ids) and len(set(ids)) == len(ids), f"{what}: each call has an id of its own", ids
    )
    case.equal(sorted(told.calls), list(range(len(told.calls))), f"{what}: numbers of the calls")
    for call in told.calls.values():
        try:
            whole = isinstance(json.loads(call["arguments"] or "{}"), dict)
        except ValueError:
            whole = False
        case.require(
            whole and bool(call["name"]), f"{what}: the pieces join to a name and an object", call
        )


@CHECKS.rule("MOD-006")
@about_plugin
async def what_is_malformed_stays_so(case: Case, subject: PluginSubject) -> None:
    """Arguments that were cut and then closed by somebody are a call that nobody made."""
    far = await provider(subject)
    running = await subject.running()
    asked = False
    for name in subject.names("model"):
        if "tools" not in await features_of(running, name):
            continue
        asked = True
        for text in ('{"city": "Ro', '{"city": }', "Rome", '{"city": "Rome"} {}'):
            await far.says(answer(*_call(0, "w", text), finish="tool_calls"))
            told = await ask_model(running, name, USER, tools=[_tool("w")])
            if told.error is not None:
                case.saw(f"{text!r}: {told.error}")
                continue
            found = told.calls.get(0, {}).get("arguments", "")
            case.require(
                found == text,
                f"{name}: malformed arguments {text!r} stay as they are, or are an error",
                f"{found!r}",
            )
    if not asked:
        raise NotApplicable("it declares no tools")


# --- MOD-007, MOD-008 ---------------------------------------------------------------------------


@CHECKS.rule("MOD-007")
@about_plugin
async def the_end_has_its_reason(case: Case, subject: PluginSubject) -> None:
    """An answer that was cut and says `stop` is taken for a whole one."""
    if is_local(subject):
        await _what_is_cut_says_so(case, subject)
        return
    far = await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        tools = "tools" in await features_of(running, name)
        for reason in ("stop", "length", "filtered", "other", *["tool_calls"] * tools):
            call = list(_call(0, "w", "{}")) if reason == "tool_calls" else []
            native = "tck_strange" if reason == "other" else ""
            await far.says(answer(_content("x"), *call, finish=reason, native=native))
            told = await ask_model(running, name, USER, tools=[_tool("w")] * len(call))
            _good(case, told, f"{name}, {reason}")
            case.equal(told.reason, reason, f"{name}: reason of {native or reason!r}")


async def _what_is_cut_says_so(case: Case, subject: PluginSubject) -> None:
    running = await subject.running()
    for name in subject.names("model"):
        whole = await ask_model(running, name, USER, max_tokens=2048)
        for most in (1, 4):
            cut = await ask_model(running, name, USER, max_tokens=most)
            shorter = len(cut.text) < len(whole.text) and whole.text.startswith(cut.text)
            case.require(
                not shorter or cut.reason == "length" or cut.error is not None,
                f"{name}: an answer that was cut at {most} tokens ends with `length`",
                f"{len(cut.text)} of {len(whole.text)} characters, {cut.reason}",
            )


@CHECKS.rule("MOD-008")
@about_plugin
async def usage_is_what_was_said(case: Case, subject: PluginSubject) -> None:
    """A zero for "not known" is a bill that nobody pays, and a limit that never bites."""
    far = None if is_local(subject) else await provider(subject)
    running = await subject.running()
    for name in subject.names("model"):
        if far is None:
            told = await ask_model(running, name, USER)
            _whole_numbers(case, name, told)
            continue
        for used, due in _usages():
            await far.says(Scenario((_content("x"), *used, _end())))
            told = await ask_model(running, name, USER)
            _good(case, told, name)
            _whole_numbers(case, name, told)
            last = told.usage[-1] if told.usage else {}
            found = (last.get("input_tokens"), last.get("output_tokens"))
            case.equal(found, due, f"{name}: usage where the provider says {list(used)}")


def _end() -> dict[str, Any]:
    return {"t": "finish", "reason": "stop", "native": "stop"}


def _usages() -> Iterator[tuple[tuple[dict[str, Any], ...], tuple[Any, Any]]]:
    yield (USED,), (11, 7)
    yield (), (None, None)
    yield ({"t": "usage", "input_tokens": 11, "output_tokens": None},), (11, None)
    yield ({"t": "usage", "input_tokens": 3, "output_tokens": 1}, USED), (11, 7)


def _whole_numbers(case: Case, name: str, told: Heard) -> None:
    for item in told.usage:
        for key in ("input_tokens", "output_tokens"):
            value = item.get(key)
            right = value is None or (type(value) is int and value >= 0)
            case.require(right, f"{name}: {key} is a whole number or null", f"{value!r}")
    case.saw(f"{name}: usage {told.usage}")
