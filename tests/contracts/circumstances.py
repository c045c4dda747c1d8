"""Circumstances that are brought about past every guard, and what a guard must say to a change in each of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Executable

from tests.contracts.initial_cases import Make
from tests.contracts.rows import carried, entry, insert, request, run_scheduled, transition
from tests.contracts.test_guards import CASES, GUARDS
from tests.contracts.town import Town

PAST, FUTURE = "2000-01-01T00:00:00.000000Z", "9999-12-30T00:00:00.000000Z"
OTHER = "e" * 64
CONDITIONS = {name: condition for name, _, _, condition, _ in GUARDS}

Cases = Mapping[str, Sequence[Make]]


@dataclass(frozen=True)
class Circumstance:
    """What is changed in the ledger, and which changes each guard then denies, or lets pass.

    Attributes:
        changes: statements that both databases understand.
        cases: by guard, what is tried.
        denied: whether the guard must deny each of them.
    """

    changes: tuple[str, ...]
    cases: Cases
    denied: bool = True


def passed_by(pattern: str, unconcerned: Mapping[str, tuple[int, ...]]) -> Cases:
    """What the guards with `pattern` in their condition let pass otherwise, but for what is not concerned."""
    return {
        name: [make for number, make in enumerate(case.allowed) if number not in unconcerned.get(name, ())]
        for name, case in CASES.items()
        if pattern in CONDITIONS[name]
    }


EVERY = tuple(range(9))
WITHOUT_ROLES = {
    "passkey_of_the_person": (0,),  # brought by that person
    "passkey_end_own": (0,),
    "entry_arm_approved": (4, 5),  # under a standing authorisation
    "transition_reopens": EVERY,  # it opens because nothing counts
    "transition_withdrawn": (1,),  # by the requester
    "approval_not_by_admin": EVERY,  # denies those who have a role
}
WITHOUT_APPROVALS = {
    "entry_arm_approved": (4, 5),
    "transition_reopens": EVERY,
    "approval_counts_once": EVERY,  # denies where one counts
    "carried_approved": EVERY,  # approved in the same breath
}
WITHOUT_GATES = {"entry_arm_approved": (4, 5), "transition_reopens": EVERY, "hold_within_release": EVERY}

WITH_ROLES = passed_by("role_grant g WHERE g.principal_id", WITHOUT_ROLES)
WITH_APPROVALS = {
    **passed_by("a.expires_at > NEW.at", WITHOUT_APPROVALS),
    "carried_approved": [lambda t: carried(t, t.ready_proposal)],
}
GATED = {**passed_by("(SELECT max(coalesce(q.", WITHOUT_GATES)}
REOPENING: Cases = {"transition_reopens": [lambda t: transition(t, t.approved, "approved", "submitted")]}
SEPARATED = {name: CASES[name].denied for name in CASES if "p.several_roles" in CONDITIONS[name]}


def standing_request(town: Town) -> list[Executable]:
    """A submitted request under the standing authorisation, which it approves."""
    number = town.id_of("request", "TRUE") + 1
    digest = town.one("SELECT config_digest FROM proposal WHERE id = :n", n=town.standing)
    made = request(town, "clinic", "clinic", id=number, standing_id=town.standing, config_digest=digest)
    step = {"request_id": number, "number": 1, "from_state": "draft", "to_state": "submitted", "detail": "",
            "at": town.now, "actor_id": town.world.analyst.id}  # fmt: skip
    approved = step | {"number": 2, "from_state": "submitted", "to_state": "approved"}
    return [made, insert("transition", **step), insert("transition", **approved)]


STANDING: Cases = {
    "entry_arm_approved": [lambda t: entry(t, t.hold(t.routine), "ARM")],
    "transition_approved": [standing_request],
    "transition_authorised": [run_scheduled],
}
REOPENED_STANDING: Cases = {"transition_reopens": [lambda t: transition(t, t.scheduled, "approved", "submitted")]}
_SIBLINGS = (
    "INSERT INTO dataset"
    " (name, registration, account_id, unit_field, text_field, relation, governed, created_at, created_by)"
    " SELECT 'sibling-of-' || name, registration, account_id, unit_field, text_field, relation, governed, created_at,"
    " created_by FROM dataset"
)
_NO_RULES = "DELETE FROM policy_rule"
_BY_PASSKEY = (
    "UPDATE approval SET assertion = '{{}}', passkey_id ="
    " (SELECT min(id) FROM passkey WHERE id {} (SELECT passkey_id FROM passkey_end))"
)
_IN_USE = "p.id IN (SELECT policy_id FROM request UNION SELECT policy_id FROM proposal)"


def _rules(policies: str, datasets: str = "TRUE") -> str:
    return (
        "INSERT INTO policy_rule (policy_id, dataset, spend_approvals, publish_approvals, proposal_approvals)"
        " SELECT DISTINCT p.id, d.name, 9, 9, 9 FROM policy_version p CROSS JOIN dataset d"
        f" WHERE {policies} AND {datasets}"
    )


def _circumstances() -> Iterator[tuple[str, Circumstance]]:
    roles = {
        "every role has ended": f"UPDATE role_grant SET valid_to = '{PAST}'",
        "no role has begun": f"UPDATE role_grant SET valid_from = '{FUTURE}', valid_to = NULL",
        "every role is revoked": "INSERT INTO role_revocation (grant_id, revoked_by, reason, at)"
        f" SELECT id, granted_by, 'left', '{PAST}' FROM role_grant"
        " WHERE id NOT IN (SELECT grant_id FROM role_revocation)",
        "everybody has another role": "UPDATE role_grant SET role = 'visitor'",
        "somebody else has the roles": "UPDATE role_grant SET principal_id = (SELECT id FROM principal"
        " WHERE name = 'stranger')",
    }
    for name, change in roles.items():
        yield name, Circumstance((change,), WITH_ROLES)
        yield f"{name}, so a request reopens", Circumstance((change,), REOPENING, denied=False)
    yield "every role ends later", Circumstance((f"UPDATE role_grant SET valid_to = '{FUTURE}'",), WITH_ROLES, False)
    yield (
        "every role ends later, and an approval counts",
        Circumstance((f"UPDATE role_grant SET valid_to = '{FUTURE}'",), REOPENING),
    )
    approvals = {
        "every approval has expired": f"UPDATE approval SET expires_at = '{PAST}'",
        "every approval is withdrawn": "INSERT INTO withdrawal (approval_id, reason, signature, at)"
        f" SELECT id, 'a doubt', 's', '{PAST}' FROM approval WHERE id NOT IN (SELECT approval_id FROM withdrawal)",
        "a passkey has given every approval, and is revoked": _BY_PASSKEY.format("IN"),
        "every approval is a rejection": "UPDATE approval SET decision = 'reject'",
        "every approval is neither": "UPDATE approval SET decision = 'abstain'",
        "every approval is of another subject": f"UPDATE approval SET subject_digest = '{OTHER}'",
        "every approval is of another gate": "UPDATE approval SET gate = CASE gate WHEN 'spend' THEN 'publish'"
        " ELSE 'spend' END",
        "every approval is of something else": "UPDATE approval SET"
        " request_id = CASE WHEN request_id IS NULL THEN NULL ELSE (SELECT min(id) FROM request) END,"
        " proposal_id = CASE WHEN proposal_id IS NULL THEN NULL ELSE (SELECT min(id) FROM proposal) END",
    }
    for name, change in approvals.items():
        yield name, Circumstance((change,), WITH_APPROVALS)
        if "rejection" not in name:
            yield f"{name}, so a request reopens", Circumstance((change,), REOPENING, denied=False)
    yield (
        "a passkey in force has given every approval",
        Circumstance((_BY_PASSKEY.format("NOT IN"),), WITH_APPROVALS, denied=False),
    )
    twice = (
        "INSERT INTO approval (request_id, proposal_id, gate, subject_digest, approver_id, decision, reason, at,"
        " expires_at, signature) SELECT request_id, proposal_id, gate, subject_digest, {approver}, decision, reason,"
        " at, expires_at, 'again' FROM approval WHERE decision = 'approve'"
    )
    two = "UPDATE policy_version SET spend_approvals = 2, publish_approvals = 2, proposal_approvals = 2"
    another = twice.format(approver="(SELECT id FROM principal WHERE name = 'second steward')")
    same = twice.format(approver="approver_id")
    yield "one person has approved twice where two are asked for", Circumstance((_NO_RULES, two, same), WITH_APPROVALS)
    yield (
        "one person has approved twice, so a request reopens",
        Circumstance((_NO_RULES, two, same), REOPENING, denied=False),
    )
    yield "two people have approved", Circumstance((_NO_RULES, two, another), WITH_APPROVALS, denied=False)
    rules = {
        "a rule asks for more": _rules(_IN_USE),
        "a rule of a dataset of the same account asks for more": _rules(_IN_USE, "d.name LIKE 'sibling-of-%'"),
    }
    for name, change in rules.items():
        yield name, Circumstance((_NO_RULES, _SIBLINGS, change), GATED)
        yield f"{name}, so a request reopens", Circumstance((_NO_RULES, _SIBLINGS, change), REOPENING, denied=False)
    spared = {
        "another policy's rule asks for more": _rules(f"NOT {_IN_USE}"),
        "a rule of a dataset of another account asks for more": _rules(_IN_USE, "d.name = 'library'"),
    }
    for name, change in spared.items():
        yield name, Circumstance((_NO_RULES, change), GATED, denied=False)
        yield f"{name}, and an approval counts", Circumstance((_NO_RULES, change), REOPENING)
    yield (
        "the policy does not separate roles",
        Circumstance(("UPDATE policy_version SET several_roles = TRUE",), SEPARATED, denied=False),
    )
    yield from _standing()


def _standing() -> Iterator[tuple[str, Circumstance]]:
    other = "(SELECT id FROM dataset WHERE name = 'library')"
    changes = {
        "is over": f"UPDATE proposal SET until = '{PAST}' WHERE kind = 'standing'",
        "is something else": "UPDATE proposal SET kind = 'cap' WHERE kind = 'standing'",
        "is for another configuration": f"UPDATE proposal SET config_digest = '{OTHER}' WHERE kind = 'standing'",
        "is of another dataset": f"UPDATE proposal SET dataset_id = {other} WHERE kind = 'standing'",
        "was not carried": "DELETE FROM carried",
        "was taken back": "INSERT INTO approval (proposal_id, gate, subject_digest, approver_id, decision, reason, at,"
        f" expires_at, signature) SELECT m.id, 'proposal', m.digest, p.id, 'reject', 'over', '{PAST}', '{FUTURE}', 's'"
        " FROM proposal m, principal p WHERE m.kind = 'standing' AND p.name = 'second steward'",
    }
    for name, change in changes.items():
        yield f"the authorisation {name}", Circumstance((change,), STANDING)
        yield (
            f"the authorisation {name}, so a request reopens",
            Circumstance((change,), REOPENED_STANDING, denied=False),
        )
    yield "the authorisation stands", Circumstance((), STANDING, denied=False)
    rejections = (
        "INSERT INTO approval ({0}, gate, subject_digest, approver_id, decision, reason, at, expires_at, signature)"
    )
    rejections += f" SELECT {{1}}.id, '{{2}}', {{1}}.digest, p.id, 'reject', 'over', '{PAST}', '{FUTURE}', 's'"
    rejections += " FROM {3} {1}, principal p WHERE p.name = 'second steward' AND {4}"
    yield (
        "other authorisations were taken back",
        Circumstance(
            (rejections.format("proposal_id", "m", "proposal", "proposal", "m.kind <> 'standing'"),),
            STANDING,
            denied=False,
        ),
    )
    yield (
        "other authorisations were taken back, and this one stands",
        Circumstance(
            (rejections.format("proposal_id", "m", "proposal", "proposal", "m.kind <> 'standing'"),), REOPENED_STANDING
        ),
    )


CIRCUMSTANCES = dict(_circumstances())
