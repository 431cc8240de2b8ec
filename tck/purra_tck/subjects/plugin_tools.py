"""Which calls of a tool may really be made, and what to add where none may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from purra.contracts.tool import ToolSchema
from purra_tck.fixtures import FILE_NAME
from purra_tck.schema_cases import valid_arguments
from purra_tck.subjects.plugin import PluginSubject
from purra_tck.subjects.plugin_hands import picture, shown_state, state_of
from purra_tck.subjects.plugin_manifests import toml_inline
from purra_tck.verdict import Case, Untestable

__all__ = [
    "callable_freely",
    "examples_of",
    "need_examples",
    "probe",
    "untestable_without",
    "ways_to_call",
]

GENERATED: Final = 4


def callable_freely(subject: PluginSubject, schema: ToolSchema) -> bool:
    """Whether it may be called with arguments that the kit makes up: a read that can reach nothing
    but this machine, or a write that its author has released.
    """
    wanted = subject.manifest.capabilities
    local = wanted.network in ("none", ()) and not wanted.subprocess
    return (schema.reads and local) or schema.name in subject.fixtures.tool.generate


def examples_of(subject: PluginSubject, kind: str, tool: str) -> list[dict[str, Any]]:
    """Arguments of the author's examples: `safe` or `invalid`."""
    listed = subject.fixtures.tool.safe if kind == "safe" else subject.fixtures.tool.invalid
    return [subject.filled(dict(each.args)) for each in listed if each.tool == tool]


def ways_to_call(
    subject: PluginSubject, schema: ToolSchema, seed: int
) -> Iterator[tuple[dict[str, Any], bool]]:
    """Arguments that may be used, and whether the author says that they succeed."""
    for arguments in examples_of(subject, "safe", schema.name):
        yield arguments, True
    for arguments in examples_of(subject, "invalid", schema.name):
        yield arguments, False
    if callable_freely(subject, schema):
        for arguments in valid_arguments(schema.parameters, seed, GENERATED):
            yield arguments, False


def need_examples(
    case: Case, subject: PluginSubject, kind: str, schemas: Sequence[ToolSchema]
) -> None:
    """Raises `Untestable` with the snippet to add if one of the tools has no example."""
    missing = [each for each in schemas if not examples_of(subject, kind, each.name)]
    if missing:
        raise untestable_without(subject, kind, missing, case.seed)


def untestable_without(
    subject: PluginSubject, kind: str, schemas: Sequence[ToolSchema], seed: int
) -> Untestable:
    """The verdict where examples are missing."""
    lines = []
    for schema in schemas:
        made = valid_arguments(schema.parameters, seed, 2)
        args = toml_inline(made[-1] if made else {})
        lines.append(f'  {{ tool = "{schema.name}", args = {args} }},')
    names = ", ".join(schema.name for schema in schemas)
    where = subject.fixtures.path or FILE_NAME
    return Untestable(
        f"no example of a call that is {kind}: {names}",
        "\n".join([f"to {where}, with arguments that fit", "[tool]", f"{kind} = [", *lines, "]"]),
    )


async def probe(subject: PluginSubject) -> str:
    """The state that the tools work on, as text: what the author's probe shows, else everything
    that the plugin may write.
    """
    hand = subject.filled_hand(subject.fixtures.tool.probe)
    if hand is not None:
        return await state_of(hand, subject.fixtures.folder)
    package = picture(subject.package.path.parent)
    own = {name: what for name, what in package.items() if "__pycache__" not in name}
    return shown_state(picture(subject.scratch) | own)
