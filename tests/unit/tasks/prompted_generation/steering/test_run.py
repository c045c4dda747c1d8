"""A steering vector at work: what is paid when, what a unit's vector depends on, and what a run goes on from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from tasks.corpus.store import Corpus, LabelsNotKept
from tasks.generation.decoding.release_steps import ReleaseSteps, StepLost
from tasks.generation.decoding.run_context import RunContext
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.prompts.render import public_prompt, reference_tokens
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.prompted_generation.steering.parameters import SteeringParameters
from tasks.prompted_generation.steering.planner import Stages, SteeringVector
from tasks.prompted_generation.steering.run import ORIGIN, SUMS, ReleasedVectors, SteeringRun, VectorOfAnotherModel
from tasks.values.generated import Generated
from tasks.values.plan import PlanInputs
from tests.tiny_model import DIGEST, tiny_model
from tests.unit.tasks.generation.workshop import NoCorpus, Workshop, store
from tests.watched_journal import WatchedJournal

CONCERNS = ("tasks/generation/decoding", "tasks/inference/engine", "tasks/prompted_generation/steering")

LOUD = 10**22
"""So large a rho that noise hardly matters."""
UNITS = [("u1", "aaaa bbbb cccc", "x"), ("u2", "The kettle is on the stove again.", "y"), ("u3", "no", "x")]
EXTENDS = {"release": 1, "artifact": "a" * 64, "values": "b" * 64}


def settings(**changes: Any) -> SteeringParameters:
    given = {"samples": 2, "references": 3, "max_new_tokens": 6, "max_reference_tokens": 12, "public_draws": 3}
    return SteeringParameters.model_validate(given | changes)


def corpus_of(folder: Path, units: Sequence[tuple[str, str, str]] = UNITS, *, labelled: bool = True) -> Corpus:
    notes = [{"patient_id": unit, "text": text, "ward": label} for unit, text, label in units]
    folder.mkdir(parents=True, exist_ok=True)
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes, "ward" if labelled else None)


def running(bench: RunContext, rho: int = LOUD, **changes: Any) -> SteeringRun:
    wanted = settings(**changes)
    plan = SteeringVector().plan(PlanInputs(Amount(rho), wanted, 1, None, True))
    stages = Stages.of(wanted, Amount(rho))
    return SteeringRun.of(wanted, stages.histogram, stages.mean, plan, bench)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return corpus_of(tmp_path)


def bench_of(corpus: Any, **changes: Any) -> RunContext:
    return replace(Workshop(corpus).bench(rng=OS_RANDOM), **changes)


def test_the_vector_is_paid_before_a_unit_is_read_and_texts_cost_nothing(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    made = running(workshop.bench(rng=OS_RANDOM), samples=5).generated()
    assert workshop.seen == [("arm", 0, 0), ("each", ()), ("count",)]
    assert len(made.texts) == 5
    assert made.released == {"vectors_clear_of_noise": "1"}


def test_a_unit_s_vector_is_the_mean_of_its_tokens_behind_the_public_prompt(corpus: Corpus) -> None:
    """The sum before noise says what one pass over each row alone would."""
    run = running(bench_of(corpus), clip_norm=1000)
    origin = run.origin
    model = tiny_model(stops=False)
    prompt = public_prompt(model.tokenizer, run.bench.prompt).tokens
    expected = torch.zeros(model.width)
    for _, text, _ in UNITS:
        tokens = reference_tokens(model.tokenizer, text, 12)
        row = (*prompt, *tokens)
        with torch.inference_mode():
            states = RowBatch(model.until_layer(1), 1, len(row)).read_all([row], len(row))[0]
        mean = states[len(prompt) :].mean(0)
        expected += (mean - origin.centres[0]) / origin.spreads[0]
    found = run.mean.mean(run._sums(), 1)[0]
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=1e-3)  # the grid of a clip norm of 1000


def changed(units: Sequence[tuple[str, str, str]], change: str) -> list[tuple[str, str, str]]:
    """The same corpus with another first unit."""
    rest = list(units[1:])
    return {
        "removed": rest,
        "longer": [("u1", "z" * 400, "x"), *rest],
        "other": [("u1", "qq", "y"), *rest],
        "more": [*units, ("u4", "yet another one", "x"), ("u5", "w" * 50, "x")],
    }[change]


@pytest.mark.parametrize("change", ["removed", "longer", "other", "more"])
@pytest.mark.parametrize("labels", [(), ("x", "y")])
def test_what_one_unit_adds_does_not_depend_on_the_others(tmp_path: Path, change: str, labels: tuple[str, ...]) -> None:
    """Bit for bit: the exact sums of two corpora differ by what the differing units add alone, and nothing else."""

    def sums(units: Sequence[tuple[str, str, str]], name: str) -> Tensor:
        run = running(bench_of(corpus_of(tmp_path / name, units)), labels=labels, clip_norm=1)
        object.__setattr__(run, "origin", origin)
        return run._sums()

    origin = running(bench_of(corpus_of(tmp_path / "origin")), labels=labels).origin
    after = changed(UNITS, change)
    alone = {unit: sums([unit], f"{place} alone") for place, unit in enumerate(dict.fromkeys([*UNITS, *after]))}
    for name, units in (("before", UNITS), ("after", after)):
        together = sums(units, name)
        assert torch.equal(together, sum((alone[unit] for unit in units), torch.zeros_like(together)))
        assert together.any()


def test_the_vector_of_a_label_is_of_its_units(corpus: Corpus, tmp_path: Path) -> None:
    run = running(bench_of(corpus), labels=("x", "y", "horoscope"), samples=3)
    sums = run._sums()
    assert [bool(label.any()) for label in sums] == [True, True, False]
    made = running(bench_of(corpus), labels=("x", "y", "horoscope"), samples=4).generated()
    assert [text.label for text in made.texts] == ["x", "x", "y", "horoscope"]
    unlabelled = bench_of(corpus_of(tmp_path / "unlabelled", labelled=False))
    with pytest.raises(LabelsNotKept):
        running(unlabelled, labels=("x",))


def test_texts_are_written_with_the_vector(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but strength and vector are between a release and the public model."""
    from tasks.inference.network.language_model import LanguageModel

    given: list[tuple[int, Tensor]] = []
    steered = LanguageModel.steered

    def watched(model: LanguageModel, layer: int, vector: Tensor) -> LanguageModel:
        given.append((layer, vector))
        return steered(model, layer, vector)

    monkeypatch.setattr(LanguageModel, "steered", watched)
    run = running(bench_of(corpus), strength=3, depth=1)
    run.generated()
    ((layer, vector),) = given
    assert layer == 2
    mean = run.mean.mean(run.released.sums, 3)[0]
    torch.testing.assert_close(vector, 3 * mean * run.released.spreads[0], atol=1e-3, rtol=1e-3)


