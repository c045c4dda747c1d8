"""Which decisions open both gates, and which do not."""

import json

import pytest

from models_db.services import gates
from models_db.services.people import comparable_name
from models_db.services.requests import configuration
from models_db.values.canonical_json import digest
from models_db.values.request_state import Gate
from tasks.common.files import FileUnfit, encode_json
from tasks.release.signatures.approvals import SignedDecision, approvals_document, read_approvals, require_approved
from tests.authenticator import Authenticator
from tests.refusals import refusal
from tests.support import SOON, World
from tests.unit.tasks.publishing.builders import POLICY, Steward, a_record, a_request, event, people, standing

pytestmark = pytest.mark.dear

LIKE_SUE = ["Sue", " sue", "sue\u00a0", "SUE\t", "sue\u200b", "s\u00adue", "\u202esue"]


@pytest.fixture
def artifact(release):
    return digest(release.files)


def test_enough_signed_decisions_open_both_gates(release, artifact):
    require_approved(release.approvals, release.record, artifact)


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_one_decision_too_few(release, artifact, left_out):
    kept = [one for number, one in enumerate(release.approvals) if number != left_out]
    with refusal("NotApproved", match="of"):
        require_approved(kept, release.record, artifact)


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "another reason"},
        {"expires_at": "2099-12-31T23:59:59.000000Z"},
        {"approver": "robin2"},
        {"signature": "0" * 128},
        {"public_key": "1" * 64},
        {"request": 2},
        {"gate": "publish"},
        {"subject_sha256": "0" * 64},
        {"decision": "reject"},
    ],
)
def test_no_word_of_a_decision_can_be_changed(release, artifact, fields):
    first, *others = release.approvals
    with refusal("NotApproved"):
        require_approved([first.model_copy(update=fields), *others], release.record, artifact)


def test_a_rejection_closes_the_gate_whatever_others_say(release, artifact, new_key):
    third = Steward("uma", new_key("uma"))
    rejection = third.decide(release.record, "publish", artifact, verdict="reject")
    assert rejection.authentic
    with refusal("NotApproved", match="rejected"):
        require_approved([*release.approvals, rejection], release.record, artifact)


def test_one_person_counts_once(release, artifact):
    sue, _tom = release.stewards
    twice = [*release.approvals[:2], sue.decide(release.record, "publish", artifact, reason="again")]
    with refusal("NotApproved", match="twice"):
        require_approved(twice, release.record, artifact)


def test_one_key_under_two_names_counts_once(release, artifact):
    sue, _tom = release.stewards
    alias = Steward("susan", sue.key)
    with refusal("NotApproved", match="the same key"):
        require_approved(
            [*release.approvals[:2], alias.decide(release.record, "publish", artifact)], release.record, artifact
        )


def test_one_passkey_is_one_person(release, artifact):
    """Two people have certified the same device: whoever holds it would be two of them."""
    owners = {steward.name: steward.key for steward in release.stewards}

    def signed_by(passkey, decision):
        stated = gates.GateDecision(decision.request, decision.gate, decision.subject_sha256, decision.decision,
                                    decision.reason, decision.expires_at)  # fmt: skip
        signature, use = passkey.certified(owners[decision.approver], stated.statement(decision.approver))
        return decision.model_copy(update={"signature": signature, "passkey": use})

    own = {name: Authenticator() for name in owners}
    require_approved([signed_by(own[one.approver], one) for one in release.approvals], release.record, artifact)
    shared = Authenticator()
    with refusal("NotApproved", match="the same passkey"):
        require_approved([signed_by(shared, one) for one in release.approvals], release.record, artifact)
    first, *others = release.approvals
    elsewhere = signed_by(Authenticator(ledger="2e" * 32), first)
    assert elsewhere.authentic
    with refusal("NotApproved", match="different ledgers"):
        require_approved([elsewhere, *(signed_by(own[one.approver], one) for one in others)], release.record, artifact)


def test_one_name_with_two_keys_is_nobody(release, artifact, new_key):
    impostor = Steward("sue", new_key("impostor"))
    forged = [impostor.decide(release.record, "spend", release.record.request_sha256), *release.approvals[1:]]
    with refusal("NotApproved", match="two keys"):
        require_approved(forged, release.record, artifact)


@pytest.mark.parametrize("part", ["requester", "runner"])
@pytest.mark.parametrize(
    ("name", "same_key"),
    [("sue", True), ("somebody else", True), *((name, False) for name in LIKE_SUE)],
)
def test_requester_and_runner_approve_only_where_the_policy_allows_it(release, artifact, part, name, same_key):
    sue, _tom = release.stewards
    key = sue.key.public_key if same_key else "c3" * 32
    record = a_record(people=people(**{part: name, f"{part}_key": key}))
    assert record.request_sha256 == release.record.request_sha256
    with refusal("NotApproved", match="requested or ran the release"):
        require_approved(release.approvals, record, artifact)


