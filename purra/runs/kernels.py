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
    """A kernel that works now. `plugins`: version and generation by id; None = it takes no
    requests. `answers`: to the last requests, by their token.
    """

    kernel: str
    plugins: Mapping[str, Mapping[str, Any]] | None
    answers: Mapping[str, Mapping[str, Any]]


async def kernels(store: Store) -> tuple[KernelInfo, ...]:
    """The kernels whose process lives, as far as that can be known."""
    found: list[KernelInfo] = []
    after = ""
    while True:
        page = await store.scan(Scan(keys.kernel(""), after, SCAN_PAGE))
        found += [_info(document) for document in page.documents if _lives(document)]
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
                if document is None or not _lives(document):
                    return None
                found = _info(document).answers.get(token)
                if found is not None:
                    return found
    return None


def _lives(document: Document) -> bool:
    return not document.lapsed and not presence.gone(document.value.get("process"))


def _info(document: Document) -> KernelInfo:
    value = document.value
    kernel = document.key.removeprefix(keys.kernel(""))
    return KernelInfo(kernel, value.get("plugins"), value.get("answers", {}))
