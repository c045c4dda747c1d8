"""The corpora of the benchmark of systems that show a model no private text: three public ones, each in three parts.

A row belongs to a part by the first digit of the SHA-256 of its id: 0 to 7 stand for private data, which the systems
read; 8 to b are declared public and are CORAL's target, without their labels; c to f are tested on. No row is in two.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.common.json_lines import DATA, read_lines
from benchmarks.in_context.demonstrations import DESCRIPTIONS
from tasks.evaluation.in_context.demonstrations import TASKS, Example, Task

MTS = "mts_dialog"
SECTIONS = {
    "FAM/SOCHX": "Family and social history",
    "GENHX": "History of present illness",
    "PASTMEDICALHX": "Past medical history",
    "CC": "Chief complaint",
    "ROS": "Review of systems",
    "MEDICATIONS": "Medications",
    "PASTSURGICAL": "Past surgical history",
    "ALLERGY": "Allergies",
    "ASSESSMENT": "Assessment",
}
"""The sections of a note with at least 40 conversations; the other eleven have 4 to 22 each."""

CORPORA: Mapping[str, Task] = {
    "agnews": TASKS["agnews"],
    "dbpedia14": TASKS["dbpedia14"],
    MTS: Task(
        MTS,
        "Name the section of the medical note that each conversation belongs to.",
        "Conversation",
        "Section",
        MappingProxyType(SECTIONS),
    ),
}
ABOUT = {
    **DESCRIPTIONS,
    MTS: "Short conversations between a doctor and a patient, some lines each, which begin with `Doctor:` or"
    " `Patient:`. The category is the section of the medical note that it belongs to.",
}
"""What a model is told of a corpus."""

_LABEL = {MTS: "section"}


@dataclass(frozen=True)
class Split:
    """The parts of a corpus."""

    private: tuple[Example, ...]
    public: tuple[Example, ...]
    tests: tuple[Example, ...]


def split(name: str, data: Path = DATA, units: int | None = None, others: int | None = None) -> Split:
    """All rows whose label is one of the task's.

    Args:
        units: so many private ones at most, from the beginning of the file.
        others: so many public ones, and so many tests.
    """
    parts: dict[str, list[Example]] = {"private": [], "public": [], "tests": []}
    for row in read_lines(data / f"{name}.jsonl"):
        label = row[_LABEL.get(name, "label")]
        if label in CORPORA[name].words:
            parts[part_of(row["id"])].append(Example(row["text"], label))
    return Split(tuple(parts["private"][:units]), tuple(parts["public"][:others]), tuple(parts["tests"][:others]))


def part_of(row: str) -> str:
    """The part of a row, by its id."""
    digit = hashlib.sha256(row.encode()).hexdigest()[0]
    return "private" if digit < "8" else "public" if digit < "c" else "tests"
