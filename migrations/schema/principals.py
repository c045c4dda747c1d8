"""People, their roles, and the policies that admins adopt."""

from migrations.schema.definitions import Guard, role

GUARDS = (
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
