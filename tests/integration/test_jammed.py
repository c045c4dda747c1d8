"""Nobody can jam the record: what cannot be shown or approved is rejected, and everything else goes on."""

import hashlib
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from flows.approvals import decide
from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.services import proposals, requests
from models_db.tables import AppliedProposal, Approval, Proposal, Request
from models_db.values.canonical_json import digest, encode_canonical
from models_db.writes.insert import insert_row
from tasks.accounting.lifetime_claims import lifetime_claim
from tests.contracts.tampering import superuser
from tests.integration.story import Almoner
from tests.integration.test_erasure import REASON
from tests.support import execute, fetch

CONCERNS = ("flows/approvals", "flows/audit", "models_db/services", "migrations/schema")

SMALL = {"epsilon": 1.0, "evaluation": ["length"]}
FALSE_CAP = """
INSERT INTO proposal (kind, dataset_id, policy_id, proposer_id, reason, nonce, digest, created_at, expires_at, epsilon,
 delta, delta_conversion, rho, delta_fail)
 SELECT 'cap', 1, p.id, 1, 'a study', 'n', :digest, a.at, :soon, '8.1', '0.000001', 9, :rho, 9
 FROM policy_version p, (SELECT max(at) AS at FROM audit) a
"""


def finding(almoner: Almoner, check: str, expected: int = 0) -> tuple[bool, bool, str]:
    """What doctor says of one check."""
    found = {f["check"]: f for f in almoner.ask("doctor", expected)["findings"]}[check]
    return found["ok"], found["warning"], found["detail"]


def lose_draft(almoner: Almoner) -> None:
    shutil.rmtree(almoner.home.draft(1, 1))


def change_draft(almoner: Almoner) -> None:
    with (almoner.home.draft(1, 1) / "texts.jsonl").open("ab") as file:
        file.write(b"\n")


def link_draft(almoner: Almoner) -> None:
    lose_draft(almoner)
    (almoner.home.quarantine / "1-1").symlink_to(almoner.home.keys)


@pytest.mark.parametrize("damage", [lose_draft, change_draft, link_draft], ids=lambda each: each.__name__)
def test_a_release_whose_draft_is_lost_is_rejected_and_erasure_goes_on(
    any_almoner: Almoner, damage: Callable[[Almoner], None]
) -> None:
    almoner = any_almoner
    almoner.produced(**SMALL)
    assert finding(almoner, "drafts") == (True, False, "every release that waits has its draft")
    damage(almoner)
    ok, _, detail = finding(almoner, "drafts", 3)
    assert not ok
    assert detail.startswith("not here: request 1 (")
    assert almoner.ask(f"dataset erase clinic --all {REASON}", 1)["error"] == "ErasureBlocked"
    error = "PathEscape" if damage is link_draft else "ArtifactChanged"
    for line in ('approve 1 --gate publish --reason "x"', 'approve 1 --gate publish --override "x"'):
        assert almoner.ask(line, 3 if damage is link_draft else 1)["error"] == error
    told = almoner.type('reject 1 --gate publish --reason "its draft is lost"')
    assert f"can only be rejected. {error}" in " ".join((told.out + told.err).split())
    assert finding(almoner, "drafts")[0]
    almoner.type(f"dataset erase clinic --all {REASON}")
    almoner.type("doctor")
    almoner.type("audit verify")
    assert list(almoner.home.keys.iterdir())


def test_in_another_home_a_missing_draft_is_a_warning_and_its_steward_rejects(any_almoner: Almoner) -> None:
    """Where the ledger is shared, the draft lies in the home of whoever ran it."""
    almoner = any_almoner
    almoner.produced(**SMALL)
    lose_draft(almoner)
    superuser(
        almoner.database,
        "INSERT INTO principal (id, name, public_key, created_at) SELECT 9, 'rick', 'k', created_at FROM principal",
        "UPDATE artifact SET created_by = 9",
    )
    found = {f["check"]: f for f in almoner.ask("doctor", 3)["findings"]}[
        "drafts"
    ]  # the row was altered: another check
    assert (found["ok"], found["warning"]) == (True, True)


@pytest.mark.parametrize("named", ["eeee", "the right digest"])
def test_a_proposal_with_false_amounts_or_digest_is_rejected_and_doctor_is_well(
    any_almoner: Almoner, named: str
) -> None:
    almoner = any_almoner
    almoner.ingested()
    workspace = open_workspace(almoner.home)
    soon = f"{utc_now()[:10]}T23:59:59.999999Z"
    execute(almoner.database, FALSE_CAP, digest="e" * 64, rho=500 * 10**12, soon=soon)
    if named != "eeee":
        superuser(almoner.database, "UPDATE proposal SET digest = :digest", digest=digest_of(almoner))
    assert not finding(almoner, "amounts", 3)[0]
    error = almoner.ask('approve 1 --gate proposal --reason "x"', 1)["error"]
    assert error == ("ProposalAltered" if named == "eeee" else "AmountsDiffer")
    review = decide.load_review(workspace, 1, "proposal")  # type: ignore[arg-type]
    assert review.subject_digest == fetch(almoner.database, "SELECT digest FROM proposal")[0][0]
    almoner.type('reject 1 --gate proposal --reason "it lies"')
    assert almoner.ask("proposal list")[0]["state"] == "rejected"
    assert finding(almoner, "amounts", 3)[0]  # the row that was written past the record is another finding


