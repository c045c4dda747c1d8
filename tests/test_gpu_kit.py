"""The GPU kit, which other people run on machines that ours are not: its door, its small version, and its page."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONCERNS = ("benchmarks/gpu",)
ROOT = Path(__file__).resolve().parents[1]


def told(folder: Path) -> dict[str, dict[str, Any]]:
    sections = json.loads((folder / "gpu.json").read_text())["sections"]
    return {section["section"]: section for section in sections}


@pytest.mark.slow
def test_the_small_version_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """As `make context` calls it; every section is measured in a process of its own, and none twice."""
    command = [str(ROOT / "benchmarks" / "gpu.sh"), "--small", "--records", str(tmp_path / "records"), str(tmp_path)]
    environment = os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sections, page = told(tmp_path), (tmp_path / "gpu.md").read_text()
    assert {section["status"] for section in sections.values()} == {"passed"}
    assert "* failed: none\n* partial: none\n* not run: none\n" in page
    engine = {row["name"]: row for row in sections["speed_8b"]["rows"]}["engine, 2 references"]
    assert engine["generations"] == 2
    assert engine["rows"] == 6
    assert engine["step ms"] > 0
    assert engine["tokens/s"] == pytest.approx(2000 / engine["step ms"])
    assert "| engine, 2 references | 2 | 6 |" in page
    launches = {row["name"]: row for row in sections["split"]["rows"]}["Llama 3.2 1B, launches"]
    assert launches["operations"] > 100
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 0
    assert again.stdout.count("passed earlier") == len(sections)
    assert told(tmp_path) == sections


def test_the_kit_says_what_is_missing_without_any_package() -> None:
    """A bare machine has nothing but Python: the door, the check and the report import no package."""
    script = "import sys, benchmarks.gpu.run; print(sorted({n.split('.')[0] for n in sys.modules}))"
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "numpy", "tasks", "pydantic"} & set(json.loads(done.stdout.replace("'", '"')))
