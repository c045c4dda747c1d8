"""Charged metrics through the whole story: in the price, at the gate, in the bundle; and what a kill leaves of them."""

import json

import pytest

from models_db.values.amounts import Amount, total_amount
from tests.integration.killing import balance, instalments, killed
from tests.integration.story import REQUEST, Almoner

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
    almoner.type('approve 1 --gate publish --reason "names nobody"')
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    metrics = json.loads((almoner.bundle / "evaluation.json").read_text())["metrics"]
    assert (metrics[1]["values"]["mean_words"] is None) == lost
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
