"""A small corpus of groups, summarisers on the tiny model, and a diary of every exact sum that they make."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tasks.decoding.loop
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.systems.summaries import token_level_rule
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.workshop import Workshop, store

GROUPS = ("kettle", "lamp", "nobody wrote of it", "sofa")
WRITTEN = ("kettle", "lamp", "sofa")
UNITS = 9
UNIT = "u4"
"""The unit that changes; it writes in all three groups that anybody writes in, twice in the lamp's."""
FORM = "It is {what}. Some say {more}!"
GIVEN: dict[str, Any] = {
    "groups": GROUPS,
    "references": 4,
    "max_new_tokens": 12,
    "temperature": "1",
    "max_reference_tokens": 40,
    "instalment": 4,
}
Notes = list[dict[str, str]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So little work is not worth sharing out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def notes() -> Notes:
    """Every unit writes in one to three groups."""
    made = []
    for number in range(UNITS):
        places = range(3) if f"u{number}" == UNIT else range(1 + number % 2)
        for place in places:
            group = WRITTEN[(number + place) % 3]
            made.append(note(f"u{number}", f"{number} thinks {'so ' * (number % 4)}of the {group}", group))
    return [*made, note(UNIT, "and one more thing", "lamp")]


def note(unit: str, text: str, group: str) -> dict[str, str]:
    """One document."""
    return {"patient_id": unit, "text": text, "section": group}


def notes_with(change: str) -> Notes:
    """All notes, with UNIT's changed."""
    others = [each for each in notes() if each["patient_id"] != UNIT]
    own = [each for each in notes() if each["patient_id"] == UNIT]
    match change:
        case "removed":
            return others
        case "replaced":
            return others + [note(UNIT, f"ZZZ {each['section']} !?", each["section"]) for each in own]
        case "lengthened":
            return others + [note(UNIT, each["text"] + " and on and on" * 9, each["section"]) for each in own]
        case "first":
            return own + others
        case _:
            raise ValueError(change)


def kept(folder: Path, written: Sequence[Mapping[str, str]]) -> Corpus:
    """The notes as a corpus with groups."""
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", written, "section")


def context(
    workshop: Workshop, groups: Sequence[str] = GROUPS, *, model: LanguageModel | None = None, **more: Any
) -> RunContext:
    """A context that words summaries of these groups."""
    made = workshop.context(**more)
    prompt = PromptSpec.of(Prompt(description="a short summary", preset="summary"), groups)
    engine = made.engine if model is None else Engine(model, 4, 2**30)
    return replace(made, prompt=prompt, engine=engine)


@dataclass
class Diary:
    """What was summed, exactly, and what was said of it.

    Attributes:
        rows: what each row contributed, int64 [N, K], for each noisy mean.
        places: whose rows these were, int64 [N].
        sums: the sums that noise would have been added to, int64 [G, K].
        seen: arms and progress.
        mechanisms: all that drew.
    """

    rows: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)
    sums: list[Tensor] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)
    mechanisms: set[NoisyMean] = field(default_factory=set)

    def draw(self, mechanism: NoisyMean, sums: Tensor) -> Tensor:
        """Write the sums down, and add no noise."""
        self.mechanisms.add(mechanism)
        self.sums.append(sums.clone())
        return sums

    def sum_rows(self, clipped: Tensor, generation: Tensor, generations: int) -> Tensor:
        """Write the rows down, and add them up."""
        self.rows.append(clipped.clone())
        self.places.append(generation.clone())
        return utility_scores.sum_rows(clipped, generation, generations)

    def choose(self, *given: Any) -> list[int]:
        """Tokens that only candidates and the number of the call decide, as in the proofs: outputs are given."""
        _, found, summed, _ = given
        places = [13 * len(self.sums) + 7 * row for row in range(len(summed))]
        allowed = [tokens[those].sort().values for tokens, those in zip(found.tokens, found.allowed, strict=True)]
        return [int(tokens[place % len(tokens)]) for tokens, place in zip(allowed, places, strict=True)]

    @contextmanager
    def watching(self, places: int = 3) -> Iterator[None]:
        """Without noise, with given tokens, and with so many generations at once."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(NoisyMean, "draw", lambda mechanism, sums, rng: self.draw(mechanism, sums))
            patch.setattr(token_level_rule, "sum_rows", self.sum_rows)
            patch.setattr(utility_scores, "draw_tokens", self.choose)
            patch.setattr(tasks.decoding.loop, "generations_at_once", lambda *sizes: places)
            yield


def written(
    system: Any, parameters: Any, plan: Any, workshop: Workshop, precision: Precision = "float32", *, stops: bool = True
) -> Diary:
    """A release without noise."""
    diary = Diary()
    work = context(workshop, model=tiny_model(precision, stops=stops), arm=lambda *what: diary.seen.append(what))
    work = replace(work, progress=lambda *what: diary.seen.append(what))
    with diary.watching():
        diary.seen.append(system.generate(plan, parameters, work))
    return diary


def norms(rows: Tensor) -> list[int]:
    """Squared L2 norms, exact: int64 [N, K] -> N whole numbers."""
    return [int(square) for square in (rows * rows).sum(1).tolist()]


def equal_but(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Where two diaries' sums differ: (number of the mean, row of it)."""
    assert [each.shape for each in one] == [each.shape for each in other]
    return [
        (number, row)
        for number, (left, right) in enumerate(zip(one, other, strict=True))
        for row in range(len(left))
        if not torch.equal(left[row], right[row])
    ]
