"""A release states two figures; a leak, or a look at internal figures, ends the smaller one, and all places say so."""

import json
from decimal import Decimal
from typing import Any

import pytest

from flows.governance.policy import redact_refusals
from flows.releases import attempt
from models_db.database.base import Base
from models_db.services import attempts, budget, datasets
from models_db.values.amounts import RENYI_ORDERS
from models_db.values.exposures import FALLS_BACK
from models_db.writes.database_errors import LimitInOrdersExceeded
from tasks.planning.secret_assignment import curve_of_plan
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_altered_ledger import alter
from tests.integration.test_viewing import page, plain, publish, request, words
from tests.refusals import refusal
from tests.support import fetch, snapshot, today

CONCERNS = ("flows/approvals", "flows/governance", "flows/releases", "migrations/schema", "models_db/services")

SMALL = {"epsilon": 1.0, "evaluation": ["length"]}
WHILE_SECRET = "while the assignment of units to texts is secret"
ENDED = "The epsilon while the assignment is secret ended on"


def expose(almoner: Almoner, number: int = 1, code: int = 0) -> Any:
    return almoner.ask(f'release mark-exposed {number} --reason "the journal was copied"', code)


def produced_on(almoner: Almoner) -> str:
    """The day of release 1, in UTC."""
    return str(fetch(almoner.database, "SELECT created_at FROM artifact ORDER BY id")[0][0])[:10]


