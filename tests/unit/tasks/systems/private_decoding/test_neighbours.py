"""From the corpus to the integer scores: what one unit can move, through every part of the way at once (PRIVACY §4).

Two corpora differ by one unit. Both are decoded by the shipped path (store, batches, labels, prompts, engine, rule),
with tokens and outcomes of tests forced to be the same, as in the proofs. Then the arguments of every draw and every
test are compared: one generation's may differ, by no more than the sensitivity that is charged; all others are equal
to the last unit, and so is what can be seen of the run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tasks.decoding.loop
from models_db.home import ProjectHome
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.mechanisms.tokens.sparse_vector import NORM, SparseVector
from tasks.mechanisms.tokens.utility_scores import Candidates
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning import shared_parameters
from tasks.systems.few_shot_generation import FewShotGeneration, FewShotGenerationParameters
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_decoding import PrivateDecodingSystem
from tasks.systems.private_icl import PrivateIcl, PrivateIclParameters
from tasks.systems.private_prediction import PrivatePrediction, PrivatePredictionParameters
from tests.tiny_model import tiny_model
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.workshop import NOTES, Workshop, store

pytestmark = [pytest.mark.dear, pytest.mark.contract]
CONCERNS = ("tasks/decoding", "tasks/systems", "tasks/inference/engine")

UNITS = sorted({note["patient_id"] for note in NOTES})
SECTIONS = sorted({note["section"] for note in NOTES})
SICK = "\u20ac"
"""A letter that no note has; its embedding can be made NaN."""
STEPS, PRIVATE_TOKENS = 10, 4
COMPLETED = "ink, completed"
GIVEN: dict[str, Any] = {
    "samples": 8,
    "references": 2,
    "max_new_tokens": STEPS,
    "temperature": "1",
    "max_reference_tokens": 40,
    "batches": 3,
    "labels": (*SECTIONS[:2], "nobody has it"),
}
SYSTEMS: dict[str, tuple[PrivateDecodingSystem[Any], Any, dict[str, Any]]] = {
    "ink": (InvisibleInk(), InvisibleInkParameters, {"top_k": 30}),
    "ink, paper": (InvisibleInk(), InvisibleInkParameters, {"clipping": "logit", "top_k": 0}),
    COMPLETED: (InvisibleInk(), InvisibleInkParameters, {}),
    "amin": (PrivatePrediction(), PrivatePredictionParameters, {"private_tokens": PRIVATE_TOKENS}),
    "icl": (PrivateIcl(), PrivateIclParameters, {"top_k": 30}),
    "tang": (FewShotGeneration(), FewShotGenerationParameters, {"top_k": 30}),
}
Notes = list[Mapping[str, str]]


@dataclass
class Diary:
    """The arguments of all draws and tests, and whatever else is seen.

    Attributes:
        draws: the kind of draw, the candidates, their int64 [L, K] scores.
        tests: distances.
        sums: of rows that get noise, int64 [L, K], with the largest norm of a row.
        seen: what was armed, and progress.
    """

    draws: list[tuple[IntegerTableMechanism, Candidates, torch.Tensor]] = field(default_factory=list)
    tests: list[int] = field(default_factory=list)
    sums: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    seen: list[object] = field(default_factory=list)

    def draw(
        self, draw: IntegerTableMechanism, found: Candidates, summed: torch.Tensor, rng: RandomSource
    ) -> list[int]:
        """Tokens that only candidates and the number of the call decide; the end token is among them at times."""
        number = len(self.draws)
        self.draws.append((draw, found, summed))
        places = [13 * number + 7 * row for row in range(len(summed))]
        allowed = [tokens[those].sort().values for tokens, those in zip(found.tokens, found.allowed, strict=True)]
        return [int(tokens[place % len(tokens)]) for tokens, place in zip(allowed, places, strict=True)]

    def noisy(self, mean: NoisyMean, sums: torch.Tensor, rng: RandomSource) -> torch.Tensor:
        """Sums that only the number of the call decides."""
        number = len(self.sums)
        self.sums.append((mean.clip_steps, sums))
        places = torch.tensor([(13 * number + 7 * row) % sums.shape[1] for row in range(len(sums))])
        return torch.nn.functional.one_hot(places, sums.shape[1])

    def below(self, tests: SparseVector, distance: int, threshold: int, rng: RandomSource) -> bool:
        """Two of five tests end their run."""
        self.tests.append(distance)
        return len(self.tests) % 5 > 1


@cache
def model_for(precision: Precision) -> LanguageModel:
    """The tiny model; the letter SICK makes a row NaN, whatever it does in its passes."""
    model = tiny_model.__wrapped__(precision)
    with torch.inference_mode():
        model.decoder.embed_tokens.weight[sick_token(model)] = torch.nan
    return model


def sick_token(model: LanguageModel) -> int:
    """The second of SICK's bytes."""
    return int(model.tokenizer(SICK)["input_ids"][1])


