"""Charged metrics through the whole story: in the price, at the gate, in the bundle; and what a kill leaves of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from models_db.values.amounts import Amount, total_amount
from tasks.common.faults import waiting_with
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.counts.noisy_histogram import NoisyHistogram
from tests.faults import Failing, temporary, waits
from tests.integration.killing import balance, instalments, is_clean, killed
from tests.integration.story import REQUEST, Almoner
from tests.support import substitute

EVALUATION = ["length", "dp_length"]


def test_a_charged_metric_is_priced_shown_published_and_verified(almoner: Almoner) -> None:
    almoner.ingested()
    price = almoner.ask(f"release request {almoner.request_file(evaluation=EVALUATION, evaluation_share=0.25)}")[
        "price"
    ]
    assert "charged metrics" in price["facts"]
    almoner.type('approve 1 --gate spend --reason "a first look"')
    assert almoner.ask("run 1")["rho_spent"] == price["rho"]
    shown = almoner.type('approve 1 --gate publish --reason "resembles the data"')
    assert "dp_length" in shown.out + shown.err
    assert "words a unit" in shown.out + shown.err
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert (report["holds"], report["rho"]) == (True, price["rho"])
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]][-1] == "noisy_histogram"
    metrics = json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]
    assert [(one["name"], one["exposure"]) for one in metrics] == [("length", "public"), ("dp_length", "charged")]
    assert metrics[1]["values"]["mean_words"] is not None
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "lost"), [("after the first result is kept", False), ("before the first result is kept", True)]
)
def test_a_killed_run_never_draws_a_metric_twice(almoner: Almoner, point: str, lost: bool) -> None:
    almoner.approved(evaluation=EVALUATION, epsilon=REQUEST["epsilon"])
    plan = instalments(almoner)
    killed("run 1", point)
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    almoner.go_on_to("published", after="produced")
    metrics = json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]
    assert (metrics[1]["values"]["mean_words"] is None) == lost
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True


def failing(monkeypatch: pytest.MonkeyPatch, name: str, *faults: BaseException) -> Failing:
    """A metric without a charge whose first tries meet faults."""
    compute = Failing(METRICS[name].compute, *faults)
    substitute(monkeypatch, METRICS, name, replace(METRICS[name], compute=compute))
    return compute


RETRIED = ["dp_length", "length"]
"""The charged one first, so that it was paid and drawn before the other one is tried again."""


def test_a_metric_that_fails_twice_is_tried_again_and_nothing_is_paid_twice(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved(evaluation=RETRIED, epsilon=REQUEST["epsilon"])
    compute = failing(monkeypatch, "length", temporary(), TimeoutError())
    with waits() as seconds:
        told = almoner.type("run 1")
    assert (compute.calls, seconds) == (3, [10, 20])
    assert "length: OSError; it costs nothing, and is tried again in 10 seconds." in told.err.replace("\n", " ")
    assert "zanzibarquux" not in told.err
    assert balance(almoner).spent == total_amount(instalments(almoner))
    assert balance(almoner).held == Amount()
    almoner.go_on_to("published", after="produced")
    metrics = json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]
    assert metrics[0]["values"]["mean_words"] is not None
    assert metrics[1]["name"] == "length"
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True


def test_a_permanent_fault_of_a_metric_ends_the_run_at_once(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved(evaluation=RETRIED, epsilon=REQUEST["epsilon"])
    compute = failing(monkeypatch, "length", ValueError("zanzibarquux"))
    with waits() as seconds:
        assert almoner.ask("run 1", expected=3)["error"] == "TaskFailed"
    assert (compute.calls, seconds) == (1, [])
    assert balance(almoner).spent == total_amount(instalments(almoner))
    almoner.type("run 1")  # it goes on, with the metric that was drawn
    assert balance(almoner).spent == total_amount(instalments(almoner))


def test_a_charged_metric_that_meets_a_temporary_fault_is_not_drawn_again(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved(evaluation=RETRIED, epsilon=REQUEST["epsilon"])
    real, draws = NoisyHistogram.draw, []

    def draw_and_fail(self: NoisyHistogram, counts: Any, rng: Any) -> Any:
        draws.append(real(self, counts, rng))
        raise temporary()

    monkeypatch.setattr(NoisyHistogram, "draw", draw_and_fail)
    with waits() as seconds:
        assert almoner.ask("run 1", expected=3)["error"] == "TaskFailed"
    assert (len(draws), seconds) == (1, [])
    assert balance(almoner).spent == total_amount(instalments(almoner))
    assert balance(almoner).held == Amount()
    almoner.type("run 1")  # the draw is lost, and not made again
    assert len(draws) == 1
    assert balance(almoner).spent == total_amount(instalments(almoner))
    assert almoner.ask("doctor")["ok"] is True


def test_ctrl_c_between_two_tries_ends_the_run(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved(evaluation=RETRIED, epsilon=REQUEST["epsilon"])
    failing(monkeypatch, "length", temporary())

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with waiting_with(lambda _: interrupt):
        assert almoner.ask("run 1", expected=1)["error"] == "RunInterrupted"
    assert balance(almoner).held == Amount()
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(instalments(almoner))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_a_run_killed_between_two_tries_goes_on_and_pays_nothing_twice(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.approved(evaluation=RETRIED, epsilon=REQUEST["epsilon"])
    plan = instalments(almoner)
    killed("run 1", "between two tries of a metric", fails="length")
    assert almoner.state() == "running"
    assert balance(almoner).spent == total_amount(plan)  # all is armed: the charged metric was drawn before
    almoner.type("run sweep")
    is_clean(almoner, left=True)
    assert balance(almoner).spent == total_amount(plan)
    almoner.type("run 1")
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    almoner.go_on_to("published", after="produced")
    metrics = json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]
    assert metrics[0]["values"]["mean_words"] is not None  # the draw that was paid is there
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
