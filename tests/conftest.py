"""Shared by all tests: async tests run on asyncio, which is what the kernel runs on."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
