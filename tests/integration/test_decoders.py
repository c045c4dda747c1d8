"""Every decoder through the whole story: asked for, approved, run, published, verified offline."""

import json
from decimal import Decimal
from typing import Any

import pytest

from models_db.errors import AlmonerError
from tasks.systems.private_prediction.rule import PrivatePredictionRule
from tests.integration.killing import killed
from tests.integration.story import REQUEST, Almoner

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/decoding", "tasks/systems")

SHARED = {"samples": 3, "references": 4, "max_new_tokens": 12, "temperature": 1.0, "max_reference_tokens": 48}
OWN: dict[str, dict[str, Any]] = {
    "invisible_ink": {"top_k": 50, "instalment": 4},
    "private_prediction": {"private_tokens": 6, "threshold": 0.7, "instalment": 4},
    "private_icl": {"instalment": 4},
    "few_shot_generation": {"instalment": 4},
    "adapmixed": {"batches": 3},
}
FIGURES = {
    "invisible_ink": {"effective_k", "share_from_expansion"},
    "private_prediction": {"private_tokens_per_text"},
    "private_icl": set(),
    "few_shot_generation": set(),
    "adapmixed": {"private_tokens_per_text", "renyi_loss_of_this_data_not_a_guarantee"},
}
EVENTS = {
    "invisible_ink": ["noisy_count", "integer_draw"],
    "private_prediction": ["noisy_count", "integer_draw", "sparse_vector"],
    "private_icl": ["noisy_count", "integer_draw"],
    "few_shot_generation": ["noisy_count", "noisy_mean"],
    "adapmixed": ["adapmixed"],
}


def asked(mechanism: str, **changes: Any) -> dict[str, Any]:
    """A request for that mechanism, without a claim where nothing is charged."""
    written = REQUEST | {"mechanism": mechanism, "parameters": SHARED | OWN[mechanism]} | changes
    if mechanism == "adapmixed":
        del written["epsilon"], written["delta"]
    return written


@pytest.mark.slow_except("few_shot_generation", "invisible_ink")
@pytest.mark.parametrize("mechanism", OWN)
def test_the_story_of_each_decoder(almoner: Almoner, mechanism: str) -> None:
    almoner.ingested("--public" if mechanism == "adapmixed" else "")
    request = almoner.write("request.yaml", asked(mechanism))
    price = almoner.ask(f"release request {request}")["price"]
    almoner.type('approve 1 --gate spend --reason "a comparison"')
    produced = almoner.ask("run 1")
    assert produced["texts"] == 3
    assert produced["rho_spent"] == price["rho"]
    almoner.go_on_to("published", after="produced")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert report["holds"] is True
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert [event["mechanism"] for event in record["events"]] == EVENTS[mechanism]
    assert FIGURES[mechanism] <= set(record["released"])
    card = (almoner.bundle / "README.md").read_text()
    for name in EVENTS[mechanism] + sorted(FIGURES[mechanism]):
        assert f"`{name}`" in card
    if mechanism == "adapmixed":
        assert "No differential privacy is claimed" in card
        assert (report["epsilon"], produced["rho_spent"]) == (None, "0")
    else:
        assert Decimal(report["recomputed_epsilon"]) <= 4
    assert almoner.ask("doctor")["ok"] is True


def test_the_story_of_public_tokens_which_survives_a_kill(almoner: Almoner) -> None:
    """The tiny model hardly ever ends a sentence."""
    plain = SHARED | OWN["invisible_ink"] | {"temperature": 0.25}
    example = "Seen on Monday, no fever."
    almoner.ingested("--population 400")
    prompt = REQUEST["prompt"] | {"examples": [example]}
    request = almoner.write("request.yaml", asked("invisible_ink", parameters=plain, prompt=prompt))
    price = almoner.ask(f"release request {request}")["price"]
    almoner.type('approve 1 --gate spend --reason "longer texts"')
    killed("run 1", "mid generation")
    assert almoner.ask("run 1")["rho_spent"] == price["rho"]
    almoner.go_on_to("published", after="produced")
    report = almoner.ask(f"verify-release {almoner.bundle}")
    assert (report["holds"], report["rho"]) == (True, price["rho"])
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert Decimal(record["released"]["completion_tokens_per_text"]) > 0
    assert record["facts"]["cut sentences"] == price["facts"]["cut sentences"]
    assert [event["count"] for event in record["events"]] == [12]
    card = (almoner.bundle / "README.md").read_text()
    assert "are finished with at most 24 more tokens of the public model" in card
    assert "`completion_tokens_per_text`" in card
    assert "The public examples were given as earlier answers" in card
    assert example in card
    assert "cut sentences" in almoner.type("release show 1").out
    assert almoner.ask("doctor")["ok"] is True


