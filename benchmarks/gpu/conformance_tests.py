"""Sections `conformance` and `tests`: what the project's own tests say on this device."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import torch

from benchmarks.gpu.networks import memory_returned
from benchmarks.gpu.requirements import ROOT
from benchmarks.gpu.section import Bench
from tests.unit.tasks.inference.conformance import conformance_of
from tests.unit.tasks.inference.families import READ

TOLERANCE = 1e-4
"""Of a logit in float32: tests/unit/tasks/inference/engine/test_conformance.py."""
MARK = "pytest.mark.gpu"
MORE_DEVICES = "needs two CUDA devices"
"""Begins the reason of a test that this machine has too few devices for."""
_FEW = ("Llama", "Gemma 3")
_FAST = "tests/unit/tasks/mechanisms/vectors/test_clipping.py"


def families(bench: Bench) -> None:
    """One row for each family."""
    for family in _FEW if bench.small else READ:
        bench.row(family, partial(_family, family, bench.device))


def _family(family: str, device: str) -> Mapping[str, Any]:
    with memory_returned():
        found = conformance_of(family, torch.device(device))
    close = found.difference <= TOLERANCE * max(1.0, found.logits / 10)
    return {
        "passed": close and found.isolated,
        "largest difference": found.difference,
        "of logits up to": found.logits,
        "rows kept apart": found.isolated,
    }


def gpu_tests(bench: Bench) -> None:
    """The tests with the mark `gpu`, without the fixtures of a whole installation."""
    files = [_FAST] if bench.small else marked_files(ROOT / "tests")
    bench.row("pytest -m gpu", lambda: _pytest(files, bench))


def marked_files(tests: Path) -> list[str]:
    """Paths, from the root, of the test files that use the mark `gpu`."""
    found = [path for path in sorted(tests.rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]
    return [path.relative_to(tests.parent).as_posix() for path in found]


def _pytest(files: Sequence[str], bench: Bench) -> Mapping[str, Any]:
    results = bench.folder / "pytest.xml"
    results.unlink(missing_ok=True)
    options = ["--noconftest", "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=default"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", *options]
    done = subprocess.run(
        [*command, f"--junit-xml={results}", *files],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=max(1.0, bench.seconds_left),
    )
    if not results.exists():
        raise RuntimeError(f"pytest ended with status {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    return {"files": len(files), **counts(results, on_device=bench.device.startswith("cuda"))}


def counts(results: Path, *, on_device: bool) -> Mapping[str, Any]:
    """Numbers of tests by outcome, and the first line of what each failed one said.

    Args:
        results: in the XML of pytest's `--junit-xml`.
        on_device: whether tests that were skipped are a failure: there is a device for them.
    """
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    failed = {
        case.get("name", "?"): (problem.get("message") or "").partition("\n")[0][:200]
        for case in cases
        for problem in (*case.iter("failure"), *case.iter("error"))
    }
    reasons = [str(skip.get("message")) for case in cases for skip in case.iter("skipped")]
    too_few = sum(MORE_DEVICES in reason for reason in reasons)
    skipped = len(reasons) - too_few
    told: dict[str, Any] = {
        "passed": not failed and bool(cases) and not (on_device and skipped),
        "tests that passed": len(cases) - len(failed) - len(reasons),
        "tests that failed": len(failed),
        "tests that were skipped": skipped,
        "tests that need two devices": too_few,
    }
    return told | ({"failures": failed} if failed else {})
