"""Documents: revisions, lives, leases and fences."""

from __future__ import annotations

import anyio

from purra.contracts.store import ANY, Append, Commit, Delete, Document, Put, Touch
from purra.errors import StoreError
from tests.conformance.store_subject import Subject, refusal


async def check_revisions_only_grow(s: Subject) -> None:
    """STO-011, K49: whole numbers from 1, also over a delete; nothing depends on time."""
    assert [await s.put("doc", n, n) for n in range(3)] == [1, 2, 3]
    await s.delete("doc", 3)
    assert await s.store.get([s.name("doc")]) == (None,)
    assert await s.put("doc", "again", 0) == 4
    await s.delete("doc", 4)
    assert await s.put("doc", "and again", 0) == 5
    assert await s.store.get([s.name("doc")]) == (Document(s.name("doc"), "and again", 5),)


async def check_stale_revision_is_a_conflict(s: Subject) -> None:
    """STO-011: the revision now is told, 0 for what is not there."""
    name = s.name("doc")
    for revision in (1, 7):
        detail = await refusal(s.put("doc", "x", revision), "conflict")
        assert detail == {"key": name, "revision": 0}
    await s.put("doc", "a")
    await s.put("doc", "b", 1)
    for revision in (0, 1, 3):
        detail = await refusal(s.put("doc", "x", revision), "conflict")
        assert detail == {"key": name, "revision": 2}
    assert await refusal(s.delete("doc", 1), "conflict") == {"key": name, "revision": 2}
    assert await refusal(s.touch("doc", 1, 0), "conflict") == {"key": name, "revision": 2}
    await s.delete("doc", 2)
    assert await refusal(s.delete("doc", 2), "conflict") == {"key": name, "revision": 0}
    assert await refusal(s.touch("doc", 2, 5), "conflict") == {"key": name, "revision": 0}
    assert await refusal(s.put("doc", "x", 2), "conflict") == {"key": name, "revision": 0}


async def check_of_many_racers_one_wins(s: Subject) -> None:
    """STO-011: 20 callers replace one revision; the others learn the new one."""
    await s.put("doc", "start")
    won: list[int] = []
    lost: list[object] = []

    async def call(n: int) -> None:
        try:
            await s.put("doc", n, 1)
        except StoreError as error:
            lost.append((error.code, error.detail["revision"]))
        else:
            won.append(n)

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(call, n)
    assert len(won) == 1
    assert lost == [("conflict", 2)] * 19
    (document,) = await s.store.get([s.name("doc")])
    assert document is not None
    assert document.value == won[0]


async def check_get_keeps_the_order_of_keys(s: Subject) -> None:
    """Contract, get: a place for each key, also for what is not there and what is asked twice."""
    await s.put("a", 1)
    await s.put("b", 2)
    names = [s.name(k) for k in ("b", "x", "a", "b")]
    found = await s.store.get(names)
    assert [d.value if d else None for d in found] == [2, None, 1, 2]
    assert await s.store.get([]) == ()


async def check_ops_see_each_other(s: Subject) -> None:
    """Contract, order of checks, 5: several ops on one key, judged in their order."""
    name = s.name("doc")
    ops = (Put(name, "a", 0), Put(name, "b", 1), Touch(name, 2, s.ttl_ms), Delete(name, 2))
    receipt = await s.store.commit(Commit(ops))
    assert receipt.revisions == {name: 0}
    receipt = await s.store.commit(Commit((Put(name, "c", 0), Touch(name, 3, s.ttl_ms))))
    assert receipt.revisions == {name: 3}
    (document,) = await s.store.get([name])
    assert document is not None
    assert (document.value, document.revision) == ("c", 3)
    assert document.expires_ms > await s.store.now()