def test_every_place_says_both(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    shown = almoner.ask("release show 1")
    secret = shown["secret_assignment"]
    assert (shown["epsilon"], shown["secrecy_end"]) == ("1", None)
    assert Decimal(secret["epsilon"]) < Decimal(shown["epsilon"])
    assert (secret["batches"], secret["read"]) == (3, 3)
    record = json.loads((almoner.bundle / "release.json").read_bytes())
    assert record["claim"]["secret_assignment"] == secret
    for file in ("README.md", "checklist.md", "deployment.yaml", "croissant.json", "report.html"):
        assert WHILE_SECRET in words((almoner.bundle / file).read_text()), file
    price = almoner.ask(f"release request {almoner.request_file(**SMALL)} --dry-run")["price"]
    assert (price["epsilon"], price["secret_assignment"]) == ("1", secret)
    told = almoner.ask(f"verify-release {almoner.bundle}")
    assert (told["epsilon"], told["secret_assignment"]) == ("1", secret)
    for line in (
        f"release request {almoner.request_file(**SMALL)} --dry-run",
        "release show 1",
        f"verify-release {almoner.bundle}",
    ):
        assert WHILE_SECRET in plain(almoner.type(line).out), line
    assert WHILE_SECRET in page(almoner, "/releases/1")
    assert WHILE_SECRET in almoner.ask("report 1")["claim"]["while_secret"]


@pytest.mark.slow_except("sqlite-exposed")
@pytest.mark.parametrize("how", ["exposed", "viewed"])
def test_its_end_is_said_everywhere(any_almoner: Almoner, how: str) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    if how == "exposed":
        expose(almoner)
    else:
        almoner.type("evaluate 1 --internal --workers 2 --runner threads")
    shown = almoner.ask("release show 1")
    assert (shown["epsilon"], shown["secret_assignment"]) == ("1", None)
    assert shown["secrecy_end"]["cause"] == how
    since = shown["secrecy_end"]["since"]
    assert produced_on(almoner) <= since <= today()
    assert [one["request"] for one in almoner.ask("budget show clinic")["secrecy_ends"]] == [1]
    for said in (
        plain(almoner.type("release show 1").out),
        plain(almoner.type("budget show clinic").out),
        page(almoner, "/releases/1"),
        page(almoner, "/datasets/clinic"),
        almoner.ask("report 1")["claim"]["while_secret"],
        almoner.ask("report 1 --public")["claim"]["while_secret"],
    ):
        assert f"{ENDED} {since}" in said
        assert FALLS_BACK in said
        assert WHILE_SECRET not in said
    name = shown["secrecy_end"]["by"]
    assert name not in almoner.ask("report 1 --public")["claim"]["while_secret"]
    assert almoner.ask(f"verify-release {almoner.bundle}")["assignment_exposed"] is False  # by itself it cannot know
    later = publish(almoner, request(almoner))
    assert json.loads((later / "revocations.json").read_text())["exposed"] == [shown["artifact"]]
    told = almoner.ask(f"verify-release {almoner.bundle} --revocations {later}")
    assert (told["holds"], told["epsilon"], told["secret_assignment"]) == (True, "1", None)
    assert told["assignment_exposed"] is True
    assert almoner.ask("release show 2")["secret_assignment"] is not None, "each release has an assignment of its own"
    assert almoner.type("audit verify").code == almoner.type("doctor", None).code == 0


def test_what_got_out_before_publication_is_in_the_list_of_its_own_bundle(almoner: Almoner) -> None:
    almoner.passed(**SMALL)
    expose(almoner)
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    told = almoner.ask(f"verify-release {almoner.bundle}")
    assert (told["holds"], told["epsilon"], told["secret_assignment"]) == (True, "1", None)
    assert told["assignment_exposed"] is True


@pytest.mark.slow
def test_a_budget_shows_what_is_spent_while_assignments_are_secret(any_almoner: Almoner) -> None:
    """Derived from the releases when it is shown: it falls back release by release, and no limit changes."""
    almoner = any_almoner
    almoner.published(**SMALL)
    one = almoner.ask("budget show clinic")
    secret = one["epsilon_spent_while_secret"]
    assert secret["releases"] == 1
    assert Decimal(secret["epsilon"]) < Decimal(one["epsilon_spent"])
    publish(almoner, request(almoner))
    two = almoner.ask("budget show clinic")
    assert two["epsilon_spent_while_secret"]["releases"] == 2
    assert Decimal(secret["epsilon"]) < Decimal(two["epsilon_spent_while_secret"]["epsilon"])
    assert Decimal(two["epsilon_spent_while_secret"]["epsilon"]) < Decimal(two["epsilon_spent"])
    assert "While the assignments of 2 releases are secret" in plain(almoner.type("budget show clinic").out)
    expose(almoner)
    after = almoner.ask("budget show clinic")
    assert after["epsilon_spent_while_secret"]["releases"] == 1
    assert Decimal(two["epsilon_spent_while_secret"]["epsilon"]) < Decimal(
        after["epsilon_spent_while_secret"]["epsilon"]
    )
    expose(almoner, 2)
    last = almoner.ask("budget show clinic")
    assert last["epsilon_spent_while_secret"] is None
    assert {name: last[name] for name in one if name.startswith(("rho", "epsilon_s"))} == {
        name: two[name] for name in one if name.startswith(("rho", "epsilon_s"))
    } | {"epsilon_spent_while_secret": None}


def test_nothing_of_it_is_stored(any_almoner: Almoner) -> None:
    """No table has a column for second figures, and no text of a row holds one; integers at orders are charged."""
    almoner = any_almoner
    almoner.published(**SMALL)
    secret = almoner.ask("release show 1")["secret_assignment"]
    spent = almoner.ask("budget show clinic")["epsilon_spent_while_secret"]["epsilon"]
    rows = "\n".join(str(row) for table in snapshot(almoner.database).values() for row in table)
    for figure in (secret["epsilon"], secret["remove"], secret["add"], spent):
        assert figure not in rows
    columns = {column.name for table in Base.metadata.sorted_tables for column in table.columns}
    assert {name for name in columns if "epsilon" in name or "delta" in name} == {
        "epsilon", "delta", "delta_cap", "delta_fail", "delta_held", "delta_spent", "delta_max", "delta_conversion",
    }  # fmt: skip
    plan = json.loads(almoner.bundle.joinpath("release.json").read_text())["request"]["plan"]
    assert set(plan) == {"assignment", "blocks", "facts", "invocations"}
    assert set(plan["assignment"]) == {"batches", "read"}
    assert set(plan["invocations"][0]["event"]) == {
        "count", "delta", "dp_event", "mechanism", "parameters", "relation", "rho",
    }  # fmt: skip


def charged(almoner: Almoner) -> list[tuple[object, ...]]:
    columns = ", ".join(f"{way}_{order}" for way in ("remove", "add") for order in RENYI_ORDERS)
    return [tuple(row) for row in fetch(almoner.database, f"SELECT rho, {columns} FROM renyi_charge ORDER BY id")]


def test_a_run_is_charged_in_orders_what_its_plan_costs(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    plan = json.loads(almoner.bundle.joinpath("release.json").read_text())["request"]["plan"]
    curve = curve_of_plan(plan)
    [(rho, *values)] = charged(almoner)
    assert values == [*curve.remove, *curve.add]
    assert [(rho,)] == fetch(almoner.database, "SELECT max(rho_spent) FROM account")
    assert max(curve.remove[:3]) < int(str(rho))
    assert almoner.type("doctor", None).code == 0


LIMITED = """\
version: 1
several_roles: true
approvals: {spend: 1, publish: 1, proposal: 1}
lifetime_while_secret: {epsilon: %s, delta: 1.0e-6}
"""


def test_a_policy_limits_the_second_claim_of_a_dataset(any_almoner: Almoner) -> None:
    """What is refused is charged nothing in either account, and a leak uses up what is left."""
    almoner = any_almoner
    almoner.published(**SMALL)
    shown = almoner.ask("budget show clinic")
    assert shown["limit_while_secret"] is None
    assert "No limit refers to it." in plain(almoner.type("budget show clinic").out)
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 4)}")
    limit = almoner.ask("budget show clinic")["limit_while_secret"]
    assert (limit["epsilon"], limit["delta"]) == ("4", "0.000001")
    assert 0 < Decimal(limit["charged"]) < 4
    assert f"Charged in orders is epsilon {limit['charged']} of the 4" in plain(almoner.type("budget show clinic").out)
    publish(almoner, request(almoner))
    number = request(almoner)
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % limit['charged'])}")
    almoner.type(f'approve {number} --gate spend --reason "again"')
    before = charged(almoner), fetch(almoner.database, "SELECT rho_held, rho_spent FROM account ORDER BY id")
    assert almoner.ask(f"run {number}", 1)["error"] == "LimitInOrdersExceeded"
    assert (charged(almoner), fetch(almoner.database, "SELECT rho_held, rho_spent FROM account ORDER BY id")) == before
    held = almoner.ask("budget show clinic")["limit_while_secret"]["charged"]
    expose(almoner)
    assert Decimal(almoner.ask("budget show clinic")["limit_while_secret"]["charged"]) > Decimal(held)


