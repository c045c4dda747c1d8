"""Plans and choices as people type them: planned, written, approved with their values, run, verified."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks.corpus.store
from tasks.inference.catalogue import registry
from tasks.pricing import rehearsed_shares
from tasks.pricing.rehearsed_shares import MeasuredShare
from tests import tiny_model
from tests.integration.story import REQUEST, Almoner
from tests.support import snapshot

CONCERNS = ("cli/commands/release", "tasks/pricing", "tasks/planning")

SHORT = "--population 60"
PLAN = f"plan clinic --epsilon 4 --tokens 8 --model {tiny_model.NAME}"


@pytest.fixture
def clinic(almoner: Almoner) -> Almoner:
    """A home with a corpus of a declared population."""
    almoner.ingested(SHORT)
    return almoner


def table_of(home: Almoner, line: str) -> list[dict[str, Any]]:
    alternatives: list[dict[str, Any]] = home.ask(line)["alternatives"]
    return alternatives


def test_from_a_plan_to_a_verified_bundle(clinic: Almoner) -> None:
    path = clinic.folder / "planned.yaml"
    examples = f"--examples {clinic.write('examples.yaml', ['Slept well.', 'No complaints.'])}"
    said = clinic.type(f"{PLAN} --samples 2 {examples} --choice 2 --write {path}")
    for part in ("better texts", "people behind a text", "lifetime epsilon then"):
        assert part in said.out
    shown = " ".join(said.out.split())
    assert shown.index("`question_histogram` counts") < shown.index("Expect of tiny") < shown.index("better texts")
    rehearse, request = f"`almoner rehearse {path} --on PUBLIC`", f"`almoner release request {path}`"
    assert 0 < shown.index(rehearse) < shown.index(request)
    written = yaml.safe_load(path.read_text())
    assert written["parameters"] == {
        "samples": 2, "references": 6, "max_new_tokens": 8, "temperature": 0.7, "top_k": 100,
    }  # fmt: skip
    planned = table_of(clinic, f"{PLAN} --samples 2 {examples}")[1]
    assert written["prompt"]["examples"] == ["Slept well.", "No complaints."]
    price = clinic.ask(f"release request {path} --dry-run")["price"]
    assert price == planned["price"]
    assert not {"choices", "warnings"} & price.keys()
    clinic.type(f"release request {path}")
    clinic.go_on_to("published")
    assert clinic.ask(f"verify-release {clinic.bundle}")["holds"] is True


def test_a_written_request_without_examples_is_refused_until_they_are_written(clinic: Almoner) -> None:
    path = clinic.folder / "planned.yaml"
    said = clinic.type(f"{PLAN} --choice 1 --write {path}").out
    assert "Replace its two examples by texts that you invent." in said
    for command in ("release request {} --dry-run", "release request {}"):
        assert clinic.ask(command.format(path), 2)["error"] == "ExampleNotWritten"
    assert clinic.ask("release list") == []
    written = yaml.safe_load(path.read_text())
    assert len(written["prompt"]["examples"]) == 2
    unwritten = clinic.write("examples.yaml", written["prompt"]["examples"])
    assert clinic.ask(f"{PLAN} --examples {unwritten}", 2)["error"] == "ExampleNotWritten"
    written["prompt"]["examples"] = ["Slept well.", "No complaints."]
    price = clinic.ask(f"release request {clinic.write('planned.yaml', written)} --dry-run")["price"]
    assert "warnings" not in price


def test_more_texts_than_people_can_carry_are_not_offered(clinic: Almoner) -> None:
    """The gate would say of them that they tell little of the corpus."""
    plan = clinic.ask(f"{PLAN} --samples 50")
    assert all(one["references"] >= 4 and one["texts"] < 50 for one in plan["alternatives"])
    assert any("50 texts were wanted" in note and "public model's own" in note for note in plan["notes"])


def test_a_plan_names_the_best_model_that_is_here_and_allowed(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*names: str) -> None:
        monkeypatch.setattr(registry, "list_models", lambda: [replace(tiny_model.LISTED, name=name) for name in names])

    plan = "plan clinic --epsilon 4 --tokens 8"
    here(tiny_model.NAME, "smollm2-135m-instruct")
    small = clinic.ask(plan)
    assert small["model"] == "smollm2-135m-instruct"
    assert any("small stand-in" in note and "almoner models pull" in note for note in small["notes"])
    here("gemma3-270m", "smollm2-135m-instruct")
    assert clinic.ask(plan)["model"] == "gemma3-270m"
    policy = f"{clinic.home.policy.read_text()}models: [tiny, smollm2-135m-instruct]\n"
    clinic.type(f"policy adopt {clinic.write('team.yaml', policy)}")
    assert clinic.ask(plan)["model"] == "smollm2-135m-instruct"
    here()
    assert clinic.ask(plan, 3)["error"] == "ModelNotPulled"


def test_what_was_left_out_is_fixed_marked_approved_and_run(clinic: Almoner) -> None:
    request = clinic.request_file(parameters={"max_new_tokens": 6, "samples": 6, "max_reference_tokens": 48})
    dry = clinic.type(f"release request {request} --dry-run").out
    assert "Chosen by almoner: the request leaves these out" in dry
    price = clinic.ask(f"release request {request}")["price"]
    references = price["choices"]["references"]
    assert references["value"] == 10
    assert "each text has about 10 of the declared 60 units" in references["reason"]
    screen = clinic.type('approve 1 --gate spend --reason "as shown"')
    shown = " ".join((screen.out + screen.err).split())
    assert "Chosen by almoner" in shown
    assert "each text has about 10 of the declared 60 units" in shown
    stored = clinic.ask("release show 1")["canonical"]
    assert stored["parameters"]["references"] == 10
    assert stored["parameters"]["temperature"] == "0.7"
    assert set(stored["choices"]) == {"references", "temperature"}
    clinic.go_on_to("published", after="approved")
    assert clinic.ask(f"verify-release {clinic.bundle}")["holds"] is True
    record = json.loads((clinic.bundle / "release.json").read_text())
    assert record["request"]["choices"] == stored["choices"]
    card = (clinic.bundle / "README.md").read_text().split("Chosen by almoner")[1]
    assert f"| `references` | `{stored['parameters']['references']}` |" in card


def test_a_standing_authorisation_covers_the_chosen_values_however_they_are_written(clinic: Almoner) -> None:
    left_out = clinic.request_file(parameters={"samples": 6, "max_new_tokens": 6}, epsilon=1.0)
    clinic.type(f'standing propose {left_out} --runs 3 --until 2099-12-31 --reason "monthly"')
    shown = " ".join(clinic.type("proposal show 1").out.split())
    assert "Chosen by almoner: the author left these out" in shown
    assert "references" in shown.split("Chosen by almoner")[1]
    clinic.type('approve 1 --gate proposal --reason "monthly"')
    clinic.type(f"release request {left_out} --standing 1")
    stored = clinic.ask("release show 1")["canonical"]["parameters"]
    written = {name: stored[name] for name in ("samples", "references", "max_new_tokens", "temperature")}
    clinic.type(f"release request {clinic.request_file(parameters=written, epsilon=1.0)} --standing 1")
    assert "choices" in clinic.ask("release show 1")["canonical"]
    assert "choices" not in clinic.ask("release show 2")["canonical"]


def test_planning_reads_no_text_and_changes_nothing(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*given: object) -> None:
        raise AssertionError("a plan opened the corpus")

    monkeypatch.setattr(tasks.corpus.store, "open_corpus", read)
    monkeypatch.setattr("flows.releases.propose.open_corpus", read)
    before = clinic.everything()
    first, second = clinic.ask(PLAN), clinic.ask(PLAN)
    assert first == second
    assert clinic.everything() == before
    clinic.ask(f"release request {clinic.request_file(parameters={})} --dry-run")
    assert clinic.everything() == before


def test_a_plan_takes_a_quarter_of_what_is_left(clinic: Almoner) -> None:
    plan = clinic.ask(f"plan clinic --tokens 8 --model {tiny_model.NAME}")
    assert plan["epsilon"] == "3.5"
    assert plan["reasons"]["epsilon"] == "a quarter of the rho that is left of the budget"
    assert plan["delta"] == "0.000001"
    assert [one["number"] for one in plan["alternatives"]] == [1, 2, 3]
    assert [one["influence"] for one in plan["alternatives"]] == ["clearly", "strongly", "almost fully"]
    assert {one["choices"]["temperature"]["value"] for one in plan["alternatives"]} == {"0.7"}


def test_a_plan_compares_at_the_temperature_that_is_wanted(clinic: Almoner) -> None:
    """The same texts and references, and a clip norm that is smaller in proportion."""
    asked = f"plan clinic --tokens 8 --model {tiny_model.NAME} --epsilon 4"
    warm, cool = clinic.ask(f"{asked} --temperature 1"), clinic.ask(f"{asked} --temperature 0.5")
    for one in cool["alternatives"]:
        assert one["request"]["parameters"]["temperature"] == "0.5"
        assert "temperature" not in one["choices"]
    first, second = warm["alternatives"][0], cool["alternatives"][0]
    each = [Decimal(one["clip_norm"]) / one["references"] for one in (first, second)]
    assert float(each[1] / each[0]) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("plan clinic --temperature 0", 2, "FileInvalid"),
        ("plan clinic --temperature warm", 2, "FileInvalid"),
        ("plan clinik", 2, "DatasetUnknown"),
        ("plan clinic --epsilon 0", 2, "FileInvalid"),
        ("plan clinic --epsilon much", 2, "FileInvalid"),
        ("plan clinic --delta 1", 2, "FileInvalid"),
        ("plan clinic --samples 0", 2, "FileInvalid"),
        ("plan clinic --tokens -1", 2, "FileInvalid"),
        ("plan clinic --kind poems", 2, "FileInvalid"),
        ("plan clinic --kind summaries", 2, "InvalidPlan"),
        ("plan clinic --time soon", 2, "InvalidPlan"),
        ("plan clinic --time 1h30", 2, "InvalidPlan"),
        ("plan clinic --time 0m", 2, "FileInvalid"),
        ("plan clinic --device cuda --time 8h", 2, "InvalidPlan"),
        ("plan clinic --device tpu", 2, "FileInvalid"),
        ("plan clinic --epsilon 1 --tokens 400", 2, "PopulationTooSmall"),
        ("plan clinic --epsilon 4 --time 1m --tokens 400", 2, "TimeTooShort"),
        ("plan clinic --population 61", 2, "PopulationContradicted"),
        ("plan clinic --population 60", 0, None),
        ("plan clinic --epsilon 9", 1, "BudgetExceeded"),
        ("plan clinic --kind demonstrations", 2, "LabelsNeeded"),
        ("plan clinic --kind insights", 2, "PopulationTooSmall"),
        ("plan clinic --choice 1", 2, "ChoiceIncomplete"),
        ("plan clinic --write x.yaml", 2, "ChoiceIncomplete"),
        ("plan clinic --choice 9 --write {new}", 2, "NoSuchAlternative"),
        ("plan clinic --choice 1 --write {there}", 2, "FileUnwritable"),
        ("plan clinic --choice 1 --write {nowhere}", 2, "FileUnwritable"),
        ("plan clinic --choice 1 --write {nowhere} --force", 2, "FileUnwritable"),
        ("plan clinic --choice 1 --write {there} --force", 0, None),
        ("plan clinic --model magic", 2, "UnknownModel"),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(clinic: Almoner, line: str, code: int, error: str | None) -> None:
    there = clinic.write("there.yaml", "mine: 1\n")
    places = {"new": clinic.folder / "new.yaml", "there": there, "nowhere": clinic.folder / "no" / "x.yaml"}
    model = "" if "--model" in line else f" --model {tiny_model.NAME}"
    typed = line.format(**places) + model
    before = snapshot(clinic.database)
    answer = clinic.ask(typed, expected=code)
    assert snapshot(clinic.database) == before
    if error is not None:
        assert answer["error"] == error
        assert answer["advice"]
        assert there.read_text() == "mine: 1\n"
        assert not Path(places["new"]).exists()


def test_a_dataset_without_a_population_is_told_how_to_declare_one(almoner: Almoner) -> None:
    almoner.ingested()
    refusal = almoner.ask(f"plan clinic --model {tiny_model.NAME}", 2)
    assert refusal["error"] == "PopulationUndeclared"
    assert "--population N" in refusal["advice"]
    plan = almoner.ask(f"{PLAN} --population 100")
    assert any("noisy count" in note for note in plan["notes"])
    assert almoner.ask(f"release request {almoner.request_file(parameters={})} --dry-run", 2)["error"] == (
        "PopulationNeeded"
    )


def test_an_exhausted_budget_is_told_what_is_left(clinic: Almoner) -> None:
    parameters = REQUEST["parameters"] | {"max_new_tokens": 2}
    clinic.type(f"release request {clinic.request_file(epsilon=7.97, delta=9e-7, parameters=parameters)}")
    clinic.go_on_to("produced")
    refusal = clinic.ask(f"plan clinic --model {tiny_model.NAME}", 1)
    assert refusal["error"] == "BudgetExhausted"
    assert "too little is left for a release: epsilon 0." in refusal["message"]
    assert "units on" in refusal["message"]


def test_a_plan_keeps_to_the_policy(clinic: Almoner) -> None:
    policy = clinic.home.policy.read_text() + (
        "release: {epsilon_max: 2, delta_max: 5.0e-8}\n"
        "mechanisms: [private_icl, urania]\n"
        "evaluation: {required: {perplexity: {}}}\n"
    )
    clinic.type(f"policy adopt {clinic.write('team.yaml', policy)}")
    (only,) = clinic.ask(f"plan clinic --tokens 2 --model {tiny_model.NAME}")["alternatives"]
    assert only["request"]["mechanism"] == "private_icl"
    assert only["request"]["parameters"]["top_k"] == 100
    clinic.type(f"policy adopt {clinic.write('team.yaml', policy.replace('[private_icl, urania]', '[invisible_ink]'))}")
    plan = clinic.ask(f"plan clinic --tokens 4 --model {tiny_model.NAME}")
    assert plan["epsilon"] == "2"
    assert plan["delta"] == "0.00000001"
    assert {one["request"]["mechanism"] for one in plan["alternatives"]} == {"invisible_ink"}
    assert all("perplexity" in one["request"]["evaluation"] for one in plan["alternatives"])
    assert clinic.ask(f"plan clinic --epsilon 3 --tokens 4 --model {tiny_model.NAME}", 1)["error"] == "PolicyForbids"


def test_who_may_not_see_the_balance_names_an_epsilon(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("flows.datasets.plan_release", "flows.governance.policy"):
        monkeypatch.setattr(f"{place}.hides_balances", lambda session, actor: True)
    assert clinic.ask(f"plan clinic --model {tiny_model.NAME}", 1)["error"] == "EpsilonNeeded"
    said = clinic.type(PLAN).out
    assert "lifetime epsilon then" not in said
    plan = clinic.ask(PLAN)
    assert set(plan["alternatives"][0]["price"]["budget"]) == {"epsilon_cap", "delta_cap", "rho_cap", "affordable"}
    assert clinic.ask(f"{PLAN.replace('--epsilon 4', '--epsilon 9')}", 1)["error"] == "BudgetRefused"


def test_a_plan_for_a_gpu_says_that_its_time_is_not_estimated(clinic: Almoner) -> None:
    """And no limit of time, which rests on the same figures, makes it smaller."""
    plan = clinic.ask(f"{PLAN} --device cuda")
    assert plan["device"] == "cuda"
    assert any("not for GPUs" in note for note in plan["notes"])
    assert [one["texts"] for one in plan["alternatives"]] == [one["texts"] for one in table_of(clinic, PLAN)]
    assert "time on two cores" in clinic.type(PLAN).out
    assert "time on two cores" not in clinic.type(f"{PLAN} --device cuda").out


def test_a_plan_shows_what_rehearsals_measured(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each alternative whose clip norm lies between two that were measured for its model, with the origin."""
    curve = [
        MeasuredShare("yelp", tiny_model.NAME, "invisible_ink", "mauve", norm, 24, (share, share - 9, share + 9))
        for norm, share in ((0.01, 0), (100, 90))
    ]
    assert not any(one["rehearsed"] for one in table_of(clinic, PLAN))
    monkeypatch.setattr(rehearsed_shares, "measured_shares", lambda: curve)
    shares = [one["rehearsed"][0]["share"] for one in table_of(clinic, PLAN)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 90


def test_records_are_planned_with_their_schema_and_length(clinic: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clinic.folder / "planned.yaml"
    shape = {"type": "object", "required": ["year"], "properties": {"year": {"type": "integer"}}}
    schema = clinic.write("schema.yaml", shape)
    curve = [
        MeasuredShare("yelp", tiny_model.NAME, "invisible_ink", "mauve", norm, 24, (50, 40, 60)) for norm in (0.01, 100)
    ]
    monkeypatch.setattr(rehearsed_shares, "measured_shares", lambda: curve)
    line = f"{PLAN.replace('--tokens 8', '--tokens 24')} --samples 2 --kind records"
    alternatives = table_of(clinic, f"{line} --schema {schema} --choice 1 --write {path}")
    assert not any(one["rehearsed"] for one in alternatives), "rehearsals were of free texts"
    written = yaml.safe_load(path.read_text())
    assert written["kind"] == "records"
    assert written["evaluation"] == ["records", "length"]
    assert written["parameters"]["schema"] == shape
    assert written["parameters"]["constrained"] is True
    assert clinic.ask(f"release request {path} --dry-run")["price"] == alternatives[0]["price"]
    refusal = clinic.ask(line, expected=2)
    assert (refusal["error"], "need a schema" in refusal["message"]) == ("InvalidPlan", True)
    assert clinic.ask(f"{PLAN} --schema {schema}", expected=2)["error"] == "InvalidPlan"
    short = clinic.ask(f"{line.replace('--tokens 24', '')} --schema {schema}", expected=2)
    assert (short["error"], "--tokens" in short["message"]) == ("InvalidPlan", True)