async def check_life_ends_and_the_document_stays(s: Subject) -> None:
    """STO-013, RUN-17: lapsed at `expires_ms`, not before; readable, fails every `require`."""
    await s.put("lease", {"owner": "a"}, ttl_ms=s.ttl_ms)
    (before,) = await s.store.get([s.name("lease")])
    assert before is not None
    assert not before.lapsed
    assert 0 < before.expires_ms - await s.store.now() <= s.ttl_ms
    await s.append("run", "owned", require={s.name("lease"): 1})
    await s.pass_time(s.ttl_ms)
    (after,) = await s.store.get([s.name("lease")])
    assert after == Document(s.name("lease"), {"owner": "a"}, 1, True, before.expires_ms)
    assert await s.store.now() >= before.expires_ms
    detail = await refusal(s.append("run", "late", require={s.name("lease"): 1}), "lapsed")
    assert detail == {"key": s.name("lease"), "revision": 1}
    assert await s.records("run") == ["owned"]


async def check_life_without_end(s: Subject) -> None:
    """Contract, Put: `ttl_ms` 0 never lapses, and a touch can take an end away."""
    await s.put("doc", 1)
    await s.put("lease", 1, ttl_ms=s.ttl_ms)
    await s.touch("lease", 1, 0)
    await s.pass_time(2 * s.ttl_ms)
    for document in await s.store.get([s.name("doc"), s.name("lease")]):
        assert document is not None
        assert (document.lapsed, document.expires_ms) == (False, 0)


