"""A bundle whose texts were allocated by a histogram: a reader recomputes the labels from the released counts."""

from typing import Any

import pytest

from models_db.values.requests import Prompt, model_to_json
from tasks.accounting.zcdp import release_amount
from tasks.inference.prompts.prompt_spec import prompt_json
from tasks.pricing.quote import plan_json
from tasks.pricing.registry import system_for
from tasks.publishing.documents.card import card
from tasks.publishing.verify import verify_release
from tasks.release.independent_accountant import second_opinion
from tasks.release.record import planned_events
from tasks.release.wording.label_text import PROPORTIONAL, UNREADABLE
from tasks.values.plan import PlanInputs
from tests.unit.tasks.publishing.builders import INK, a_record, a_request
from tests.unit.tasks.publishing.forging import failures

CONCERNS = ("tasks/publishing",)

LABELS = ("cough", "knee", "skin")
TEXTS = ("Doctor: How are you?", "Patient: Better.", "Doctor: And the knee?", "Patient: Well.", "Doctor: Good.", "A.")
FIGURES = {"label_counts": "61, 30, -4", "batches_per_label": "8, 4, 1"}
"""Six texts in proportion to 59, 28 and 0 are four, one and one; batches of seven units."""
EXPECTED = ("cough", "cough", "cough", "knee", "knee", "skin")


def allocating(allocation: Any = None, **changes: Any) -> dict[str, Any]:
    """A request for six texts of three labels, in proportion unless `allocation` is empty."""
    parameters = INK | {"samples": 6, "labels": list(LABELS)}
    asked = {"method": "proportional", "share": "0.02", "minimum": 1} if allocation is None else allocation
    parameters |= {"label_allocation": asked} if asked else {}
    system = system_for("invisible_ink", "synthetic_corpus")
    settings = system.parameters.model_validate(parameters)
    plan = system.plan(PlanInputs(release_amount("4", "1e-7", 0), settings, 1, 14, governed=True))
    prompt = prompt_json(Prompt(description="Short dialogues between a doctor and a patient."), LABELS)
    fields = {"parameters": parameters, "plan": plan_json(plan), "prompt": prompt}
    return a_request(**(fields | changes))


SYSTEMS: dict[str, dict[str, Any]] = {
    "keyphrase_seeding": {"references": 10, "vocabulary": {"method": "public", "words": ["kettle", "violin"]}},
    "private_evolution": {"rounds": 2},
}
"""Systems whose texts belong to no batch."""
EXTENDS = {"release": 1, "artifact": "a" * 64, "values": "b" * 64}


def without_batches(mechanism: str, allocation: Any = None, blocks: int = 2, **changes: Any) -> dict[str, Any]:
    """The same request of a system without batches, of a dataset with several blocks."""
    asked = {"method": "proportional", "share": "0.02", "minimum": 1} if allocation is None else allocation
    given = {"samples": 6, "labels": list(LABELS), **SYSTEMS[mechanism], **changes}
    system = system_for(mechanism, "synthetic_corpus")
    settings = system.parameters.model_validate(given | ({"label_allocation": asked} if asked else {}))
    plan = system.plan(PlanInputs(release_amount("4", "1e-7", 0), settings, blocks, 14, governed=True))
    prompt = prompt_json(Prompt(description="Short dialogues between a doctor and a patient."), LABELS)
    parameters = model_to_json(settings)
    return a_request(mechanism=mechanism, parameters=parameters, plan=plan_json(plan), prompt=prompt, blocks=blocks)


WITHOUT_BATCHES: dict[str, str | None] = {"label_counts": "61, 30, -4", "batches_per_label": None}
"""What such a system releases beside its texts."""


def record_of(request: dict[str, Any], **figures: str | None) -> Any:
    released = {name: value for name, value in (FIGURES | figures).items() if value is not None}
    return a_record(request, released=released, second_opinion=second_opinion(planned_events(request), "1e-7"))


def labels_of(*counts: int) -> tuple[str, ...]:
    return tuple(label for label, count in zip(LABELS, counts, strict=True) for _ in range(count))


def test_an_honest_allocation_verifies_and_is_on_the_card(make_release, tmp_path):
    record = record_of(allocating())
    release = make_release(record, TEXTS, EXPECTED)
    folder = release.publish(tmp_path / "out").folder
    report = verify_release(folder, release.key.public_key)
    assert report.holds, report
    told = (folder / "README.md").read_text()
    assert PROPORTIONAL in told
    sigma = record.events[0].parameters["sigma"]
    assert record.events[0].mechanism == "noisy_histogram"
    assert sigma
    assert "| `cough` | 61 ±" in told
    assert "| `skin` | 0 ±" in told
    assert record.claim.secret_assignment is None


@pytest.mark.parametrize("counts", [(2, 2, 2), (4, 1, 1), (3, 1, 2), (6, 0, 0)])
def test_texts_of_other_labels_are_found(make_release, tmp_path, counts):
    assert failures(make_release(record_of(allocating()), TEXTS, labels_of(*counts)), tmp_path / "out") == {"texts"}