def approved_after_a_release(almoner: Almoner) -> int:
    """Publish a release, ask for another one and approve it; returns its number."""
    almoner.published(**SMALL)
    number = request(almoner)
    almoner.type(f'approve {number} --gate spend --reason "again"')
    return number


def reviewed(almoner: Almoner, number: int, gate: str = "spend") -> str:
    """What a steward reads before the decision, who then breaks it off."""
    told = almoner.type(f"approve {number} --gate {gate} --reason seen", None, piped="no\n")
    return plain(told.out + told.err)


BOTH = """\
version: 1
several_roles: true
approvals: {spend: 1, publish: 1, proposal: 1}
release: {epsilon_max: %s, delta_max: 1.0e-6, epsilon_while_secret_max: %s}
"""
BY_SECOND = {"epsilon": None, "epsilon_while_secret": 1.0, "evaluation": ["length"]}


def asked_by_second(almoner: Almoner, **changes: Any) -> Any:
    wanted = {name: value for name, value in (REQUEST | BY_SECOND | changes).items() if value is not None}
    return almoner.write("request.yaml", wanted)


def test_a_request_by_the_second_claim_is_priced_gated_run_and_verified(any_almoner: Almoner) -> None:
    """Its unconditional epsilon follows, is what limits refer to and what a leak leaves; policy and cap still hold."""
    almoner = any_almoner
    almoner.ingested()
    price = almoner.ask(f"release request {asked_by_second(almoner)} --dry-run")["price"]
    unconditional = price["epsilon"]
    assert price["epsilon_while_secret"] == "1"
    assert Decimal("0.98") < Decimal(price["secret_assignment"]["epsilon"]) <= 1 < Decimal(unconditional)
    for limit, broken in (
        (BOTH % (1, 1), "release.epsilon_max"),
        (BOTH % (4, "0.9"), "release.epsilon_while_secret_max"),
    ):
        almoner.type(f"policy adopt {almoner.write('limited.yaml', limit)}")
        refused = almoner.ask(f"release request {asked_by_second(almoner)} --dry-run", 1)
        assert [one["rule"] for one in refused["facts"]["broken"]] == [broken]
    almoner.type(f"policy adopt {almoner.write('limited.yaml', BOTH % (4, 1))}")
    plain_request = almoner.request_file(epsilon=float(unconditional), evaluation=["length"])
    refused = almoner.ask(f"release request {plain_request} --dry-run", 1)
    assert [one["rule"] for one in refused["facts"]["broken"]] == ["release.epsilon_while_secret_max"]
    large = almoner.ask(f"release request {asked_by_second(almoner, epsilon_while_secret=50)}", 1)
    assert large["error"] in ("PolicyForbids", "BudgetExceeded")
    assert almoner.ask(f"release request {asked_by_second(almoner, delta=None)}", 2)["error"] == "ClaimMissing"

    number = almoner.ask(f"release request {asked_by_second(almoner)}")["request"]
    said = reviewed(almoner, number)
    assert "epsilon at most 1 while the assignment of units to texts is secret" in said
    assert f"epsilon {unconditional} at delta" in said
    almoner.go_on_to("published", number)
    [(rho, *_)] = charged(almoner)
    assert fetch(almoner.database, "SELECT max(rho_spent) FROM account") == [(rho,)]
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert (record["claim"]["epsilon"], record["request"]["epsilon_while_secret"]) == (unconditional, "1")
    assert "epsilon at most `1` while" in words((almoner.bundle / "README.md").read_text())
    told = almoner.ask(f"verify-release {almoner.bundle}")
    assert (told["holds"], told["epsilon"]) == (True, unconditional)
    assert told["secret_assignment"] == price["secret_assignment"]
    expose(almoner, number)
    shown = almoner.ask(f"release show {number}")
    assert (shown["epsilon"], shown["secret_assignment"]) == (unconditional, None)
    assert almoner.type("audit verify").code == almoner.type("doctor", None).code == 0


