"""As `hostile_rows`: proposals and authorisations, people and policies, data, looks, and the record."""

from sqlalchemy import Executable

from models_db.database.base import utc_now
from tests.contract.hostile_rows import Deed, Make, backdated, change, ended, fired, former
from tests.contracts.cohort_cases import beside
from tests.contracts.decision_cases import LONG_AGO, THEN, new_cap, proposal_id
from tests.contracts.link_cases import overlap_key, restoration
from tests.contracts.name_cases import called, dataset_called
from tests.contracts.rows import (
    DIGEST,
    adoption,
    approval,
    assignment_exposure,
    audit,
    carried,
    checkpoint,
    cohort,
    dataset,
    erased_version,
    erasure,
    erasure_end,
    evaluation,
    insert,
    internal_view,
    new_policy,
    passkey,
    passkey_end,
    policy,
    policy_rule,
    produced,
    proposal,
    role_grant,
    role_revocation,
    run_scheduled,
    run_scheduled_again,
    schedule,
    schedule_change,
    slot,
    slot_end,
    transition,
    twin_attack,
    unit_mark,
    version,
    waiting_slot,
)
from tests.contracts.town import Town
from tests.contracts.view_cases import again, of_dataset, of_one_version, old_steward, replaced
from tests.support import LATE

AUTHORISATIONS: dict[str, Deed] = {
    "a proposal by a runner": Deed(lambda t: proposal(t, proposer_id=t.world.runner.id), proposal),
    "a proposal by somebody without a role": Deed(lambda t: proposal(t, proposer_id=former(t))),
    "a proposal under a policy that nobody adopted": Deed(
        lambda t: [*new_policy(t), proposal(t, policy_id=t.id_of("policy_version", "TRUE") + 1)]
    ),
    "a retraction of another dataset's release": Deed(
        lambda t: proposal(t, dataset_id=t.id_of("dataset", "name = 'harbour'"), **proposal_id(t, "retraction")),
        lambda t: proposal(t, **proposal_id(t, "retraction")),
    ),
    "a cap below nothing": Deed(lambda t: proposal(t, rho=-1), lambda t: proposal(t, rho=0)),
    "an authorisation of a negative amount": Deed(
        lambda t: proposal(t, rho=-1, **proposal_id(t, "standing")),
        lambda t: proposal(t, **proposal_id(t, "standing")),
    ),
    "a proposal carried without approvals": Deed(
        lambda t: carried(t, t.open_proposal),
        lambda t: [approval(t, t.open_proposal, "proposal"), carried(t, t.open_proposal)],
    ),
    "a proposal carried after a rejection": Deed(
        lambda t: [approval(t, t.open_proposal, "proposal", decision="reject"), carried(t, t.open_proposal)]
    ),
    "a proposal carried after its approvals have expired": Deed(
        lambda t: [approval(t, t.open_proposal, "proposal"), carried(t, t.open_proposal, at=LATE)]
    ),
    "a proposal carried after its approver is no steward": Deed(
        lambda t: [approval(t, t.open_proposal, "proposal"), fired(t), carried(t, t.open_proposal)]
    ),
    "a proposal carried long ago": Deed(
        lambda t: [
            role_grant(t, "steward", "steward", valid_from=LONG_AGO),
            approval(t, t.open_proposal, "proposal"),
            carried(t, t.open_proposal, at=THEN),
        ]
    ),
    "a cap below what is held": Deed(lambda t: new_cap(t, rho=9), lambda t: new_cap(t, rho=10, delta_fail=0)),
    "a proposal for a registration that was replaced": Deed(
        lambda t: proposal(t, **replaced(t)), lambda t: proposal(t, **of_dataset(t, "corrected"))
    ),
    "a run beyond the number of an authorisation": Deed(run_scheduled_again, run_scheduled),
    "a run of an exhausted authorisation": Deed(
        lambda t: transition(t, t.exhausted, "approved", "running"), run_scheduled
    ),
    "a run after the last day of an authorisation": Deed(lambda t: run_scheduled(t, at=LATE), run_scheduled),
    "a run under an authorisation that was ended": Deed(lambda t: [ended(t), run_scheduled(t)], run_scheduled),
    "a schedule by a steward": Deed(lambda t: schedule(t, created_by=t.world.steward.id), schedule),
    "a schedule paused by a runner": Deed(
        lambda t: schedule_change(t, actor_id=t.world.runner.id), lambda t: schedule_change(t)
    ),
    "a schedule changed long ago": Deed(
        lambda t: [
            role_grant(t, "second steward", "steward", valid_from=LONG_AGO),
            schedule_change(t, at=THEN, actor_id=t.second_steward),
        ],
        lambda t: schedule_change(t, at=LATE),
    ),
    "a slot by a runner": Deed(lambda t: slot(t, actor_id=t.world.runner.id), slot),
    "a slot long ago": Deed(
        lambda t: [
            role_grant(t, "second steward", "analyst", valid_from=LONG_AGO),
            schedule(t, starts_at=LONG_AGO, id=t.paused + 1),
            slot(t, schedule_id=t.paused + 1, at=THEN, slot=LONG_AGO, actor_id=t.second_steward),
        ]
    ),
    "a scheduled run given up by an analyst": Deed(
        lambda t: [*waiting_slot(t), slot_end(t, actor_id=t.world.analyst.id)]
    ),
    "a scheduled run given up long ago": Deed(
        lambda t: [*waiting_slot(t), role_grant(t, "runner", "runner", valid_from=LONG_AGO), slot_end(t, at=THEN)]
    ),
}

