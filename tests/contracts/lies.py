"""What hostile people with a login say to PostgreSQL; a name after a dollar is a fact they can read in the tables."""

import re
from collections.abc import Callable


def add(table: str, *rows: str) -> str:
    """A statement that adds rows, each an object in JSON, and returns them as they are stored."""
    columns = ", ".join(dict.fromkeys(name for row in rows for name in re.findall(r'"([^"$]+)": ', row)))
    among = f"jsonb_populate_recordset(NULL::{table}, '[{', '.join(rows)}]'::jsonb)"
    return f"INSERT INTO {table} AS made ({columns}) SELECT {columns} FROM {among} RETURNING to_jsonb(made)"


LINK = "SELECT almoner_link()"
"""A link of what the transaction has recorded; nobody says what it tells."""


def forged(kind: str, who: str = "steward", body: str = "{}") -> str:
    """A link of nothing."""
    return f"SELECT almoner_chain('{who}', '{kind}', NULL, NULL, '{body}')"


APPROVAL = (
    '{"request_id": $submitted, "gate": "spend", "subject_digest": "$digest", "approver_id": %s, "decision": "approve",'
    ' "reason": "because", "at": "$now", "expires_at": "$late", "signature": "forged"}'
)
TRANSITION = (
    '{"request_id": $%s, "number": %s, "from_state": "%s", "to_state": "%s", "detail": "", "at": "$now",'
    ' "actor_id": $bad_%s}'
)
REQUEST = (
    '{"dataset_id": $dataset, "version_id": $version_of_clinic, "policy_id": $policy, "canonical": "$text",'
    ' "digest": "%s", "requester_id": %s, "created_at": "$now", "expires_at": "$late"}'
)
GRANT = (
    '{"principal_id": $bad_%s, "role": "%s", "valid_from": "$then", "granted_by": %s, "reason": "because",'
    ' "at": "$now"}'
)
ENTRY = '{"hold_id": %s, "kind": "%s", "at": "$now", "actor_id": $bad_%s}'
PROPOSAL = (
    '{"kind": "cap", "dataset_id": $dataset, "policy_id": %s, "proposer_id": %s, "reason": "because", "nonce": "n",'
    ' "digest": "$d", "created_at": "$now", "expires_at": "$late", "epsilon": "99", "delta": "1",'
    ' "delta_conversion": 1, "rho": %s, "delta_fail": 9}'
)
SCHEDULE = (
    '{"dataset_id": $dataset, "standing_id": $standing, "kind": "interval", "rule": "1h", "zone": "UTC",'
    ' "starts_at": "$then", "reason": "because", "created_at": "$now", "created_by": %s}'
)
SLOT = (
    '{"schedule_id": $schedule, "slot": "%s", "skipped": "BudgetExceeded", "detail": "", "at": "$now", "actor_id": %s}'
)
PAUSE = '{"schedule_id": $schedule, "number": 1, "kind": "paused", "reason": "because", "at": "$now", "actor_id": %s}'
COHORT = '{"account_id": $root, "number": 2, "version_id": $version_of_clinic, "created_at": "$now", "created_by": %s}'
OVERLAP_KEY = '{"key_commitment": "' + "e" * 64 + '", "created_at": "$now", "created_by": %s}'
ROOT = (
    '{"epsilon": "1", "delta": "0", "delta_conversion": 0, "rho": 1, "delta_fail": 0, "blocks": 1,'
    f' "key_name": "{"0" * 16}", "key_commitment": "{"0" * 64}", "rho_cap": 1, "delta_cap": 0}}'
)
LIES: dict[str, tuple[str, list[str], str]] = {
    # what, who, statements, and what the database says
    **{
        f"record into {table}": ("runner", [add(table, row)], "permission denied")
        for table, row in {
            "audit": '{"seq": 1}', "audit_head": '{"id": 2}', "lease": '{"request_id": 1}',
            "unit_mark": '{"cohort": 1}', "unit_claim": '{"id": 1}', "pending_link": '{"id": 1}',
            "planned_release": '{"request_id": 1}', "alembic_version": '{"version_num": "x"}', "pg_class": '{"oid": 1}',
        }.items()
    },
    "a number of one's own": ("runner", [add("entry", ENTRY[:-1] % ("$held", "ARM", "runner") + ', "id": 7}')],
                              "numbers its rows itself"),
    "a counter of one's own": (
        "steward",
        [add("account", '{"rho_cap": 9, "delta_cap": 9, "rho_spent": 5}')],
        "an account opens empty",
    ),
    "a column of the second row only": (
        "runner",
        [add("entry", ENTRY % ("$held", "RELEASE", "runner"), ENTRY[:-1] % ("$held", "ARM", "runner") + ', "id": 1}')],
        "numbers its rows itself",
    ),
    "a schedule by a runner": ("runner", [add("schedule", SCHEDULE % "$bad_runner")], "only an analyst records"),
    "a slot by a runner": ("runner", [add("schedule_slot", SLOT % ("$now", "$bad_runner"))], "only an analyst records"),
    "a decision by no steward": ("analyst", [add("approval", APPROVAL % "$bad_analyst")],
                                 "only a steward records"),
    "a decision by an admin": ("admin", [add("approval", APPROVAL % "$bad_admin")],
                               r"only a steward records|an admin does not approve"),
    "a decision on other bytes": (
        "steward",
        [add("approval", APPROVAL.replace("$digest", "$d") % "$bad_steward")],
        "not for what is waiting"),
    "two decisions in one call": (
        "steward",
        [add("approval", APPROVAL % "$bad_steward", APPROVAL % "$bad_steward")],
        "has approved it already",
    ),
    "a request by a runner": (
        "runner",
        [add("request", REQUEST % ("$text_digest", "$bad_runner"))],
        "only an analyst"),
    "a request that says something else": ("analyst", [add("request", REQUEST % ("$d", "$bad_analyst"))],
                                           "the digest is not of the text"),
    "a request under a policy that is over": (
        "analyst",
        [add("request", (REQUEST % ("$text_digest", "$bad_analyst")).replace("$policy,", "$other_policy,"))],
        "under the policy in force",
    ),
    # roles and policies
    "another person": (
        "steward",
        [add("principal", '{"name": "x", "public_key": "x", "created_at": "$now", "login": "almoner_test_nobody"}')],
        "only an admin records a principal",
    ),
    "another policy": (
        "steward",
        [add("policy_version", '{"digest": "$d", "body": "{}", "several_roles": true, "spend_approvals": 1,'
                                ' "publish_approvals": 1, "proposal_approvals": 1, "created_at": "$now"}')],
        "only an admin records a policy version",
    ),
    "another policy in force": (
        "steward",
        [add("policy_adoption", '{"policy_id": $other_policy, "adopted_by": $bad_steward, "at": "$now"}')],
        "only an admin",
    ),
    "a milder rule of the policy in force": (
        "admin", [add("policy_rule", '{"policy_id": $policy, "dataset": "clinic", "spend_approvals": 1}')],
        "a policy in use gets no further rules"),
    # the budget
    "arm what nobody approved": ("runner", [add("entry", ENTRY % ("$vetoed", "ARM", "runner"))], "spend gate"),
    "arm as an analyst": ("analyst", [add("entry", ENTRY % ("$held", "ARM", "analyst"))], "only a runner"),
    "give back as a steward": ("steward", [add("entry", ENTRY % ("$held", "RELEASE", "steward"))], "only a runner"),
    "forget what was armed": ("runner", [add("entry", ENTRY % ("$armed", "RELEASE", "runner"))],
                              r"uq_entry|counters|ck_account"),
    "arm twice": ("runner", [add("entry", ENTRY % ("$armed", "ARM", "runner"))], "uq_entry"),
    "commit what is not armed": ("runner", [add("entry", ENTRY % ("$held", "COMMIT", "runner"))], "held, or armed"),
    "a hold on another dataset": (
        "runner",
        [add("hold", '{"invocation_id": $invocation, "account_id": $harbour, "instalment": 9, "rho": 1, "delta": 0}')],
        "approved for another charge",
    ),
    "a negative hold": (
        "runner",
        [add("hold", '{"invocation_id": $invocation, "account_id": $block, "instalment": 9, "rho": -1, "delta": 0}')],
        "approved for another charge",
    ),
    "a hold by an analyst": (
        "analyst",
        [add("hold", '{"invocation_id": $invocation, "account_id": $block, "instalment": 9, "rho": 1, "delta": 0}')],
        "only a runner records a hold",
    ),
    "more than a standing authorisation allows": (
        "runner",
        [add("hold", '{"invocation_id": $routine, "account_id": $block, "instalment": 9, "rho": 1, "delta": 0}')],
        "allows a release less",
    ),
    "an account by a runner": (
        "runner",
        [add("account", ROOT)],
        "only an admin or a steward records an account",
    ),
    "a block beyond its root": (
        "steward",
        [add("account", '{"parent_id": $root, "block": 2, "rho_cap": 1000, "delta_cap": 100}')],
        "one of the partition",
    ),
    "a wider block": (
        "steward",
        [add("account", '{"parent_id": $root, "block": 1, "rho_cap": 9999, "delta_cap": 100}')],
        "whose cap it carries",
    ),
    "an account by an analyst": (
        "analyst",
        [add("account", ROOT)],
        "only an admin or a steward records an account"),
    "another claim": (
        "steward",
        [add("account", '{"parent_id": $root, "block": 1, "rho_cap": 1000, "delta_cap": 100, "epsilon": "99"}')],
        "ck_account_is_a_root",
    ),
    "no claim": ("steward", [add("account", '{"rho_cap": 9, "delta_cap": 9}')], "ck_account_is_a_root"),
    "an old dataset under a new name": (
        "analyst",
        [add("dataset", '{"name": "x", "registration": 1, "account_id": $root, "text_field": "text",'
                         ' "relation": "replace_one",'
                         ' "governed": false, "created_at": "$now", "created_by": $bad_analyst}')],
        r"only a steward or an admin|protected alike",
    ),
    # proposals
    "a proposal under a policy that is over": (
        "analyst", [add("proposal", PROPOSAL % ("$other_policy", "$bad_analyst", 9))], "under the policy in force"),
    "a proposal by a runner": (
        "runner",
        [add("proposal", PROPOSAL % ("$policy", "$bad_runner", 9))],
        "only an analyst or a steward"),
    "a proposal to owe": (
        "analyst", [add("proposal", PROPOSAL % ("$policy", "$bad_analyst", -9))], "ck_proposal_is_never_negative"),
    "a proposal nobody approved": (
        "analyst",
        [add("carried", '{"proposal_id": $proposal, "actor_id": $bad_analyst, "at": "$now"}')],
        "has not its approvals",
    ),
    # steps
    "approve by a step": (
        "analyst",
        [add("transition", TRANSITION % ("submitted", 2, "submitted", "approved", "analyst"))],
        "spend gate"),
    "reject without a word": (
        "analyst", [add("transition", TRANSITION % ("submitted", 2, "submitted", "rejected", "analyst"))],
        "nobody has rejected it"),
    "withdraw another's": (
        "runner", [add("transition", TRANSITION % ("submitted", 2, "submitted", "withdrawn", "runner"))],
        "withdrawn by its requester"),
    "run as an analyst": (
        "analyst",
        [add("transition", TRANSITION % ("approved", 3, "approved", "running", "analyst"))],
        "only a runner"),
    "end another's run": (
        "steward",
        [add("transition", TRANSITION % ("running", 4, "running", "approved", "steward"))],
        "only a runner"),
    "reopen what is approved": (
        "analyst", [add("transition", TRANSITION % ("approved", 3, "approved", "submitted", "analyst"))],
        "the spend gate is passed"),
    "discard another's": (
        "analyst", [add("transition", TRANSITION % ("cleared", 5, "produced", "discarded", "analyst"))],
        "nobody has rejected it"),
    "publish by a step": (
        "runner", [add("transition", TRANSITION % ("cleared", 5, "produced", "published", "runner"))],
        "nothing was published"),
    "skip a step": (
        "runner", [add("transition", TRANSITION % ("submitted", 2, "submitted", "running", "runner"))],
        r"ck_transition_legal|only a runner"),
    # results
    "publish what nobody approved": (
        "runner", [add("publication", '{"artifact_id": $artifact, "at": "$now", "actor_id": $bad_runner}')],
        "publish gate"),
    "publish as an analyst": (
        "analyst", [add("publication", '{"artifact_id": $cleared_artifact, "at": "$now", "actor_id": $bad_analyst}')],
        "only a runner or a steward"),
    "an artifact by a steward": (
        "steward",
        [add("artifact", '{"request_id": $settled, "attempt": 1, "digest": "$d", "files": "{}", "size": 1,'
                          ' "created_at": "$now", "created_by": $bad_steward}')],
        "only a runner records an artifact",
    ),
    "an artifact of a run that is not over": (
        "runner",
        [add("artifact", '{"request_id": $running, "attempt": 1, "digest": "$d", "files": "{}", "size": 1,'
                          ' "created_at": "$now", "created_by": $bad_runner}')],
        "every part of its plan armed",
    ),
    "figures from the private data before the decision": (
        "steward",
        [add("evaluation", '{"artifact_id": $artifact, "metric": "m", "exposure": "internal", "result": "{}",'
                            ' "created_at": "$now"}')],
        "unprotected figures",
    ),
    "figures by an analyst": (
        "analyst",
        [add("evaluation", '{"artifact_id": $artifact, "metric": "m", "exposure": "public", "result": "{}",'
                            ' "created_at": "$now"}')],
        "only a runner or a steward records an evaluation",
    ),
    # the record
    "a checkpoint of a link that is not there": (
        "runner",
        [add("checkpoint", '{"seq": 3, "hash": "$d", "at": "$now", "signature": "s", "public_key": "key of runner",'
                            ' "signed_at": "$now"}')],
        "no such link",
    ),
    "a checkpoint by an analyst": (
        "analyst",
        [add("checkpoint", '{"seq": 0, "hash": "$d", "at": "$now", "signature": "s", "public_key": "k"}')],
        "or an auditor or an admin records a checkpoint",
    ),
    **{
        f"the {what} of a link of one's own": ("runner", [f"SELECT {call}"], "permission denied|does not exist")
        for what, call in {
            "text": "almoner_append('bad runner', 'note.x', NULL, NULL, '{}')",
            "pending row": "_pend_approval()",
            "body": "almoner_body('{}', '[]')",
            "claim": "almoner_close_claims()",
            "stamp": "_stamp_entry()",
            "right": "almoner_brings(1, 1)",
            "role": "almoner_may(1, 'admin')",
            "trigger": "pending_link_is_told()",
        }.items()
    },
    "a policy of nobody": (
        "admin",
        [add("policy_version", '{"digest": "$d", "body": "{}", "several_roles": false, "spend_approvals": 1,'
                                ' "publish_approvals": 1, "proposal_approvals": 1, "created_at": "$now", "attempts": 1,'
                                ' "approval_days": 1, "request_days": 1}'), LINK],
        "together with what it belongs to",
    ),
    # leases and units
    "a lease by an analyst": ("analyst", ["SELECT almoner_lease($running, 2, 'mine', 'me', '$late')"], "only a runner"),
    "take in data as an analyst": (
        "analyst",
        ["SELECT almoner_claim_units($root, ARRAY['\\x01'::bytea], ARRAY[1])"],
        "only a runner or a steward",
    ),
    "units of another account": (
        "runner",
        ["SELECT almoner_claim_units($harbour_root, array_agg(mark), array_agg(1)) FROM unit_mark"],
        "one root account",
    ),
    "a budget of one's own for known units": (
        "runner",
        ["SELECT almoner_claim_units($root, array_agg(mark), array_agg(2)) FROM unit_mark WHERE account_id = $root"],
        "stays in the cohort",
    ),
    "another overlap key": ("admin", [add("overlap_key", OVERLAP_KEY % "$bad_admin")], "ck_overlap_key_is_chosen_once"),
    "another overlap key by a steward": (
        "steward", [add("overlap_key", OVERLAP_KEY % "$bad_steward")], "only an admin records an overlap key"),
    "a cohort by a runner": ("runner", [add("cohort", COHORT % "$bad_runner")], "only a steward records a cohort"),
    "units of a block": (
        "runner", ["SELECT almoner_claim_units($block, ARRAY['\\x01'::bytea], ARRAY[1])"], "one root account"),
    "another way to read strings": (
        "runner",
        ["SET standard_conforming_strings = off", "SET backslash_quote = on",
         "SELECT almoner_chain('steward'' OR TRUE --', 'ledger.arm', NULL, NULL, '{}')"],
        "permission denied|syntax",
    ),
}  # fmt: skip


