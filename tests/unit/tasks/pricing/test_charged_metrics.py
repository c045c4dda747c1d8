"""Charged metrics of a release: their price, the order of arming and reading, and what a kill leaves of them."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from models_db.home import ProjectHome
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json
from tasks.accounting.zcdp import release_amount
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import ReleaseSteps
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tasks.pricing.charged_metrics import Measuring
from tests.refusals import refusal
from tests.tiny_embedder import Letters
from tests.unit.tasks.evaluation.subjects import texts
from tests.unit.tasks.pricing.test_quote import parameters
from tests.unit.tasks.pricing.test_quote import priced as priced_as_written
from tests.unit.tasks.systems.workshop import Workshop, refusing, store
from tests.watched_journal import WatchedJournal

SUBJECT = EvaluationInput(texts("a short note", "another one", "and a third"), embed=Letters())
TWO = ["length", "dp_length", "dp_coverage"]


def priced(**changes: Any) -> Any:
    """A request for twenty texts."""
    return priced_as_written(**({"parameters": parameters(samples=20)} | changes))


def measuring(workshop: Workshop, quote: Any, kept: list[tuple[str, Json]], **known: Any) -> Measuring:
    def keep(name: str, result: Json) -> None:
        workshop.seen.append(("kept", name))
        kept.append((name, result))

    journal = WatchedJournal(drawing=lambda name: workshop.seen.append(("begun", name)), result=keep)
    return Measuring(
        quote.plan, quote.charged, (), replace(workshop.context(), steps=ReleaseSteps(**known), journal=journal)
    )


def results(kept: list[tuple[str, Json]]) -> list[tuple[str, Json]]:
    """What was written down, without what it was drawn for."""
    return [(name, found["result"]) for name, found in kept if isinstance(found, dict)]


# --- the price -------------------------------------------------------------------------------------------------


def test_charged_metrics_are_paid_out_of_the_release(corpus: Corpus) -> None:
    """A tenth of rho, split evenly; with the texts' part never more than the release may charge."""
    whole = release_amount("4", "1e-7")
    quote = priced(evaluation=TWO)
    kept = total_amount([part for one in quote.plan.measuring for part in one.instalments])
    assert [one.event.mechanism for one in quote.plan.measuring] == ["noisy_histogram"] * 2
    assert [one.event.parameters["bins"] for one in quote.plan.measuring] == [16, 6]
    assert whole.rho // 10 * 0.998 < kept.rho <= whole.rho // 10
    assert whole.rho * 0.99 < quote.plan.loss.rho <= whole.rho
    assert quote.plan.loss.rho > priced().plan.loss.rho * 0.99
    assert quote.body["evaluation_share"] == "0.1"
    invocations: Any = quote.body["plan"]
    assert len(invocations["invocations"]) == len(quote.plan.all_invocations)
    assert "charged metrics" in quote.plan.facts


def test_a_larger_share_leaves_the_texts_less() -> None:
    small, large = (priced(evaluation=TWO, evaluation_share=share) for share in ("0.1", 0.5))
    assert large.plan.measuring[0].event.loss.rho > 4.9 * small.plan.measuring[0].event.loss.rho
    assert large.plan.invocations[-1].event.loss.rho < small.plan.invocations[-1].event.loss.rho


def test_a_request_without_charged_metrics_is_stored_as_ever() -> None:
    assert "evaluation_share" not in priced().body
    assert priced(evaluation_share="0.3").body.keys() == priced().body.keys()


@pytest.mark.parametrize("share", [0, -0.1, 0.51, "nan"])
def test_a_share_is_at_most_half(share: object) -> None:
    with refusal("FileInvalid", match="evaluation_share"):
        priced(evaluation=TWO, evaluation_share=share)


def test_a_release_without_a_budget_has_no_charged_metrics() -> None:
    with refusal("ChargedMetricNeedsClaim", match="this release has none"):
        priced(evaluation=TWO, mechanism="public_only", epsilon=None, delta=None)


def test_a_share_that_buys_nothing_is_refused() -> None:
    with refusal("ShareTooSmall", match="buys nothing for 2 charged metrics"):
        priced(evaluation=TWO, evaluation_share=Decimal("1e-13"))


def test_labels_are_needed_where_they_are_counted() -> None:
    with refusal("NoLabels"):
        priced(evaluation=["dp_labels"])
    quote = priced(evaluation=["dp_labels"], parameters=parameters(samples=20, labels=["a", "b", "c"]))
    assert quote.plan.measuring[0].event.parameters["bins"] == 3


# --- the run ---------------------------------------------------------------------------------------------------


def test_each_metric_is_armed_before_a_unit_is_read_and_kept_before_the_next(corpus: Corpus) -> None:
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    draw = measuring(workshop, quote, kept)
    first = len(quote.plan.invocations)
    found = [draw(METRICS[name], SUBJECT) for name in TWO[1:]]
    reading = ("batches", 1, ((0, 0, 0),))
    assert workshop.seen == [
        ("arm", first, 0), reading, ("begun", "dp_length"), ("kept", "dp_length"),
        ("arm", first + 1, 0), reading, ("begun", "dp_coverage"), ("kept", "dp_coverage"),
    ]  # fmt: skip
    assert results(kept) == [(result.name, result.to_json()) for result in found]
    assert all(value is not None for result in found for value in result.values.values())