def digest_of(almoner: Almoner) -> str:
    with almoner.database.read() as session:
        return digest(proposals.content_of(proposals.find_proposal(session, 1), "clinic"))


@pytest.mark.parametrize("more", ["1", "[" * 400 + "]" * 400, "9" * 4000], ids=["format", "depth", "digits"])
def test_a_request_that_is_not_in_its_format_is_rejected(any_almoner: Almoner, more: str) -> None:
    almoner = any_almoner
    almoner.submitted(**SMALL)
    body = '{"format":"x","plan":{"blocks":[0],"invocations":[]},"more":' + more + "}"
    superuser(almoner.database, "UPDATE request SET canonical = :body, digest = :digest", body=body,
              digest=hashlib.sha256(body.encode()).hexdigest())  # fmt: skip
    assert almoner.ask('approve 1 --gate spend --reason "x"', 1)["error"] == "RequestUnreadable"
    almoner.type('reject 1 --reason "it is no request"')
    assert [(one["dataset"], one["kind"]) for one in almoner.ask("release list")] == [("clinic", "?")]
    assert fetch(almoner.database, "SELECT to_state FROM transition ORDER BY id DESC LIMIT 1") == [("rejected",)]


@pytest.mark.parametrize("false", [False, True], ids=["signature", "digest"])
def test_a_cap_that_no_steward_signed_pays_for_no_run(any_almoner: Almoner, false: bool) -> None:
    """Clients of their own can bring an approval under a forged signature, or a signed one under other content."""
    almoner = any_almoner
    almoner.approved(**SMALL)
    claim, soon = lifetime_claim("100", "0.000001"), utc_now(datetime.now(UTC) + timedelta(days=7))
    with almoner.database.write() as session:
        asked = requests.find_request(session, 1)
        cap = Proposal(
            kind="cap",
            dataset_id=1,
            policy_id=asked.policy_id,
            proposer_id=1,
            reason="more",
            nonce="n",
            created_at=utc_now(),
            expires_at=soon,
            epsilon=claim.epsilon,
            delta=claim.delta,
            delta_conversion=claim.delta_conversion,
            rho=claim.cap.rho,
            delta_fail=claim.cap.delta,
        )
        cap.digest = "e" * 64 if false else digest(proposals.content_of(cap, "clinic"))
        insert_row(session, cap)
        approval = Approval(proposal_id=cap.id, gate="proposal", subject_digest=cap.digest, approver_id=1,
                            decision="approve", reason="agreed", at=utc_now(), expires_at=soon, signature="forged",
                            brought_by=1)  # fmt: skip
        insert_row(session, approval)
        insert_row(session, AppliedProposal(proposal_id=cap.id, actor_id=1, at=utc_now()))
    assert almoner.ask("run 1", 1)["error"] == ("ProposalAltered" if false else "ForgedApproval")
    assert fetch(almoner.database, "SELECT count(*) FROM invocation") == [(0,)]


def test_a_plan_that_is_spelled_in_other_words_is_no_finding(any_almoner: Almoner) -> None:
    """A client of an analyst's own may write its events with blanks; a text beyond all bounds is no plan at all."""
    almoner = any_almoner
    almoner.submitted(**SMALL)
    ((text,),) = fetch(almoner.database, "SELECT canonical FROM request")
    body = json.loads(str(text))
    spaced = json.dumps(body | {"nonce": "a" * 32}, sort_keys=True)
    deep = encode_canonical(body | {"nonce": "b" * 32, "more": json.loads("[" * 400 + "]" * 400)}).decode()
    with almoner.database.write() as session:
        asked = requests.find_request(session, 1)
        for words in (spaced, deep):
            row = Request(
                dataset_id=asked.dataset_id,
                version_id=asked.version_id,
                policy_id=asked.policy_id,
                canonical=words,
                digest=hashlib.sha256(words.encode()).hexdigest(),
                requester_id=asked.requester_id,
                created_at=utc_now(),
                expires_at=asked.expires_at,
            )
            insert_row(session, row)
    assert finding(almoner, "plans")[0]
    assert len(almoner.ask("release list")) == 3


def test_metadata_in_no_format_hides_no_dataset(any_almoner: Almoner) -> None:
    any_almoner.registered()
    superuser(any_almoner.database, "UPDATE dataset SET public_metadata = 'x'")
    assert [(one["name"], *one["public_metadata"]) for one in any_almoner.ask("dataset list")] == [
        ("clinic", "problem")
    ]


@pytest.mark.parametrize(
    "statement", ["UPDATE alembic_version SET version_num = '0000'", "DELETE FROM alembic_version"]
)
def test_another_revision_of_the_schema_is_found(any_almoner: Almoner, statement: str) -> None:
    any_almoner.registered()
    assert finding(any_almoner, "revision of the schema")[0]
    execute(any_almoner.database, statement)
    assert not finding(any_almoner, "revision of the schema", 3)[0]
