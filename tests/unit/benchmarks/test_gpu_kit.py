"""The GPU kit: its small version from end to end, and its bookkeeping of what passed, failed and was not run."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CONCERNS = ("benchmarks/gpu",)

SCRIPTS = ("gpu.run", "gpu.section", "gpu.sections", "gpu.reports.report", "gpu.requirements")
ROOT = Path(__file__).resolve().parents[3]
NO_DEVICE: dict[str, Any] = {"torch": "2.13.0", "cuda": None, "device": None, "error": ""}
DEVICE = NO_DEVICE | {"cuda": "13.0", "device": "a GPU"}


@pytest.fixture
def kit(bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The kit on a machine with a GPU, of two sections; nothing is started."""
    run = bench["gpu.run"]
    sections = tuple(replace(bench["gpu.sections"].find(name), limit=1.0) for name in ("environment", "sweep"))
    monkeypatch.setattr(run, "SECTIONS", sections)
    monkeypatch.setattr(run, "probe", lambda: dict(DEVICE))
    monkeypatch.setattr(run, "GRACE_S", 0.5)
    monkeypatch.setattr(run, "SHORTEST_S", 0.0)
    monkeypatch.delenv("OUT", raising=False)
    return run


def told(folder: Path) -> dict[str, dict[str, Any]]:
    sections = json.loads((folder / "gpu.json").read_text())["sections"]
    return {section["section"]: section for section in sections}


def says(script: str) -> Any:
    """In place of a section's command line: a process that runs `script` with the record's path as `path`."""
    begin = "import json, sys, time, pathlib; path = pathlib.Path(sys.argv[1]); record = json.loads(path.read_text())\n"
    return lambda section, path, options, seconds: [sys.executable, "-c", begin + script, str(path)]


PASSES = "record.update(status='passed', reason=''); path.write_text(json.dumps(record))"


@pytest.mark.slow
def test_the_small_version_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """As `make bench` calls it; every section is measured in a process of its own, and none twice."""
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