def test_nothing_is_read_for_a_metric_that_may_not_be_armed(corpus: Corpus) -> None:
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    draw = measuring(workshop, quote, kept)
    draw = replace(draw, context=workshop.context(arm=refusing((len(quote.plan.invocations), 0))))
    with pytest.raises(PermissionError):
        draw(METRICS["dp_length"], SUBJECT)
    assert [step[0] for step in workshop.seen] == ["arm"]
    assert kept == []


def test_what_an_earlier_attempt_has_released_is_not_drawn_again(corpus: Corpus) -> None:
    """One was written down, one was lost while it was drawn, and neither is armed or read."""
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    released = measuring(workshop, quote, kept)(METRICS["dp_length"], SUBJECT)
    workshop.seen.clear()
    paid = (*(1 for _ in quote.plan.invocations), 1, 1)
    begun = frozenset({"dp_length", "dp_coverage"})
    again = measuring(workshop, quote, [], paid=paid, released=dict(kept), begun=begun)
    assert again(METRICS["dp_length"], SUBJECT) == released
    lost = again(METRICS["dp_coverage"], SUBJECT)
    assert set(lost.values.values()) == {None}
    assert workshop.seen == []


@pytest.mark.parametrize("others", [("a short note", "another one"), ("another one", "a short note", "and a third")])
def test_a_result_that_was_drawn_for_other_texts_is_lost(corpus: Corpus, others: tuple[str, ...]) -> None:
    """A model that writes at no charge writes others when a run goes on; and the budget is not asked for more."""
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    measuring(workshop, quote, kept)(METRICS["dp_coverage"], SUBJECT)
    workshop.seen.clear()
    paid = (*(1 for _ in quote.plan.invocations), 1, 1)
    again = measuring(workshop, quote, [], paid=paid, released=dict(kept), begun=frozenset({"dp_coverage"}))
    found = again(METRICS["dp_coverage"], EvaluationInput(texts(*others), embed=Letters()))
    assert set(found.values.values()) == {None}
    assert workshop.seen == []


def test_who_died_before_it_was_drawn_draws_with_what_is_paid(corpus: Corpus) -> None:
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    paid = (*(1 for _ in quote.plan.invocations), 1, 0)
    found = measuring(workshop, quote, kept, paid=paid)(METRICS["dp_length"], SUBJECT)
    assert results(kept) == [("dp_length", found.to_json())]
    assert None not in found.values.values()


def test_a_result_that_nobody_has_paid_for_is_not_used(corpus: Corpus) -> None:
    """A ledger that was put back to an earlier state, beside a journal that was not."""
    workshop, quote, kept = Workshop(corpus), priced(evaluation=TWO), []
    measuring(workshop, quote, kept)(METRICS["dp_length"], SUBJECT)
    workshop.seen.clear()
    paid = (*(1 for _ in quote.plan.invocations), 0, 0)
    measuring(workshop, quote, kept, paid=paid, released=dict(kept))(METRICS["dp_length"], SUBJECT)
    assert workshop.seen[0][0] == "arm"


LABELS = ("a", "b", "c")


def label_counts(folder: Path, monkeypatch: pytest.MonkeyPatch, carried: list[tuple[str, ...]]) -> list[int]:
    """What `dp_labels` hands to its mechanism for units that carry these labels, a document for each."""
    handed = list[list[int]]()

    def draw(self: NoisyHistogram, counts: list[int], rng: Any) -> list[int]:
        handed.append(counts)
        return counts

    monkeypatch.setattr(NoisyHistogram, "draw", draw)
    notes = [
        {"patient_id": f"patient-{unit}", "text": f"a note on {label}", "label": label}
        for unit, own in enumerate(carried)
        for label in own
    ]
    folder.mkdir()
    corpus = store(ProjectHome(folder / "home"), folder / "notes.jsonl", notes, "label")
    quote = priced(evaluation=["dp_labels"], parameters=parameters(samples=20, labels=list(LABELS)))
    draw_metric = replace(measuring(Workshop(corpus), quote, []), labels=LABELS)
    draw_metric(METRICS["dp_labels"], SUBJECT)
    [counts] = handed
    return counts


def test_a_unit_with_several_labels_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The price is that of one bin a unit: whoever has every label moves one count by 1, as others do."""
    others: list[tuple[str, ...]] = [("a",), ("a", "b"), ("b", "c"), ("a", "b", "c"), ("elsewhere",)]
    without = label_counts(tmp_path / "without", monkeypatch, others)
    assert sum(without) == 4
    for number, own in enumerate([("c",), ("a", "b"), LABELS]):
        having = label_counts(tmp_path / f"with {number}", monkeypatch, [*others, own])
        moved = [there - here for there, here in zip(having, without, strict=True)]
        assert sorted(moved) == [0, 0, 1], own


def test_the_whole_costs_what_was_approved() -> None:
    assert priced(evaluation=TWO).plan.loss == total_amount(
        [Amount(one.event.loss.rho, one.event.loss.delta) for one in priced(evaluation=TWO).plan.all_invocations]
    )