def run_of_private_prediction(almoner: Almoner) -> int:
    """Return how many holds were armed; the whole plan is charged, however many they were."""
    almoner.ingested("--population 400")
    request = almoner.write("request.yaml", asked("private_prediction"))
    price = almoner.ask(f"release request {request}")["price"]
    almoner.type('approve 1 --gate spend --reason "a comparison"')
    spent = almoner.ask("run 1")["rho_spent"]
    budget = almoner.ask("budget show clinic")
    assert (budget["rho_spent"], budget["rho_held"]) == (spent, "0") == (price["rho"], "0")
    return [link["kind"] for link in almoner.ask("audit log --dataset clinic")].count("ledger.arm")


def test_a_run_of_private_prediction_arms_both_mechanisms_together(almoner: Almoner) -> None:
    """A hold for each instalment of draws and of tests; the second where a text has had four private tokens."""
    assert run_of_private_prediction(almoner) in (2, 4)  # nearly always 4, but that is a matter of chance


def test_all_instalments_are_charged_if_no_token_is_private(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivatePredictionRule, "_far", lambda *_: [])
    assert run_of_private_prediction(almoner) == 2


def test_adapmixed_is_refused_on_governed_data_with_the_reason(almoner: Almoner) -> None:
    almoner.ingested()
    refused = almoner.ask(f"release request {almoner.write('request.yaml', asked('adapmixed'))}", expected=1)
    assert refused["error"] == "GuaranteeDependsOnData"
    assert "holds for that data alone" in refused["message"]


def wrong(mechanism: str, expected: int, error: type[AlmonerError] | str, **changes: Any) -> Any:
    """One piece of bad input: the mechanism, the exit code, the error's name, and what is changed."""
    name = error if isinstance(error, str) else error.__name__
    shown = ",".join(f"{key}={value}" for key, value in changes.items())
    return pytest.param(mechanism, expected, name, changes, id=f"{mechanism}: {shown}")


@pytest.mark.parametrize(
    ("mechanism", "expected", "error", "changes"),
    [
        wrong("private_prediction", 2, "FileInvalid", parameters={"references": 0}),
        wrong("private_icl", 2, "FileInvalid", parameters={"references": 0}),
        wrong("few_shot_generation", 2, "FileInvalid", parameters={"clipping": "logit"}),
        wrong("few_shot_generation", 2, "TokenDrawInvalid", parameters={"temperature": "0.0001"}),
        wrong("few_shot_generation", 2, "NoiseInvalid", epsilon="0.0005", parameters={"max_new_tokens": 90_000}),
        wrong("private_prediction", 2, "FileInvalid", parameters={"test_share": 1}),
        wrong("private_prediction", 2, "FileInvalid", parameters={"clipping": "logit"}),
        wrong(
            "private_prediction",
            1,
            "BudgetTooSmall",
            epsilon="0.0001",
            parameters={"max_new_tokens": 90_000, "private_tokens": 90_000},
        ),
        wrong("private_icl", 1, "BudgetTooSmall", epsilon="0.0005", parameters={"max_new_tokens": 90_000}),
        wrong("invisible_ink", 2, "FileInvalid", parameters={"free_above": 0.9}),
        wrong("invisible_ink", 2, "FileInvalid", parameters={"outline": {"sections": 2, "tokens": 20}}),
        wrong("private_icl", 2, "FileInvalid", parameters={"complete_sentence": 24}),
        wrong("invisible_ink", 1, "BudgetTooSmall", epsilon="0.0005", parameters={"max_new_tokens": 90_000}),
        wrong("adapmixed", 2, "BatchesNotDeclared", parameters={"batches": None}),
    ],
)
def test_bad_input_has_a_name_and_costs_nothing(
    almoner: Almoner, mechanism: str, expected: int, error: str, changes: dict[str, Any]
) -> None:
    almoner.ingested("--public" if mechanism == "adapmixed" else "")
    written = asked(mechanism) | {name: value for name, value in changes.items() if name != "parameters"}
    written["parameters"] = written["parameters"] | changes["parameters"]
    refused = almoner.ask(f"release request {almoner.write('request.yaml', written)}", expected=expected)
    assert refused["error"] == error
    assert refused["advice"]
    assert almoner.ask("release list") == []
