"""Proposals: decisions of stewards about a dataset beside its requests, and how they take effect.

A proposal changes the cap of a dataset, authorises requests of one configuration (a standing authorisation), or
retracts a release.
"""

from migrations.schema.definitions import PROPOSAL_GATE, Action, Guard

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
