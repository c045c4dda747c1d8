"""Texts allocated by a noisy histogram: bought once and first, and the draws cost the same whatever it says."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from models_db.home import ProjectHome
from tasks.corpus.store import Corpus
from tasks.generation.decoding.journal import RunJournal
from tasks.generation.decoding.release_steps import ReleaseSteps, StepLost
from tasks.generation.private_decoding.adapmixed import AdaPMixed
from tasks.generation.private_decoding.baselines import BaselineParameters, NonPrivate, PublicOnly
from tasks.generation.private_decoding.few_shot_generation import FewShotGeneration
from tasks.generation.private_decoding.invisible_ink import InvisibleInk
from tasks.generation.private_decoding.private_icl import PrivateIcl
from tasks.generation.private_decoding.private_prediction import PrivatePrediction
from tasks.planning.batches import AllocatedLayout
from tasks.planning.label_allocation import (
    AllocationNeedsClaim,
    AllocationShareTooSmall,
    LabelAllocation,
    format_counts,
    parse_counts,
)
from tasks.values.generated import Generated
from tests.unit.tasks.generation.asking import AMOUNT, ask, ink
from tests.unit.tasks.generation.private_decoding.test_labels import BASELINE, asking_for
from tests.unit.tasks.generation.workshop import NOTES, Workshop, refusing, store

SECTIONS = [name for name, _ in Counter(note["section"] for note in NOTES).most_common()]
NOBODY = "astrology"
LABELS = (SECTIONS[0], SECTIONS[1], NOBODY)
PROPORTIONAL = {"method": "proportional", "share": "0.1"}
ALLOCATED = ink(samples=8, references=2, labels=LABELS, label_allocation=PROPORTIONAL)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("allocated")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", NOTES, "section")


@pytest.fixture(autouse=True)
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.mechanisms.counts.set_histogram.rounded_normal", lambda sigma, rng: 0)


def make(workshop: Workshop, parameters: Any = ALLOCATED, blocks: int = 1, **more: Any) -> Generated:
    bench = replace(asking_for(LABELS, workshop), **more)
    return InvisibleInk().generate(InvisibleInk().plan(ask(parameters, blocks=blocks)), parameters, bench)


def test_texts_follow_from_the_released_counts(labelled: Corpus) -> None:
    made = make(Workshop(labelled))
    counts = parse_counts(made.released["label_counts"])
    layout = AllocatedLayout.of(LabelAllocation.model_validate(PROPORTIONAL), counts, 8, 1, 2)
    assert [text.label for text in made.texts] == layout.labels_of_texts(LABELS)
    assert made.released["batches_per_label"] == format_counts(layout.batches)
    assert "batches_per_block" not in made.released
    assert counts[2] == 0
    assert Counter(text.label for text in made.texts)[NOBODY] == 1
    assert sum(counts) == len({note["patient_id"] for note in NOTES if note["section"] in LABELS})


def test_the_histogram_is_armed_and_counted_before_a_text_is_read(labelled: Corpus) -> None:
    workshop = Workshop(labelled)
    make(workshop)
    assert workshop.seen[:3] == [("arm", 0, 0), ("label counts",), ("arm", 1, 0)]
    assert workshop.seen[3][0] == "batches"


@pytest.mark.parametrize("refused", [(0, 0), (1, 0)])
def test_a_refused_instalment_keeps_what_it_pays_for_unread(labelled: Corpus, refused: tuple[int, int]) -> None:
    workshop = Workshop(labelled)
    with pytest.raises(PermissionError):
        make(workshop, arm=workshop.bench(arm=refusing(refused)).arm)
    assert workshop.seen[-1] == ("arm", *refused)


def test_the_price_is_one_histogram_and_the_draws_of_what_is_left() -> None:
    plan = InvisibleInk().plan(ask(ALLOCATED))
    histogram, draws = plan.invocations
    assert histogram.event.mechanism == "noisy_histogram"
    assert histogram.event.parameters["bins"] == 3
    assert 0.099 * AMOUNT.rho < histogram.event.loss.rho <= AMOUNT.rho // 10
    assert plan.loss.fits(AMOUNT)
    assert plan.loss.rho > 0.99 * AMOUNT.rho
    equal = InvisibleInk().plan(ask(ink(samples=8, references=2, labels=LABELS)))
    assert draws.event.loss.rho < equal.invocations[-1].event.loss.rho
    assert plan.facts["texts per label"].startswith("proportional to a noisy histogram of the units by label (sigma ")


def test_no_count_is_bought_beside_the_histogram() -> None:
    for facts in ({}, {"population": 500}):
        assert len(InvisibleInk().plan(ask(ALLOCATED, **facts)).invocations) == 2
    declared = ink(samples=8, labels=LABELS, label_allocation=PROPORTIONAL, batches=5)
    assert len(InvisibleInk().plan(ask(declared)).invocations) == 2


def test_it_states_no_claim_for_a_secret_assignment() -> None:
    """How many batches a unit's label has is decided by the histogram, and it may be one (docs/proofs)."""
    declared = {"samples": 8, "labels": LABELS, "batches": 20}
    assert InvisibleInk().plan(ask(ink(**declared))).assignment is not None
    assert InvisibleInk().plan(ask(ink(**declared, label_allocation=PROPORTIONAL))).assignment is None