FORGED: dict[str, dict[str, str | None]] = {
    "other counts, the old labels": {"label_counts": "5, 5, 81", "batches_per_label": "1, 1, 12"},
    "other batches": {"batches_per_label": "8, 4, 2"},
    "a count too few": {"label_counts": "61, 30"},
    "a count too many": {"label_counts": "61, 30, -4, 2"},
    "another form": {"label_counts": "61,30,-4"},
    "no numbers": {"label_counts": "many"},
    "no counts": {"label_counts": None},
    "no batches": {"batches_per_label": None},
}


@pytest.mark.parametrize("figures", FORGED.values(), ids=list(FORGED))
def test_figures_from_which_the_labels_do_not_follow_are_found(make_release, tmp_path, figures):
    release = make_release(record_of(allocating(), **figures), TEXTS, EXPECTED)
    assert failures(release, tmp_path / "out") - {"record"} == {"texts"}


@pytest.mark.parametrize(
    "figures",
    [
        {"batches_per_block": "7"},
        {"noisy_population": "91"},
        {"effective_k": "patient 7"},
        {"effective_k": "7, p"},
        {"effective_k": "7\n"},
    ],
)
def test_figures_of_another_split_or_mechanism_and_words_are_found(make_release, tmp_path, figures):
    release = make_release(record_of(allocating(), **figures), TEXTS, EXPECTED)
    assert failures(release, tmp_path / "out") == {"record"}


@pytest.mark.slow_except("private_evolution")
@pytest.mark.parametrize("mechanism", SYSTEMS)
def test_texts_without_batches_verify_by_their_counts_alone(make_release, tmp_path, mechanism):
    record = record_of(without_batches(mechanism), **WITHOUT_BATCHES)
    release = make_release(record, TEXTS, EXPECTED)
    folder = release.publish(tmp_path / "out").folder
    report = verify_release(folder, release.key.public_key)
    assert report.holds, report
    assert "| `cough` | 61 ±" in (folder / "README.md").read_text()


@pytest.mark.slow_except(
    "{'label_counts': '5, 5, 81'}-keyphrase_seeding",
    "{'label_counts': None}-keyphrase_seeding",
    "{'batches_per_label': '8, 4, 1'}-keyphrase_seeding",
    "{'label_counts': None}-private_evolution",
)
@pytest.mark.parametrize("mechanism", SYSTEMS)
@pytest.mark.parametrize(
    "figures", [{"label_counts": "5, 5, 81"}, {"label_counts": None}, {"batches_per_label": "8, 4, 1"}], ids=str
)
def test_counts_that_do_not_lead_to_texts_without_batches_are_found(make_release, tmp_path, mechanism, figures):
    record = record_of(without_batches(mechanism), **{**WITHOUT_BATCHES, **figures})
    assert "texts" in failures(make_release(record, TEXTS, EXPECTED), tmp_path / "out")


@pytest.mark.parametrize(("counts", "holds"), [((3, 2, 1), True), ((2, 2, 2), False)])
def test_further_texts_verify_by_the_counts_of_their_parent(make_release, tmp_path, counts, holds):
    """Their own event is post-processing; the margin of a count is that of the histogram that the parent has paid."""
    record = record_of(without_batches("keyphrase_seeding", extends=EXTENDS), **WITHOUT_BATCHES)
    assert record.events[0].mechanism == "post_processing"
    release = make_release(record, TEXTS, labels_of(*counts))
    if not holds:
        assert failures(release, tmp_path / "out") == {"texts"}
        return
    folder = release.publish(tmp_path / "out").folder
    assert verify_release(folder, release.key.public_key).holds
    assert "| `cough` | 61 ±" in (folder / "README.md").read_text()


@pytest.mark.slow_except("keyphrase_seeding")
@pytest.mark.parametrize("mechanism", SYSTEMS)
def test_equal_texts_without_batches_do_not_follow_the_blocks(make_release, tmp_path, mechanism):
    """They are written label by label, whatever the number of blocks that are read."""
    figures = {**WITHOUT_BATCHES, "label_counts": None}
    record = record_of(without_batches(mechanism, allocation={}), **figures)
    release = make_release(record, TEXTS, labels_of(2, 2, 2))
    assert verify_release(release.publish(tmp_path / "out").folder, release.key.public_key).holds


def test_a_card_of_a_strangers_record_says_that_counts_are_missing():
    assert UNREADABLE in card(record_of(allocating(), label_counts=None), ())


def test_counts_of_an_equal_allocation_are_found(make_release, tmp_path):
    equal = allocating({})
    release = make_release(record_of(equal, batches_per_block="2"), TEXTS, labels_of(2, 2, 2))
    assert failures(release, tmp_path / "out") == {"texts"}


def test_a_plan_without_the_histogram_is_found(make_release, tmp_path):
    """The texts were allocated by counts that nobody charged."""
    plan = allocating({})["plan"]
    found = failures(make_release(record_of(allocating(plan=plan)), TEXTS, EXPECTED), tmp_path / "out")
    assert "plan" in found
