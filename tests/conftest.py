"""Shared by all tests: async tests run on asyncio, which is what the kernel runs on."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says something about the machine, not about the code.
settings.register_profile("purra", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("purra")


@pytest.hookimpl(optionalhook=True)  # without xdist the hook is not known
def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end: the collector need not visit them again at
    each of its rounds, which was a third of all the time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
