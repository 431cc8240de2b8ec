"""A host manifest from answers: which adapters, below which folder.

What it writes is meant to be read and changed by a person, so every grant stands in it by name. A
capability is granted if an adapter that was chosen needs it, or if the plugin wants it for all of
them; a folder that a plugin only reads is the root, and a store's file lies in the state folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from purra.contracts.tool import READ_EFFECTS
from purra.errors import PurraError
from purra.manifest.config import ConfigKey, resolve_config
from purra.manifest.names import RefusedError, parse_address, suggest
from purra.manifest.permissions import Permissions
from purra.manifest.plugin import Offer, PluginManifest
from purra.registry.discovery import Discovery
from purra_hosts.app.toml_text import key_text, value_text

__all__ = ["Answers", "Offered", "manifest_text", "needs_more", "offered", "reads_only", "wanting"]

KINDS: Final = ("model", "tool", "context", "store")
ROOT: Final = "{params.root}"
STATE: Final = "{state}"
_IDENTITY: Final = "Answer from what the tools find, and say where it stands."


@dataclass(frozen=True, slots=True)
class Offered:
    """One adapter that could be chosen: its address, and the plugin and offer behind it."""

    address: str
    plugin: PluginManifest
    offer: Offer


@dataclass(frozen=True, slots=True)
class Answers:
    """What a manifest is made of. Addresses are PLUGIN-ID/NAME; `store` "" = none. `root`: as it is
    to be written. `config`: values by plugin and key, where the manifest would have no other way to
    know them.
    """

    name: str
    model: str
    tools: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    store: str = ""
    root: str = "."
    config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def addresses(self) -> tuple[tuple[str, str], ...]:
        """Kind and address of everything chosen, in the order in which plugins are named."""
        kept = (("store", self.store),) if self.store else ()
        many = [("tool", address) for address in self.tools]
        many += [("context", address) for address in self.context]
        return (("model", self.model), *many, *kept)


def offered(discovery: Discovery) -> dict[str, list[Offered]]:
    """What there is to choose from, by kind."""
    found: dict[str, list[Offered]] = {kind: [] for kind in KINDS}
    for plugin in discovery.plugins:
        for offer in plugin.manifest.offers if plugin.manifest and plugin.state == "ok" else ():
            if offer.kind in found and not offer.dynamic and plugin.manifest:
                found[offer.kind].append(
                    Offered(f"{plugin.id}/{offer.name}", plugin.manifest, offer)
                )
    return found


def reads_only(choice: Offered) -> bool:
    """Whether it is a tool that leaves nothing behind and asks for no more than the folder."""
    tool, wanted = choice.offer.tool, choice.plugin.capabilities
    return tool is not None and tool.effect in READ_EFFECTS and wanted.network in ("none", ())


def needs_more(choice: Offered) -> bool:
    """Whether its plugin wants a network, a secret or a service: what works at once comes first."""
    wanted = choice.plugin.capabilities
    return wanted.network not in ("none", ()) or bool(wanted.host)


def wanting(answers: Answers, discovery: Discovery) -> Iterator[tuple[str, str, ConfigKey]]:
    """Plugin, key and declaration of each value that only a person knows, and has not told."""
    for plugin, offers in _plugins(answers, discovery):
        for name, key in plugin.config.items():
            if name not in _config(answers, plugin, offers) and key.required:
                yield plugin.id, name, key


def manifest_text(answers: Answers, discovery: Discovery) -> str:
    """The host manifest.

    Raises `PurraError`: `invalid_argument` for an address that is none, `plugin_not_found` and
    `adapter_not_found` for one that nobody offers, `invalid_manifest` for a value that its plugin
    refuses.
    """
    sections = [
        _section(answers, plugin, offers) for plugin, offers in _plugins(answers, discovery)
    ]
    needs_person = any(
        offer.tool is not None and offer.tool.approval == "required"
        for _, offers in _plugins(answers, discovery)
        for offer in offers
    )
    lines = ['schema = "purra.host/1"', f"name = {value_text(answers.name)}", ""]
    if any(ROOT in section for section in sections):
        root = f"root = {value_text(answers.root)}"
        lines += ["[params]", f"{root:<40} # for one run: --param root=FOLDER", ""]
    lines += ["[agent]", 'id = "assistant"', 'revision = "1"']
    lines.append(f"model = {value_text(answers.model)}")
    lines += [
        f"{key} = {value_text(list(some))}"
        for key, some in (("tools", answers.tools), ("context", answers.context))
        if some
    ]
    if answers.store:
        lines.append(f"store = {value_text(answers.store)}")
    if answers.store and needs_person:
        lines.append('approvals = "inbox"                      # `purra approvals` decides')
    lines += ["", "[[agent.prompt]]", 'name = "identity"', f"text = {value_text(_IDENTITY)}", ""]
    return "\n".join([*lines, *sections]).rstrip("\n") + "\n"


def _plugins(
    answers: Answers, discovery: Discovery
) -> list[tuple[PluginManifest, tuple[Offer, ...]]]:
    """Each plugin that must be named, with what was chosen of it; required ones too."""
    chosen: dict[str, list[Offer]] = {}
    for kind, address in answers.addresses:
        plugin, offer = _resolved(kind, address, discovery)
        chosen.setdefault(plugin.id, []).append(offer)
    waiting = list(chosen)
    while waiting:
        for name in _manifest(waiting.pop(), discovery).requires:
            if name not in chosen:
                chosen[name] = []
                waiting.append(name)
    return [(_manifest(name, discovery), tuple(offers)) for name, offers in chosen.items()]


def _manifest(name: str, discovery: Discovery) -> PluginManifest:
    found = discovery.get(name)
    if found is None or found.manifest is None or found.state != "ok":
        known = [plugin.id for plugin in discovery.plugins if plugin.state == "ok"]
        reason = f"no plugin {name!r} is installed" if found is None else found.reason
        hint = suggest(name, known, what="there are")
        raise PurraError("plugin_not_found", reason, where="init", hint=hint)
    return found.manifest


def _resolved(kind: str, address: str, discovery: Discovery) -> tuple[PluginManifest, Offer]:
    try:
        parsed = parse_address(address)
    except RefusedError as error:
        raise PurraError("invalid_argument", error.reason, where="init", hint=error.hint) from None
    plugin = _manifest(parsed.plugin, discovery)
    offer = plugin.offer(parsed.name)
    if offer is None or offer.kind != kind or offer.dynamic:
        names = [each.name for each in plugin.offers if each.kind == kind]
        raise PurraError(
            "adapter_not_found",
            f"the plugin offers no {kind} of that name",
            where=address,
            hint=suggest(parsed.name, names, what="it offers"),
        )
    return plugin, offer


def _config(answers: Answers, plugin: PluginManifest, offers: Sequence[Offer]) -> dict[str, Any]:
    """The values that are told, and those that follow from the kind of the adapter."""
    values = dict(answers.config.get(plugin.id, {}))
    for name, key in plugin.config.items():
        if name in values or not key.required or not _is_path(key):
            continue
        stores = any(offer.kind == "store" for offer in offers)
        values[name] = f"{STATE}/{plugin.id}.db" if stores else ROOT
    return values


def _is_path(key: ConfigKey) -> bool:
    return key.schema.get("type") == "string" and key.schema.get("format") == "path"


def _section(answers: Answers, plugin: PluginManifest, offers: Sequence[Offer]) -> str:
    config = _config(answers, plugin, offers)
    try:
        paths = resolve_config(plugin.config, config, lambda path, _: path).paths
    except RefusedError as error:
        place = ".".join(map(str, error.place))
        raise PurraError(
            "invalid_manifest",
            f"plugins.{plugin.id}.config.{place} {error.reason}",
            where="init",
            hint=f"give it with --config {plugin.id}.{error.place[0]}=VALUE",
        ) from None
    grants = _grants(plugin.capabilities, offers, paths)
    secrets = [name for name in plugin.capabilities.host if name.startswith("secret:")]
    lines = [f"[plugins.{key_text(plugin.id)}]"]
    if config:
        lines.append(f"config = {value_text(config)}")
    if grants:
        lines.append(f"grants = {_dotted(grants)}")
    if secrets:
        names = [name.removeprefix("secret:") for name in secrets]
        lines.append(f"secrets = {value_text({name: f'env:{name}' for name in names})}")
    return "\n".join([*lines, ""])


def _dotted(grants: Mapping[str, Any]) -> str:
    """`fs.read` is a table in a table; it reads better with its dot."""
    pairs = ", ".join(f"{name} = {value_text(value)}" for name, value in grants.items())
    return "{ " + pairs + " }"


def _grants(
    wanted: Permissions, offers: Sequence[Offer], paths: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    needed = {need for offer in offers for need in offer.needs}
    asked = wanted.names if not needed else {name for name in wanted.names if name in needed}
    grants: dict[str, Any] = {}
    for name, patterns in (("fs.read", wanted.fs_read), ("fs.write", wanted.fs_write)):
        granted = dict.fromkeys(_granted(patterns, paths)) if name in asked else {}
        if granted:
            grants[name] = list(granted)
    if "network" in asked:
        network = wanted.network
        grants["network"] = network if isinstance(network, str) else list(network)
    if "subprocess" in asked:
        grants["subprocess"] = True
    if wanted.env:
        grants["env"] = list(wanted.env)
    return grants


def _granted(patterns: Sequence[str], paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The state folder whole: beside a database there stand other files."""
    for pattern in patterns:
        if pattern.startswith("/"):
            yield pattern
            continue
        key, _, below = pattern.removeprefix("{config.").partition("}")
        for path in paths.get(key, ()):
            yield STATE if path.startswith(STATE) else path + below
