"""The benchmarks lie outside the rooms: their scripts import each other by bare names."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[dict[str, ModuleType]]:
    """The scripts that a test module names in SCRIPTS; they and what they import are forgotten after it."""
    sys.path.insert(0, str(BENCHMARKS))
    yield {name: importlib.import_module(name) for name in request.module.SCRIPTS}
    sys.path.remove(str(BENCHMARKS))
    for name in [script.stem for script in BENCHMARKS.glob("*.py")]:
        sys.modules.pop(name, None)