PEOPLE: dict[str, Deed] = {
    "a role that she gives herself": Deed(
        lambda t: role_grant(t, "analyst", "admin", granted_by=t.world.analyst.id),
        lambda t: role_grant(t, "analyst", "admin"),
    ),
    "a role given by a steward": Deed(
        lambda t: role_grant(t, "auditor", "steward", granted_by=t.world.steward.id),
        lambda t: role_grant(t, "auditor", "steward"),
    ),
    "a role given by a former admin": Deed(lambda t: role_grant(t, "former", "admin", granted_by=former(t))),
    "a role revoked by a steward": Deed(
        lambda t: role_revocation(t, "runner", "runner", revoked_by=t.world.steward.id),
        lambda t: role_revocation(t, "runner", "runner"),
    ),
    "the role of the last admin revoked": Deed(
        lambda t: role_revocation(t, "admin", "admin"),
        lambda t: [role_grant(t, "analyst", "admin"), role_revocation(t, "admin", "admin")],
    ),
    "the role of the last lasting admin revoked": Deed(
        lambda t: [role_grant(t, "analyst", "admin", valid_to=LATE), role_revocation(t, "admin", "admin")]
    ),
    "the role of the last admin of today revoked": Deed(
        lambda t: [role_grant(t, "analyst", "admin", valid_from=LATE), role_revocation(t, "admin", "admin")]
    ),
    "a passkey for another person": Deed(
        lambda t: passkey(t, "analyst", created_by=t.world.steward.id), lambda t: passkey(t, "analyst")
    ),
    "another person's passkey revoked": Deed(lambda t: passkey_end(t, "second steward"), passkey_end),
    "a person whose name has a space before it": Deed(called(" anna"), called("Anna")),
    "a person whose name turns the line round": Deed(called("an\u202ena"), called("Anna")),
    "a policy of no approval before spending": Deed(lambda t: policy(t, 0, 1), lambda t: policy(t, 1, 1)),
    "a policy of no approval before publication": Deed(lambda t: policy(t, 1, 0), lambda t: policy(t, 1, 1)),
    "a policy of no approval of proposals": Deed(
        lambda t: policy(t, 1, 1, proposal_approvals=0), lambda t: policy(t, 1, 1, proposal_approvals=1)
    ),
    "a policy of endless attempts": Deed(lambda t: policy(t, 1, 1, attempts=None), lambda t: policy(t, 1, 1)),
    "a policy of approvals for two years": Deed(
        lambda t: policy(t, 1, 1, approval_days=730), lambda t: policy(t, 1, 1, approval_days=1)
    ),
    "a policy of requests that never expire": Deed(lambda t: policy(t, 1, 1, request_days=None)),
    "a rule of no approval for a dataset": Deed(
        lambda t: new_policy(t, spend_approvals=0), lambda t: new_policy(t, spend_approvals=1)
    ),
    "a rule added to a policy in use": Deed(lambda t: policy_rule(t, spend_approvals=1), new_policy),
    "a policy adopted by a steward": Deed(
        lambda t: adoption(t, t.world.policy_id, t.world.steward.id), lambda t: adoption(t, t.world.policy_id)
    ),
    "a policy adopted by a former admin": Deed(lambda t: adoption(t, t.world.policy_id, former(t))),
}