def test_what_would_pass_the_limit_is_refused_when_it_is_priced(any_almoner: Almoner) -> None:
    """As for rho: a price says so, submission and plans refuse with figures, and a review of an older request warns."""
    almoner = any_almoner
    almoner.published(**SMALL)
    waiting = request(almoner)
    file = almoner.request_file(**SMALL)
    free = almoner.ask(f"release request {file} --dry-run")["price"]["budget"]
    assert free["affordable"]
    assert "epsilon_limit_while_secret" not in free
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 4)}")
    roomy = almoner.ask(f"release request {file} --dry-run")["price"]["budget"]
    charged_so_far = almoner.ask("budget show clinic")["limit_while_secret"]["charged"]
    assert (roomy["affordable"], roomy["epsilon_limit_while_secret"]) == (True, "4")
    assert roomy["delta_limit_while_secret"] == "0.000001"
    assert roomy["epsilon_charged_before"] == charged_so_far
    assert Decimal(charged_so_far) < Decimal(roomy["epsilon_charged_after"]) <= 4
    said = reviewed(almoner, waiting)
    assert "Lifetime budget" in said
    assert "lifetime_while_secret" not in said
    assert almoner.ask(f"release request {file} --dry-run")["price"]["cost"] in said

    tight = roomy["epsilon_charged_after"][:-1] + "0"
    limit = str(Decimal(tight) - Decimal("0.01"))
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % limit)}")
    price = almoner.ask(f"release request {file} --dry-run")["price"]["budget"]
    assert (price["affordable"], price["epsilon_charged_after"]) == (False, roomy["epsilon_charged_after"])
    assert price["rho_left_after"] is not None, "rho would be enough"
    before = fetch(almoner.database, "SELECT count(*) FROM request")
    refused = almoner.ask(f"release request {file}", 1)
    assert refused["error"] == "LimitInOrdersExceeded"
    assert refused["facts"]["epsilon_charged"] == charged_so_far
    assert refused["facts"]["epsilon_with_it"] == roomy["epsilon_charged_after"]
    assert Decimal(refused["facts"]["epsilon_limit"]) == Decimal(limit)
    assert refused["facts"]["dataset"] == "clinic"
    assert "could still have epsilon" in refused["message"]
    assert "lifetime_while_secret" in refused["advice"]
    assert fetch(almoner.database, "SELECT count(*) FROM request") == before
    said = reviewed(almoner, waiting)
    assert "does not allow this now: the run would be refused" in said
    assert almoner.ask(f"release request {file} --dry-run")["price"]["cost"] in said
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % charged_so_far)}")
    planned = almoner.ask(f"plan clinic --epsilon 1 --delta 1e-7 --population 400 --model {REQUEST['model']}", 1)
    assert planned["error"] == "LimitInOrdersExceeded"


