"""Other kernels on the same store: which there are, and what can be asked of them (tables, store
keys). A kernel that does not listen to its inbox says so by saying nothing of its plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from purra.contracts.store import ANY, Append, Commit, Delete, Document, Drop, Store
from purra.errors import StoreError
from purra.runs import keys, presence
from purra.runs.reader import closed_watch, documents

__all__ = ["KernelInfo", "answer", "ask", "forget", "kernels"]

SILENT_MS = 3600 * 1000
"""A kernel of another machine that has said nothing for so long is not coming back."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel as its document tells of it.

    `state`: `running`; `gone`, its process has ended; `lapsed`, it has said nothing for too long
    (another machine's process that ended, or one that is stopped). `process`: see `presence`.
    `agent` and `since_ms`: what it runs and since when, "" and 0 = it does not say. `plugins`: the
    status of each by id, of a kernel that is not running the last one; None = it takes no requests.
    `answers`: to the last requests, by their token.
    """

    kernel: str
    state: str
    process: Mapping[str, Any]
    agent: str
    since_ms: int
    plugins: Mapping[str, Mapping[str, Any]] | None
    answers: Mapping[str, Mapping[str, Any]]


async def kernels(store: Store, *, ended: bool = False) -> tuple[KernelInfo, ...]:
    """The kernels that are running, as far as that can be known; with `ended` all that have left a
    document: one that was closed in good order has not.
    """
    infos = [_info(document) async for document in documents(store, keys.kernel(""))]
    return tuple(info for info in infos if ended or info.state == "running")


async def forget(store: Store) -> int:
    """Removes what kernels left that will not come back; how many those were. One that comes back
    all the same writes its document anew.
    """
    now_ms, count = await store.now(), 0
    async for document in documents(store, keys.kernel("")):
        info = _info(document)
        silent = info.state == "lapsed" and now_ms - document.expires_ms > SILENT_MS
        if info.state != "gone" and not silent:
            continue
        ops = (Delete(document.key, document.revision), Drop(keys.kernel_inbox(info.kernel)))
        try:
            await store.commit(Commit(ops))
            count += 1
        except StoreError as error:
            if error.code != "conflict":  # else it has just written, or somebody else was faster
                raise
    return count


async def ask(store: Store, kernel: str, token: str, body: Mapping[str, Any]) -> None:
    """Puts a request in a kernel's inbox, once per `token`."""
    stream = keys.kernel_inbox(kernel)
    entry = {**body, "token": token}
    await store.commit(Commit((Append(stream, ANY, (entry,)),), (stream, token)))


async def answer(store: Store, kernel: str, token: str, wait_s: float) -> Mapping[str, Any] | None:
    """What the kernel answered. None: nothing within `wait_s`, or it has ended."""
    with anyio.move_on_after(wait_s):
        async with closed_watch(store, keys.kernel(kernel)) as changes:
            async for _ in changes:
                (document,) = await store.get([keys.kernel(kernel)])
                info = None if document is None else _info(document)
                if info is None or info.state != "running":
                    return None
                if token in info.answers:
                    return info.answers[token]
    return None


def _info(document: Document) -> KernelInfo:
    value = document.value
    process = value.get("process") or {}
    state = "lapsed" if document.lapsed else "running"
    return KernelInfo(
        kernel=document.key.removeprefix(keys.kernel("")),
        state="gone" if presence.gone(process) else state,
        process=process,
        agent=value.get("agent", ""),
        since_ms=value.get("since_ms", 0),
        plugins=value.get("plugins"),
        answers=value.get("answers", {}),
    )
