"""Rows of the ledger as statements, written by hand past the services; what is not given is legal in a `Town`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Executable, text

from models_db.database.base import Base, utc_now
from models_db.services.budget import Attempt
from models_db.values.amounts import RENYI_ORDERS, Amount
from models_db.values.canonical_json import encode_canonical
from tests.support import SOON, TEN, event_of, fetch, plan_of, planned

if TYPE_CHECKING:
    from tests.contracts.town import Town

DIGEST = "d" * 64
EVENT = encode_canonical(event_of("integer_draw").to_json()).decode()
PLAN = (planned(TEN, Amount(1), TEN), planned(TEN))
"""The plan of a town's requests whose attempts come to an end: equal amounts in parts that are apart."""
PARTS = (
    TEN, TEN, Amount(1), Amount(1000), Amount(991), Amount(990), Amount(91), Amount(90), Amount(1, 101),
    Amount(1, 100), Amount(1, 1), Amount(0, 1), Amount(0),
)  # fmt: skip
"""Parts of the plan of those that are under way: `hold` finds the one of its amount."""
WIDE = (planned(*PARTS), planned(Amount(1)))
PLANNED = encode_canonical({"plan": plan_of(range(2), PLAN)}).decode()


def insert(table: str, **values: object) -> Executable:
    return Base.metadata.tables[table].insert().values(**values)


def account(town: "Town", **given: object) -> Executable:
    root = {
        "epsilon": "1", "delta": "0.000001", "delta_conversion": 1, "rho": 5, "delta_fail": 5, "blocks": 1,
        "key_name": "0" * 16, "key_commitment": DIGEST, "created_at": utc_now(), "rho_cap": 5, "delta_cap": 5,
    }  # fmt: skip
    return insert("account", **root | given)


def block(town: "Town", **given: object) -> Executable:
    parent = town.one("SELECT id FROM account WHERE rho_cap = 77")
    row = {"parent_id": parent, "block": 0, "rho_cap": 77, "delta_cap": 7, "created_at": utc_now()}
    return insert("account", **row | given)


def dataset(town: "Town", sharing: str, **given: object) -> Executable:
    row = {
        "name": "another", "registration": 1, "account_id": town.account(sharing, None), "unit_field": "patient_id",
        "text_field": "text", "relation": "add_or_remove_one", "governed": True, "population": None,
        "public_metadata": None, "created_at": utc_now(), "created_by": town.world.steward.id,
    }  # fmt: skip
    return insert("dataset", **row | given)


def version(town: "Town", of: str, **given: object) -> Executable:
    dataset_id = given.get("dataset_id", town.id_of("dataset", f"name = '{of}'"))
    count = town.one("SELECT count(*) FROM dataset_version WHERE dataset_id = :d", d=dataset_id)
    row = {
        "dataset_id": dataset_id, "number": count + 1, "uid": "ab" * 16, "source_mark": DIGEST,
        "manifest_mark": DIGEST, "created_at": utc_now(), "created_by": town.world.runner.id,
    }  # fmt: skip
    return insert("dataset_version", **row | given)


def policy(town: "Town", spend: int, publish: int, **given: object) -> Executable:
    row = {"digest": DIGEST, "body": "{}", "several_roles": False, "spend_approvals": spend,
           "publish_approvals": publish, "proposal_approvals": 2, "created_at": utc_now(), "attempts": 100,
           "approval_days": 365, "request_days": 365}  # fmt: skip
    return insert("policy_version", **row | given)


def new_policy(town: "Town", **rule: object) -> list[Executable]:
    """A policy that nobody has adopted yet, and a rule of it."""
    number = town.id_of("policy_version", "TRUE") + 1
    return [policy(town, 1, 1, id=number), policy_rule(town, policy_id=number, **rule)]


def policy_rule(town: "Town", **given: object) -> Executable:
    return insert("policy_rule", **{"policy_id": town.world.policy_id, "dataset": "clinic"} | given)