def test_the_door_says_when_there_is_no_python(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu.sh")], env=os.environ | {"PYTHON": "false"}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "set PYTHON" in done.stderr


def test_without_a_device_nothing_is_run_and_it_says_so(
    kit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(kit, "probe", lambda: dict(NO_DEVICE))
    assert kit.main([str(tmp_path)]) == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    assert kit.main(["--device", "cpu", str(tmp_path)]) == 2
    assert "add --small" in capsys.readouterr().err
    monkeypatch.setattr(kit, "probe", lambda: NO_DEVICE | {"error": "torch cannot be imported: no libcudart"})
    assert kit.main(["--small", str(tmp_path)]) == 2
    assert "no libcudart" in capsys.readouterr().err
    assert not (tmp_path / "gpu.json").exists()


def test_the_check_names_what_is_missing_and_how_it_is_brought(
    bench: dict[str, ModuleType],
    kit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert kit.main(["--check"]) == 0
    assert "MISSING" not in capsys.readouterr().out
    found = bench["gpu.requirements"].installed
    monkeypatch.setattr(bench["gpu.requirements"], "installed", lambda name: None if name == "mpmath" else found(name))
    assert kit.main(["--check"]) == 1
    shown = capsys.readouterr().out
    assert "mpmath                  MISSING         >=1.3" in shown
    assert "pip install --no-index --find-links wheels mpmath" in shown
    assert "device: a GPU" in shown


def test_the_kit_says_what_is_missing_without_any_package() -> None:
    """A bare machine has nothing but Python: the door, the check and the report import no package."""
    script = "import sys, benchmarks.gpu.run; print(sorted({n.split('.')[0] for n in sys.modules}))"
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "numpy", "tasks", "pydantic"} & set(json.loads(done.stdout.replace("'", '"')))


@pytest.mark.slow
def test_nothing_of_cuda_is_imported_where_it_is_absent() -> None:
    modules = ", ".join(f"benchmarks.gpu.{path.stem}" for path in (ROOT / "benchmarks" / "gpu").glob("*.py"))
    script = f"import sys, {modules}; print(sorted({{name.split('.')[0] for name in sys.modules}}))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))
    assert "torch" in loaded
    assert not {"vllm", "pynvml", "cupy", "flashinfer", "sglang"} & loaded


def test_sections_that_passed_are_not_run_again_and_failed_ones_with_new_code_only(
    kit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(kit, "_command", says(PASSES))
    records = ["--records", str(tmp_path / "records")]
    assert kit.main([str(tmp_path), *records]) == 0
    monkeypatch.setattr(kit, "_command", says(PASSES.replace("passed", "failed")))
    assert kit.main([str(tmp_path), *records]) == 0
    assert capsys.readouterr().out.count("passed earlier") == 2
    assert kit.main([str(tmp_path), *records, "--only", "sweep", "--again"]) == 1
    assert [section["status"] for section in told(tmp_path).values()] == ["passed", "failed"]
    monkeypatch.setattr(kit, "_command", says(PASSES))
    assert kit.main([str(tmp_path), *records]) == 1
    assert "failed earlier" in capsys.readouterr().out
    monkeypatch.setattr(kit, "code_digest", lambda: "mended")
    assert kit.main([str(tmp_path), *records]) == 0
    monkeypatch.setattr(kit, "probe", lambda: DEVICE | {"device": "another GPU"})
    monkeypatch.setattr(kit, "_command", says(PASSES.replace("passed", "failed")))
    assert kit.main([str(tmp_path), *records]) == 1


def test_a_process_that_hangs_dies_or_is_silent_ends_its_own_section_alone(
    kit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hangs = "record['rows'] = [{'name': 'one', 'passed': True, 'seconds': 0.1}]\n"
    hangs += "path.write_text(json.dumps(record)); time.sleep(600)"
    dies = "print('illegal memory access', file=sys.stderr); sys.exit(9)"
    commands = {"environment": says(hangs), "sweep": says(dies)}
    monkeypatch.setattr(kit, "_command", lambda section, *more: commands[section.name](section, *more))
    began = time.monotonic()
    records = ["--records", str(tmp_path / "records")]
    assert kit.main([str(tmp_path), *records]) == 1
    assert time.monotonic() - began < 300
    found = told(tmp_path)
    assert found["environment"]["status"] == "partial"
    assert found["environment"]["reason"] == "its limit of 1 s was reached"
    assert [row["name"] for row in found["environment"]["rows"]] == ["one"]
    assert found["sweep"]["status"] == "failed"
    assert found["sweep"]["reason"] == "its process ended with status 9: illegal memory access"
    monkeypatch.setattr(kit, "_command", says("pass"))
    assert kit.main([str(tmp_path), *records]) == 1
    assert told(tmp_path)["environment"]["reason"] == "its process ended without a word"
    page = (tmp_path / "gpu.md").read_text()
    assert "* failed: Every number of rows to 64\n* partial: Environment\n" in page


def test_what_lacks_packages_or_time_is_not_run(
    bench: dict[str, ModuleType], kit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kit, "_command", says(PASSES))
    found = bench["gpu.requirements"].installed
    monkeypatch.setattr(bench["gpu.requirements"], "installed", lambda name: None if name == "scipy" else found(name))
    records = ["--records", str(tmp_path / "records")]
    assert kit.main([str(tmp_path), *records]) == 1
    assert told(tmp_path)["environment"]["status"] == "passed"
    assert told(tmp_path)["sweep"]["reason"] == "scipy not installed (gpu.sh --check says how)"
    monkeypatch.setattr(bench["gpu.requirements"], "installed", found)
    monkeypatch.setattr(kit, "SHORTEST_S", 15.0)
    assert kit.main([str(tmp_path), *records, "--seconds", "1"]) == 1
    assert "no time was left" in told(tmp_path)["sweep"]["reason"]
    assert "* not run: Every number of rows to 64" in (tmp_path / "gpu.md").read_text()


def test_an_output_folder_may_be_named_by_the_environment(
    kit: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kit, "_command", says(PASSES))
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    assert kit.main(["--records", str(tmp_path / "records")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gpu.json", "gpu.md"]


def a_bench(section: ModuleType, folder: Path, seconds: float = 100.0, rows: Any = ()) -> Any:
    record = section.Record("environment", "cpu", "code", rows=list(rows))
    return section.Bench("cpu", True, time.monotonic() + seconds, folder, record, folder / "environment.json")


def test_an_exception_in_a_row_is_its_text_and_ends_no_other(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    section = bench["gpu.section"]
    here = a_bench(section, tmp_path)

    def broken() -> dict[str, Any]:
        raise RuntimeError("CUDA error: device-side assert")

    row = here.row("broken", broken)
    assert row["passed"] is False
    assert row["error"].startswith("RuntimeError: CUDA error: device-side assert (test_gpu_kit.py:")
    here.row("sound", lambda: {"passed": True, "figure": 7})
    here.record.conclude()
    assert (here.record.status, here.record.reason) == ("failed", "failed: broken")
    kept = section.Record.read(tmp_path / "environment.json")
    assert [row["name"] for row in kept.rows] == ["broken", "sound"]
    later = a_bench(section, tmp_path, rows=kept.rows)
    assert later.row("sound", broken)["figure"] == 7  # it is not measured again
    assert later.row("broken", lambda: {"passed": True})["passed"] is True
    later.record.conclude()
    assert later.record.status == "passed"


def test_a_row_beyond_the_limit_is_not_begun(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    here = a_bench(bench["gpu.section"], tmp_path, seconds=-1.0)
    here.row("late", lambda: {"passed": True})
    here.record.conclude()
    assert here.record.status == "partial"
    assert here.record.reason == "late: the section's time limit was reached before it"
    later = a_bench(bench["gpu.section"], tmp_path, rows=here.record.rows)
    assert later.row("late", lambda: {"passed": True})["passed"] is True


def test_a_section_that_ends_by_an_exception_or_measures_nothing_has_failed(
    bench: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    section = bench["gpu.section"]
    found = bench["gpu.sections"].find("environment")
    here = a_bench(section, tmp_path)
    section.run(replace(found, measure="environment:nothing_there"), here)
    assert here.record.status == "failed"
    assert "nothing_there" in section.Record.read(here.path).reason
    empty = a_bench(section, tmp_path)
    empty.record.conclude()
    assert (empty.record.status, empty.record.reason) == ("failed", "it measured nothing")


def test_a_record_that_is_cut_off_is_none(bench: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"section": "environ')
    assert bench["gpu.section"].Record.read(tmp_path / "a.json") is None
    assert bench["gpu.section"].Record.read(tmp_path / "b.json") is None


def test_every_section_has_a_function_and_all_together_have_their_time(bench: dict[str, ModuleType]) -> None:
    import importlib

    sections = bench["gpu.sections"].SECTIONS
    for section in sections:
        module, _, function = section.measure.partition(":")
        assert callable(getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function))
    assert sum(section.limit for section in sections) < 25 * 60
    names = {package.name: package for package in bench["gpu.requirements"].packages()}
    assert names["torch"].wanted.startswith("==2.")
    assert names["torch"].sections == tuple(section.name for section in sections)


def test_the_page_lists_each_section() -> None:
    from benchmarks.gpu.sections import SECTIONS

    page = (ROOT / "docs" / "gpu.md").read_text()
    for section in SECTIONS:
        assert f"| {section.title} | {section.limit:.0f} | {section.about} |" in page
