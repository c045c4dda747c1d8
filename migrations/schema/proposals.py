"""Proposals: decisions of stewards about a dataset beside its requests, and how they take effect.

A proposal changes the cap of a dataset, authorises requests of one configuration (a standing authorisation), or
retracts a release.
"""

from migrations.schema.conditions import (
    PROPOSAL_GATE,
    REQUEST_DAYS,
    STANDING,
    attempts,
    later_than,
    state,
)
from migrations.schema.definitions import Action, Function, Guard

GUARDS = (
    Guard(
        "proposal_of_its_dataset",
        "proposal",
        "a release is retracted by a proposal on its own dataset",
        """
        NEW.kind = 'retraction'
         AND NOT EXISTS (
             SELECT 1 FROM publication p JOIN artifact f ON f.id = p.artifact_id
              JOIN request r ON r.id = f.request_id
              WHERE p.id = NEW.publication_id AND r.dataset_id = NEW.dataset_id
         )
        """,
    ),
    Guard(
        "proposal_expires",
        "proposal",
        "a proposal expires as the policy says",
        later_than("NEW.expires_at", "NEW.created_at", REQUEST_DAYS).within(
            "@ AND NOT coalesce(NEW.kind = 'standing' AND NEW.expires_at <= NEW.until, FALSE)"
        ),
    ),
    Guard(
        "carried_approved",
        "carried",
        "the proposal has not its approvals",
        f"""
        NOT EXISTS (
            SELECT 1 FROM proposal m JOIN policy_version p ON p.id = m.policy_id
             WHERE m.id = NEW.proposal_id AND m.expires_at > NEW.at AND {PROPOSAL_GATE}
        )
        """,
    ),
    Guard(
        "carried_covers_spent",
        "carried",
        "the cap would be passed",
        """
        EXISTS (
            SELECT 1 FROM proposal m JOIN dataset d ON d.id = m.dataset_id
             JOIN account b ON b.parent_id = d.account_id
             WHERE m.id = NEW.proposal_id
              AND m.kind = 'cap'
              AND (b.rho_held + b.rho_spent > m.rho OR b.delta_held + b.delta_spent > m.delta_fail)
        )
        """,
    ),
    Guard(
        "standing_use_allowed",
        "standing_use",
        "the standing authorisation does not cover this run",
        f"""
        NOT EXISTS (
            SELECT 1 FROM request r JOIN proposal m ON m.id = r.standing_id
             WHERE r.id = NEW.request_id
              AND m.id = NEW.proposal_id
              AND NEW.number <= m.runs
              AND NEW.number = 1 + (SELECT count(*) FROM standing_use u WHERE u.proposal_id = m.id)
              AND NEW.attempt = 1 + {attempts("r.id")}
              AND {state("r.id")} = 'approved'
        )
         OR NOT EXISTS (SELECT 1 FROM request r WHERE r.id = NEW.request_id AND {STANDING})
        """,
    ),
)

ROOT = (
    "(SELECT d.account_id FROM proposal m JOIN dataset d ON d.id = m.dataset_id"
    " WHERE m.id = NEW.proposal_id AND m.kind = 'cap')"
)
ACTIONS = (
    Action(
        "carried_moves_cap",
        "carried",
        (
            f"""
            UPDATE account SET rho_cap = (SELECT m.rho FROM proposal m WHERE m.id = NEW.proposal_id),
             delta_cap = (SELECT m.delta_fail FROM proposal m WHERE m.id = NEW.proposal_id)
             WHERE id = {ROOT} OR parent_id = {ROOT}
            """,
        ),
        "EXISTS (SELECT 1 FROM proposal m JOIN dataset d ON d.id = m.dataset_id JOIN account x ON x.id = d.account_id"
        " OR x.parent_id = d.account_id WHERE m.id = NEW.proposal_id AND m.kind = 'cap'"
        " AND (x.rho_cap <> m.rho OR x.delta_cap <> m.delta_fail))",
        "the caps did not follow the proposal",
    ),
)

FUNCTIONS = (
    # Of a proposal: of its canonical JSON, as `models_db.services.lifecycle.proposals.content_of`.
    Function(
        "almoner_digest_of",
        "given jsonb",
        "text",
        "LANGUAGE sql STABLE",
        """
        SELECT encode(sha256(convert_to('{' || string_agg(
            to_json(v.name)::text || ':'
             || coalesce(CASE WHEN v.plain THEN v.value ELSE to_json(v.value)::text END, 'null'),
            ',' ORDER BY v.name COLLATE "C"
        ) || '}', 'UTF8')), 'hex')
         FROM (VALUES
             ('proposal', given ->> 'kind', FALSE),
             ('dataset', (SELECT d.name FROM dataset d WHERE d.id = (given ->> 'dataset_id')::bigint), FALSE),
             ('reason', given ->> 'reason', FALSE), ('nonce', given ->> 'nonce', FALSE),
             ('expires_at', given ->> 'expires_at', FALSE), ('epsilon', given ->> 'epsilon', FALSE),
             ('delta', given ->> 'delta', FALSE), ('rho', given ->> 'rho', FALSE),
             ('delta_fail', given ->> 'delta_fail', FALSE),
             ('delta_conversion', given ->> 'delta_conversion', FALSE), ('runs', given ->> 'runs', TRUE),
             ('until', given ->> 'until', FALSE), ('config_digest', given ->> 'config_digest', FALSE),
             ('publication', given ->> 'publication_id', TRUE)
         ) v(name, value, plain)
        """,
    ),
)
