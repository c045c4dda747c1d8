"""The home of a soak: datasets with one block and several, standing authorisations, and schedules for each."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.integration.story import NOTES, Almoner

RUNS = 10_000
BEGINS = timedelta(days=300)
"""How long ago the clock of the schedules begins: what it says is past, so that no server's clock says otherwise."""

SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1.0e-7, "evaluation": ["length"]}


@dataclass(frozen=True)
class Source:
    """A dataset: its blocks, its cap, and how many schedules draw on its authorisation."""

    name: str
    blocks: int
    epsilon: int
    schedules: int = 2


SOURCES = (
    Source("clinic", 1, 400),
    Source("ward", 3, 400),
    Source("practice", 2, 400),
    Source("surgery", 2, 5),  # whose budget is used up on the way
)


def notes_of(source: Source) -> list[dict[str, str]]:
    """Notes on units of its own: a unit belongs to one account."""
    return [{**note, "patient_id": f"{source.name}-{note['patient_id']}"} for note in NOTES]


def made(almoner: Almoner, sources: tuple[Source, ...] = SOURCES) -> datetime:
    """Everything that stewards decide once; returns when the clock of the schedules begins."""
    begins = (datetime.now(UTC) - BEGINS).replace(second=0, microsecond=0)
    almoner.type("init")
    for number, source in enumerate(sources, 1):
        options = f"--epsilon {source.epsilon} --delta 1e-6 --accept-weak-promise --blocks {source.blocks}"
        almoner.type(f"dataset register {source.name} --unit patient_id {options}")
        almoner.type(f"dataset ingest {source.name} {almoner.notes_file(f'{source.name}.jsonl', notes_of(source))}")
        file = almoner.request_file(dataset=source.name, **SMALL)
        almoner.type(f'standing propose {file} --runs {RUNS} --until 2099-12-31 --reason "every minute"')
        almoner.type(f'approve {number} --gate proposal --reason "agreed"', piped=f"{source.name}\n")
        start = (begins - timedelta(days=1)).isoformat()
        for _ in range(source.schedules):
            almoner.type(f'schedule create {number} --every 1m --start {start} --reason "every minute"')
    return begins


def told(almoner: Almoner) -> Path:
    """Where pollers write what they say."""
    return almoner.folder / "told"
