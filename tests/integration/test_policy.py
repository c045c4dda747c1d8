"""The policy as people meet it: asked for, run, approved, published; adopted, shown, and quiet about budgets."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml

import flows.approvals.decide
import flows.governance.policy
import flows.releases.propose
from flows.approvals.decide import load_review
from flows.workspace.workspace import open_workspace
from models_db.services import people, policies
from models_db.values.request_state import Gate
from tests.integration.story import REQUEST, Almoner
from tests.support import fetch

CONCERNS = ("models_db/policies", "models_db/services", "flows/approvals")

RULES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "epsilon": (
        {"release": {"epsilon_max": 4, "delta_max": 1e-7}},
        {"epsilon": 4},
        {"epsilon": "4.001"},
        "release.epsilon_max",
    ),
    "delta": (
        {"release": {"epsilon_max": 4, "delta_max": 1e-7}},
        {"delta": "1e-7"},
        {"delta": "1.001e-7"},
        "release.delta_max",
    ),
    "mechanism": (
        {"mechanisms": ["invisible_ink"]},
        {},
        {
            "mechanism": "public_only",
            "epsilon": None,
            "delta": None,
            "parameters": {k: v for k, v in REQUEST["parameters"].items() if k != "instalment"},
        },
        "mechanisms",
    ),
    "model": ({"models": [REQUEST["model"], "other"]}, {}, None, "models"),  # type: ignore[dict-item]
    "evaluation": (
        {"evaluation": {"required": {"length": {}, "distinct": {}}}},
        {"evaluation": ["distinct", "length"]},
        {"evaluation": ["length"]},
        "evaluation.required",
    ),
    "dataset": (
        {
            "release": {"epsilon_max": 8, "delta_max": 1e-7},
            "datasets": {"clinic": {"release": {"epsilon_max": 2, "delta_max": 1e-7}}},
        },
        {"epsilon": 2},
        {"epsilon": 3},
        "release.epsilon_max",
    ),
}
"""By name: the policy's rules, a request just inside, one just outside, and the rule that says no."""


def set_rules(almoner: Almoner, **rules: Any) -> None:
    """Let the home's policy say this besides."""
    written = yaml.safe_load(almoner.home.policy.read_text())
    almoner.home.policy.write_text(yaml.safe_dump(written | rules))


def request_file(almoner: Almoner, **changes: Any) -> Path:
    return almoner.write("request.yaml", {k: v for k, v in (REQUEST | changes).items() if v is not None})


def refused(almoner: Almoner, line: str, error: str, code: int = 1) -> Any:
    """The command is refused under that name, and no row and no file has changed."""
    before = almoner.everything()
    told = almoner.ask(line, expected=code)
    assert told["error"] == error, told
    assert almoner.everything() == before
    return told


def broken(told: Any) -> list[str]:
    return [each["rule"] for each in told["facts"]["broken"]]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_allows_what_is_inside_and_refuses_what_is_outside(almoner: Almoner, name: str) -> None:
    rules, inside, outside, rule = RULES[name]
    almoner.ingested()
    set_rules(almoner, **rules)
    if name == "model":
        set_rules(almoner, models=["other"])
        assert broken(refused(almoner, f"release request {request_file(almoner)}", "PolicyForbids")) == [rule]
        set_rules(almoner, **rules)
    else:
        for option in ("", " --dry-run"):
            told = refused(almoner, f"release request {request_file(almoner, **outside)}{option}", "PolicyForbids")
            assert broken(told) == [rule]
    almoner.type(f"release request {request_file(almoner, **inside)}")


@pytest.mark.parametrize(
    ("population", "rule"),
    [("", "declares no population"), ("--population 10000000 --accept-weak-promise", "below 1/10000000")],
)
def test_a_delta_has_to_be_below_one_in_the_population(almoner: Almoner, population: str, rule: str) -> None:
    almoner.ingested(population)
    set_rules(almoner, delta_below_population=True)
    told = refused(almoner, f"release request {request_file(almoner)}", "PolicyForbids")
    assert broken(told) == ["delta_below_population"]
    assert rule in told["message"]