def other_policy(town: "Town") -> int:
    """A policy that was in force once, and limits one dataset."""
    return town.id_of("policy_version", "id IN (SELECT policy_id FROM policy_rule WHERE dataset = 'limited')")


def adoption(town: "Town", policy_id: int, adopted_by: int = 0) -> Executable:
    return insert("policy_adoption", policy_id=policy_id, adopted_by=adopted_by or town.world.admin.id, at=utc_now())


def role_grant(town: "Town", to: str, role: str, **given: object) -> Executable:
    row = {"principal_id": town.actor(to).id, "role": role, "valid_from": utc_now(), "valid_to": None,
           "granted_by": town.world.admin.id, "reason": "because", "at": utc_now()}  # fmt: skip
    return insert("role_grant", **row | given)


def role_revocation(town: "Town", of: str, role: str, **given: object) -> Executable:
    number = town.id_of("role_grant", f"principal_id = {town.actor(of).id} AND role = '{role}'")
    row = {"grant_id": number, "revoked_by": town.world.admin.id, "reason": "because", "at": utc_now()}
    return insert("role_revocation", **row | given)


def proposal(town: "Town", **given: object) -> Executable:
    row = {
        "kind": "cap", "dataset_id": town.id_of("dataset", "name = 'clinic'"), "policy_id": town.world.policy_id,
        "proposer_id": town.world.analyst.id, "reason": "because", "nonce": "n", "digest": DIGEST,
        "created_at": utc_now(), "expires_at": SOON, "epsilon": "9", "delta": "0.1", "delta_conversion": 1, "rho": 2000,
        "delta_fail": 200,
    }  # fmt: skip
    return insert("proposal", **row | given)


def carried(town: "Town", number: int, at: str = "") -> Executable:
    return insert("carried", proposal_id=number, actor_id=town.world.steward.id, at=at or utc_now())


def run_scheduled(town: "Town", **given: object) -> Executable:
    """The last run that a standing authorisation allows."""
    return transition(town, town.scheduled, "approved", "running", **given)


def run_scheduled_again(town: "Town") -> list[Executable]:
    """One more, after the last has failed."""
    first = int(town.one("SELECT count(*) FROM transition WHERE request_id = :r", r=town.scheduled)) + 1
    failed = transition(town, town.scheduled, "running", "approved", number=first + 1)
    return [run_scheduled(town), failed, run_scheduled(town, number=first + 2)]


def schedule(town: "Town", **given: object) -> Executable:
    row = {"dataset_id": town.id_of("dataset", "name = 'clinic'"), "standing_id": town.standing, "kind": "interval",
           "rule": "1h", "zone": "UTC", "starts_at": utc_now(), "reason": "because", "created_at": utc_now(),
           "created_by": town.world.analyst.id}  # fmt: skip
    return insert("schedule", **row | given)


def schedule_change(town: "Town", **given: object) -> Executable:
    row = {"schedule_id": town.schedule, "number": 1, "kind": "paused", "reason": "because", "at": utc_now(),
           "actor_id": town.world.steward.id}  # fmt: skip
    return insert("schedule_change", **row | given)


def slot(town: "Town", **given: object) -> Executable:
    row = {"schedule_id": town.schedule, "slot": utc_now(), "skipped": "BudgetExceeded", "detail": "", "at": utc_now(),
           "actor_id": town.world.analyst.id}  # fmt: skip
    return insert("schedule_slot", **row | given)


def asked_slot(town: "Town", **given: object) -> list[Executable]:
    """A request under the schedule's authorisation, and the slot that it is for."""
    number, due = town.id_of("request", "TRUE") + 1, utc_now()
    row = {"id": number, "standing_id": town.standing, "created_at": utc_now()}
    mine = {"slot": due, "skipped": None, "request_id": number, "at": utc_now()}
    of_slot = {name: value for name, value in given.items() if name in ("slot", "schedule_id", "actor_id", "at")}
    of_request = {name: value for name, value in given.items() if name not in of_slot}
    return [request(town, "clinic", "clinic", **row | of_request), slot(town, **mine | of_slot)]