def test_forecasts_mind_both_accounts(any_almoner: Almoner) -> None:
    """What is said to fit is what fits: releases whose plan is unknown count with their rho at every order."""
    almoner = any_almoner
    almoner.published(**SMALL)
    standing = f"standing propose {almoner.request_file(**SMALL)} --runs 50 --until 2099-01-01 --reason r --dry-run"

    def said() -> dict[str, Any]:
        forecast = {row["epsilon"]: row["releases_left"] for row in almoner.ask("budget forecast clinic --delta 1e-7")}
        simulated = almoner.ask("budget simulate clinic --epsilon 1 --delta 1e-7 --releases 40")
        return {
            "forecast": forecast["1"],
            "simulate": simulated["affordable"],
            "sentence": plain(almoner.type("budget show clinic").out),
            "standing": almoner.ask(standing)["runs_that_fit_now"],
            "overview": page(almoner, "/"),
        }

    free = said()
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % 2)}")
    limited = said()
    assert 0 < limited["forecast"] < free["forecast"]
    assert limited["simulate"] == limited["forecast"]
    assert limited["forecast"] <= limited["standing"] < free["standing"], "of a plan that is known, the curve counts"
    assert f"{limited['forecast']} more release" in limited["sentence"]
    assert f"{free['forecast']} more release" in free["sentence"]
    largest = plain(almoner.type("budget simulate clinic --epsilon 1 --delta 1e-7 --releases 40").out)
    assert "All 40 fit at epsilon" in largest
    fits = largest.split("All 40 fit at epsilon ")[1].split()[0]
    assert almoner.ask(f"budget simulate clinic --epsilon {fits} --delta 1e-7 --releases 40")["affordable"] == 40
    assert limited["overview"] != free["overview"]
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % '0.55')}")
    assert "Another release like request 1 does not fit." in page(almoner, "/")


def fail_before_holding(run: attempt.RunningAttempt, device: str, rng_kind: str) -> None:
    """End an attempt that is charged and has armed nothing."""
    raise attempts.StillRunning(run.request_id, "nobody")