DATA: dict[str, Deed] = {
    "a dataset by an analyst": Deed(
        lambda t: dataset(t, "clinic", created_by=t.world.analyst.id), lambda t: dataset(t, "clinic")
    ),
    "a dataset that calls shared people public": Deed(
        lambda t: dataset(t, "clinic", governed=False), lambda t: dataset(t, "library", governed=False)
    ),
    "a dataset that does not name shared people": Deed(
        lambda t: dataset(t, "clinic", unit_field=None), lambda t: dataset(t, "clinic")
    ),
    "a dataset that names shared people by another field": Deed(
        lambda t: dataset(t, "clinic", unit_field="other_id"),
        lambda t: dataset(t, "harbour", unit_field="other_id"),
    ),
    "a dataset registered again that has data": Deed(lambda t: again(t, "grown"), again),
    "a dataset whose name is a path": Deed(dataset_called("../evil"), dataset_called("clinic-2027")),
    "a dataset whose name is in other letters": Deed(dataset_called("\u0441linic"), dataset_called("a_b.c-d")),
    "a version taken in by an analyst": Deed(
        lambda t: version(t, "clinic", created_by=t.world.analyst.id), lambda t: version(t, "clinic")
    ),
    "data taken in out of turn": Deed(lambda t: version(t, "clinic", number=2**31 - 1), lambda t: version(t, "clinic")),
    "a dataset registered out of turn": Deed(
        lambda t: dataset(t, "clinic", registration=2**31 - 1), lambda t: dataset(t, "clinic")
    ),
    "a dataset without blocks": Deed(
        lambda t: dataset(t, "clinic", account_id=t.one("SELECT id FROM account WHERE rho_cap = 77")),
        lambda t: dataset(t, "clinic"),
    ),
    "a schedule changed out of turn": Deed(lambda t: schedule_change(t, number=2), schedule_change),
    "data taken in under a registration that was replaced": Deed(
        lambda t: version(t, "vacant", **replaced(t)), lambda t: version(t, "corrected")
    ),
    "people without names taken in again": Deed(lambda t: version(t, "ward"), lambda t: version(t, "harbour")),
    "another key for people in two datasets": Deed(overlap_key),
    "a person in two datasets": Deed(
        lambda t: unit_mark(t, "harbour", b"clinic-unit"), lambda t: unit_mark(t, "harbour", b"new")
    ),
    "a person moved to another cohort": Deed(
        lambda t: unit_mark(t, "grown", b"grown-unit", cohort=2), lambda t: unit_mark(t, "grown", b"new", cohort=2)
    ),
    "a new person in a cohort that is closed": Deed(
        lambda t: unit_mark(t, "grown", b"new"), lambda t: unit_mark(t, "grown", b"new", cohort=2)
    ),
    "a person added to people who were counted": Deed(
        lambda t: unit_mark(t, "clinic", b"late-unit", claim=t.id_of("unit_claim", "TRUE")),
        lambda t: unit_mark(t, "clinic", b"late-unit"),
    ),
    "a cohort by a runner": Deed(lambda t: cohort(t, created_by=t.world.runner.id), cohort),
    "a cohort out of turn": Deed(lambda t: cohort(t, number=4), cohort),
    "a cohort of public data": Deed(lambda t: cohort(t, "library", number=2), lambda t: cohort(t, "harbour", number=2)),
    "a cohort beside people without names": Deed(lambda t: beside(t, None), lambda t: beside(t, "patient_id")),
    "an erasure by an analyst": Deed(lambda t: erasure(t, actor_id=t.world.analyst.id), erasure),
    "an erasure long ago": Deed(lambda t: [old_steward(t), erasure(t, at=THEN)], erasure),
    "an erasure that leaves no digest": Deed(lambda t: erased_version(t, manifest_mark=None), erased_version),
    "an erasure of other data than it says": Deed(
        lambda t: of_one_version(t, t.id_of("dataset_version", f"id < {t.kept}")), lambda t: of_one_version(t, t.kept)
    ),
    "data added to an erasure that has ended": Deed(lambda t: [erasure_end(t), erased_version(t)], erased_version),
    "an erasure ended by a runner": Deed(lambda t: erasure_end(t, actor_id=t.world.runner.id), erasure_end),
    "an erasure ended long ago": Deed(lambda t: [old_steward(t), erasure_end(t, at=THEN)], erasure_end),
}