async def check_touch_extends_and_keeps_the_revision(s: Subject) -> None:
    """STO-013: an owner's heartbeat never breaks its own fence."""
    await s.put("lease", "a", ttl_ms=s.ttl_ms)
    (before,) = await s.store.get([s.name("lease")])
    await s.pass_time(s.ttl_ms // 2)
    receipt = await s.store.commit(Commit((Touch(s.name("lease"), 1, 3 * s.ttl_ms),)))
    assert receipt.revisions == {s.name("lease"): 1}
    await s.pass_time(s.ttl_ms)
    (after,) = await s.store.get([s.name("lease")])
    assert before is not None
    assert after is not None
    assert (after.value, after.revision, after.lapsed) == ("a", 1, False)
    assert after.expires_ms >= before.expires_ms + 2 * s.ttl_ms
    await s.append("run", "still mine", require={s.name("lease"): 1})


async def check_touch_of_a_lapsed_document_is_a_conflict(s: Subject) -> None:
    """Tables, store commit: the owner takes over anew or stops."""
    await s.put("lease", "a", ttl_ms=s.ttl_ms)
    await s.pass_time(s.ttl_ms)
    detail = await refusal(s.touch("lease", 1, s.ttl_ms), "conflict")
    assert detail == {"key": s.name("lease"), "revision": 1, "lapsed": True}
    (document,) = await s.store.get([s.name("lease")])
    assert document is not None
    assert document.lapsed


async def check_takeover_fences_the_old_owner(s: Subject) -> None:
    """STO-012, 014, 015, RUN-17: a new revision, and every write of the old is refused."""
    name = s.name("lease")
    await s.put("lease", {"owner": "a"}, ttl_ms=s.ttl_ms)
    await refusal(s.put("lease", {"owner": "b"}, 0), "conflict")
    await s.pass_time(s.ttl_ms)
    assert await s.put("lease", {"owner": "b"}, 1, s.ttl_ms) == 2
    fence = {"key": name, "revision": 2}
    assert await refusal(s.append("run", "x", require={name: 1}), "conflict") == fence
    assert await refusal(s.touch("lease", 1, s.ttl_ms), "conflict") == fence
    assert await refusal(s.delete("lease", 1), "conflict") == fence
    assert await refusal(s.put("lease", {"owner": "a"}, 1), "conflict") == fence
    commit = Commit((Put(s.name("d"), 1, 0),), require={name: 1})
    assert await refusal(s.store.commit(commit), "conflict") == fence
    assert await s.append("run", "y", require={name: 2}) == 1
    await s.delete("lease", 2)
    fence = {"key": name, "revision": 0}
    assert await refusal(s.append("run", "z", require={name: 2}), "conflict") == fence
    assert await s.put("lease", {"owner": "a"}, 0, s.ttl_ms) == 3


async def check_require_of_absence(s: Subject) -> None:
    """Contract, Commit.require: 0 says that the key must be absent."""
    name = s.name("doc")
    await s.append("run", "a", require={name: 0})
    await s.put("doc", 1)
    detail = await refusal(s.append("run", "b", require={name: 0}), "conflict")
    assert detail == {"key": name, "revision": 1}
    await s.delete("doc", 1)
    await s.append("run", "c", require={name: 0})
    assert await s.records("run") == ["a", "c"]


async def check_a_lapsed_document_can_be_deleted(s: Subject) -> None:
    """Contract, Delete: lapsed or not, at its revision."""
    await s.put("wake", None, ttl_ms=s.ttl_ms)
    await s.pass_time(s.ttl_ms)
    await s.delete("wake", 1)
    assert await s.store.get([s.name("wake")]) == (None,)


async def check_order_of_checks(s: Subject) -> None:
    """Tables, store commit: key, then require, then sealed, then the ops; nothing half done."""
    run, doc, lease = s.name("run"), s.name("doc"), s.name("lease")
    await s.put("lease", "a", ttl_ms=s.ttl_ms)
    await s.put("doc", 1)
    first = Commit((Append(run, 0, ("x",)),), key=(run, "k"))
    await s.store.commit(first)
    await s.seal("run")
    await s.pass_time(s.ttl_ms)
    everything_wrong = (Put(doc, 2, 9), Append(run, 9, ("y",)))

    async def code(commit: Commit) -> str:
        try:
            await s.store.commit(commit)
        except StoreError as error:
            return error.code + (":digest" if "digest" in error.detail else "")
        return "receipt"

    bad_fence = {lease: 7}
    old_fence = {lease: 1}
    assert await code(Commit(first.ops, first.key, require=bad_fence)) == "receipt"
    assert await code(Commit(everything_wrong, first.key, require=bad_fence)) == "conflict:digest"
    assert await code(Commit(everything_wrong, (run, "n"), require=bad_fence)) == "conflict"
    assert await code(Commit(everything_wrong, (run, "n"), require=old_fence)) == "lapsed"
    assert await code(Commit(everything_wrong, (run, "n"))) == "sealed"
    assert await code(Commit((Put(doc, 2, 9), Append(s.name("b"), 9, ("y",))), (run, "n"))) == (
        "conflict"
    )
    ops = (Put(doc, 2, 1), Append(s.name("b"), 0, ("y",)), Delete(s.name("absent"), 1))
    detail = await refusal(s.store.commit(Commit(ops, (run, "n"))), "conflict")
    assert detail == {"key": s.name("absent"), "revision": 0}
    (document,) = await s.store.get([doc])
    assert document is not None
    assert document.value == 1
    assert (await s.store.read(s.name("b"), 0, 1)).head == 0


async def check_a_refused_op_leaves_nothing(s: Subject) -> None:
    """STO-003: whatever op fails, at whatever place, nothing of the commit is there."""
    run = s.name("run")
    good = (
        Append(run, ANY, ("x",)),
        Put(s.name("new"), 1, 0),
        Delete(s.name("old"), 1),
        Touch(s.name("lease"), 1, 0),
    )
    await s.put("old", "kept")
    await s.put("lease", "a", ttl_ms=s.ttl_ms * 100)
    (_, lease) = await s.store.get([s.name("old"), s.name("lease")])
    bad = Put(s.name("old"), "broken", 9)
    for place in range(len(good) + 1):
        ops = (*good[:place], bad, *good[place:])
        await refusal(s.keyed("run", f"k{place}", *ops), "conflict")
    assert await s.records("run") == []
    found = await s.store.get([s.name("new"), s.name("old"), s.name("lease")])
    assert found == (None, Document(s.name("old"), "kept", 1), lease)


async def check_a_peer_sees_the_same(s: Subject) -> None:
    """STO-012: another opening of the data reads what was committed, and is bound by it."""
    await s.put("lease", "a", ttl_ms=s.ttl_ms * 100)
    await s.append("run", 1, 2)
    peer = await s.peer()
    assert (await peer.read(s.name("run"), 0, 10)).records == (1, 2)
    take = Commit((Put(s.name("lease"), "b", 0),))
    assert await refusal(peer.commit(take), "conflict") == {"key": s.name("lease"), "revision": 1}
    op = Append(s.name("run"), 2, (3,))
    await peer.commit(Commit((op,), (s.name("run"), "p"), {s.name("lease"): 1}))
    assert await s.records("run") == [1, 2, 3]
