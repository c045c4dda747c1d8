"""A section of the kit: what it is called, how long it may take, and the record of what it measures. Imports no torch.

A section runs in a process of its own (`section_process`), so that a crash, a hang or an error that
stays with a CUDA context ends that section alone. Its record is written after every row: a section that is ended by
its limit keeps what it has measured, and goes on behind it when the kit is called again.
"""

import importlib
import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, PARTIAL, NOT_RUN = "passed", "failed", "partial", "not run"
OUT_OF_TIME = "the section's time limit was reached before it"
_LONGEST_ERROR = 600


@dataclass(frozen=True)
class Section:
    """A section's description.

    Attributes:
        name: of its record's file.
        title: for people.
        limit: seconds that it may take.
        measure: `module:function` in this folder; the function takes a `Bench`.
        packages: distributions that it imports.
        about: what it tells, in one sentence.
    """

    name: str
    title: str
    limit: float
    measure: str
    packages: tuple[str, ...]
    about: str


@dataclass
class Record:
    """What is known of a section.

    Attributes:
        reason: why it failed, is partial, or was not run; empty where it passed.
        rows: its figures, in order: `name` and `passed` of each (None where nothing is checked), and whatever it
            measured; `error` where it ended by an exception.
        seconds: that all its attempts took together.
        device, code: on what and by which code it was made; a record of another device or code is made anew.
    """

    section: str
    device: str
    code: str
    status: str = NOT_RUN
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def read(cls, path: Path) -> "Record | None":
        """Return the record in a file; None where there is none, or one that is cut off or of another form."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write it to a file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        beside.replace(path)

    def is_settled(self, device: str, code: str) -> bool:
        """Whether the section needs no other attempt: it passed on this device, or failed there by this very code."""
        return self.device == device and (self.status == PASSED or (self.status == FAILED and self.code == code))

    def conclude(self) -> None:
        """Derive the status from the rows."""
        failed = [row["name"] for row in self.rows if row["passed"] is False]
        missing = [row["name"] for row in self.rows if row.get("not_run")]
        self.status, self.reason = PASSED, ""
        if not self.rows:
            self.status, self.reason = FAILED, "it measured nothing"
        if missing:
            self.status, self.reason = PARTIAL, f"{_listed(missing)}: {OUT_OF_TIME}"
        if failed:
            self.status, self.reason = FAILED, f"failed: {_listed(failed)}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@dataclass
class Bench:
    """What a section measures with.

    Attributes:
        device: torch's name of it.
        small: tiny sizes, for a CPU.
        deadline: of `time.monotonic`; a row is not begun after it.
        folder: a place for files of its own.
    """

    device: str
    small: bool
    deadline: float
    folder: Path
    record: Record
    path: Path

    @property
    def seconds_left(self) -> float:
        """Until the section's limit."""
        return self.deadline - time.monotonic()

    def row(self, name: str, measure: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Measure a row and write it down; one that an earlier attempt has measured is kept.

        Args:
            measure: returns the figures; `passed` among them says whether what it checked held. Its exception is the
                row's error, and does not end the section.
        """
        known = {row["name"]: row for row in self.record.rows}
        if name in known and not (known[name].get("not_run") or "error" in known[name]):
            return known[name]
        began = time.monotonic()
        figures: dict[str, Any] = {"passed": None}
        if self.seconds_left <= 0:
            figures["not_run"] = True
        else:
            try:
                figures |= measure()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is written down, and others go on
                where = traceback.extract_tb(error.__traceback__)[-1]
                text = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
                figures |= {"passed": False, "error": text[:_LONGEST_ERROR]}
        row = {"name": name, **figures, "seconds": round(time.monotonic() - began, 3)}
        self.record.rows = [old for old in self.record.rows if old["name"] != name] + [row]
        self.record.write(self.path)
        print(f"    {name}: {_line(row)}", flush=True)
        return row


def _line(row: Mapping[str, Any]) -> str:
    hidden = ("name", "passed", "seconds")
    verdict = {True: "passed, ", False: "FAILED, ", None: ""}[row["passed"]]
    shown = ", ".join(f"{key} {value}" for key, value in row.items() if key not in hidden and not _is_long(value))
    return f"{verdict}{shown} ({row['seconds']:.1f} s)"


def _is_long(value: object) -> bool:
    return isinstance(value, list | dict) and len(value) > 4


def run(section: Section, bench: Bench) -> None:
    """Run a section to its end and write its record."""
    began = time.monotonic()
    module, _, function = section.measure.partition(":")
    try:
        getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function)(bench)
        bench.record.conclude()
    except Exception as error:  # noqa: BLE001 - as above
        bench.record.status = FAILED
        bench.record.reason = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        traceback.print_exc()
    bench.record.seconds += round(time.monotonic() - began, 3)
    bench.record.write(bench.path)
