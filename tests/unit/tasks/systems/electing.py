"""Corpora, writers and runs for tests of private evolution; texts are told apart by their letters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.backends.text_backend import Completion, Sampling
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.private_evolution import PrivateEvolution
from tasks.systems.private_evolution.run import EvolutionRun, VoteHistogram
from tasks.systems.private_evolution.schedule import EvolutionParameters, Schedule
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.asking import ask
from tests.unit.tasks.systems.workshop import store

RHO = 10**12
LABELLED = PromptSpec("Notes.", public="{description} About {label}.")

Note = Mapping[str, str]


def corpus_of(folder: Path, notes: Iterable[Note]) -> Corpus:
    """Notes with a unit, a text and maybe a label."""
    folder.mkdir(exist_ok=True)
    written = list(notes)
    labelled = "label" if any("label" in one for one in written) else None
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", written, labelled)


def note(unit: str, text: str, label: str = "") -> Note:
    """One document."""
    return {"patient_id": unit, "text": text} | ({"label": label} if label else {})


def settings(**changes: Any) -> EvolutionParameters:
    """A short schedule."""
    return EvolutionParameters.model_validate(
        {"samples": 2, "rounds": 2, "variations": 2, "max_new_tokens": 8} | changes
    )


@dataclass
class Writing:
    """A text backend that answers by a function, and keeps every prompt.

    Attributes:
        answer: of the prompt, and of how often anything was asked before.
        asked: the prompts of each call.
    """

    answer: Callable[[str, int], str] = lambda prompt, number: f"text {number}"
    asked: list[list[str]] = field(default_factory=list)
    told: list[Sampling] = field(default_factory=list)
    name: str = "tests 1"
    external: bool = False

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """Always."""

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        before = sum(map(len, self.asked))
        self.asked.append(list(prompts))
        self.told.append(how)
        texts = [self.answer(prompt, before + place) for place, prompt in enumerate(prompts)]
        return [Completion(text, len(text), True) for text in texts]


def running(context: RunContext, wanted: EvolutionParameters, writing: Writing, rho: int = RHO) -> EvolutionRun:
    """A run over a context, with its own plan."""
    plan = PrivateEvolution().plan(ask(wanted, Amount(rho)))
    return EvolutionRun(
        wanted,
        Schedule.of(wanted, Amount(rho)),
        plan,
        replace(context, outside=writing, prompt=LABELLED if wanted.labels else context.prompt),
        Letters(),
        VoteHistogram(context, plan.blocks, wanted.labels, Letters()),
    )
