"""The GPU kit: everything that a lent accelerator should settle, in one command that can be called again.

    benchmarks/gpu.sh                      all sections on CUDA, into $OUT or out/gpu
    benchmarks/gpu.sh FOLDER               ... into FOLDER
    benchmarks/gpu.sh --seconds 540        as many sections as these seconds allow; call it again to go on
    benchmarks/gpu.sh --check              what this machine lacks, and how it is brought here
    benchmarks/gpu.sh --only isolation     some sections; --again: measure them anew
    benchmarks/gpu.sh --small              tiny sizes on the CPU, which show that the kit itself works

Records of sections lie in out/gpu (out/gpu-small) and stay there: what has passed on the same device is not measured
again, and what has failed is once the code has changed. The report, gpu.json and gpu.md, is written after each section.
Exit status: 0 if everything passed, 1 if something failed or was not run, 2 if nothing could be run.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu import requirements
from benchmarks.gpu.reports import report
from benchmarks.gpu.section import FAILED, NOT_RUN, PARTIAL, PASSED, Record, Section
from benchmarks.gpu.sections import SECTIONS

ROOT = requirements.ROOT
GRACE_S = 20.0
"""Seconds that a section's process has to end by itself, after its limit."""
SHORTEST_S = 15.0
"""With fewer seconds left no section is begun: its imports alone take as long."""
_SMALL = {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
"""Variables of the small version's processes: without a device, Triton interprets."""
_CODE = ("benchmarks", "models_db", "tasks", "tests/unit/tasks/inference")

_PROBE = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda,
                  "device": torch.cuda.get_device_name(0) if cuda else None}))
"""


@dataclass(frozen=True)
class Options:
    """What was asked for.

    Attributes:
        folder: for the report.
        seconds: that all sections of this call may take together.
        device: torch's name: cuda, cuda:N or cpu.
    """

    folder: Path
    records: Path
    seconds: float
    device: str
    small: bool
    only: tuple[str, ...]
    again: bool


def main(given: Sequence[str] | None = None) -> int:
    """Run the kit; returns the exit status."""
    arguments = _arguments(given)
    if arguments.check:
        return _check()
    machine = probe()
    device = arguments.device or ("cpu" if arguments.small else "cuda")
    if problem := _problem(machine, device, small=arguments.small):
        print(f"gpu.sh: {problem}", file=sys.stderr)
        print(requirements.explanation(sys.executable, _python()), file=sys.stderr)
        return 2
    name = "gpu-small" if arguments.small else "gpu"
    records = ROOT / "out" / name
    folder = arguments.folder or Path(os.environ.get("OUT") or records)
    options = Options(
        folder, arguments.records or records, arguments.seconds, device, arguments.small, tuple(arguments.only),
        arguments.again,
    )  # fmt: skip
    return _run_all(options, f"{machine['device'] or platform.processor() or 'processor'} ({device})", machine)


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="where the report is written; $OUT if not given")
    parser.add_argument("--check", action="store_true", help="say what is missing, and run nothing")
    parser.add_argument("--small", action="store_true", help="tiny sizes, on the CPU")
    parser.add_argument("--device", help="cuda, cuda:N or cpu; cuda if not given, with --small cpu")
    parser.add_argument("--seconds", type=float, default=1500.0, help="of this call")
    names = [section.name for section in SECTIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SECTION", help=", ".join(names))
    parser.add_argument("--again", action="store_true", help="measure what was asked for anew")
    parser.add_argument("--records", type=Path, help="where records of sections are kept")
    return parser.parse_args(given)


def _check() -> int:
    print(f"Python {_python()} at {sys.executable}")
    print(requirements.explanation(sys.executable, _python()))
    machine = probe()
    print(f"\n{machine['error'] or _described(machine)}")
    print(
        "\nWeights of SmolLM2-135M and all-MiniLM-L6-v2 are used where `almoner models pull` put them; else networks of"
    )
    print("their shapes with random weights are made on the device. vLLM is compared with where it is installed.")
    absent = requirements.missing(package.name for package in requirements.packages())
    return 1 if absent or machine["device"] is None else 0


def _described(machine: dict[str, Any]) -> str:
    return f"torch {machine['torch']}, CUDA {machine['cuda']}, device: {machine['device'] or 'NO CUDA DEVICE'}"


def probe() -> dict[str, Any]:
    """Return torch's version, its CUDA's, and the device's name, asked in another process; `error` if it has none."""
    asked = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=120)
    nothing = {"torch": None, "cuda": None, "device": None, "error": ""}
    if asked.returncode:
        return nothing | {"error": f"torch cannot be imported: {asked.stderr.strip().splitlines()[-1]}"}
    return nothing | json.loads(asked.stdout.splitlines()[-1])