@pytest.mark.parametrize("system", [PrivateIcl(), PrivatePrediction(), FewShotGeneration()])
def test_other_systems_with_batches_allocate_alike(system: Any) -> None:
    given = {"samples": 8, "references": 20, "max_new_tokens": 4, "temperature": 1}
    settings = system.parameters.model_validate({**given, "labels": LABELS, "label_allocation": PROPORTIONAL})
    assert system.plan(ask(settings)).invocations[0].event.mechanism == "noisy_histogram"


@pytest.mark.parametrize("system", [PublicOnly(), NonPrivate()], ids=lambda system: str(system.name))
def test_a_baseline_refuses_it(system: PublicOnly | NonPrivate) -> None:
    """It has no histogram, and equal numbers of texts are not what was asked for."""
    baseline = BaselineParameters.model_validate(BASELINE | {"labels": LABELS, "label_allocation": PROPORTIONAL})
    with pytest.raises(AllocationNeedsClaim, match=system.name):
        system.plan(ask(baseline, governed=False))


def test_a_system_that_charges_nothing_refuses_it() -> None:
    given = {"samples": 8, "references": 2, "max_new_tokens": 4, "temperature": 1, "batches": 3}
    settings = AdaPMixed().parameters.model_validate({**given, "labels": LABELS, "label_allocation": PROPORTIONAL})
    with pytest.raises(AllocationNeedsClaim):
        AdaPMixed().plan(ask(settings, None, governed=False))


def test_a_share_that_buys_nothing_is_refused() -> None:
    tiny = ask(ink(samples=8, labels=LABELS, label_allocation={**PROPORTIONAL, "share": "0.000000000000001"}))
    with pytest.raises(AllocationShareTooSmall):
        InvisibleInk().plan(tiny)


def test_several_blocks_share_each_label(labelled: Corpus) -> None:
    workshop = Workshop(labelled, blocks=2)
    made = make(workshop, blocks=2)
    assert len(made.texts) == 8
    (read,) = [step for step in workshop.seen if step[0] == "batches"]
    assert Counter(place[0] for place in read[2]) == {0: 4, 1: 4}  # type: ignore[attr-defined]


class Kept(RunJournal):
    """What is written down, in order."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def begin(self, first: int, released: Any) -> None:
        self.lines.append(("begin", first, dict(released)))

    def step(self, armed: int, drawn: Any) -> None:
        self.lines.append(("step", armed))

    def drawing(self, name: str) -> None:
        self.lines.append(("drawing", name))

    def result(self, name: str, result: Any) -> None:
        self.lines.append(("result", name, result))


def test_an_attempt_that_goes_on_reuses_the_histogram_and_counts_nothing(labelled: Corpus) -> None:
    journal = Kept()
    made = make(Workshop(labelled), journal=journal)
    counts = list(parse_counts(made.released["label_counts"]))
    assert journal.lines[:3] == [
        ("begin", 1, {}),
        ("drawing", "label histogram"),
        ("result", "label histogram", counts),
    ]

    others = [3, 1, 20]  # of an attempt with other noise
    name = "label histogram"
    left = ReleaseSteps((1, 0), {name: others}, frozenset({name}))
    workshop, again = Workshop(labelled), Kept()
    made = make(workshop, steps=left, journal=again)
    assert made.released["label_counts"] == format_counts(others)
    assert ("label counts",) not in workshop.seen
    assert [line[0] for line in again.lines if line[0] != "step"] == []


def test_a_histogram_that_was_begun_and_is_lost_is_not_drawn_again(labelled: Corpus) -> None:
    workshop = Workshop(labelled)
    with pytest.raises(StepLost):
        make(workshop, steps=ReleaseSteps((1, 0), {}, frozenset({"label histogram"})), journal=Kept())
    assert workshop.seen == []


def test_a_histogram_that_was_paid_and_not_begun_is_drawn_with_that_payment(labelled: Corpus) -> None:
    journal = Kept()
    make(Workshop(labelled), steps=ReleaseSteps((1, 0), {}, frozenset()), journal=journal)
    assert [line[0] for line in journal.lines[:2]] == ["drawing", "result"]