def slot_end(town: "Town", **given: object) -> Executable:
    row = {"slot_id": town.id_of("schedule_slot", "TRUE") + 1, "reason": "PlanChanged", "detail": "", "at": utc_now(),
           "actor_id": town.world.runner.id}  # fmt: skip
    return insert("slot_end", **row | given)


def waiting_slot(town: "Town") -> list[Executable]:
    """A slot whose request waits to be run, with the number that `slot_end` names."""
    asked, made = asked_slot(town)
    request_id, number = (town.id_of(table, "TRUE") + 1 for table in ("request", "schedule_slot"))
    step = {"request_id": request_id, "number": 1, "from_state": "draft", "to_state": "submitted", "detail": "",
            "at": utc_now(), "actor_id": town.world.analyst.id}  # fmt: skip
    return [asked, insert("transition", **step), made.values(id=number)]  # type: ignore[attr-defined]


def withdrawal(town: "Town", condition: str, at: str = "", **given: object) -> Executable:
    number = town.id_of("approval", condition)
    return insert("withdrawal", approval_id=number, reason="a doubt", signature="s", at=at or utc_now(), **given)


def unit_mark(town: "Town", dataset: str, name: bytes, **given: object) -> Executable:
    row = {"mark": name.ljust(32, b"\0"), "account_id": town.account(dataset, None), "claim": 10**6}  # an open one
    return insert("unit_mark", **row | given)


def cohort(town: "Town", of: str = "grown", **given: object) -> list[Executable]:
    """A further version, and the cohort that is opened with it."""
    number = town.id_of("dataset_version", "TRUE") + 1
    row = {"account_id": town.account(of, None), "number": 3, "version_id": number, "created_at": utc_now(),
           "created_by": town.world.steward.id}  # fmt: skip
    return [version(town, of, id=number), insert("cohort", **row | given)]


def request(town: "Town", dataset: str, version: str, **given: object) -> Executable:
    query = "SELECT v.id FROM dataset_version v JOIN dataset d ON d.id = v.dataset_id WHERE d.name = :name"
    row = {
        "dataset_id": town.id_of("dataset", f"name = '{dataset}'"), "version_id": town.one(query, name=version),
        "policy_id": town.world.policy_id, "canonical": PLANNED, "digest": DIGEST,
        "requester_id": town.world.analyst.id, "created_at": utc_now(), "expires_at": SOON,
    }  # fmt: skip
    return insert("request", **row | given)


def draft(town: "Town", submitted_by: int = 0, **given: object) -> list[Executable]:
    """A request, and its first step, by an analyst unless somebody is named."""
    number = town.id_of("request", "TRUE") + 1
    step = {"request_id": number, "number": 1, "from_state": "draft", "to_state": "submitted", "detail": "",
            "at": utc_now(), "actor_id": submitted_by or town.world.analyst.id}  # fmt: skip
    return [request(town, "clinic", "clinic", id=number, **given), insert("transition", **step)]


def draft_of(town: "Town", blocks: Sequence[int], *parts: Amount) -> list[Executable]:
    """A request for a plan on some blocks, one mechanism with these parts, and its first step."""
    return draft(town, canonical=encode_canonical({"plan": plan_of(blocks, [planned(*parts or [TEN])])}).decode())


def invocation(town: "Town", of: Attempt, **given: object) -> Executable:
    row = {
        "request_id": of.request_id, "attempt": of.number, "sequence": 1, "mechanism": "integer_draw", "event": EVENT,
        "relation": "add_or_remove_one", "rng_kind": "os", "device": "cpu", "code_digest": DIGEST, "libraries": "{}",
        "idem_key": DIGEST, "created_at": utc_now(), "created_by": town.world.runner.id,
    }  # fmt: skip
    return insert("invocation", **row | given)