def test_a_delta_below_one_in_the_population_is_allowed(almoner: Almoner) -> None:
    almoner.ingested("--population 9999999 --accept-weak-promise")
    set_rules(almoner, delta_below_population=True)
    almoner.type(f"release request {request_file(almoner)} --dry-run")


def test_a_request_that_passed_by_another_door_is_not_run(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.ingested()
    set_rules(almoner, mechanisms=["public_only"])
    with monkeypatch.context() as door:
        door.setattr(flows.releases.propose, "require_policy", lambda *given: None)
        almoner.type(f"release request {request_file(almoner)}")
    almoner.type('approve 1 --gate spend --reason "overlooked"')
    assert broken(refused(almoner, "run 1", "PolicyForbids")) == ["mechanisms"]
    assert almoner.state() == "approved"


def test_a_release_outside_its_bounds_is_neither_approved_nor_published(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.ingested()
    set_rules(almoner, evaluation={"required": {"length": {"texts": {"max": 2}, "empty": {"min": 0}}}})
    almoner.type(f"release request {request_file(almoner)}")
    almoner.go_on_to("produced")
    told = refused(almoner, 'approve 1 --gate publish --reason "looks fine"', "OutsideBounds")
    assert told["facts"]["outside"] == [{"figure": "length.texts", "value": 3, "allowed": "at most 2"}]
    with monkeypatch.context() as door:
        door.setattr(flows.approvals.decide, "require_bounds", lambda *given: None)
        almoner.type('approve 1 --gate publish --reason "by another door"')
    refused(almoner, f"publish 1 --to {almoner.folder / 'out'}", "OutsideBounds")
    assert not (almoner.folder / "out").exists()


def test_a_release_outside_its_bounds_can_be_rejected(almoner: Almoner) -> None:
    almoner.ingested()
    set_rules(almoner, evaluation={"required": {"length": {"texts": {"max": 2}}}})
    almoner.type(f"release request {request_file(almoner)}")
    almoner.go_on_to("produced")
    almoner.type('reject 1 --gate publish --reason "too many texts"')
    assert almoner.state() == "discarded"


def test_a_release_inside_its_bounds_is_published(almoner: Almoner) -> None:
    almoner.ingested()
    rules = {"release": {"epsilon_max": 4, "delta_max": 1e-7}, "datasets": {"clinic": {"approvals": {"publish": 1}}}}
    set_rules(almoner, evaluation={"required": {"length": {"texts": {"min": 3, "max": 3}}, "distinct": {}}}, **rules)
    almoner.type(f"release request {request_file(almoner)}")
    almoner.go_on_to("published")
    almoner.type(f"verify-release {almoner.bundle}")
    assert json.loads((almoner.bundle / "release.json").read_text())["policy"]["release"]["epsilon_max"] == "4"


def test_a_policy_is_checked_adopted_and_shown(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.ingested()
    file = almoner.write(
        "new.yaml",
        {"version": 1, "several_roles": True, "attempts": 2, "datasets": {"nobody": {"approvals": {"spend": 2}}}},
    )
    before = almoner.everything()
    checked = almoner.ask(f"policy check {file}")
    dry = almoner.ask(f"policy adopt {file} --dry-run")
    assert almoner.everything() == before
    assert (checked["valid"], dry["adopted"], checked["unknown_datasets"]) == (True, False, ["nobody"])
    assert checked["differences"] == dry["differences"]
    assert {"field": "attempts", "in_force": None, "file": "2"} in checked["differences"] or {
        "field": "attempts",
        "in_force": "5",
        "file": "2",
    } in checked["differences"]
    assert almoner.ask(f"policy adopt {file}")["adopted"] is True
    assert almoner.home.policy.read_bytes() == file.read_bytes()
    assert almoner.home.policy.stat().st_mode & 0o777 == 0o600
    shown = almoner.ask("policy show")
    assert shown["digest"] == shown["home"] == checked["digest"]
    again = almoner.write("again.yaml", almoner.type("policy show").out)
    assert almoner.ask(f"policy check {again}")["differences"] == []
    rows = fetch(almoner.database, "SELECT kind FROM audit WHERE kind = 'policy.adopted'")
    almoner.type(f"policy adopt {again}")
    assert fetch(almoner.database, "SELECT kind FROM audit WHERE kind = 'policy.adopted'") == rows


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"version": 1, "attempts": 0}, "FileInvalid"),
        ({"version": 1, "evaluation": {"required": {"beauty": {}}}}, "NotMeasurable"),
        ({"version": 1, "evaluation": {"required": {"verbatim_overlap": {}}}}, "NotMeasurable"),
        (
            {"version": 1, "datasets": {"a": {"evaluation": {"required": {"length": {"x": {"max": 1}}}}}}},
            "NotMeasurable",
        ),
        ({"version": 1, "release": {"epsilon_max": "1e-12", "delta_max": "1e-18"}}, "InvalidTarget"),
        ("attempts: 1\nattempts: 2\n", "FileInvalid"),
        ({"version": 1, "mechanisms": ["telepathy"]}, "MechanismUnknown"),
        ({"version": 1, "datasets": {"a": {"mechanisms": ["urania", "telepathy"]}}}, "MechanismUnknown"),
    ],
)
def test_what_cannot_be_is_not_adopted(almoner: Almoner, content: Any, error: str) -> None:
    almoner.type("init")
    file = almoner.write("new.yaml", content)
    for line in (f"policy check {file}", f"policy adopt {file}", f"policy adopt {file} --dry-run"):
        told = refused(almoner, line, error, code=2)
        assert "docs/policy.md" in told["advice"] or error == "InvalidTarget"


