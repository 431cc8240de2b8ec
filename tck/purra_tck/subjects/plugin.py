"""A plugin under judgement: launched as its manifest says, and asked through the real ports.

Each check gets a subject of its own with a new scratch folder, so nothing that one check did can
help or hurt another. A process is started when a check asks for one. What stands between the check
and the plugin (the reader of manifests, the ports) is part of the subject, because a rule like "is
refused before the handler runs" is about both; `Ways` is where a saboteur breaks it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

from purra.contracts.call import Stop
from purra.contracts.tool import Tools, ToolSchema
from purra.manifest.config import Config, resolve_config
from purra.manifest.names import RefusedError
from purra.manifest.plugin import PluginManifest, load_plugin
from purra.values import canonical_text, thaw
from purra_bridge.ports.channel import Request
from purra_bridge.ports.context import HostedContext
from purra_bridge.ports.model import HostedModel
from purra_bridge.ports.tool import HostedTools
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch, LaunchLimits
from purra_hosts.process.route import Route, RouteStatus
from purra_hosts.process.supervisor import ProcessHost
from purra_hosts.process.timings import Timings
from purra_tck.fixtures import SCRATCH, UPSTREAM, Hand, filled
from purra_tck.subjects.judging import judged
from purra_tck.subjects.plugin_package import Package
from purra_tck.subjects.plugin_places import cause_of
from purra_tck.subjects.plugin_tap import Tap, TappedChannel
from purra_tck.verdict import Case, RuleViolation, SubjectFailed, Untestable

__all__ = [
    "CALL_S",
    "CANARY",
    "PluginSubject",
    "Reply",
    "Running",
    "Ways",
    "about_plugin",
    "opening",
]

T = TypeVar("T")

CALL_S: Final = 10.0
"""Longest time of a call of the kit's, where the matter is not time."""
TIMINGS: Final = Timings(hello_s=10.0, ready_s=20.0, drain_s=0.2, exit_s=1.0, term_s=0.5)
TAIL_LINES: Final = 8
CANARY: Final = "tck-canary-5f1d"
"""Begins each secret that the kit gives away, to be found where it must not be."""


def _same(launch: Launch) -> Launch:
    return launch


def _these(tools: Tools) -> Tools:
    return tools


@dataclass(frozen=True, slots=True)
class Ways:
    """What is around the plugin: who reads its manifest, how a launch is carried out, its port."""

    read: Callable[[Path], PluginManifest] = load_plugin
    launch: Callable[[Launch], Launch] = _same
    tools: Callable[[Tools], Tools] = _these


@dataclass(frozen=True, slots=True)
class Reply:
    """How one call ended: a value, or an error."""

    value: Any = None
    error: WireError | None = None
    items: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.error}" if self.error else f"RESULT {self.value!r}"[:300]


class Running:
    """One instance of the plugin, in a host of its own."""

    def __init__(self, route: Route, channel: TappedChannel, ways: Ways) -> None:
        self.channel = channel
        self._route = route
        self._ways = ways

    @property
    def launch(self) -> Launch:
        return self._route.launch

    def status(self) -> RouteStatus:
        return self._route.status()

    async def ask(
        self, adapter: str, method: str, args: Any, *, timeout_s: float = CALL_S, **more: Any
    ) -> Reply:
        """One call, past the ports: nothing is checked on the way, and nothing is raised."""
        items: list[Any] = []
        request = Request(adapter, method, args, timeout_s=timeout_s, **more)
        try:
            value = await self.channel.call(request, items.append)
        except WireError as error:
            return Reply(error=error, items=tuple(items))
        return Reply(value, items=tuple(items))

    async def stopped(self, adapter: str, method: str, args: Any, stop: Stop) -> Reply:
        """One call that `stop` may end."""
        return await self.ask(adapter, method, args, stop=stop)

    def tools(self, schemas: tuple[ToolSchema, ...]) -> Tools:
        """The port of the tools."""
        return self._ways.tools(HostedTools(self.channel, schemas))

    def model(self, name: str) -> HostedModel:
        """The port of a model."""
        return HostedModel(self.channel, name)

    def context(self, name: str) -> HostedContext:
        """The port of a context provider."""
        return HostedContext(self.channel, name)

    async def end(self) -> None:
        """Stops the instance in good order."""
        await self._route.stop()


