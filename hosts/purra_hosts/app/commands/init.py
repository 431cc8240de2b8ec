"""`purra init`: a host manifest from answers, which is right before it is there."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from purra.errors import PurraError
from purra_hosts.app.options import DEFAULT_MANIFEST, Json
from purra_hosts.app.printing import json_line

if TYPE_CHECKING:
    from purra.registry.discovery import Discovery
    from purra_hosts.app.scaffold.application import Answers, Offered

__all__ = ["init"]

NONE = "none"
_commands = typer.Typer()


@_commands.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to make.")] = DEFAULT_MANIFEST,
    name: Annotated[str, typer.Option(help="What it is called; its state is kept by it.")] = "",
    model: Annotated[str, typer.Option(help="PLUGIN/NAME of the model.")] = "",
    tool: Annotated[
        list[str] | None, typer.Option(help="PLUGIN/NAME of a tool, or none; repeatable.")
    ] = None,
    context: Annotated[
        list[str] | None, typer.Option(help="PLUGIN/NAME of a context provider; repeatable.")
    ] = None,
    store: Annotated[str, typer.Option(help="PLUGIN/NAME of the store, or none.")] = "",
    root: Annotated[Path, typer.Option(help="The folder that tools may read.")] = Path("."),
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="PLUGIN.KEY=VALUE", help="A value of a plugin's configuration."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    json: Json = False,
) -> None:
    """Write a host manifest: an agent of what is installed.

    On a terminal it asks for what is not given; elsewhere it takes the first model and store, and
    the tools that only read. The file is checked before it is there, and never overwritten.
    """
    from purra_hosts.app.environments import find_plugins
    from purra_hosts.app.scaffold.application import Answers

    if os.path.lexists(file):
        raise PurraError(
            "invalid_argument", f"{file} is there already", where="init", hint="name another file"
        )
    discovery = find_plugins()
    asks = _Asks(discovery, asks=not (yes or json) and sys.stdin.isatty())
    folder = os.path.relpath(root.resolve(), file.resolve().parent)
    answers = Answers(
        name=name or asks.text("name", _id_of(file.resolve().parent.name)),
        model=asks.one("model", model),
        tools=asks.many("tool", tool),
        context=asks.many("context", context),
        store=asks.one("store", store),
        root=folder,
        config=_pairs(config or ()),
    )
    answers = asks.rest(answers)
    _write(file, answers, discovery)
    if json:
        chosen = dict.fromkeys(address.partition("/")[0] for _, address in answers.addresses)
        json_line({"file": str(file), "name": answers.name, "plugins": list(chosen)})
        return
    typer.echo(f"{file}: {', '.join(address for _, address in answers.addresses)}")
    typer.echo(f'It is yours to change. Next: purra run {file} "What is here?"')


def _write(file: Path, answers: Answers, discovery: Discovery) -> None:
    """Checked beside its place, so that relative paths mean the same, then moved there."""
    from purra.manifest.host import Caller
    from purra_hosts.app.plan import make_plan
    from purra_hosts.app.scaffold.application import manifest_text

    text = manifest_text(answers, discovery)
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8")
        secrets = re.findall(r'"env:(\w+)"', text)
        # Whether a secret is set here and now is no matter of the file.
        make_plan(fresh, Caller(environment={**dict.fromkeys(secrets, "set"), **os.environ}))
        with open(file, "x", encoding="utf-8") as stream:  # never over what came there meanwhile
            stream.write(text)
    except OSError as error:
        raise PurraError(
            "invalid_argument", f"{file} cannot be written: {error.strerror}", where="init"
        ) from None
    except PurraError as error:
        error.where = error.where.replace(str(fresh.resolve()), str(file))
        raise
    finally:
        fresh.unlink(missing_ok=True)
    for name in secrets:
        if not os.environ.get(name):
            typer.echo(f"note: set the environment variable {name} before it is run", err=True)


def _id_of(text: str) -> str:
    """The nearest plugin id to a folder's name, which a manifest's name must be."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return plain if plain[:1].isalpha() else "agent"


def _pairs(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`PLUGIN.KEY=VALUE` texts as values by plugin and key; a value is TOML, else text."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        plugin, dot, key = place.partition(".")
        if not equals or not dot or not key:
            raise PurraError(
                "invalid_argument", f"{text!r} is not PLUGIN.KEY=VALUE", where="--config"
            )
        found.setdefault(plugin, {})[key] = _value(value)
    return found


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


class _Asks:
    """Asks a person, or takes what stands first."""

    def __init__(self, discovery: Discovery, *, asks: bool) -> None:
        from purra_hosts.app.scaffold.application import offered

        self._discovery = discovery
        self._offered = offered(discovery)
        self._asks = asks

    def text(self, title: str, default: str) -> str:
        return str(typer.prompt(title, default=default)) if self._asks else default

    def one(self, kind: str, given: str) -> str:
        """An address; "" = none, which a model cannot be. Raises `PurraError(plugin_not_found)`."""
        from purra_hosts.app.scaffold.application import needs_more

        choices = self._offered[kind]
        if not given:
            if not choices and kind == "model":
                raise PurraError(
                    "plugin_not_found",
                    "no installed plugin offers a model",
                    where="init",
                    hint="install one, such as purra-plugin-offline, which needs no network",
                )
            first = next((choice.address for choice in sorted(choices, key=needs_more)), NONE)
            given = self._asked(kind, choices, first) if choices else first
        return "" if given == NONE else given

    def many(self, kind: str, given: Sequence[str] | None) -> tuple[str, ...]:
        """Addresses, none twice."""
        from purra_hosts.app.scaffold.application import reads_only

        choices = self._offered[kind]
        if not given:
            readers = [choice.address for choice in choices if reads_only(choice)]
            text = ",".join(readers) or NONE
            text = self._asked(kind, choices, text) if choices else text
            given = [part.strip() for part in text.split(",")]
        return tuple(dict.fromkeys(address for address in given if address not in (NONE, "")))

    def rest(self, answers: Answers) -> Answers:
        """With the values that plugins need and nobody has told.

        Raises `PurraError(invalid_argument)` that names them if nobody can be asked.
        """
        from dataclasses import replace

        from purra_hosts.app.scaffold.application import wanting

        config = {plugin: dict(values) for plugin, values in answers.config.items()}
        for plugin, name, key in wanting(answers, self._discovery):
            meaning = str(key.schema.get("description", ""))
            if not self._asks:
                raise PurraError(
                    "invalid_argument",
                    f"{plugin} needs a value for {name!r}: {meaning}",
                    where="init",
                    hint=f"give it with --config {plugin}.{name}=VALUE",
                )
            value = _value(typer.prompt(f"{plugin}.{name} ({meaning})"))
            config.setdefault(plugin, {})[name] = value
        return replace(answers, config=config)

    def _asked(self, kind: str, choices: Sequence[Offered], default: str) -> str:
        if not self._asks:
            return default
        for choice in choices:
            typer.echo(f"  {choice.address:<28} {choice.offer.summary}")
        return str(typer.prompt(kind if kind != "tool" else "tools, with commas", default=default))