def hold(town: "Town", of: Attempt, **given: object) -> Executable:
    """A hold on the first mechanism of an attempt, of the part of its plan that costs so much; by default the third."""
    row: dict[str, object] = {"account_id": town.account("clinic"), "rho": 1, "delta": 0} | given
    amount = Amount(int(str(row["rho"])), int(str(row["delta"])))
    row.setdefault("invocation_id", town.invocation(of))
    row.setdefault("instalment", max(2, PARTS.index(amount)) if amount in PARTS else 2)
    return insert("hold", **row)


def planned_rho(town: "Town", request_id: int) -> int:
    """What the plan of a request costs a block."""
    query = "SELECT sum(rho * (last_instalment - first_instalment + 1)) FROM planned_instalment WHERE request_id = :r"
    return int(town.one(query, r=request_id))


def renyi_charge(town: "Town", of: int, **given: object) -> Executable:
    """A charge of the first attempt, at each order a little less than its rho."""
    rho = planned_rho(town, of)
    row = {"request_id": of, "attempt": 1, "rho": rho, "at": utc_now(), "actor_id": town.world.runner.id}
    curve = {f"{way}_{order}": rho - order for way in ("remove", "add") for order in RENYI_ORDERS}
    return insert("renyi_charge", **row | curve | given)


def entry(town: "Town", hold_id: int, kind: str, **given: object) -> Executable:
    row = {"hold_id": hold_id, "kind": kind, "at": utc_now(), "actor_id": town.world.runner.id}
    return insert("entry", **row | given)


def unheld(town: "Town", attempt: Attempt, *kinds: str, **given: object) -> list[Executable]:
    """A hold that the services did not make, with its entries."""
    number = int(town.one("SELECT max(id) + 1 FROM hold"))
    return [hold(town, attempt, id=number, **given), *(entry(town, number, kind) for kind in kinds)]


def transition(town: "Town", request_id: int, from_state: str, to_state: str, **given: object) -> Executable:
    count = town.one("SELECT count(*) FROM transition WHERE request_id = :r", r=request_id)
    row = {
        "request_id": request_id, "number": count + 1, "from_state": from_state, "to_state": to_state, "detail": "",
        "at": utc_now(), "actor_id": town.world.runner.id,
    }  # fmt: skip
    return insert("transition", **row | given)


def approval(town: "Town", of: int | Attempt, gate: str = "spend", **given: object) -> Executable:
    number = of if isinstance(of, int) else of.request_id
    row = {
        "proposal_id" if gate == "proposal" else "request_id": number, "gate": gate,
        "approver_id": town.world.steward.id, "decision": "approve", "reason": "because", "at": utc_now(),
        "expires_at": SOON, "signature": "s",
    }  # fmt: skip
    if "subject_digest" not in given:
        row["subject_digest"] = town.world.subject(number, gate)
    return insert("approval", **row | given)


def artifact(town: "Town", of: Attempt, **given: object) -> Executable:
    row = {
        "request_id": of.request_id, "attempt": of.number, "digest": f"{of.request_id:064}",
        "files": "{}", "size": 1, "created_at": utc_now(), "created_by": town.world.runner.id,
    }  # fmt: skip
    return insert("artifact", **row | given)


METRICS = {"public": "length", "charged": "dp_length", "internal": "mauve"}


def evaluation(town: "Town", attempt: Attempt | None, exposure: str, **given: object) -> Executable:
    """Of the artifact of an attempt, or of the newest artifact where none is named."""
    of = text("(SELECT max(id) FROM artifact)") if attempt is None else town.artifact(attempt)
    by = town.world.steward if exposure == "internal" else town.world.runner
    row = {
        "artifact_id": of, "metric": METRICS[exposure], "exposure": exposure, "invocation_id": None, "result": "{}",
        "created_at": utc_now(), "created_by": by.id,
    }  # fmt: skip
    return insert("evaluation", **row | given)


