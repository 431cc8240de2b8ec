"""The model `scripted/script`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from purra_plugin_scripted.acting import act
from purra_plugin_scripted.playing import Player, UnexpectedError
from purra_plugin_scripted.script import Script, ScriptError, load_script, parse_script
from purra_sdk import Plugin, PluginError, model

if TYPE_CHECKING:
    from purra_sdk.calls import Call, Setup

__all__ = ["Scripted", "plugin"]


@model("script")
class Scripted:
    """Plays the configured script."""

    def __init__(self, setup: Setup) -> None:
        """Raises `PluginError(failed_precondition)` for a script that cannot be played."""
        self._log = setup.log
        try:
            self._script = _configured(setup.config)
        except ScriptError as error:
            raise PluginError("failed_precondition", str(error)) from None
        self._player = Player(self._script, setup.config.get("record", ""))

    def profile(self, _call: Call) -> dict[str, Any]:
        """As the script says."""
        return dict(self._script.profile)

    def generate(self, call: Call, request: dict[str, Any]) -> Iterator[Any]:
        """The answer of the step that fits; none: `PluginError(failed_precondition)`.

        A parameter that the step does not expect: `PluginError(unimplemented)`.
        """
        try:
            number, step = self._player.take(request)
        except UnexpectedError as error:
            raise PluginError(error.code, error.message, detail=error.detail) from None
        yield from act(number, step, lambda: call.cancelled)

    def close(self) -> None:
        """At the worker's orderly end: steps that were not played are an error in the log."""
        try:
            self._player.finish()
        except UnexpectedError as error:
            self._log("error", error.message, **error.detail)


def _configured(config: dict[str, Any]) -> Script:
    if ("script" in config) == ("steps" in config):
        raise ScriptError("configure exactly one of 'script' (a file) and 'steps'")
    script = load_script(config["script"]) if "script" in config else None
    table = {key: config[key] for key in ("steps", "match", "profile") if key in config}
    if script is None:
        return parse_script(table)
    overriding = parse_script(table)
    return script._replace(
        match=overriding.match if "match" in config else script.match,
        profile=overriding.profile if "profile" in config else script.profile,
    )


plugin = Plugin(models=[Scripted])
