"""Systems without batches whose texts are allocated by a noisy histogram: its price, its place, and what follows."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from models_db.values.amounts import Amount
from tasks.accounting.rounding import exact
from tasks.accounting.zcdp import release_amount
from tasks.corpus.store import Corpus
from tasks.generation.decoding.release_steps import ReleaseSteps, StepLost
from tasks.generation.decoding.run_context import LABEL_HISTOGRAM, RunContext
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.planning.label_allocation import (
    DEVIATION,
    AllocationShareTooSmall,
    AllocationWithoutLabels,
    TooFewTextsForLabels,
    parse_counts,
)
from tasks.prompted_generation.evolution.parameters import EvolutionParameters
from tasks.prompted_generation.evolution.planner import PrivateEvolution
from tasks.prompted_generation.evolution.schedule import Sizes
from tasks.prompted_generation.keyphrases import run as keyphrase_run
from tasks.prompted_generation.keyphrases.planner import KeyphraseSeeding
from tasks.prompted_generation.keyphrases.run import KeyphraseRun
from tasks.prompted_generation.keyphrases.stages import Stages as PhraseStages
from tasks.values.generated import Generated
from tasks.values.plan import PlanInputs
from tests.tiny_embedder import Letters
from tests.unit.tasks.generation import electing
from tests.unit.tasks.generation.electing import Writing, corpus_of, note
from tests.unit.tasks.generation.workshop import NoCorpus, Workshop
from tests.watched_journal import WatchedJournal

LABELS = ("cough", "knee", "nobody")
PROPORTIONAL = {"method": "proportional", "share": "0.1"}
AMOUNT = release_amount("8", "1e-6", "0.1")
EXTENDS = {"release": 1, "artifact": "a" * 64, "values": "b" * 64}
ALLOCATED: dict[str, Any] = {"samples": 9, "labels": LABELS, "label_allocation": PROPORTIONAL}
GIVEN: dict[str, dict[str, Any]] = {
    "keyphrase_seeding": {
        "references": 10,
        "features": 20,
        "phrases_per_text": 2,
        "vocabulary": {"method": "counted", "words": ["kettle", "tomato", "violin"], "size": 2, "per_unit": 2},
    },
    "private_evolution": {"rounds": 2, "variations": 2, "max_new_tokens": 8},
}
SYSTEMS: dict[str, Any] = {each.name: each for each in (KeyphraseSeeding(), PrivateEvolution())}
Made = tuple[Generated, Workshop]


@pytest.fixture(autouse=True)
def no_noise_in_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyHistogram, "draw", lambda self, counts, rng: list(counts))
    monkeypatch.setattr(keyphrase_run, "load_embedder", lambda *_: Letters())


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Twelve units that cough and four with a knee."""
    wards = ["cough"] * 12 + ["knee"] * 4
    return corpus_of(tmp_path, [note(f"u{n}", f"My kettle {n} broke", ward) for n, ward in enumerate(wards)])


def settings(name: str, **changes: Any) -> Any:
    return SYSTEMS[name].parameters.model_validate({**GIVEN[name], **ALLOCATED, **changes})


def plan(name: str, amount: Amount = AMOUNT, **changes: Any) -> Any:
    return SYSTEMS[name].plan(PlanInputs(amount, settings(name, **changes), 2, None, True))


def bench_of(workshop: Workshop, **changes: Any) -> RunContext:
    return replace(workshop.bench(rng=OS_RANDOM), **changes)


def run(name: str, bench: RunContext, **changes: Any) -> Any:
    """A run of the system with a plan of its own; texts are written by the model or by a backend in memory."""
    wanted, planned = settings(name, **changes), plan(name, **changes)
    if name == "keyphrase_seeding":
        return KeyphraseRun.of(wanted, PhraseStages.of(wanted, AMOUNT), planned, replace(bench, outside=Writing()))
    return electing.running(bench, cast("EvolutionParameters", wanted), Writing(), AMOUNT.rho)


def made(name: str, corpus: Any, **changes: Any) -> Made:
    workshop = Workshop(corpus)
    return run(name, workshop.bench(rng=OS_RANDOM), **changes).generated(), workshop


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_price_is_the_sum_of_a_histogram_and_what_is_left(name: str) -> None:
    allocated, equal = plan(name), plan(name, label_allocation=None)
    first, *others = allocated.invocations
    assert (first.event.mechanism, first.event.parameters["bins"]) == ("noisy_histogram", 3)
    assert 0.099 * AMOUNT.rho < first.event.loss.rho <= AMOUNT.rho // 10
    assert len(others) == len(equal.invocations)
    assert 0.98 * AMOUNT.rho < allocated.loss.rho <= AMOUNT.rho
    assert sum(one.event.loss.rho for one in others) < equal.loss.rho
    assert "proportional to a noisy histogram of the units by label" in allocated.facts["texts per label"]
    assert float(allocated.facts[DEVIATION]) == pytest.approx(float(exact(first.event.parameters["sigma"])))


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_buys_or_shares_nothing_is_refused_when_it_is_priced(name: str) -> None:
    with pytest.raises(AllocationShareTooSmall):
        plan(name, label_allocation={**PROPORTIONAL, "share": "0.000000000000001"})
    with pytest.raises(TooFewTextsForLabels):
        plan(name, label_allocation={**PROPORTIONAL, "minimum": 4})
    with pytest.raises(AllocationWithoutLabels):
        plan(name, labels=())


