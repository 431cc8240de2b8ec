"""What a plugin offers: decorators that leave one mark, and `Plugin`, which reads the marks.

A decorator returns its function or class unchanged but for one attribute, so that a decorated tool
stays an ordinary function that its author calls in tests, and so that importing a plugin needs no
machinery. Which calls a mark means for which kind is one table, `_METHODS`. The plugin manifest is
the authority on effects, timeouts and schemas; what a decorator says of them here is for the
command that writes the manifest.

How a handler is called is decided once, when the plugin starts, from its code flags; `inspect`
would cost ten modules for the same answer.
"""

from __future__ import annotations

from .outcomes import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from .calls import Call, Setup

    F = TypeVar("F", bound=Callable[..., Any])
    T = TypeVar("T")

__all__ = ["Handler", "Plugin", "batched", "context", "model", "policy", "store", "tool"]

CO_COROUTINE = 0x80
CO_ASYNC_GENERATOR = 0x200
CO_VARARGS = 0x04
"""Flags of a code object (`inspect.CO_...`)."""
UNWRAP_DEPTH = 32
"""Decorators looked through to find a handler's own code."""

_ARGUMENTS, _REQUEST, _BUDGETED, _FIELDS = range(4)
"""Ways to call a handler: a tool's arguments as keywords; the whole request; the request and its
budget; named fields as keywords."""

_METHODS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "model": {"profile": (_FIELDS, ()), "generate": (_REQUEST, ())},
    "context": {
        "demand": (_REQUEST, ()),
        "provide": (_BUDGETED, ()),
        "compress": (_FIELDS, ("messages", "budget")),
    },
    "policy": {"decide": (_REQUEST, ())},
    "store": {
        "commit": (_FIELDS, ("ops", "key", "require", "durable")),
        "read": (_FIELDS, ("stream", "after", "limit")),
        "get": (_FIELDS, ("keys",)),
        "scan": (_FIELDS, ("prefix", "after", "limit", "reverse", "lapsed_only")),
        "watch": (_FIELDS, ("prefix",)),
        "now": (_FIELDS, ()),
        "blob_put": (_FIELDS, ()),
        "blob_get": (_FIELDS, ("digest", "offset", "length")),
    },
}
"""kind -> method -> how it is called. A class offers the methods it defines."""


def tool(*, effect: str, name: str = "", timeout_s: float = 30.0, **more: Any) -> Callable[[F], F]:
    """Marks a function, or an `async` one, as a tool.

    `effect`: `pure`, `world_read`, `world_write`, `external_read`, `external_write` or
    `irreversible`. `name` defaults to the function's. `more`: `permission`, `idempotency`,
    `concurrency`, `approval`, `shared`, `needs`, as in `[[provides]]`.

    The model's arguments arrive as keywords. A first parameter named `call` gets the `Call` and is
    never visible to the model. A generator function yields progress and returns the result.
    """

    def mark(function: F) -> F:
        facts = {"effect": effect, "timeout_s": timeout_s, **more}
        function.__purra__ = ("tool", name or function.__name__, facts)  # type: ignore[attr-defined]
        return function

    return mark