candidates = utility_scores.candidates


def well(found: Candidates, sick: int) -> Candidates:
    """The candidates but the sick one, after which nothing public could be read."""
    return Candidates(found.tokens, found.allowed & (found.tokens != sick))


def decoded(system: str, notes: Notes, folder: Path, patch: pytest.MonkeyPatch, precision: Precision) -> Diary:
    """Three generations at once, private rows four at a time: they enter at different steps, in several chunks."""
    diary = Diary()
    patch.setattr(tasks.decoding.loop, "generations_at_once", lambda *sizes: 3)
    patch.setattr(utility_scores, "draw_tokens", diary.draw)
    patch.setattr(utility_scores, "candidates", lambda *given: well(candidates(*given), sick_token(tiny_model())))
    patch.setattr(SparseVector, "begin", lambda *given: 0)
    patch.setattr(NoisyMean, "draw", lambda *given: diary.noisy(*given))
    patch.setattr(SparseVector, "below", lambda *given: diary.below(*given))
    patch.setattr(shared_parameters, "COMPLETION_TOKENS", 6 if system == COMPLETED else 0)
    maker, kind, own = SYSTEMS[system]
    wanted = kind.model_validate(GIVEN | own)
    context = Workshop(store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes, "section"), 2).context(
        arm=lambda *what: diary.seen.append(what)
    )
    tell = lambda *what: diary.seen.append(what)  # noqa: E731
    context = type(context)(**{**vars(context), "engine": Engine(model_for(precision), 4, 2**30), "progress": tell})
    made = maker.generate(maker.plan(ask(wanted, AMOUNT, blocks=2)), wanted, context)
    diary.seen += [made.released, made.texts]
    return diary


def without(unit: str) -> Notes:
    return [note for note in NOTES if note["patient_id"] != unit]


def with_sick(unit: str) -> Notes:
    """One unit's rows are NaN."""
    return [{**note, "text": f"{SICK} {note['text']}"} if note["patient_id"] == unit else note for note in NOTES]


def crowded(unit: str) -> Notes:
    """One unit brings long texts under every label."""
    more = [{**NOTES[0], "id": f"new {label}", "patient_id": unit, "section": label, "text": f"{label}! " * 99}
            for label in SECTIONS]  # fmt: skip
    return [*NOTES, *more]


def moved(before: Diary, after: Diary) -> int:
    """How many draws one unit moved; it moves one generation a step, by S at most, and no test by more than M."""
    assert after.seen == before.seen
    assert len(after.draws) == len(before.draws)
    count = 0
    for (draw, found, ours), (_, same, theirs) in zip(before.draws, after.draws, strict=True):
        assert torch.equal(found.tokens, same.tokens)
        assert torch.equal(found.allowed, same.allowed)
        change = (ours - theirs).abs().amax(1)
        assert int(change.max()) in (0, draw.clip_steps)  # some token moves by all that is charged
        assert int((change > 0).sum()) <= 1
        count += bool(change.any())
    for (most, ours), (_, theirs) in zip(before.sums, after.sums, strict=True):
        norms = (ours - theirs).double().norm(dim=1)
        assert int((norms > 0).sum()) <= 1
        assert float(norms.max()) <= most
        count += bool(norms.any())
    changes = [abs(ours - theirs) for ours, theirs in zip(before.tests, after.tests, strict=True)]
    assert max(changes, default=0) <= NORM
    return count


def kinds_of_neighbours(unit: str) -> Iterable[tuple[Notes, Notes]]:
    yield NOTES, without(unit)
    yield with_sick(unit), without(unit)
    yield crowded(unit), without(unit)


QUICK = [("ink", "float32"), ("ink, completed", "float32"), ("amin", "float32")]
CASES = [
    pytest.param(system, precision, marks=[] if (system, precision) in QUICK else pytest.mark.slow)
    for system in SYSTEMS
    for precision in PRECISIONS
]


@pytest.mark.slow_except("ink-float32")
@pytest.mark.parametrize(("system", "precision"), CASES)
def test_one_unit_moves_one_generation_by_the_sensitivity_that_is_charged(
    system: str, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if expect_refusal(precision):
        return
    most = PRIVATE_TOKENS if system == "amin" else STEPS
    moves = []
    for number, unit in enumerate(UNITS[:2]):
        for kind, (with_it, without_it) in enumerate(kinds_of_neighbours(unit)):
            folders = [tmp_path / f"{number}-{kind}-{side}" for side in "ab"]
            for folder in folders:
                folder.mkdir()
            sides = [
                decoded(system, notes, folder, monkeypatch, precision)
                for notes, folder in zip((with_it, without_it), folders, strict=True)
            ]
            count = moved(*sides)
            assert count <= most
            moves.append((kind, count))
    assert not any(count for kind, count in moves if kind == 1), "a row of NaN is no row"
    assert any(count for _, count in moves), "what a unit moves would be noticed"
