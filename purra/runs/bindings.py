"""What the runs of one epoch are bound to: adapters, compiled tools, and digests of all of it.

An immutable value; a registry snapshot holds one. The components are what a run pins (invariant 5):
digests of declarations, never an epoch or an instance, so that a run can be resumed by another
process, and drift is named by component (PRE-09, K59).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from purra.agent import Agent
from purra.context.assembly import Providers, offers_estimate
from purra.contracts.model import Model, ToolOffer
from purra.contracts.policy import Policy
from purra.contracts.tool import Tools, ToolSchema
from purra.errors import PurraError
from purra.gateway.preflight import CompiledCatalog, compile_catalog
from purra.values import digest

__all__ = ["BOUND", "Adapters", "Bindings", "beside", "bind"]

BOUND: Final = "bindings"
"""The name under which a kernel's registry holds them."""
_EMBEDDED: Final = "(object)"
"""Stands for the address of an adapter that is no plugin's."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """The ports of one kernel. `names`: role -> address, for fingerprints and errors.

    Without a `model` a kernel can only look at runs and cancel them.
    """

    model: Model | None = None
    tools: tuple[Tools, ...] = ()
    contexts: Providers = ()
    policy: Policy | None = None
    names: Mapping[str, str] = field(default_factory=dict)


def beside(ports: Adapters, own: Adapters) -> Adapters:
    """`ports` with the tools and the policy of the embedding code beside them.

    Such a policy is pinned by its place, so that a process without it does not go on with the run.
    """
    if own.policy is None:
        return replace(ports, tools=(*ports.tools, *own.tools))
    names = {**ports.names, "policy": _EMBEDDED}
    return replace(ports, tools=(*ports.tools, *own.tools), policy=own.policy, names=names)


@dataclass(frozen=True, slots=True)
class Bindings:
    """`tools`: which set runs a tool, by name. `offers`: what the model is told of them;
    `offers_estimate`: the tokens that they take of each request. `fingerprint`: one digest over all
    components (PRE-03, PRE-04).
    """

    agent: Agent
    adapters: Adapters
    catalog: CompiledCatalog
    tools: Mapping[str, Tools]
    offers: tuple[ToolOffer, ...]
    offers_estimate: int
    components: Mapping[str, str]
    fingerprint: str

    def drift(self, components: Mapping[str, str]) -> tuple[str, ...]:
        """Names of the components that differ from what a run was started with."""
        names = sorted({*components, *self.components})
        return tuple(n for n in names if components.get(n) != self.components.get(n))


async def bind(agent: Agent, adapters: Adapters) -> Bindings:
    """Reads the catalogs and compiles them. Raises `PurraError`, e.g. `duplicate_tool`."""
    owners: dict[str, Tools] = {}
    schemas: list[ToolSchema] = []
    for tools in adapters.tools:
        for schema in await tools.catalog():
            if schema.name in owners:
                raise PurraError(
                    "duplicate_tool", f"two adapters offer the tool {schema.name!r}", where="tools"
                )
            owners[schema.name] = tools
            schemas.append(schema)
    offers = tuple(ToolOffer(s.name, s.description, s.parameters) for s in schemas)
    components = _components(agent, adapters.names, schemas)
    return Bindings(
        agent,
        adapters,
        compile_catalog(schemas),
        owners,
        offers,
        offers_estimate([offer.parameters for offer in offers]),
        components,
        digest(components),
    )


def _components(
    agent: Agent, names: Mapping[str, str], schemas: Sequence[ToolSchema]
) -> dict[str, str]:
    prompt = [[section.name, section.order, section.text] for section in agent.sections]
    limits = agent.limits
    components = {
        "agent": digest([agent.id, agent.revision]),
        "prompt": digest(prompt),
        "limits": digest([limits.max_rounds, limits.max_tool_calls, limits.write_batch]),
        "tools": digest([_schema_value(schema) for schema in schemas]),
    }
    components.update({role: digest(address) for role, address in names.items()})
    return components


def _schema_value(schema: ToolSchema) -> list[Any]:
    return [
        schema.name,
        schema.description,
        schema.parameters,
        schema.effect,
        schema.permission,
        schema.idempotency,
        schema.concurrency,
        schema.approval,
        float(schema.timeout_s),
        schema.shared,
    ]
