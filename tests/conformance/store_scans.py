"""Scans: the order of keys, pages both ways, and what has lapsed."""

from __future__ import annotations

from purra.contracts.store import Scan
from tests.conformance.store_subject import Subject

_NAMES = ["", "0", "a", "a/b", "a0", "ab", "b", "\x7f", "\x80", "é", "\ud7ff", "\ue000", "😀"]
"""Suffixes in the order of their UTF-8 bytes. UTF-16 would put the last before the one before."""


async def _scan_all(s: Subject, scan: Scan) -> list[str]:
    """The keys of all pages, without the namespace."""
    found: list[str] = []
    after = scan.after
    while True:
        page = await s.store.scan(
            Scan(scan.prefix, after, scan.limit, scan.reverse, scan.lapsed_only)
        )
        assert len(page.documents) <= scan.limit
        keys = [document.key for document in page.documents]
        assert not set(keys) & set(found), "a page that was there before"
        found += keys
        if not page.more:
            return [key.removeprefix(s.ns + "/") for key in found]
        assert page.documents
        after = page.documents[-1].key


async def check_scan_is_in_order_of_utf8_bytes(s: Subject) -> None:
    """Design 6, scan: bytes, not code units, not a locale; pages of every size, both ways."""
    assert sorted(_NAMES, key=lambda name: name.encode()) == _NAMES
    for name in reversed(_NAMES):
        await s.put("k" + name, name)
    expected = ["k" + name for name in _NAMES]
    for limit in (1, 2, 3, 5, 100):
        forward = Scan(s.name("k"), limit=limit)
        assert await _scan_all(s, forward) == expected
        backward = Scan(s.name("k"), limit=limit, reverse=True)
        assert await _scan_all(s, backward) == expected[::-1]


async def check_scan_keeps_to_its_prefix(s: Subject) -> None:
    """Design 6, scan: every prefix gives exactly the keys that begin with it."""
    for name in _NAMES:
        await s.put("k" + name, 1)
    for prefix in _NAMES:
        expected = ["k" + name for name in _NAMES if name.startswith(prefix)]
        assert await _scan_all(s, Scan(s.name("k" + prefix), limit=2)) == expected
        backward = Scan(s.name("k" + prefix), limit=2, reverse=True)
        assert await _scan_all(s, backward) == expected[::-1]


async def check_scan_after_a_key_that_is_not_there(s: Subject) -> None:
    """Design 6, scan: `after` is a place in the order, not a document."""
    for name in ("b", "d", "f"):
        await s.put(name, 1)
    prefix = s.ns + "/"

    async def keys(after: str, reverse: bool) -> list[str]:
        return await _scan_all(s, Scan(prefix, after, 10, reverse))

    assert await keys(s.name("c"), False) == ["d", "f"]
    assert await keys(s.name("c"), True) == ["b"]
    assert await keys(s.name("d"), False) == ["f"]
    assert await keys(s.name("d"), True) == ["b"]
    assert await keys(s.name("a"), True) == []
    assert await keys(s.name("g"), False) == []
    assert await keys("\x00", False) == ["b", "d", "f"]
    assert await keys("\U0010ffff", True) == ["f", "d", "b"]


async def check_scan_gives_whole_documents(s: Subject) -> None:
    """Contract, Document: value, revision, life; a deleted one is not listed."""
    await s.put("a", {"v": [1]})
    await s.put("b", 1, ttl_ms=s.ttl_ms)
    await s.put("c", 1)
    await s.delete("c", 1)
    await s.pass_time(s.ttl_ms)
    page = await s.store.scan(Scan(s.ns))
    assert page.documents == tuple(await s.store.get([s.name("a"), s.name("b")]))
    assert [document.lapsed for document in page.documents] == [False, True]
    assert not page.more
    assert await s.store.scan(Scan(s.name("c"))) == type(page)((), False)


async def check_lapsed_only_is_in_order_of_expiry(s: Subject) -> None:
    """STO-018: exactly what has lapsed, first the longest lapsed, equal ones by key."""
    unit = s.ttl_ms
    for name in ("e", "a", "c"):
        await s.put(name, 1, ttl_ms=2 * unit)
    await s.pass_time(1)
    await s.put("z", 1, ttl_ms=unit)
    await s.put("later", 1, ttl_ms=1000 * unit)
    await s.put("never", 1)
    await s.pass_time(2 * unit)
    found = await s.store.get([s.name(name) for name in "acez"])
    expected = [
        document.key.removeprefix(s.ns + "/")
        for document in sorted(
            (document for document in found if document),
            key=lambda document: (document.expires_ms, document.key),
        )
    ]
    assert expected[0] == "z"
    for limit in (1, 2, 3, 10):
        forward = Scan(s.ns, limit=limit, lapsed_only=True)
        assert await _scan_all(s, forward) == expected
        backward = Scan(s.ns, limit=limit, reverse=True, lapsed_only=True)
        assert await _scan_all(s, backward) == expected[::-1]
    assert await _scan_all(s, Scan(s.name("c"), lapsed_only=True)) == ["c"]


async def check_lapsed_only_forgets_what_was_taken(s: Subject) -> None:
    """STO-018: touched, replaced and deleted documents are not lapsed any more."""
    for name in "abcd":
        await s.put(name, 1, ttl_ms=s.ttl_ms)
    await s.pass_time(s.ttl_ms)
    await s.put("a", 2, 1, s.ttl_ms * 100)
    await s.put("b", 2, 1)
    await s.delete("c", 1)
    assert await _scan_all(s, Scan(s.ns, lapsed_only=True)) == ["d"]


async def check_lapsed_only_starts_over_after_a_lost_place(s: Subject) -> None:
    """Contract, Scan: it may repeat, but never misses one."""
    for name in "abc":
        await s.put(name, 1, ttl_ms=s.ttl_ms)
    await s.pass_time(s.ttl_ms)
    page = await s.store.scan(Scan(s.ns, limit=1, lapsed_only=True))
    (first,) = page.documents
    taken = first.key.removeprefix(s.ns + "/")
    await s.put(taken, 2, 1, s.ttl_ms * 100)
    rest = await _scan_all(s, Scan(s.ns, first.key, 10, lapsed_only=True))
    assert sorted([taken, *rest]) == ["a", "b", "c"]


async def check_large_documents_come_in_short_pages(s: Subject) -> None:
    """Contract, ScanPage: a page cut short says that more follows."""
    for n in range(7):
        await s.put(f"{n}", "x" * (1024 * 1024))
    assert await _scan_all(s, Scan(s.ns, limit=100)) == [f"{n}" for n in range(7)]
