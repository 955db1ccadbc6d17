"""Keeps the tests of a file on one worker, and a worker's compiled programs within bounds."""

from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def double_precision():
    """JAX in float64, for tests that call into the library below its own switches."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def room_for_compiled_programs():
    """Linux grants a process 65,530 memory maps; thousands of small programs use them up."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > 30_000:
        jax.clear_caches()