def test_an_attempt_that_is_charged_already_is_not_priced_again(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that failed before anything was armed begins again under its charge, however little the limit leaves."""
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    with monkeypatch.context() as broken:
        broken.setattr(attempt.RunningAttempt, "hold", fail_before_holding)
        assert almoner.ask(f"run {number}", 1)["error"] == "StillRunning"
    held = len(charged(almoner))
    almoner.type(f"policy adopt {almoner.write('limited.yaml', LIMITED % '0.6')}")
    assert almoner.type(f"run {number}").code == 0
    assert len(charged(almoner)) == held == 2


def remove_sum(almoner: Almoner) -> int:
    """The largest sum of charges for remove at the first order, over the blocks of the only account."""
    with almoner.database.read() as session:
        account = datasets.find_dataset(session, "clinic").account_id
        return max(curve.remove[0] for curve in budget.sums_of_blocks(session, [account])[account].values())


def test_a_leak_found_while_another_release_runs_counts_at_once(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    [(rho, remove, *_)] = charged(almoner)
    real, seen = attempt.RunningAttempt.hold, list[int]()

    def hold(run: attempt.RunningAttempt, device: str, rng_kind: str) -> None:
        seen.append(remove_sum(almoner))
        expose(almoner)
        seen.append(remove_sum(almoner))
        real(run, device, rng_kind)

    monkeypatch.setattr(attempt.RunningAttempt, "hold", hold)
    almoner.type(f"run {number}")
    assert seen == [2 * int(str(remove)), int(str(rho)) + int(str(remove))]
    assert almoner.type("doctor", None).code == 0


def test_a_leak_counts_with_rho_for_every_attempt_from_nothing(
    any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner = any_almoner
    almoner.approved(**SMALL)
    real = attempt.RunningAttempt.arm

    def arm(run: attempt.RunningAttempt, sequence: int, instalment: int) -> None:
        real(run, sequence, instalment)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(attempt.RunningAttempt, "arm", arm)
        assert almoner.ask("run 1", 1)["error"] == "RunInterrupted"
    almoner.type("run 1 --anew")
    rows = charged(almoner)
    assert len(rows) == 2
    expose(almoner)
    assert remove_sum(almoner) == 2 * int(str(rows[0][0]))


def test_quiet_refusals_say_nothing_of_the_limit(any_almoner: Almoner) -> None:
    from flows.workspace.workspace import open_workspace

    almoner = any_almoner
    almoner.published(**SMALL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("flows.governance.policy.hides_balances", lambda session, actor: True)
        refused = LimitInOrdersExceeded.of_price("clinic", "1", ("1", "1"), ("1", "2"), "")
        with refusal("BudgetRefused") as told, redact_refusals(open_workspace(almoner.home)):
            raise refused
    assert told.value.facts == {"dataset": "clinic"}


def test_it_is_recorded_once_with_its_link(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    told = almoner.ask('release mark-exposed 1 --reason "a copy" --since 2001-02-03')
    assert told["secrecy_end"] == {"since": "2001-02-03", "cause": "exposed", "reason": "a copy"} | {
        "by": told["secrecy_end"]["by"]
    }
    link = almoner.ask("audit log --limit 1")[0]
    assert (link["kind"], link["request"]) == ("assignment.exposed", 1)
    assert expose(almoner, code=1)["error"] == "AlreadyExposed"
    assert fetch(almoner.database, "SELECT count(*) FROM assignment_exposure") == [(1,)]


def test_keys_that_got_out_end_the_figures_of_all_their_releases(any_almoner: Almoner) -> None:
    """All releases that were not published before the day, and charged requests without a release, once each."""
    almoner = any_almoner
    almoner.published(**SMALL)
    number = request(almoner)
    almoner.type(f'approve {number} --gate spend --reason "again"')
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(attempt.RunningAttempt, "hold", fail_before_holding)
        assert almoner.ask(f"run {number}", 1)["error"] == "StillRunning"
    day = produced_on(almoner)
    for options, code, error in (
        ("--since 2100-01-01 --reason x", 2, "ExposedLater"),
        ("--since soon --reason x", 2, "InvalidDate"),
        (f'--since {day} --reason " "', 2, "InvalidExposureReason"),
        (f"--since {day} --reason x --dataset nothing", 2, "DatasetUnknown"),
    ):
        assert almoner.ask(f"key compromised {options}", code)["error"] == error
    assert fetch(almoner.database, "SELECT count(*) FROM assignment_exposure") == [(0,)]
    before = remove_sum(almoner)
    listed = almoner.ask(f'key compromised --since {day} --reason "the disk was copied" --dry-run')
    assert listed == {"recorded": [1], "unfinished": [number]}
    assert remove_sum(almoner) == before
    assert fetch(almoner.database, "SELECT count(*) FROM assignment_exposure") == [(0,)]
    told = almoner.ask(f'key compromised --since {day} --reason "the disk was copied" --dataset clinic')
    assert told == {"recorded": [1], "unfinished": [number]}
    assert remove_sum(almoner) > before
    assert almoner.ask("release show 1")["secrecy_end"]["reason"] == "the disk was copied"
    assert almoner.ask(f"release show {number}")["secrecy_end"]["reason"] == "the disk was copied"
    again = almoner.ask(f"key compromised --since {day} --reason again")
    assert again == {"recorded": [], "unfinished": []}
    alter(almoner.database, "UPDATE publication SET at = '2001-01-01T00:00:00.000000Z'")
    alter(almoner.database, "DELETE FROM assignment_exposure")
    again = almoner.ask(f"key compromised --since {day} --reason x")
    assert again["recorded"] == [], "its key was destroyed before"


@pytest.mark.slow
def test_a_run_that_was_given_up_can_be_exposed(any_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its charge counts with rho from then on; what the request produces later has the unconditional claim alone."""
    almoner = any_almoner
    almoner.approved(**SMALL)
    assert expose(almoner, code=1)["error"] == "NothingCharged"
    real = attempt.RunningAttempt.arm

    def arm(run: attempt.RunningAttempt, sequence: int, instalment: int) -> None:
        real(run, sequence, instalment)
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(attempt.RunningAttempt, "arm", arm)
        assert almoner.ask("run 1", 1)["error"] == "RunInterrupted"
    [(rho, remove, *_)] = charged(almoner)
    assert remove_sum(almoner) == int(str(remove)) < int(str(rho))
    spent = fetch(almoner.database, "SELECT rho_held, rho_spent FROM account ORDER BY id")
    end = expose(almoner)["secrecy_end"]
    assert end["cause"] == "exposed"
    assert expose(almoner, code=1)["error"] == "AlreadyExposed"
    assert remove_sum(almoner) == int(str(rho))
    assert fetch(almoner.database, "SELECT rho_held, rho_spent FROM account ORDER BY id") == spent, "rho is as it was"
    assert almoner.ask("release show 1")["secret_assignment"] is None
    assert [one["request"] for one in almoner.ask("budget show clinic")["secrecy_ends"]] == [1]
    almoner.type("run 1 --anew")
    assert remove_sum(almoner) == 2 * int(str(rho))
    assert almoner.ask("budget show clinic")["epsilon_spent_while_secret"] is None
    said = reviewed(almoner, 1, "publish")
    assert f"{ENDED} {end['since']}" in said
    assert WHILE_SECRET not in said
    almoner.go_on_to("published", after="produced")
    told = almoner.ask(f"verify-release {almoner.bundle}")
    assert (told["holds"], told["epsilon"], told["secret_assignment"]) == (True, "1", None)
    assert told["assignment_exposed"] is True
    assert almoner.type("audit verify").code == almoner.type("doctor", None).code == 0


def test_what_cannot_be_recorded(almoner: Almoner) -> None:
    almoner.published(**SMALL)
    waiting = request(almoner)
    assert expose(almoner, waiting, 1)["error"] == "NothingCharged"
    assert expose(almoner, 99, 2)["error"] == "RequestUnknown"
    for options, code, error in (
        ('--reason " "', 2, "InvalidExposureReason"),
        (f'--reason "{"x" * 1001}"', 2, "InvalidExposureReason"),
        ("--reason x --since 2100-01-01", 2, "ExposedLater"),
        ("--reason x --since soon", 2, "InvalidDate"),
    ):
        assert almoner.ask(f"release mark-exposed 1 {options}", code)["error"] == error
    assert fetch(almoner.database, "SELECT count(*) FROM assignment_exposure") == [(0,)]


def test_a_release_with_one_figure_has_nothing_to_expose(almoner: Almoner) -> None:
    parameters = REQUEST["parameters"] | {"samples": 1}
    almoner.published(**SMALL, parameters=parameters)
    shown = almoner.ask("release show 1")
    assert shown["secret_assignment"] is shown["secrecy_end"] is None
    assert WHILE_SECRET not in (almoner.bundle / "README.md").read_text()
    assert WHILE_SECRET not in plain(almoner.type("release show 1").out)
    assert expose(almoner, code=1)["error"] == "NothingToExpose"


@pytest.mark.slow_except("sqlite-DELETE FROM assignment_exposure")
@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM assignment_exposure",
        "UPDATE assignment_exposure SET since = '2020-01-01T00:00:00.000000Z'",
        "UPDATE assignment_exposure SET reason = 'nothing'",
        "UPDATE assignment_exposure SET request_id = request_id + 1",
    ],
)
def test_a_record_behind_the_guards_back_is_found(any_almoner: Almoner, change: str) -> None:
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    almoner.go_on_to("passed", number, after="approved")
    expose(almoner)
    alter(almoner.database, change)
    assert almoner.type("audit verify", None).code != 0
    assert almoner.type("doctor", None).code != 0
    refusal = almoner.ask(f"publish {number} --to {almoner.folder / 'out'}", None)
    assert refusal["error"] == "LedgerAltered", "the list that it would carry rests on the row"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE renyi_charge SET remove_8 = 1, add_8 = 1",
        "UPDATE renyi_charge SET attempt = 9",
        "DELETE FROM renyi_charge",
    ],
)
def test_a_charge_behind_the_guards_back_is_found(any_almoner: Almoner, change: str) -> None:
    """By `audit verify` and `doctor`, and the next run of the account is refused."""
    almoner = any_almoner
    number = approved_after_a_release(almoner)
    assert almoner.type("audit verify").code == 0
    alter(almoner.database, change)
    assert almoner.type("audit verify", None).code != 0
    assert almoner.type("doctor", None).code != 0
    assert almoner.ask(f"run {number}", 1)["error"] == "LedgerAltered"
    assert len(charged(almoner)) <= 1


def test_a_row_is_never_changed(any_almoner: Almoner) -> None:
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError

    almoner = any_almoner
    almoner.published(**SMALL)
    expose(almoner)
    for statement in ("DELETE FROM assignment_exposure", "UPDATE assignment_exposure SET reason = 'none'"):
        with pytest.raises(DBAPIError, match="append-only"), almoner.connection() as connection:
            connection.execute(text(statement))