def test_a_request_does_not_adopt_what_cannot_be(almoner: Almoner) -> None:
    almoner.ingested()
    set_rules(almoner, evaluation={"required": {"verbatim_overlap": {}}})
    refused(almoner, f"release request {request_file(almoner, evaluation=['length'])}", "PolicyForbids")
    set_rules(almoner, evaluation={"required": {"length": {"beauty": {"max": 1}}}})
    refused(almoner, f"release request {request_file(almoner)}", "NotMeasurable", code=2)


def test_the_schema_is_printed_without_a_home(almoner: Almoner) -> None:
    schema = json.loads(almoner.type("policy schema").out)
    assert schema == almoner.ask("policy schema")
    almoner.type("init")
    jsonschema.validate(yaml.safe_load(almoner.home.policy.read_text()), schema)


def only(almoner: Almoner, *roles: str) -> None:
    """Leave the owner of the home with these roles; somebody else is admin from now on."""
    workspace = open_workspace(almoner.home)
    with workspace.database.write() as session:
        people.enrol(session, workspace.actor, "boss", "b" * 64)
        for role in ("admin", "steward"):
            people.grant(session, workspace.actor, "boss", role, "takes over")
    with workspace.database.write() as session:
        boss = people.identify(session, "b" * 64)
        for role in people.roles_of(session, workspace.actor.id) - set(roles):
            people.revoke(session, boss, workspace.actor.name, role, "one role each")


def test_only_an_admin_adopts_and_others_ask_under_the_policy_in_force(almoner: Almoner) -> None:
    almoner.ingested()
    almoner.type(f"policy adopt {almoner.home.policy}")
    only(almoner, "analyst", "runner")
    file = almoner.write("new.yaml", {"version": 1, "several_roles": True})
    refused(almoner, f"policy adopt {file}", "RoleRequired")
    almoner.type(f"release request {request_file(almoner)}")
    set_rules(almoner, attempts=100)
    for option in ("", " --dry-run"):
        told = refused(almoner, f"release request {request_file(almoner)}{option}", "PolicyDiffers")
        assert told["facts"]["in_force"] is not None


QUIET_LINES = (
    "release request {request}",
    "release request {request} --dry-run",
    "release request {small} --dry-run",
    "budget show clinic",
    "budget forecast clinic",
    "budget simulate clinic --epsilon 1",
)