class Kept:
    """A journal in memory, from which another run goes on."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.released: dict[str, Json] = {}

    @property
    def journal(self) -> Any:
        return WatchedJournal(drawing=self.begun.add, result=self.released.__setitem__)

    def steps(self, paid: int) -> ReleaseSteps:
        return ReleaseSteps((paid,), dict(self.released), frozenset(self.begun))


class Killed(BaseException):
    """What ends a process."""


def kill(*given: Any) -> Any:
    raise Killed


def test_a_run_that_goes_on_draws_no_noise_twice(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    with monkeypatch.context() as patch:
        patch.setattr(SteeringRun, "_texts", kill)
        with pytest.raises(Killed):
            running(bench_of(corpus, journal=kept.journal)).generated()
    assert list(kept.released) == [ORIGIN, SUMS]
    monkeypatch.setattr(NoisyMean, "draw", None)
    bench = replace(Workshop(NoCorpus()).bench(rng=OS_RANDOM), steps=kept.steps(1), journal=kept.journal)
    made = running(bench).generated()
    values = cast("Mapping[str, Any]", made.values)
    assert values["sums"] == kept.released[SUMS]
    assert len(made.texts) == 2


def test_a_run_that_died_while_it_read_units_reads_them_from_the_same_origin(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept()
    with monkeypatch.context() as patch:
        patch.setattr(SteeringRun, "_sums", kill)
        with pytest.raises(Killed):
            running(bench_of(corpus, journal=kept.journal)).generated()
    assert list(kept.released) == [ORIGIN]
    stored = kept.released[ORIGIN]
    with monkeypatch.context() as patch:
        patch.setattr(SteeringRun, "_public_origin", kill)
        running(bench_of(corpus, steps=kept.steps(1), journal=kept.journal)).generated()
    assert kept.released[ORIGIN] == stored


def test_a_run_that_died_in_the_draw_has_lost_what_it_paid(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    with monkeypatch.context() as patch:
        patch.setattr(NoisyMean, "draw", kill)
        with pytest.raises(Killed):
            running(bench_of(corpus, journal=kept.journal)).generated()
    with pytest.raises(StepLost, match=SUMS):
        running(bench_of(corpus, steps=kept.steps(1), journal=kept.journal)).generated()


def first_of(corpus: Corpus) -> Generated:
    return running(bench_of(corpus)).generated()


def test_more_texts_of_the_released_values_alone(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = first_of(corpus)
    monkeypatch.setattr(NoisyMean, "draw", None)
    monkeypatch.setattr(SteeringRun, "_public_origin", None)
    bench = bench_of(NoCorpus(), kept=made.values)
    run = running(bench, samples=7, extends=EXTENDS)
    more = run.generated()
    assert len(more.texts) == 7
    assert more.values is None  # they are the parent's
    assert run.released.to_json() == made.values


def test_the_vector_of_another_model_is_refused(corpus: Corpus) -> None:
    values = {**cast("dict[str, Json]", first_of(corpus).values), "model": "e" * 64}
    with pytest.raises(VectorOfAnotherModel, match="release 1"):
        running(bench_of(NoCorpus(), kept=values), extends=EXTENDS)


def test_values_are_kept_exactly() -> None:
    values = ReleasedVectors(DIGEST, torch.tensor([[2**53, -5]]), torch.tensor([0.1]))
    again = ReleasedVectors.from_json(values.to_json())
    assert (again.model, again.sums.tolist()) == (DIGEST, [[2**53, -5]])
    assert torch.equal(again.spreads, values.spreads)


@pytest.mark.parametrize("changes", [{"max_new_tokens": 2000}, {"max_reference_tokens": 2000}])
def test_what_does_not_fit_the_model_costs_nothing(corpus: Corpus, changes: dict[str, int]) -> None:
    workshop = Workshop(corpus)
    with pytest.raises(ContextTooLong):
        running(workshop.bench(), **changes)
    assert workshop.seen == []


def test_where_no_unit_wrote_there_is_noise_alone(tmp_path: Path) -> None:
    """And it is charged like any other."""
    workshop = Workshop(corpus_of(tmp_path))
    run = running(workshop.bench(rng=OS_RANDOM), rho=10**9, labels=("horoscope",))
    assert not run._sums().any()
    made = run.generated()
    assert ("arm", 0, 0) in workshop.seen
    assert len(made.texts) == 2
