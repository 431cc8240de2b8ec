"""How the engine says no: one exception, with the code and the detail that the contract names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["EngineError"]


class EngineError(Exception):
    """The store refused or failed; nothing of the call was done.

    `code`: conflict, sealed, lapsed, storage, not_found, or invalid_argument for a malformed call.
    `detail`: with what, as in `purra.contracts.store`; strict JSON-like values.
    `passing`: the same call may succeed a little later (the file was locked for too long).
    """

    def __init__(self, code: str, message: str, *, passing: bool = False, **detail: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.passing = passing
        self.detail: dict[str, Any] = detail