def figures(almoner: Almoner) -> list[str]:
    """What tells how much is left, as text: rho, and the epsilons that it means."""
    workspace = open_workspace(almoner.home)
    with workspace.database.read() as session:
        rows = fetch(almoner.database, "SELECT rho_spent, rho_cap FROM account WHERE parent_id IS NOT NULL")
        assert policies.policy_in_force(session) is not None
    found = []
    for spent, cap in rows:
        for amount in (int(str(spent)), int(str(cap)) - int(str(spent))):
            text = f"{amount / 10**12:.12f}"
            found += [text, text[:8], str(amount)]
    return found


@pytest.mark.slow_except("roles1")
@pytest.mark.parametrize("roles", [("analyst", "runner"), ("analyst", "runner", "steward"), ("analyst", "auditor")])
def test_quiet_refusals_tell_analysts_no_figure(almoner: Almoner, roles: tuple[str, ...]) -> None:
    almoner.ingested()
    set_rules(almoner, refusals="quiet")
    almoner.type(f"release request {request_file(almoner)}")
    almoner.go_on_to("produced")
    spent = almoner.ask("budget show clinic")
    only(almoner, *roles)
    secrets = [*figures(almoner), spent["rho_left"], spent["epsilon_spent"]]
    named = {
        "request": almoner.write("large.yaml", REQUEST | {"epsilon": 7.9}),
        "small": almoner.write("small.yaml", REQUEST | {"epsilon": 0.5}),
    }
    leaks = []
    for line in QUIET_LINES:
        for option in ("", " --json"):
            told = run(almoner, line.format(**named) + option)
            leaks += [line for secret in secrets if re.search(rf"(?<![\d.]){re.escape(secret)}", told)]
    if roles == ("analyst", "runner"):
        assert leaks == []
        told = refused(almoner, f"release request {named['request']}", "BudgetRefused")
        assert told["facts"] == {"dataset": "clinic"}
        refused(almoner, "budget show clinic", "BalancesWithheld")
        shown = run(almoner, "release show 1 --details") + run(almoner, "release show 1 --json")
        assert "Privacy cost" in shown
        assert "Lifetime budget of" not in shown
        assert not [left for left in (spent["rho_left"], spent["epsilon_spent"]) if left in shown]
        assert almoner.ask("release show 1")["rho_spent"] is None
        for key, seen in ((None, False), ("b" * 64, True)):  # who decides in a browser, from this home
            review = load_review(open_workspace(almoner.home), 1, Gate.SPEND, key)
            assert any(one.title.startswith("Lifetime budget") for one in review.sections) == seen
    else:
        assert set(leaks) >= {QUIET_LINES[0], QUIET_LINES[3]}


def run(almoner: Almoner, line: str) -> str:
    """What a command says, wherever it says it and however it ends."""
    from typer.testing import CliRunner

    from cli.app import app

    done = CliRunner().invoke(app, line.split())
    return done.stdout + done.stderr


def test_a_quiet_policy_cannot_be_made_loud_in_a_home_of_ones_own(almoner: Almoner) -> None:
    almoner.ingested()
    set_rules(almoner, refusals="quiet")
    almoner.type(f"policy adopt {almoner.home.policy}")
    only(almoner, "analyst")
    set_rules(almoner, refusals="full")
    refused(almoner, "budget show clinic", "BalancesWithheld")