def _problem(machine: dict[str, Any], device: str, *, small: bool) -> str:
    """Why nothing can be run; empty where something can."""
    if machine["error"]:
        return str(machine["error"])
    if device.startswith("cuda") and machine["device"] is None:
        return f"there is no CUDA device ({_described(machine)}); --small runs the kit's small version on the CPU"
    return "" if device.startswith("cuda") or small else "only the small version runs on a CPU: add --small"


def _run_all(options: Options, device: str, machine: dict[str, Any]) -> int:
    code, began = code_digest(), time.monotonic()
    records: dict[str, Record] = {}
    for section in SECTIONS:
        path = options.records / f"{section.name}.json"
        known = Record.read(path)
        asked = section.name in options.only
        if known is None or known.device != device or (asked and options.again):
            path.unlink(missing_ok=True)
            known = None
        records[section.name] = known or Record(section.name, device, code, reason="not asked for" if not asked else "")
    for section in SECTIONS:
        if section.name not in options.only:
            continue
        if records[section.name].is_settled(device, code):
            print(f"{section.title}: {records[section.name].status} earlier", flush=True)
            continue
        print(f"{section.title} (at most {section.limit:.0f} s)", flush=True)
        left = options.seconds - (time.monotonic() - began)
        records[section.name] = _run_section(section, records[section.name], options, code, left)
        print(f"  {records[section.name].status}: {records[section.name].reason or section.about}", flush=True)
        report.write(options.folder, list(records.values()), machine, device)
    page, figures = report.write(options.folder, list(records.values()), machine, device)
    print(f"\n{page}\n{figures}")
    return 0 if all(records[name].status == PASSED for name in options.only) else 1


def _run_section(section: Section, known: Record, options: Options, code: str, left: float) -> Record:
    """Return the record of an attempt: of its process, or of why there was none."""
    path = options.records / f"{section.name}.json"
    record = Record(section.name, known.device, code, rows=known.rows, seconds=known.seconds)
    if known.code != code:
        record.rows = []  # rows of one record are of one code
    if absent := requirements.missing(section.packages):
        record.reason = f"{', '.join(absent)} not installed (gpu.sh --check says how)"
    elif left < SHORTEST_S:
        record.reason = "no time was left in this call: call it again to go on"
    else:
        record.status, record.reason = PARTIAL, "its process ended without a word"
        record.write(path)
        return _process(section, path, options, min(section.limit, left))
    record.status = PARTIAL if record.rows else NOT_RUN
    record.write(path)
    return record


def _process(section: Section, path: Path, options: Options, seconds: float) -> Record:
    command, log = _command(section, path, options, seconds), path.with_suffix(".log")
    began, ended = time.monotonic(), ""
    with log.open("w", encoding="utf-8") as errors:
        environment = os.environ | (_SMALL if options.small else {})
        process = subprocess.Popen(command, cwd=ROOT, stderr=errors, env=environment)
        try:
            if status := process.wait(seconds + GRACE_S):
                ended = f"its process ended with status {status}: {_last_line(log)}"
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            ended = f"its limit of {seconds:.0f} s was reached"
    record = Record.read(path)
    assert record is not None, f"{path} was written before the process began"
    if ended:
        record.status, record.reason = (PARTIAL if "limit" in ended else FAILED), ended
        record.seconds += round(time.monotonic() - began, 3)
        record.write(path)
    return record


def _command(section: Section, path: Path, options: Options, seconds: float) -> list[str]:
    """Return the command line of a section's process."""
    command = [sys.executable, "-m", "benchmarks.gpu.section_process", section.name, "--record", str(path)]
    return [*command, "--device", options.device, "--seconds", f"{seconds:.0f}", *["--small"] * options.small]


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "nothing on its error output"


def code_digest() -> str:
    """SHA-256 over the code that the sections run."""
    digest = hashlib.sha256()
    for folder in _CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


if __name__ == "__main__":
    sys.exit(main())
