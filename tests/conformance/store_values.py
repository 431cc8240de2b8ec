"""Values and calls: what goes in comes out, and what is no call is refused before anything."""

from __future__ import annotations

from typing import Any

from purra import values
from purra.contracts.store import (
    ANY,
    TTL_MS,
    VALUE_DEPTH,
    Append,
    Commit,
    Delete,
    Drop,
    Op,
    Project,
    Put,
    Scan,
    Seal,
    Touch,
)
from tests.conformance.store_subject import Subject, refusal

_VECTORS: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    1e22,
    1e16,
    5e-324,
    1.7976931348623157e308,
    123456789.123456789,
    "",
    "\x00 \x1f \x7f \u2028 \ufeff",
    "é 中文 😀 \U0010ffff e\u0301",
    '"quoted" \\ / \n\r\t',
    "NaN",
    [],
    {},
    [[[[[]]]]],
    {"": {"": [None, {"\x00": -0.0}]}},
    {"z": 1, "a": 2, "1": 3, "é": 4},
    [1, 1.0, True, "1"],
]


def _exact(value: Any) -> Any:
    """A form in which equal means equal: types, signs of zero and the order of maps included."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return ("map", [(key, _exact(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return ("list", [_exact(item) for item in value])
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


async def check_values_come_back_exactly(s: Subject) -> None:
    """STO-022: types, bits, characters and the order of maps, in records and documents."""
    await s.append("run", *_VECTORS)
    for value, found in zip(_VECTORS, await s.records("run"), strict=True):
        assert _exact(found) == _exact(value)
    for number, value in enumerate(_VECTORS):
        await s.put(f"doc{number}", value)
    documents = await s.store.get([s.name(f"doc{n}") for n in range(len(_VECTORS))])
    for value, document in zip(_VECTORS, documents, strict=True):
        assert document is not None
        assert _exact(document.value) == _exact(value)


async def check_large_and_deep_values(s: Subject) -> None:
    """STO-022: a payload of 1 MiB, and the deepest nesting that is allowed."""
    deep: Any = "bottom"
    for level in range(VALUE_DEPTH):
        deep = [deep] if level % 2 else {"k": deep}
    large = {"text": "é" * (512 * 1024), "numbers": list(range(1000))}
    await s.append("run", large, deep)
    await s.put("doc", deep)
    page = await s.store.scan(Scan(s.name("doc")))
    assert _exact(page.documents[0].value) == _exact(deep)
    assert [_exact(record) for record in await s.records("run")] == [_exact(large), _exact(deep)]


async def check_what_is_stored_is_detached(s: Subject) -> None:
    """JSON-08: changing the source afterwards changes nothing that is stored."""
    value = {"list": [1, 2]}
    await s.append("run", value)
    await s.put("doc", value)
    value["list"].append(3)
    assert await s.records("run") == [{"list": (1, 2)}] or await s.records("run") == [
        {"list": [1, 2]}
    ]
    (document,) = await s.store.get([s.name("doc")])
    assert document is not None
    assert list(document.value["list"]) == [1, 2]


async def check_names_are_any_text(s: Subject) -> None:
    """Contract, NAME_BYTES: any text of 1 to 1024 bytes names a stream or a document."""
    suffixes = ["\x00", "%", "'", "é😀", " ", "x" * (1024 - len(s.ns) - 1)]
    for suffix in suffixes:
        await s.append(suffix, suffix, key=suffix[:100])
        await s.put(suffix, suffix)
    for suffix in suffixes:
        assert await s.records(suffix) == [suffix]
        (document,) = await s.store.get([s.name(suffix)])
        assert document is not None
        assert (document.key, document.value) == (s.name(suffix), suffix)


async def check_malformed_ops_are_refused(s: Subject) -> None:
    """Contract, order of checks, 1: refused with its key unused and nothing written."""
    name, key = s.name("x"), (s.name("run"), "k")
    bad_ops: list[Op] = [
        Append("", ANY, (1,)),
        Append(name, -2, (1,)),
        Append(name, True, (1,)),
        Append(name, 0, ()),
        Append(7, 0, (1,)),  # type: ignore[arg-type]
        Append("x" * 1025, 0, (1,)),
        Append("é" * 513, 0, (1,)),
        Put(name, 1, -1),
        Put(name, 1, 0, -1),
        Put(name, 1, 0, TTL_MS + 1),
        Put(name, 1, 0, 1.5),  # type: ignore[arg-type]
        Touch(name, 0, 1),
        Touch(name, 1, -1),
        Delete(name, 0),
        Seal(""),
        Drop(""),
        Project("", None),
    ]
    good = Append(s.name("run"), ANY, ("good",))
    for bad in bad_ops:
        await refusal(s.store.commit(Commit((good, bad), key)), "invalid_argument")
    await refusal(s.store.commit(Commit((good,))), "invalid_argument")
    for bad_key in (("", "k"), (s.name("run"), "")):
        await refusal(s.store.commit(Commit((good,), bad_key)), "invalid_argument")
    for require in ({name: -1}, {name: True}, {"": 1}):
        await refusal(s.store.commit(Commit((good,), key, require)), "invalid_argument")
    assert await s.append("run", "good", expect=0, key="k") == 1


async def check_values_outside_the_model_are_refused(s: Subject) -> None:
    """Design, invariant 8: never coerced, never half stored."""
    deep: Any = 1
    for _ in range(values.MAX_DEPTH + 1):
        deep = [deep]
    outside: list[Any] = [
        deep,
        float("nan"),
        float("inf"),
        2**63,
        -(2**63) - 1,
        b"bytes",
        {1: "a"},
        "\ud800",
        {"\udfff": 1},
        {1, 2},
        object(),
    ]
    for value in outside:
        for nested in (value, [value], {"k": {"n": value}}):
            await refusal(s.append("run", "ok", nested, key="k"), "invalid_value")
            await refusal(s.put("doc", nested), "invalid_value")
    assert await s.records("run") == []
    assert await s.store.get([s.name("doc")]) == (None,)


async def check_malformed_reads_are_refused(s: Subject) -> None:
    """STO-007: a negative or non-integer cursor is a typed error."""
    name = s.name("run")
    reads: list[tuple[Any, Any, Any]] = [
        (name, -1, 10),
        (name, 0, 0),
        (name, 0, -1),
        (name, 1.5, 10),
        (name, True, 10),
        (name, "0", 10),
        (name, None, 10),
        ("", 0, 10),
    ]
    for read in reads:
        await refusal(s.store.read(*read), "invalid_argument")
    for scan in (Scan(name, limit=0), Scan("x" * 1025), Scan(name, "x" * 1025)):
        await refusal(s.store.scan(scan), "invalid_argument")
    await refusal(s.store.get([name, ""]), "invalid_argument")
    for offset, length in ((-1, 1), (0, 0), (0, -5)):
        await refusal(s.store.blob_get("sha256:" + "0" * 64, offset, length), "invalid_argument")


async def check_a_commit_without_ops(s: Subject) -> None:
    """Contract, Commit: it asks whether a fence still holds."""
    receipt = await s.store.commit(Commit(()))
    assert (receipt.heads, receipt.revisions) == ({}, {})
    await s.put("lease", 1)
    await s.store.commit(Commit((), require={s.name("lease"): 1}))
    await refusal(s.store.commit(Commit((), require={s.name("lease"): 2})), "conflict")


async def check_an_unknown_projector_aborts(s: Subject) -> None:
    """RUN-18: nothing of the commit is there."""
    ops = (Append(s.name("run"), ANY, ("x",)), Project("no such projector", {"a": 1}))
    detail = await refusal(s.keyed("run", "k", *ops), "not_found")
    assert detail == {"project": "no such projector"}
    assert await s.records("run") == []


async def check_now_is_wall_time_that_goes_on(s: Subject) -> None:
    """Contract, now: milliseconds since 1970, by which lives are measured."""
    first = await s.store.now()
    assert type(first) is int
    assert first > 1_500_000_000_000
    await s.pass_time(2)
    assert await s.store.now() >= first + 2