LEGAL = {
    "a request": ("analyst", add("request", REQUEST % ("$text_digest", "$bad_analyst"))),
    "a decision": ("steward", add("approval", APPROVAL % "$bad_steward")),
    "a forged decision": ("steward", add("approval", APPROVAL % "$steward")),
    "a role": ("admin", add("role_grant", GRANT % ("former", "steward", "$bad_admin"))),
    "a policy": ("admin", add("policy_adoption", '{"policy_id": $other_policy, "adopted_by": $bad_admin,'
                                                  ' "at": "$now"}')),
    "an account": ("steward", add("account", ROOT)),
    "money": ("runner", add("entry", ENTRY % ("$held", "ARM", "runner"))),
    "a proposal": ("analyst", add("proposal", PROPOSAL % ("$policy", "$bad_analyst", 9))),
    "a step": ("runner", add("transition", TRANSITION % ("approved", 3, "approved", "running", "runner"))),
    "a schedule": ("analyst", add("schedule", SCHEDULE % "$bad_analyst")),
    "a slot": ("analyst", add("schedule_slot", SLOT % ("$now", "$bad_analyst"))),
    "a pause": ("steward", add("schedule_change", PAUSE % "$bad_steward")),
    "a publication": ("runner", add("publication", '{"artifact_id": $cleared_artifact, "at": "$now",'
                                                    ' "actor_id": $bad_runner}')),
}  # fmt: skip
HIDDEN: dict[str, Callable[[str, str], list[str]]] = {
    "not at all": lambda change, told: [change],
    "and taken back": lambda change, told: ["SAVEPOINT a", told, "ROLLBACK TO a", change],
    "later, it says": lambda change, told: ["SET CONSTRAINTS ALL DEFERRED", change],
    "in a session that reads": lambda change, told: [change, "SET TRANSACTION READ ONLY"],
}
