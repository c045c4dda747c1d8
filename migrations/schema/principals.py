"""People, their roles, and the policies that admins adopt."""

from migrations.schema.conditions import LIMITS_WHOLE, RENYI_LIMITS, role
from migrations.schema.definitions import Guard, Index, Table

GATES_AND_ORDERS = {
    "asks_for_an_approval_at_each_gate": "spend_approvals >= 1 AND publish_approvals >= 1 AND proposal_approvals >= 1",
    "renyi_limits": LIMITS_WHOLE,
}
BOUNDED = (
    "coalesce(attempts >= 1 AND attempts <= 100 AND approval_days >= 1 AND approval_days <= 365"
    " AND request_days >= 1 AND request_days <= 365, FALSE)"
)
LIMIT_COLUMNS = "\n".join(f"{name} BIGINT" for name in RENYI_LIMITS)

TABLES = (
    Table(
        "principal",
        """
        id {key}
        name VARCHAR(255) NOT NULL
        public_key VARCHAR(255) NOT NULL
        created_at VARCHAR(27) NOT NULL
        login VARCHAR(255)
        created_by {number} -> principal
        """,
        unique=(("name",), ("public_key",)),
        indexes=(Index("uq_principal_login", "login", unique=True),),
        by=("admin",),
    ),
    Table(
        "role_grant",
        """
        id {key}
        principal_id {number} NOT NULL -> principal
        role VARCHAR(255) NOT NULL
        valid_from VARCHAR(27) NOT NULL
        valid_to VARCHAR(27)
        granted_by {number} NOT NULL -> principal
        reason TEXT NOT NULL
        at VARCHAR(27) NOT NULL
        """,
        checks={
            "role": "role IN ('analyst', 'runner', 'steward', 'auditor', 'admin')",
            "dates": "valid_to IS NULL OR valid_to > valid_from",
        },
        indexes=(Index("ix_role_grant_principal_id", "principal_id"),),
    ),
    Table(
        "role_revocation",
        """
        id {key}
        grant_id {number} NOT NULL -> role_grant
        revoked_by {number} NOT NULL -> principal
        reason TEXT NOT NULL
        at VARCHAR(27) NOT NULL
        """,
        unique=(("grant_id",),),
        by=("admin",),
    ),
    # Keys of a browser or a token (WebAuthn), each certified by the signature of its person's own key.
    Table(
        "passkey",
        """
        id {key}
        principal_id {number} NOT NULL -> principal
        public_key VARCHAR(255) NOT NULL
        credential_id TEXT NOT NULL
        rp_id VARCHAR(255) NOT NULL
        origin VARCHAR(255) NOT NULL
        signature VARCHAR(255) NOT NULL
        created_by {number} NOT NULL -> principal
        at VARCHAR(27) NOT NULL
        """,
        unique=(("public_key",),),
        indexes=(Index("ix_passkey_principal_id", "principal_id"),),
    ),
    Table(
        "passkey_end",
        """
        id {key}
        passkey_id {number} NOT NULL -> passkey
        reason TEXT NOT NULL
        ended_by {number} NOT NULL -> principal
        at VARCHAR(27) NOT NULL
        """,
        unique=(("passkey_id",),),
    ),
    Table(
        "policy_version",
        f"""
        id {{key}}
        digest VARCHAR(64) NOT NULL
        body TEXT NOT NULL
        several_roles BOOLEAN NOT NULL
        spend_approvals INTEGER NOT NULL
        publish_approvals INTEGER NOT NULL
        created_at VARCHAR(27) NOT NULL
        proposal_approvals INTEGER NOT NULL
        rho_max BIGINT
        delta_max BIGINT
        attempts INTEGER
        approval_days INTEGER
        request_days INTEGER
        {LIMIT_COLUMNS}
        """,
        unique=(("digest",),),
        checks=GATES_AND_ORDERS | {"limits_attempts_and_days": BOUNDED},
        by=("admin",),
    ),
    Table(
        "policy_rule",
        f"""
        id {{key}}
        policy_id {{number}} NOT NULL -> policy_version
        dataset VARCHAR(255) NOT NULL
        spend_approvals INTEGER
        publish_approvals INTEGER
        proposal_approvals INTEGER
        rho_max BIGINT
        delta_max BIGINT
        {LIMIT_COLUMNS}
        """,
        unique=(("policy_id", "dataset"),),
        checks=GATES_AND_ORDERS,
        by=("admin",),
    ),
    Table(
        "policy_adoption",
        """
        id {key}
        policy_id {number} NOT NULL -> policy_version
        adopted_by {number} NOT NULL -> principal
        at VARCHAR(27) NOT NULL
        """,
        by=("admin",),
    ),
)

GUARDS = (
    Guard(
        "principal_name_own",
        "principal",
        "the name of a person reads like that of nobody else",
        "EXISTS (SELECT 1 FROM principal x WHERE x.name <> NEW.name AND lower(x.name) = lower(NEW.name))",
    ),
    Guard(
        "role_grant_by_admin",
        "role_grant",
        "only an admin grants roles",
        f"""
        NOT (
            {role("NEW.granted_by", "admin")}
             OR (
                 NEW.role = 'admin'
                  AND NEW.principal_id = NEW.granted_by
                  AND NOT EXISTS (SELECT 1 FROM role_grant)
             )
        )
        """,
    ),
    Guard(
        "role_revocation_leaves_admin",
        "role_revocation",
        "a ledger keeps an admin",
        """
        EXISTS (SELECT 1 FROM role_grant o WHERE o.id = NEW.grant_id AND o.role = 'admin')
         AND NOT EXISTS (
             SELECT 1 FROM role_grant g
              WHERE g.id <> NEW.grant_id
               AND g.role = 'admin'
               AND g.valid_from <= NEW.at
               AND g.valid_to IS NULL
               AND NOT EXISTS (SELECT 1 FROM role_revocation v WHERE v.grant_id = g.id)
         )
        """,
    ),
    Guard(
        "passkey_of_the_person",
        "passkey",
        "only an admin brings the passkey of another person",
        f"NEW.created_by <> NEW.principal_id AND NOT {role('NEW.created_by', 'admin')}",
    ),
    Guard(
        "passkey_end_own",
        "passkey_end",
        "only an admin revokes the passkey of another person",
        f"""
        NOT (
            {role("NEW.ended_by", "admin")}
             OR EXISTS (
                 SELECT 1 FROM passkey k WHERE k.id = NEW.passkey_id AND k.principal_id = NEW.ended_by
             )
        )
        """,
    ),
    Guard(
        "policy_rule_before_use",
        "policy_rule",
        "a policy in use gets no further rules",
        """
        EXISTS (SELECT 1 FROM policy_adoption y WHERE y.policy_id = NEW.policy_id)
         OR EXISTS (SELECT 1 FROM request r WHERE r.policy_id = NEW.policy_id)
        """,
    ),
)
