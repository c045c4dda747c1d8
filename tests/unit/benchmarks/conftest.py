"""The benchmarks lie outside the rooms, and `make bench` alone calls them by name."""

import importlib
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> dict[str, ModuleType]:
    """The modules of benchmarks/ that a test module names in SCRIPTS."""
    return {name: importlib.import_module(f"benchmarks.{name}") for name in request.module.SCRIPTS}