@pytest.mark.parametrize("name", SYSTEMS)
def test_texts_follow_from_the_counts_which_are_paid_and_read_first(name: str, corpus: Corpus) -> None:
    texts, workshop = made(name, corpus)
    assert parse_counts(texts.released["label_counts"]) == (12, 4, 0)
    assert [text.label for text in texts.texts] == ["cough"] * 6 + ["knee"] * 2 + ["nobody"]
    assert workshop.seen[:3] == [("arm", 0, 0), ("label counts",), ("arm", 1, 0)]
    armed = [step[1] for step in workshop.seen if step[0] == "arm"]
    assert armed == list(range(len(plan(name).invocations)))


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_equal_allocation_has_no_counts(name: str, corpus: Corpus) -> None:
    texts, workshop = made(name, corpus, label_allocation=None)
    assert "label_counts" not in texts.released
    assert ("label counts",) not in workshop.seen
    assert Counter(text.label for text in texts.texts) == dict.fromkeys(LABELS, 3)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_run_that_goes_on_counts_once_and_a_lost_count_is_not_drawn_again(name: str, corpus: Corpus) -> None:
    kept: dict[str, Any] = {}
    workshop = Workshop(corpus)
    bench = bench_of(workshop, journal=WatchedJournal(result=kept.__setitem__))
    run(name, bench).generated()
    assert kept[LABEL_HISTOGRAM] == [12, 4, 0]
    count = len(plan(name).invocations)

    others = {**kept, LABEL_HISTOGRAM: [1, 1, 30]}  # of an attempt with other noise, which died behind the histogram
    steps = ReleaseSteps((1, *[0] * (count - 1)), {LABEL_HISTOGRAM: others[LABEL_HISTOGRAM]}, frozenset())
    again = Workshop(corpus)
    texts = run(name, bench_of(again, steps=steps)).generated()
    assert ("label counts",) not in again.seen
    assert Counter(text.label for text in texts.texts) == {"cough": 1, "knee": 1, "nobody": 7}

    lost = ReleaseSteps((1, *[0] * (count - 1)), {}, frozenset({LABEL_HISTOGRAM}))
    with pytest.raises(StepLost, match=LABEL_HISTOGRAM):
        run(name, bench_of(Workshop(corpus), steps=lost)).generated()


def test_further_texts_are_allocated_by_the_counts_of_their_parent(corpus: Corpus) -> None:
    name = "keyphrase_seeding"
    parent, _ = made(name, corpus)
    assert cast("dict[str, Any]", parent.values)["counts"] == [12, 4, 0]
    bench = bench_of(Workshop(NoCorpus()), kept=parent.values)
    further = run(name, bench, samples=17, extends=EXTENDS).generated()
    assert further.released["label_counts"] == parent.released["label_counts"]
    assert Counter(text.label for text in further.texts) == {"cough": 12, "knee": 4, "nobody": 1}


def test_a_model_that_cannot_take_the_prompts_is_found_out_before_the_histogram(corpus: Corpus) -> None:
    def too_long(self: Writing, prompts: Any, how: Any) -> None:
        raise ContextTooLong(9, 4)

    workshop, writing = Workshop(corpus), Writing()
    writing.require_ready = too_long.__get__(writing)  # type: ignore[method-assign]
    wanted = settings("private_evolution")
    with pytest.raises(ContextTooLong):
        electing.running(workshop.bench(rng=OS_RANDOM), wanted, writing, AMOUNT.rho).generated()
    assert workshop.seen == []


CHANGES: tuple[dict[str, Any], ...] = ({}, {"candidates": 2}, {"candidates": 5}, {"selection": "sample"}, {"rounds": 1})


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("counts", [[12, 4, 0], [0, 0, 0], [-3, 90, 5], [1, 1, 1]], ids=str)
def test_no_count_asks_a_model_for_more_than_was_planned(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], counts: list[int]
) -> None:
    """The histogram of a round has as many bins whatever the counts say, and the prompts are bounded beforehand."""
    wanted = settings("private_evolution", **changes)
    assert Sizes.of(wanted, counts).bins == Sizes.planned(wanted).bins
    monkeypatch.setattr(RunContext, "release_label_counts", lambda *_: counts)
    writing = Writing()
    electing.running(Workshop(corpus).bench(rng=OS_RANDOM), wanted, writing, AMOUNT.rho).generated()
    assert sum(map(len, writing.asked)) + 1 <= plan("private_evolution", **changes).prompts


def test_candidates_are_as_frequent_as_texts() -> None:
    wanted = cast("EvolutionParameters", settings("private_evolution"))
    sizes = Sizes.of(wanted, [12, 4, 0])
    assert (sizes.texts, sizes.candidates) == ((6, 2, 1), (12, 4, 2))
    assert plan("private_evolution").facts["candidates of a round"] == "18, 2 for each text of a label"