def test_a_run_that_cannot_be_afforded_is_refused_quietly(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.ingested()
    set_rules(almoner, refusals="quiet")
    at_once = REQUEST["parameters"] | {"instalment": 12}  # all of it is armed, however early a text ends
    for _ in range(2):
        almoner.type(f"release request {request_file(almoner, epsilon=6.5, parameters=at_once)}")
    for number in (1, 2):
        almoner.type(f'approve {number} --gate spend --reason "a first look"')
    almoner.type("run 1")
    assert refused(almoner, "run 2", "BudgetExceeded")["facts"]["left_rho"]
    runner = SimpleNamespace(roles_of=lambda session, principal: frozenset({"runner"}))
    monkeypatch.setattr(flows.governance.policy, "people", runner)
    told = refused(almoner, "run 2", "BudgetRefused")
    assert told["facts"] == {"dataset": "clinic"}
    assert almoner.state(2) == "approved"


def outside_its_bounds(almoner: Almoner, **evaluation: Any) -> None:
    """A release of three texts waits at the publish gate, under a policy that admits two at most."""
    almoner.ingested()
    set_rules(almoner, evaluation={"required": {"length": {"texts": {"max": 2}}}, **evaluation})
    almoner.type(f"release request {request_file(almoner)}")
    almoner.go_on_to("produced")


OVERRIDDEN = "Overrides the bounds of the policy (length.texts is 3, allowed is at most 2): a pilot needs them"


def test_a_release_outside_its_bounds_is_approved_explicitly_or_not_at_all(any_almoner: Almoner) -> None:
    """The override is signed, recorded, shown, and published with the release; a stranger's check names it."""
    almoner = any_almoner
    outside_its_bounds(almoner)
    told = refused(almoner, 'approve 1 --gate publish --reason "looks fine"', "OutsideBounds")
    assert "--override" in told["advice"]
    shown = almoner.type('approve 1 --gate publish --override "a pilot needs them"').err
    assert "length.texts is 3, allowed is at most 2" in shown
    assert OVERRIDDEN in " ".join(shown.split())
    [decided] = [row for row in almoner.ask("audit log") if row["kind"] == "request.approve"][-1:]
    assert OVERRIDDEN in json.dumps(decided)
    report = almoner.ask("report 1")
    assert [one["override"] for one in report["decisions"] if one["gate"] == "publish"] == [
        "length.texts is 3, allowed is at most 2"
    ]
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    verified = almoner.ask(f"verify-release {almoner.bundle}")
    [policy] = [check for check in verified["checks"] if check["name"] == "policy"]
    assert "outside its policy" in policy["detail"]
    for name in ("README.md", "report.html"):
        public = (almoner.bundle / name).read_text()
        assert "length.texts is 3, allowed is at most 2" in public
        assert "a pilot needs them" not in public, (
            "the reason stands in approvals.json: these bytes were fixed before it"
        )
    approvals = json.loads((almoner.bundle / "approvals.json").read_text())
    assert [one["reason"] for one in approvals if one["gate"] == "publish"] == [OVERRIDDEN]


def test_an_override_is_for_the_figures_it_names(almoner: Almoner) -> None:
    """Words that override something else are a reason like any other, and let nothing out."""
    outside_its_bounds(almoner)
    for reason in (OVERRIDDEN.replace("is 3", "is 2"), OVERRIDDEN.partition("a pilot")[0], f"- {OVERRIDDEN}"):
        refused(almoner, f'approve 1 --gate publish --reason "{reason}"', "OutsideBounds")


def test_a_policy_may_let_nobody_override_its_bounds(almoner: Almoner) -> None:
    outside_its_bounds(almoner, overrides="refused")
    for words in ('--override "a pilot needs them"', f'--reason "{OVERRIDDEN}"'):
        told = refused(almoner, f"approve 1 --gate publish {words}", "OutsideBounds")
        assert "--override" not in told["advice"]
    assert "almoner approve" not in json.dumps(almoner.ask("report 1")["gate"])


def test_there_has_to_be_something_to_override(almoner: Almoner) -> None:
    almoner.produced()
    told = almoner.ask('approve 1 --gate publish --override "just in case"', 2)
    assert told["error"] == "NothingToOverride"
    both = almoner.ask('approve 1 --gate publish --override "a" --reason "b"', 2)
    assert both["error"] == "UnexpectedOption"
    almoner.type('approve 1 --gate publish --reason "names nobody"')


def test_an_override_is_signed_on_another_machine(almoner: Almoner) -> None:
    outside_its_bounds(almoner)
    ask, signed = almoner.folder / "ask.json", almoner.folder / "signed.json"
    almoner.type(f"approve 1 --gate publish --export {ask}")
    almoner.type(f'approve --from {ask} --override "a pilot needs them" --export {signed}', piped="clinic\n")
    assert json.loads(signed.read_text())["reason"] == OVERRIDDEN
    almoner.type(f"approve 1 --gate publish --import {signed}")
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