def _marker(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    def mark(cls: type[T]) -> type[T]:
        cls.__purra__ = (kind, name, {})  # type: ignore[attr-defined]
        return cls

    return mark


def model(name: str) -> Callable[[type[T]], type[T]]:
    """Marks a class as a model: `profile(self, call)`, and `generate(self, call, request)`, a
    generator of what `purra_sdk.items` makes.
    """
    return _marker("model", name)


def context(name: str) -> Callable[[type[T]], type[T]]:
    """Marks a class as a context provider: `demand(self, call, request)`, `provide(self, call,
    request, budget)` and, if it can, `compress(self, call, messages, budget)`.
    """
    return _marker("context", name)


def policy(name: str) -> Callable[[type[T]], type[T]]:
    """Marks a class as a policy: `decide(self, call, request)`."""
    return _marker("policy", name)


def store(name: str) -> Callable[[type[T]], type[T]]:
    """Marks a class as a store: `commit`, `read`, `get`, `scan`, `watch`, `now`, `blob_put`,
    `blob_get`, each `(self, call, ...)` with the fields of its request as keywords.
    """
    return _marker("store", name)


def batched(function: F) -> F:
    """Marks a method that takes all waiting calls of its kind at once: `commit(self, calls)`.

    It gets a list of `Call` (each with `.args`) and returns a list of the same length: per call its
    result, or an exception instance. What it raises fails them all. So many commits share one
    flush.
    """
    function.__purra_batched__ = True  # type: ignore[attr-defined]
    return function


class Handler:
    """One method of one adapter, and how to call it.

    `kind`: the contract. `asynchronous`: it is known beforehand to belong to the event loop.
    """

    __slots__ = (
        "adapter",
        "asynchronous",
        "batched",
        "fields",
        "function",
        "kind",
        "method",
        "style",
        "takes_call",
    )

    def __init__(
        self,
        offer: tuple[str, str],
        method: str,
        function: Callable[..., Any],
        style: int,
        fields: tuple[str, ...] = (),
    ) -> None:
        self.kind, self.adapter = offer
        self.method = method
        self.function = function
        self.style = style
        self.fields = fields
        self.batched = bool(getattr(function, "__purra_batched__", False))
        # Its own flags: a wrapper that is a plain function may well run a coroutine to its end.
        code, _ = _code_of(function, 0)
        flags = code.co_flags if code is not None else 0
        self.asynchronous = bool(flags & (CO_COROUTINE | CO_ASYNC_GENERATOR))
        self.takes_call = style != _ARGUMENTS or _first_parameter(function) == "call"

    def invoke(self, call: Call) -> Any:
        """Calls the function: its result, its generator or its coroutine.

        Raises what it raises, and `PluginError(invalid_argument)` when the request does not fit its
        parameters, in which case nothing of it has run.
        """
        args = call.args
        if type(args) is not dict:
            raise self._misfit("a map of arguments is needed")
        style = self.style
        positional: tuple[Any, ...] = (call,) if self.takes_call else ()
        named: dict[str, Any] = {}
        if style == _ARGUMENTS:
            named = args.get("arguments", {})
            if type(named) is not dict:
                raise self._misfit("`arguments` must be a map")
        elif style == _REQUEST:
            positional = (call, args)
        elif style == _BUDGETED:
            request = {name: value for name, value in args.items() if name != "budget"}
            positional = (call, request, args.get("budget", 0))
        else:
            # Fields that a later version of the contract adds are unknown to this handler.
            named = {name: args[name] for name in self.fields if name in args}
        try:
            return self.function(*positional, **named)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # the call itself, not a line inside
                raise self._misfit(str(error)) from None
            raise

    def _misfit(self, why: str) -> PluginError:
        return PluginError(
            "invalid_argument", f"{self.adapter}.{self.method}: {why}", effect_state="not_started"
        )


class Plugin:
    """Everything a plugin offers. `entry` of the manifest names an instance of this class.

    `tools`: functions marked with `@tool`. `models`, `contexts`, `stores`, `policies`: marked
    classes, made when the worker starts, on the thread that will run their handlers, with the
    `Setup` as argument if they take one; or ready instances of such classes. `setup(setup)` runs
    before them; what it returns is `setup.state`. `close(setup)` runs when the worker ends in an
    orderly way, after the `close` methods of the instances.
    """

    def __init__(
        self,
        *,
        tools: Iterable[Callable[..., Any]] = (),
        models: Iterable[Any] = (),
        contexts: Iterable[Any] = (),
        stores: Iterable[Any] = (),
        policies: Iterable[Any] = (),
        **hooks: Callable[[Setup], Any] | None,
    ) -> None:
        self.adapters = (
            *(("tool", part) for part in tools),
            *(("model", part) for part in models),
            *(("context", part) for part in contexts),
            *(("store", part) for part in stores),
            *(("policy", part) for part in policies),
        )
        self.setup = hooks.pop("setup", None)
        self.close = hooks.pop("close", None)
        if hooks:
            raise TypeError(f"Plugin takes no {', '.join(sorted(hooks))}")
        names: set[str] = set()
        for kind, part in self.adapters:
            name = _mark_of(kind, part)[0]
            if name in names:
                raise ValueError(f"two adapters are named {name!r}")
            names.add(name)

    def offers(self) -> list[dict[str, str]]:
        """`{"kind", "name"}` of every adapter, as READY lists them."""
        return [{"kind": kind, "name": _mark_of(kind, part)[0]} for kind, part in self.adapters]

    def build(self, setup: Setup) -> tuple[dict[tuple[str, str], Handler], list[Any]]:
        """Makes the instances: the handlers by (adapter, method), and what has a `close` method.

        Raises what the plugin's own code raises.
        """
        handlers: dict[tuple[str, str], Handler] = {}
        closing: list[Any] = []
        for kind, part in self.adapters:
            name = _mark_of(kind, part)[0]
            if kind == "tool":
                handlers[name, "call"] = Handler((kind, name), "call", part, _ARGUMENTS)
                continue
            instance = part
            if isinstance(part, type):
                instance = part(setup) if _wants_setup(part) else part()
            if hasattr(instance, "close"):
                closing.append(instance)
            for method, (style, fields) in _METHODS[kind].items():
                function = getattr(instance, method, None)
                if function is not None:
                    handlers[name, method] = Handler((kind, name), method, function, style, fields)
        return handlers, closing


def _wants_setup(cls: type) -> bool:
    """Whether the constructor has a parameter to take it."""
    code, _ = _code_of(cls.__init__, UNWRAP_DEPTH)  # type: ignore[misc]
    return code is not None and (code.co_argcount > 1 or bool(code.co_flags & CO_VARARGS))


def _mark_of(kind: str, part: Any) -> tuple[str, dict[str, Any]]:
    mark = getattr(part, "__purra__", None)
    if mark is None or mark[0] != kind:
        raise TypeError(f"{part!r} is not marked with @{kind}")
    return mark[1], mark[2]


def _code_of(function: Any, unwraps: int) -> tuple[Any, bool]:
    """The code object behind a callable, looking through at most `unwraps` decorators, and whether
    its first parameter is bound already.
    """
    bound = False
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        bound, function = True, type(function).__call__
    if hasattr(function, "__func__"):
        bound, function = True, function.__func__
    while unwraps and hasattr(function, "__wrapped__"):
        function, unwraps = function.__wrapped__, unwraps - 1
    return getattr(function, "__code__", None), bound


def _first_parameter(function: Any) -> str:
    code, bound = _code_of(function, UNWRAP_DEPTH)
    if code is None or code.co_argcount <= bound:
        return ""
    return str(code.co_varnames[int(bound)])
