"""`purra.Output`: the answer of a run as a typed value.

A tool that models see as any other: its parameters are the fields of the answer, and calling it
ends the run. So an answer passes the checks that every call passes (strict JSON, the schema, no
repair and no coercion), and a model that slips is told and may try again, within the run's bounds.

Rejected: a setting of the agent, which would need a way of its own through journal and decisions
for what a tool that completes the run does already; a reader that cuts fences and remarks away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, final

from purra.contracts.call import CallContext
from purra.contracts.tool import ToolResult, ToolSchema, declare
from purra.errors import PurraError
from purra.gateway.arguments import validate
from purra.gateway.schema import admit
from purra.gateway.strict_json import JsonError, parse
from purra.gateway.validation import CompiledSchema
from purra.limits import RESULT_INLINE_BYTES
from purra.manifest.names import parse_name
from purra.runs.result import Result
from purra.signatures import read_typed_dict
from purra.values import freeze, thaw

__all__ = ["Output"]

T = TypeVar("T")

_ENDS: Final = "Gives the whole answer, once. The run ends with it."


@final
class Output(Generic[T]):
    """Stands among the tools of one agent, and reads its answers.

    `kind`: a `TypedDict`; its keys may be annotated as a tool's parameters are (`purra.tool`), and
    its docstring is told to the model. `name`: of the tool. The value is what the model sent, a
    plain dict: nothing is converted (MW-01). A model may as well answer with text that is exactly
    such a document.

    Raises `PurraError(invalid_argument)` for a type that cannot be told to a model.
    """

    def __init__(self, kind: type[T], *, name: str = "answer") -> None:
        try:
            parse_name(name)
        except ValueError as error:
            raise PurraError("invalid_argument", str(error), where="purra.Output") from None
        read = read_typed_dict(kind, f"output {name!r}")
        self._name = name
        parameters = admit(freeze(read.parameters), where=f"output {name!r}")
        told = f"{read.description}\n\n{_ENDS}" if read.description else _ENDS
        self._schema = declare(name, told, parameters, "pure")
        self._compiled = CompiledSchema(parameters)

    async def catalog(self) -> Sequence[ToolSchema]:
        """The one tool."""
        return (self._schema,)

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolResult:
        """Ends the run with `arguments`, which the gateway has checked."""
        return ToolResult(arguments, step="complete")

    def of(self, result: Result) -> T:
        """The answer of a run that has completed.

        Raises `PurraError(output_invalid)` if the run has not completed, or its text is not one
        strict JSON document of this form: fences, a remark before it, a key too many. An answer
        is at most `purra.limits.RESULT_INLINE_BYTES` long.
        """
        where = f"run {result.run}"
        if result.status != "completed":
            code = (result.error or {}).get("code", "")
            what = f"the run is {result.status} ({code}), so it has no answer"
            raise PurraError("output_invalid", what, where=where)
        try:
            value = parse(result.text, max_chars=RESULT_INLINE_BYTES)
            checked = validate(self._name, self._compiled, value)
        except JsonError as error:
            what = f"the answer is not one strict JSON document: {error}"
            raise PurraError("output_invalid", what, where=where, hint=_HINT) from None
        except PurraError as error:
            raise PurraError("output_invalid", error.message, where=where, hint=_HINT) from None
        answer: T = thaw(checked)
        return answer


_HINT: Final = "tell the model in the prompt to answer with the tool"