def produced(town: "Town", exposure: str, **given: object) -> list[Executable]:
    """An artifact of the run that has settled everything, with an evaluation."""
    if exposure == "charged":
        given = {"invocation_id": town.invocation(town.settled)} | given
    return [artifact(town, town.settled), evaluation(town, None, exposure, **given)]


def checkpoint(town: "Town", **given: object) -> Executable:
    row = {
        "seq": town.one("SELECT seq FROM audit_head"), "hash": town.one("SELECT hash FROM audit_head"),
        "at": utc_now(), "signature": "s", "public_key": "key of steward", "created_by": town.world.steward.id,
        "signed_at": utc_now(),
    }  # fmt: skip
    return insert("checkpoint", **row | given)


def twin_attack(town: "Town", **given: object) -> Executable:
    row = {
        "dataset": "library", "request_id": None, "configuration": DIGEST, "result": DIGEST, "attacks": "membership",
        "at": utc_now(), "actor_id": town.world.runner.id,
    }  # fmt: skip
    return insert("twin_attack", **row | given)


def internal_view(town: "Town", of: Attempt, dataset: str, **given: object) -> Executable:
    row = {"account_id": town.account(dataset, None), "artifact_id": town.artifact(of),
           "actor_id": town.world.steward.id, "kind": "computed", "at": utc_now()}  # fmt: skip
    return insert("internal_view", **row | given)


def passkey(town: "Town", of: str = "steward", **given: object) -> Executable:
    person = town.actor(of).id
    row = {"principal_id": person, "public_key": f"es256:{of}", "credential_id": "c", "rp_id": "localhost",
           "origin": "http://localhost:8717", "signature": "s", "created_by": person, "at": utc_now()}  # fmt: skip
    return insert("passkey", **row | given)


def passkey_end(town: "Town", by: str = "steward", **given: object) -> Executable:
    row = {"passkey_id": town.passkey, "reason": "the telephone is lost", "ended_by": town.actor(by).id,
           "at": utc_now()}  # fmt: skip
    return insert("passkey_end", **row | given)


def assignment_exposure(town: "Town", of: int, **given: object) -> Executable:
    row = {"request_id": of, "since": "2001-01-01T00:00:00.000000Z", "reason": "a copy of the journal",
           "actor_id": town.world.steward.id, "at": utc_now()}  # fmt: skip
    return insert("assignment_exposure", **row | given)


def erasure(town: "Town", **given: object) -> Executable:
    row = {"dataset_id": town.id_of("dataset", "name = 'emptied'"), "scope": "unit", "unit_mark": DIGEST,
           "version_id": None, "reason": "asked", "actor_id": town.world.steward.id, "at": utc_now()}  # fmt: skip
    return insert("erasure", **row | given)


def erased_version(town: "Town", **given: object) -> Executable:
    row = {"erasure_id": town.erasure, "version_id": town.kept, "manifest_mark": DIGEST}
    return insert("erased_version", **row | given)


def erasure_end(town: "Town", **given: object) -> Executable:
    row = {"erasure_id": town.erasure, "actor_id": town.world.steward.id, "at": utc_now()}
    return insert("erasure_end", **row | given)


def publication(town: "Town", attempt: Attempt, **given: object) -> Executable:
    row = {"artifact_id": town.artifact(attempt), "at": utc_now(), "actor_id": town.world.runner.id}
    return insert("publication", **row | given)


def audit(town: "Town", ahead: int = 1, **given: object) -> Executable:
    seq, head = fetch(town.world.database, "SELECT seq, hash FROM audit_head")[0]
    row = {
        "seq": int(str(seq)) + ahead, "prev_hash": head, "row_hash": DIGEST, "at": utc_now(), "actor": "x",
        "kind": "forged", "dataset": None, "request_id": None, "body": "{}",
    }  # fmt: skip
    return insert("audit", **row | given)