class PluginSubject:
    """A plugin, for one run of one check."""

    def __init__(self, package: Package, ways: Ways, scratch: Path, stack: AsyncExitStack) -> None:
        self.package = package
        self.ways = ways
        self.fixtures = package.fixtures
        self.scratch = scratch
        self.tap = Tap()
        self.upstream = ""
        """The address of the provider that the kit plays, once it plays one."""
        self.tables: dict[str, Any] | None = None
        """The manifest as plain tables, once somebody has read it."""
        self._stack = stack
        self._running: Running | None = None
        self._started = 0

    @property
    def manifest(self) -> PluginManifest:
        """The plugin's manifest. Raises `Untestable` if it was refused: MAN and TOL-001 say why."""
        if self.package.manifest is None:
            raise Untestable(f"the manifest is refused: {self.package.refusal}")
        return self.package.manifest

    def names(self, kind: str) -> tuple[str, ...]:
        """The adapters of a kind, in the order of the manifest."""
        return tuple(offer.name for offer in self.manifest.offers if offer.kind == kind)

    def tool_schemas(self) -> tuple[ToolSchema, ...]:
        """The declared tools."""
        return tuple(offer.tool for offer in self.manifest.offers if offer.tool is not None)

    def filled(self, value: Any) -> Any:
        """A value of the fixtures with its placeholders filled in."""
        return filled(value, {SCRATCH: str(self.scratch), UPSTREAM: self.upstream})

    def filled_hand(self, hand: Hand | None) -> Hand | None:
        """What a fixture does, with its placeholders filled in; None stays None."""
        if hand is None:
            return None
        return Hand(
            self.filled(hand.file),
            self.filled(hand.folder),
            hand.call,
            tuple(self.filled(hand.command)),
        )

    async def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enters a context that is left with the subject."""
        return await self._stack.enter_async_context(context)

    async def running(self) -> Running:
        """The instance that most checks ask; started with the first call."""
        if self._running is None:
            self._running = await self.start()
        return self._running

    async def start(self, launch: Launch | None = None) -> Running:
        """A new instance, in a host of its own. Raises `SubjectFailed` if it does not start."""
        try:
            return await self.try_start(launch)
        except WireError as error:
            raise SubjectFailed(
                "the plugin starts, as its manifest says",
                f"{error.code}: {error.message}",
                "\n".join(filter(None, [*self.tap.said[-TAIL_LINES:], self._advice()])),
            ) from error

    async def try_start(self, launch: Launch | None = None) -> Running:
        """As `start`. Raises the host's `WireError`."""
        self._started += 1
        host = await self._stack.enter_async_context(
            ProcessHost(timings=TIMINGS, logs=self.tap.took)
        )
        route = host.add(self.ways.launch(launch or self.launch()))
        self.tap.note(self._started, "host", "START", 0, route.launch.label)
        await route.start()
        self.tap.note(self._started, "plugin", "READY", 0, list(route.launch.offers))
        return Running(route, TappedChannel(route, self.tap, self._started), self.ways)

    def launch(self, **changes: Any) -> Launch:
        """How to start it. Raises `Untestable` for a configuration that does not fit."""
        manifest = changes.pop("manifest", None) or self.manifest
        config = self._config(manifest)
        launch = Launch(
            plugin=manifest.id,
            version=manifest.version,
            folder=manifest.path.parent,
            manifest_path=manifest.path,
            manifest_sha256=manifest.sha256,
            offers=tuple((each.kind, each.name) for each in manifest.offers if not each.dynamic),
            python=self.package.python,
            entry=manifest.runs.entry,
            command=manifest.runs.command,
            config=config.values,
            grants=self._grants(manifest, config),
            secrets=self.secrets(manifest),
            sys_path=self.package.sys_path,
            limits=LaunchLimits(
                inflight=manifest.limits.inflight,
                threads=manifest.limits.threads,
                memory_bytes=manifest.limits.memory_bytes,
            ),
        )
        return replace(launch, **changes)

    def furnish(self) -> None:
        """Puts the fixtures' files into the scratch folder."""
        for name, text in self.fixtures.files.items():
            path = self.scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.filled(text), encoding="utf-8")

    def beside(self, name: str) -> PluginSubject:
        """The same plugin with a scratch folder of its own, closed with this one."""
        folder = self.scratch / f"beside-{name}"
        folder.mkdir()
        other = PluginSubject(self.package, self.ways, folder, self._stack)
        other.tap = self.tap
        other.upstream = self.upstream
        other.furnish()
        return other

    def place(self) -> dict[str, Any]:
        """What the fixtures' code is told about where it is."""
        return {"scratch": str(self.scratch), "config": thaw(self.launch().config)}

    def secrets(self, manifest: PluginManifest) -> dict[str, str]:
        """A canary for each secret that the plugin declares."""
        names = [name for name in manifest.capabilities.host if name.startswith("secret:")]
        return {
            name.removeprefix("secret:"): f"{CANARY}-{number}" for number, name in enumerate(names)
        }

    def _config(self, manifest: PluginManifest) -> Config:
        given = self.filled(self.fixtures.config)
        for key in self._own_paths(manifest):
            given[key] = str(self.scratch / key)
        try:
            return resolve_config(
                manifest.config, given, lambda path, _: str((self.scratch / path).resolve())
            )
        except RefusedError as error:
            key = ".".join(map(str, error.place))
            raise Untestable(
                f"config.{key} {error.reason}",
                f"to {self.fixtures.path or 'tck.toml'}\n[config]\n{key} = …",
            ) from None

    def _own_paths(self, manifest: PluginManifest) -> list[str]:
        """Keys of paths that nobody gave: the kit makes some up, and nothing is there."""
        return [
            name
            for name, key in manifest.config.items()
            if key.required
            and name not in self.fixtures.config
            and key.schema.get("format") == "path"
        ]

    def _advice(self) -> str:
        """What may be missing when it does not start."""
        keys = self._own_paths(self.manifest)
        if not keys:
            return ""
        snippet = "\n".join(f'{key} = "{SCRATCH}/{key}"' for key in keys)
        return (
            "nothing was there under a path that the kit made up; if it must be there, add to "
            f"{self.fixtures.path or 'tck.toml'}\n[config]\n{snippet}\n[files]\n…"
        )

    def _grants(self, manifest: PluginManifest, config: Config) -> Mapping[str, Any]:
        """What the manifest asks for, and no more."""
        wanted = manifest.capabilities
        return replace(
            wanted,
            fs_read=tuple(_located(wanted.fs_read, config)),
            fs_write=tuple(_located(wanted.fs_write, config)),
            network="any" if self.upstream and wanted.network != "none" else wanted.network,
        ).value()

    def evidence(self) -> str:
        """What the plugin printed last."""
        return "\n".join(self.tap.said[-TAIL_LINES:])

    def shown(self, value: Any) -> str:
        """A value as short text."""
        text = canonical_text(value)
        return text if len(text) <= 300 else text[:300] + "…"