def test_where_the_policy_allows_it_one_person_does_everything(release, artifact):
    sue, tom = release.stewards
    everything = people("sue", "sue", requester_key=sue.key.public_key, runner_key=sue.key.public_key)
    lenient = POLICY.model_copy(update={"several_roles": True})
    require_approved(release.approvals, a_record(policy=lenient, people=everything), artifact)
    for name, key, wrong in (
        ("sue", tom.key.public_key, "two keys"),
        ("Sue", "c3" * 32, "two keys"),
        ("ursula", sue.key.public_key, "the same key"),
    ):
        record = a_record(policy=lenient, people=people(name, requester_key=key))
        with refusal("NotApproved", match=wrong):
            require_approved(release.approvals, record, artifact)


@pytest.mark.parametrize("alias", LIKE_SUE)
def test_one_name_in_two_spellings_counts_once(release, artifact, new_key, alias):
    second = Steward(alias, new_key("second")).decide(release.record, "publish", artifact)
    with refusal("NotApproved", match="two keys"):
        require_approved([*release.approvals[:2], second], release.record, artifact)


def test_names_are_compared_as_a_reader_sees_them():
    assert comparable_name("Jose\N{COMBINING ACUTE ACCENT} ") == comparable_name(
        "JOS\N{LATIN CAPITAL LETTER E WITH ACUTE}"
    )
    assert comparable_name("anna") != comparable_name("ana")


# --- standing authorisations -----------------------------------------------------------------------------------------


@pytest.fixture
def authorised(make_release):
    return make_release(a_record(standing=standing()))


def test_a_standing_authorisation_opens_the_spend_gate(authorised):
    require_approved(authorised.approvals, authorised.record, digest(authorised.files))
    assert [one.gate for one in authorised.approvals] == ["proposal", "proposal", "publish", "publish"]
    assert json.loads(authorised.approvals[0].model_dump_json())["request"] == 7


@pytest.mark.parametrize("left_out", range(4))
def test_it_needs_the_approvals_that_the_policy_asks_for(authorised, left_out):
    kept = [one for number, one in enumerate(authorised.approvals) if number != left_out]
    with refusal("NotApproved", match="1 of 2"):
        require_approved(kept, authorised.record, digest(authorised.files))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dataset": "court"}, "another dataset"),
        ({"config_digest": "0" * 64}, "another configuration"),
        ({"config_digest": digest(configuration(a_request(epsilon="3.9")))}, "another configuration"),
        ({"rho": str(event().loss.rho - 1)}, "costs more"),
    ],
)
def test_it_is_for_such_requests_only(make_release, changes, reason):
    release = make_release(a_record(standing=standing(**changes)))
    with refusal("NotApproved", match=reason):
        require_approved(release.approvals, release.record, digest(release.files))


def test_it_covers_other_versions_of_the_data_and_nothing_else(make_release):
    newer = a_request(dataset={"name": "clinic", "version": 2, "uid": "5e"}, nonce="88" * 16)
    release = make_release(a_record(newer, standing=standing()))
    require_approved(release.approvals, release.record, digest(release.files))


def test_approvals_of_another_authorisation_do_not_count(authorised):
    other = a_record(standing=standing(runs=1000))
    with refusal("NotApproved", match="other content"):
        require_approved(authorised.approvals, other, digest(authorised.files))


def test_approvals_of_a_proposal_open_nothing_by_themselves(authorised):
    with refusal("NotApproved", match="another request"):
        require_approved(authorised.approvals, a_record(), digest(authorised.files))


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_reason_is_needed(release, artifact, reason):
    sue, _tom = release.stewards
    silent = sue.decide(release.record, "spend", release.record.request_sha256, reason=reason)
    with refusal("NotApproved", match="no reason"):
        require_approved([silent, *release.approvals[1:]], release.record, artifact)


def test_they_read_back_and_tell_no_order_in_time(release):
    data = approvals_document(release.approvals)
    assert approvals_document(reversed(release.approvals)) == data
    assert sorted(map(repr, read_approvals(data))) == sorted(map(repr, release.approvals))
    assert set(json.loads(data)[0]) == {
        "approver",
        "decision",
        "expires_at",
        "gate",
        "public_key",
        "reason",
        "request",
        "signature",
        "subject_sha256",
    }


@pytest.mark.parametrize("value", [{}, "x", [1], [{}], [{"gate": "spend"}]])
def test_what_is_no_list_of_decisions_is_refused(value):
    with pytest.raises(FileUnfit):
        read_approvals(encode_json(value))


def test_a_row_of_the_ledger_becomes_a_decision(sqlite_database, new_key):
    world = World.create(sqlite_database)
    world.dataset()
    number = world.request()
    key = new_key("steward")
    decision = gates.GateDecision(number, "spend", world.subject(number, "spend"), "approve", "fine", SOON)
    with world.database.write() as session:
        gates.record_decision(session, world.steward, decision, key.sign(decision.statement(world.steward.name)))
    with world.database.read() as session:
        ((approval, principal),) = gates.decisions_on(session, number, Gate.SPEND)
        found = SignedDecision.of(approval, principal)
    assert (found.request, found.gate, found.decision, found.approver) == (number, "spend", "approve", "steward")
    assert not found.authentic  # the ledger has another key for this principal
    assert found.model_copy(update={"public_key": key.public_key}).authentic
