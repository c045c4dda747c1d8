"""What a bundle discloses of other decisions: a changed budget, a standing authorisation, a retraction."""

import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from flows.workspace.workspace import Workspace, open_workspace
from models_db.database.base import utc_now
from models_db.services import datasets, gates, policies, proposals, requests
from models_db.services.gates import GateDecision
from models_db.tables import Dataset, DatasetVersion, PolicyVersion, Proposal
from models_db.values.amounts import DELTA_UNIT
from models_db.values.canonical_json import digest
from tasks.accounting.zcdp import lifetime_cap
from tasks.release.card_text import CAP_CHANGES, STANDING
from tests.integration.story import Almoner
from tests.support import any_amounts

WEEK = timedelta(days=7)
SOON = utc_now(datetime.now(UTC) + WEEK)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def approve(workspace: Workspace, session: Session, proposal: Proposal) -> str:
    decision = GateDecision(proposal.id, "proposal", proposal.digest, "approve", "agreed", SOON)
    signature = workspace.key.sign(decision.statement(workspace.actor.name))
    return gates.record_decision(session, workspace.actor, decision, signature, amount_check=any_amounts)


def parts(session: Session) -> tuple[Dataset, PolicyVersion]:
    policy = policies.policy_in_force(session)
    assert policy is not None
    return datasets.find_dataset(session, "clinic"), policy


def raise_the_cap(workspace: Workspace, epsilon: str) -> None:
    cap = lifetime_cap(epsilon, "1e-6")
    claim = datasets.LifetimeClaim(epsilon, "0.000001", int(cap.delta_conv * DELTA_UNIT), cap.amount)
    with workspace.database.write() as session:
        asked = proposals.propose_cap(session, workspace.actor, *parts(session), claim, "one more study", WEEK)
        assert approve(workspace, session, asked) == "carried"


def authorise(workspace: Workspace, body: dict[str, Any]) -> int:
    """A standing authorisation for requests like `body`."""
    cost = sum(int(part["rho"]) for i in body["plan"]["invocations"] for part in i["instalments"])
    wanted = proposals.AuthorisationTerms(requests.configuration(body), cost, 0, 2, SOON)
    with workspace.database.write() as session:
        asked = proposals.propose_standing(session, workspace.actor, *parts(session), wanted, "every month", WEEK)
        assert approve(workspace, session, asked) == "carried"
        return asked.id


def submit_under(workspace: Workspace, body: dict[str, Any], standing: int) -> int:
    with workspace.database.write() as session:
        dataset, policy = parts(session)
        version: DatasetVersion = datasets.newest_version(session, dataset)
        authorised = proposals.find_authorisation(session, standing, body)
        return requests.submit(session, workspace.actor, dataset, version, policy, body, WEEK, standing=authorised).id


def retract(workspace: Workspace, request: int) -> None:
    with workspace.database.write() as session:
        _, policy = parts(session)
        asked = proposals.propose_retraction(session, workspace.actor, request, policy, "it names a street", WEEK)
        assert approve(workspace, session, asked) == "carried"


@pytest.fixture
def two_bundles(almoner: Almoner) -> tuple[Path, Path]:
    """A release, retracted; and a later one under a standing authorisation, after the budget was raised."""
    almoner.published()
    workspace = open_workspace(almoner.home)
    with workspace.database.read() as session:
        body = json.loads(requests.find_request(session, 1).canonical) | {"nonce": secrets.token_hex(16)}
    raise_the_cap(workspace, "9")
    number = submit_under(workspace, body, authorise(workspace, body))
    retract(workspace, 1)
    almoner.go_on_to("published", number, after="approved")
    return almoner.bundle, almoner.folder / "out" / f"clinic-release-{number}"


def test_later_bundles_disclose_what_stewards_decided(almoner: Almoner, two_bundles: tuple[Path, Path]) -> None:
    first, second = two_bundles
    assert read(first, "release.json")["cap_changes"] == []
    assert read(first, "release.json")["standing"] is None
    record = read(second, "release.json")
    assert record["cap_changes"] == [
        {"old_epsilon": "8", "old_delta": "0.000001", "new_epsilon": "9", "new_delta": "0.000001"}
    ]
    assert record["lifetime"]["epsilon"] == "9"
    assert record["standing"]["said"]["config_digest"] == digest(requests.configuration(record["request"]))
    assert [one["gate"] for one in read(second, "approvals.json")] == ["proposal", "publish"]
    card = (second / "README.md").read_text()
    assert CAP_CHANGES in card
    assert "| `8` | `0.000001` | `9` | `0.000001` |" in card
    assert STANDING in card

    assert read(first, "revocations.json")["revoked"] == []
    (gone,) = read(second, "revocations.json")["revoked"]
    told = almoner.ask(f"verify-release {first} --revocations {second}", expected=1)
    assert told["artifact_sha256"] == gone
    assert "This release was retracted" in told["conclusion"]
    assert almoner.ask(f"verify-release {first}")["holds"] is True
    assert almoner.ask(f"verify-release {second} --revocations {second}")["holds"] is True

    for folder in two_bundles:
        (signature,) = read(folder, "attestation.json")["signatures"]  # one person, who approved and published
        assert signature["keyid"] == read(folder, "SHA256SUMS.sig")["public_key"]
        assert utc_now()[:10] not in card
