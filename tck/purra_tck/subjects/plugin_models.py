"""A model under judgement: what is asked of it, what is heard, and the provider behind it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from purra_bridge.wire.errors import WireError
from purra_tck.fixtures import FILE_NAME, UPSTREAM
from purra_tck.subjects.plugin import PluginSubject, Reply, Running
from purra_tck.upstream.scenario import Delivery, Rendered, Renderer, Scenario
from purra_tck.upstream.server import Seen, Server
from purra_tck.verdict import Case, NotApplicable, SubjectFailed, Untestable

__all__ = [
    "Heard",
    "Nonces",
    "Provider",
    "ask_model",
    "features_of",
    "heard",
    "is_local",
    "provider",
    "request",
]

PROFILE_S: Final = 10.0
KINDS: Final = frozenset({"reasoning", "content", "call", "usage", "finish"})


class Nonces:
    """Words that nobody can guess, the same for the same seed."""

    def __init__(self, case: Case) -> None:
        self._chance = random.Random(f"{case.rule.id} {case.seed}")

    def word(self) -> str:
        """A new one."""
        return f"tck{self._chance.getrandbits(40):010x}"


@dataclass(slots=True)
class Heard:
    """One answer, put together."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: list[Mapping[str, Any]] = field(default_factory=list)
    finishes: list[Mapping[str, Any]] = field(default_factory=list)
    items: tuple[Any, ...] = ()
    error: WireError | None = None

    def __str__(self) -> str:
        parts = [f"text {self.text!r}"[:200]]
        parts += [f"calls {self.calls}"[:200]] if self.calls else []
        parts += [f"finish {finish.get('reason')}" for finish in self.finishes]
        parts += [f"error {self.error}"] if self.error else []
        return ", ".join(parts)

    @property
    def reason(self) -> str:
        """Of the one finish; "" if there is none."""
        return str(self.finishes[-1].get("reason")) if self.finishes else ""


def heard(reply: Reply) -> Heard:
    """What the items of an answer say. Raises `SubjectFailed` for one that is no item."""
    found = Heard(items=reply.items, error=reply.error)
    for item in reply.items:
        kind = item.get("t") if isinstance(item, dict) else None
        if kind not in KINDS:
            raise SubjectFailed(f"items of the kinds {', '.join(sorted(KINDS))}", f"{item!r}"[:200])
        if kind == "content":
            found.text += str(item.get("text", ""))
        elif kind == "reasoning":
            found.reasoning += str(item.get("text", ""))
        elif kind == "usage":
            found.usage.append(item)
        elif kind == "finish":
            found.finishes.append(item)
        else:
            _add_fragment(found.calls, item)
    return found


def _add_fragment(calls: dict[int, dict[str, str]], item: Mapping[str, Any]) -> None:
    call = calls.setdefault(int(item.get("index", 0)), {"id": "", "name": "", "arguments": ""})
    for name in ("id", "name"):
        call[name] = call[name] or str(item.get(name) or "")
    call["arguments"] += str(item.get("arguments") or "")


def request(messages: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """The arguments of `generate`."""
    return {"messages": list(messages), "tools": [], "max_tokens": 512, "params": {}, **more}


async def ask_model(
    running: Running, name: str, messages: Sequence[Mapping[str, Any]], **more: Any
) -> Heard:
    """One answer. `more`: other fields of the request, and those of `Running.ask` with `how_`."""
    how = {key.removeprefix("how_"): more.pop(key) for key in list(more) if key[:4] == "how_"}
    return heard(await running.ask(name, "generate", request(messages, **more), **how))


async def features_of(running: Running, name: str) -> list[str]:
    """The features in the profile. Raises `SubjectFailed` if it has none to show."""
    reply = await running.ask(name, "profile", {}, timeout_s=PROFILE_S)
    value = reply.value if isinstance(reply.value, dict) else {}
    window, features = value.get("window"), value.get("features")
    if type(window) is not int or window < 1 or not isinstance(features, list):
        raise SubjectFailed(f"{name}.profile gives a window and a list of features", str(reply))
    return [str(feature) for feature in features]


# --- the provider -------------------------------------------------------------------------------


def is_local(subject: PluginSubject) -> bool:
    """Whether the model has no provider: it can reach no network."""
    return subject.manifest.capabilities.network in ("none", ())


class Provider:
    """The far end of a remote model."""

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self.server = Server(self._plan)
        self._always: tuple[Rendered, Delivery] = (Rendered(200), Delivery())
        self._by_word: dict[str, tuple[Rendered, Delivery]] = {}

    def _plan(self, seen: Seen) -> tuple[Rendered, Delivery]:
        for word, answer in self._by_word.items():
            if word in seen.text:
                return answer
        return self._always

    async def says(self, scenario: Scenario, delivery: Delivery | None = None) -> None:
        """From now on every request gets this."""
        self._always = (await self.renderer.render(scenario), delivery or Delivery())

    async def says_to(self, word: str, scenario: Scenario, delivery: Delivery) -> None:
        """Requests that hold `word` get this."""
        self._by_word[word] = (await self.renderer.render(scenario), delivery)

    @property
    def seen(self) -> list[Seen]:
        """Every request so far."""
        return self.server.seen

    def last(self) -> Seen:
        """The last request. Raises `SubjectFailed` if there is none."""
        if not self.seen:
            raise SubjectFailed("a request reaches the provider", "none came")
        return self.seen[-1]


async def provider(subject: PluginSubject) -> Provider:
    """The provider that the kit plays, started; call it before the plugin is started.

    Raises `NotApplicable` for a local model, `Untestable` if the author does not say how.
    """
    if is_local(subject):
        raise NotApplicable("it has no provider: its manifest asks for no network")
    function = subject.fixtures.model.upstream
    if not function:
        raise Untestable(
            "the kit cannot play the provider of this model",
            f'to {subject.fixtures.path or FILE_NAME}\n[model]\nupstream = "module:render"  '
            f'# and in [config] the address "{UPSTREAM}"',
        )
    renderer = await subject.enter(Renderer(function, subject.fixtures.folder))
    found = Provider(renderer)
    await subject.enter(found.server)
    subject.upstream = found.server.url
    return found
