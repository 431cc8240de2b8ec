"""Other kernels on the same store: which there are, and what can be asked of them (tables, store
keys). A kernel that does not listen to its inbox says so by saying nothing of its plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from purra.contracts.store import ANY, Append, Commit, Document, Scan, Store
from purra.runs import keys, presence
from purra.runs.reader import closed_watch

__all__ = ["KernelInfo", "answer", "ask", "kernels"]

SCAN_PAGE = 100


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
    found: list[KernelInfo] = []
    after = ""
    while True:
        page = await store.scan(Scan(keys.kernel(""), after, SCAN_PAGE))
        infos = map(_info, page.documents)
        found += [info for info in infos if ended or info.state == "running"]
        if not page.more or not page.documents:
            return tuple(found)
        after = page.documents[-1].key


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