def _located(patterns: tuple[str, ...], config: Config) -> Iterator[str]:
    for pattern in patterns:
        if pattern.startswith("/"):
            yield pattern
            continue
        key, _, below = pattern.removeprefix("{config.").partition("}")
        for path in config.paths.get(key, ()):
            whole = Path(path + below)
            # An operator grants the folder of a file that is still to be made.
            yield str(whole if whole.exists() else whole.parent)


def opening(
    package: Package, ways: Ways | None = None
) -> Callable[[], AbstractAsyncContextManager[PluginSubject]]:
    """For `Plan.open`: each run of a check on a subject of its own."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[PluginSubject, None]:
        with TemporaryDirectory(prefix="purra-tck-") as folder:
            async with AsyncExitStack() as stack:
                subject = PluginSubject(package, ways or Ways(), Path(folder).resolve(), stack)
                subject.furnish()
                yield subject

    return opened


_Check = Callable[[Case, PluginSubject], Coroutine[Any, Any, None]]


def about_plugin(check: _Check) -> _Check:
    """A check of a plugin suite: an error that the plugin answers with, where success is expected,
    is the plugin's; the messages go into the report; what it printed is the evidence, and shows
    the place.
    """
    inner = judged(check)

    @wraps(check)
    async def run(case: Case, subject: PluginSubject) -> None:
        try:
            await inner(case, subject)
        except RuleViolation as violation:
            words = f"{violation.expected} {violation.observed}"
            cause = cause_of(subject.package, words, subject.tap.said)
            violation.place, violation.mend = cause
            violation.evidence = violation.evidence or subject.evidence()
            raise
        finally:
            case.frames += subject.tap.rows()

    return run
