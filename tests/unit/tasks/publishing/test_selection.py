"""A bundle whose texts are a selection: what a reader can check of it, and what its documents say."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from models_db.values.requests import SELECTION_CRITERIA, Prompt, Selection
from tasks.accounting.zcdp import release_amount
from tasks.inference.prompts.prompt_spec import prompt_json
from tasks.planning.selection import with_selection_fact
from tasks.pricing.quote import plan_json
from tasks.pricing.registry import system_for
from tasks.publishing.verify import verify_release
from tasks.release.independent_accountant import second_opinion
from tasks.release.record import planned_events
from tasks.release.wording.selection_text import selection_sentence
from tasks.values.plan import PlanInputs
from tests.unit.tasks.publishing.builders import INK, a_record, a_request
from tests.unit.tasks.publishing.forging import failures

KEPT = ("Doctor: How are you?", "Patient: Better.", "Doctor: And the knee?")
FIGURES = {
    "batches_per_block": "6",
    "texts_drawn": "6",
    "texts_left_out_nonsense": "1",
    "texts_left_out_duplicates": "2",
    "texts_left_out_prompt": "0",
    "texts_left_out_identifiers": "0",
    "texts_left_out_perplexity": "0",
    "texts_published_in_doubt": "1",
}


def selecting(keep: int = 3, labels: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """A request for the best `keep` of six texts."""
    parameters = INK | {"samples": 6} | ({"labels": list(labels)} if labels else {})
    system = system_for("invisible_ink", "synthetic_corpus")
    settings = system.parameters.model_validate(parameters)
    selection = Selection(keep=keep)
    plan = system.plan(PlanInputs(release_amount("4", "1e-7", 0), settings, 1, 14, governed=True))
    stated = {"keep": keep, "criteria": list(SELECTION_CRITERIA)}
    fields: dict[str, Any] = {"parameters": parameters, "plan": plan_json(with_selection_fact(plan, selection))}
    prompt = prompt_json(Prompt(description="Short dialogues between a doctor and a patient."), tuple(labels))
    return a_request(**(fields | {"selection": stated, "prompt": prompt} | changes))


def record_of(request: dict[str, Any], **figures: str | None) -> Any:
    released = {name: value for name, value in (FIGURES | figures).items() if value is not None}
    return a_record(request, released=released, second_opinion=second_opinion(planned_events(request), "1e-7"))


def test_an_honest_selection_verifies_and_is_told(make_release, tmp_path):
    record = record_of(selecting())
    release = make_release(record, KEPT)
    folder = release.publish(tmp_path / "out").folder
    report = verify_release(folder, release.key.public_key)
    assert report.holds, report
    (texts,) = (check.detail for check in report.checks if check.name == "texts")
    assert texts == "3 texts, selected of 6 drawn ones, which the claim covers"
    sentence = selection_sentence(record)
    assert sentence is not None
    assert "Of 6 texts that were drawn, 3 are published" in sentence
    assert "Left out: nonsense 1, duplicates 2. 1 of the published texts fail a criterion" in sentence
    assert sentence in (folder / "README.md").read_text()
    assert "Of 6 texts that were drawn, 3 are published" in (folder / "report.html").read_text()
    assert (record.texts, record.left_out["duplicates"]) == (3, 2)


FORGED: dict[str, dict[str, str | None]] = {
    "fewer drawn": {"texts_drawn": "5"},
    "more drawn, as many left out": {"texts_drawn": "7", "texts_left_out_nonsense": "2"},
    "fewer left out": {"texts_left_out_nonsense": "0"},
    "a reason less": {"texts_left_out_prompt": None},
    "a reason of no criterion": {"texts_left_out_surplus": "0"},
    "no figures": dict.fromkeys((name for name in FIGURES if name.startswith("texts_")), None),
    "more in doubt than there are": {"texts_published_in_doubt": "4"},
}


@pytest.mark.parametrize("figures", FORGED.values(), ids=list(FORGED))
def test_figures_that_do_not_add_up_are_found(make_release, tmp_path, figures):
    assert failures(make_release(record_of(selecting(), **figures), KEPT), tmp_path / "out") == {"texts"}


@pytest.mark.parametrize("figure", ["-1", "none", "1.0", " 1", "1" * 8, ""])
def test_a_figure_that_is_no_number_of_texts_is_in_no_record(figure):
    with pytest.raises(ValidationError, match="whole number of texts"):
        record_of(selecting(), texts_left_out_prompt=figure)


@pytest.mark.parametrize("texts", [KEPT[:2], (*KEPT, "Patient: Well.")], ids=["one too few", "one too many"])
def test_another_number_of_texts_is_found(make_release, tmp_path, texts):
    left_out = str(6 - len(texts) - 2)
    record = record_of(selecting(), texts_left_out_nonsense=left_out)
    assert failures(make_release(record, texts), tmp_path / "out") == {"texts"}


def test_figures_of_a_selection_that_nobody_approved_are_found(make_release, tmp_path):
    record = a_record(released={"batches_per_block": "2", "texts_drawn": "2"})
    assert failures(make_release(record), tmp_path / "out") == {"texts"}


def test_a_selection_that_the_plan_does_not_state_is_found(make_release, tmp_path):
    honest = selecting()
    facts = {name: value for name, value in honest["plan"]["facts"].items() if name != "texts published"}
    record = record_of(selecting(plan=honest["plan"] | {"facts": facts}))
    assert failures(make_release(record, KEPT), tmp_path / "out") == {"plan"}


@pytest.mark.parametrize(("labels", "found"), [("abb", set()), ("bab", set()), ("aab", {"texts"}), ("abc", {"texts"})])
def test_each_label_has_its_share(make_release, tmp_path, labels, found):
    """Of six texts three each are drawn for a and b; of three published ones the first label has the larger half."""
    release = make_release(record_of(selecting(labels=("b", "a"))), KEPT, tuple(labels))
    if found:
        assert failures(release, tmp_path / "out") == found
    else:
        assert verify_release(release.publish(tmp_path / "out").folder, release.key.public_key).holds


def test_without_a_selection_nothing_is_said():
    assert selection_sentence(a_record()) is None
    assert "No published text fails a criterion. All 6" in (
        selection_sentence(record_of(selecting(), texts_published_in_doubt="0")) or ""
    )