LOOKS: dict[str, Deed] = {
    "a look at another account": Deed(
        lambda t: internal_view(t, t.looked, "grown"), lambda t: internal_view(t, t.looked, "seen")
    ),
    "a look while a release waits": Deed(
        lambda t: internal_view(t, t.published, "clinic"), lambda t: internal_view(t, t.spurned, "seen")
    ),
    "a look long ago": Deed(lambda t: internal_view(t, t.looked, "seen", at=THEN)),
    "a leak recorded by a runner": Deed(
        lambda t: assignment_exposure(t, t.published.request_id, actor_id=t.world.runner.id),
        lambda t: assignment_exposure(t, t.discarded.request_id, actor_id=t.world.admin.id),
    ),
    "a leak recorded long ago": Deed(
        lambda t: [old_steward(t), assignment_exposure(t, t.published.request_id, at=THEN)]
    ),
    "unprotected figures that nobody is recorded to see": Deed(
        lambda t: evaluation(t, t.unseen, "internal"),
        lambda t: [internal_view(t, t.unseen, "seen"), evaluation(t, t.unseen, "internal")],
    ),
    "unprotected figures that somebody else has seen": Deed(
        lambda t: evaluation(t, t.looked, "internal"),
        lambda t: evaluation(t, t.looked, "internal", created_by=t.second_steward),
    ),
    "unprotected figures before the decision": Deed(lambda t: evaluation(t, t.produced, "internal")),
    "unprotected figures by an analyst": Deed(
        lambda t: evaluation(t, t.open_data, "internal", created_by=t.world.analyst.id),
        lambda t: evaluation(t, t.open_data, "internal"),
    ),
    "public figures added after the run": Deed(
        lambda t: evaluation(t, t.produced, "public"), lambda t: produced(t, "public")
    ),
    "public figures twice": Deed(lambda t: [*produced(t, "public"), produced(t, "public")[1]]),
    "charged figures that another run has paid": Deed(
        lambda t: produced(t, "charged", invocation_id=t.invocation(t.published)), lambda t: produced(t, "charged")
    ),
    "charged figures that nobody has paid": Deed(
        lambda t: produced(t, "charged", invocation_id=t.invocation(t.unarmed))
    ),
    "two charged figures paid once": Deed(
        lambda t: [*produced(t, "charged"), produced(t, "charged", metric="dp_labels")[1]]
    ),
    "an attack recorded by a steward": Deed(lambda t: twin_attack(t, actor_id=t.world.steward.id), twin_attack),
    "an attack recorded long ago": Deed(backdated("runner", lambda t: twin_attack(t, at=THEN)), twin_attack),
}

RECORD: dict[str, Deed] = {
    "an entry that does not follow": Deed(lambda t: audit(t, prev_hash=DIGEST), audit),
    "an entry with a later number": Deed(lambda t: audit(t, ahead=2), audit),
    "an entry long ago": Deed(lambda t: audit(t, at=THEN), lambda t: audit(t, at=LATE)),
    "a newest entry that is not there": Deed(change("audit_head", "seq = seq + 1", "TRUE")),
    "an older newest entry": Deed(change("audit_head", "seq = seq - 1", "TRUE")),
    "a newest entry with another hash": Deed(change("audit_head", f"hash = '{DIGEST}'", "TRUE")),
    "a second newest entry": Deed(change("audit_head", "id = 2", "TRUE")),
    "a checkpoint by an analyst": Deed(lambda t: checkpoint(t, created_by=t.world.analyst.id), checkpoint),
    "a checkpoint of nobody": Deed(lambda t: checkpoint(t, created_by=None), checkpoint),
    "a checkpoint of another hash": Deed(lambda t: checkpoint(t, hash=DIGEST), checkpoint),
    "a checkpoint ahead of the record": Deed(lambda t: checkpoint(t, seq=999), checkpoint),
    "a checkpoint before the record": Deed(lambda t: checkpoint(t, seq=0, hash=DIGEST), checkpoint),
    "a checkpoint long ago": Deed(backdated("steward", lambda t: checkpoint(t, at=THEN)), checkpoint),
    "a restoration by a runner": Deed(lambda t: restoration(t, t.world.runner.id), restoration),
}


def rehearsal(town: Town) -> Executable:
    return insert(
        "rehearsal", dataset="twin", configuration=DIGEST, result="{}", at=utc_now(), actor_id=town.world.runner.id
    )


def delivery(town: Town) -> Executable:
    publication = town.id_of("publication", "TRUE")
    return insert("delivery", publication_id=publication, destination="out", bundle_digest=DIGEST, at=utc_now(),
                  created_by=town.world.runner.id)  # fmt: skip


def people_counted(town: Town) -> Executable:
    return insert(
        "unit_claim", account_id=town.account("clinic", None), salt=DIGEST, digest=DIGEST, created_at=utc_now()
    )


UNCONDITIONAL: dict[str, Make] = {
    "a rehearsal": rehearsal,
    "a delivery": delivery,
    "people who were counted": people_counted,
}
"""Facts that the ledger takes of everybody who may record them; their values have forms nonetheless."""
