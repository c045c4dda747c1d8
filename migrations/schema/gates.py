"""Gates: approvals and their withdrawals, artifacts and their evaluations, publications."""

from migrations.schema.definitions import (
    PUBLISH_GATE,
    Guard,
    has_entry,
    later_than,
    latest_artifact,
    role,
    state,
    uncharged,
)

POLICY_DAYS = (
    "(SELECT p.approval_days FROM policy_version p WHERE p.id = coalesce("
    "(SELECT r.policy_id FROM request r WHERE r.id = NEW.request_id),"
    " (SELECT m.policy_id FROM proposal m WHERE m.id = NEW.proposal_id)))"
)

GUARDS = (
    Guard(
        "approval_subject",
        "approval",
        "the approval is not for what is waiting",
        f"""
        (
            NEW.gate = 'spend'
             AND (
                 NOT EXISTS (
                     SELECT 1 FROM request r WHERE r.id = NEW.request_id AND r.digest = NEW.subject_digest
                 )
                  OR {state("NEW.request_id")} NOT IN ('submitted', 'approved')
             )
        )
         OR (
             NEW.gate = 'publish'
              AND (
                  {latest_artifact("NEW.request_id")} IS DISTINCT FROM NEW.subject_digest
                   OR {state("NEW.request_id")} <> 'produced'
              )
         )
         OR (
             NEW.gate = 'proposal'
              AND NOT EXISTS (
                  SELECT 1 FROM proposal m
                   WHERE m.id = NEW.proposal_id
                    AND m.digest = NEW.subject_digest
                    AND CASE WHEN EXISTS (
                        SELECT 1 FROM carried c WHERE c.proposal_id = m.id
                    ) THEN NEW.decision = 'reject' ELSE m.expires_at > NEW.at END
              )
         )
        """,
    ),
    Guard(
        "approval_separate",
        "approval",
        "nobody approves what they requested or ran",
        """
        EXISTS (
            SELECT 1 FROM request r JOIN policy_version p ON p.id = r.policy_id
             WHERE r.id = NEW.request_id
              AND NOT p.several_roles
              AND (
                  r.requester_id = NEW.approver_id
                   OR EXISTS (
                       SELECT 1 FROM invocation i
                        WHERE i.request_id = r.id AND i.created_by = NEW.approver_id
                   )
              )
        )
         OR EXISTS (
             SELECT 1 FROM proposal m JOIN policy_version p ON p.id = m.policy_id
              WHERE m.id = NEW.proposal_id
               AND NOT p.several_roles
               AND m.proposer_id = NEW.approver_id
         )
        """,
    ),
    Guard(
        "approval_not_by_admin",
        "approval",
        "an admin does not approve",
        f"""
        {role("NEW.approver_id", "admin")}
         AND EXISTS (
             SELECT 1 FROM policy_version p
              WHERE NOT p.several_roles
               AND p.id = coalesce(
                   (
                       SELECT r.policy_id FROM request r WHERE r.id = NEW.request_id
                   ), (SELECT m.policy_id FROM proposal m WHERE m.id = NEW.proposal_id)
               )
         )
        """,
    ),
    Guard(
        "approval_counts_once",
        "approval",
        "that person has approved it already",
        """
        NEW.decision = 'approve'
         AND EXISTS (
             SELECT 1 FROM approval a
              WHERE a.decision = 'approve'
               AND (a.request_id = NEW.request_id OR a.proposal_id = NEW.proposal_id)
               AND a.gate = NEW.gate
               AND a.subject_digest = NEW.subject_digest
               AND a.expires_at > NEW.at
               AND NOT EXISTS (SELECT 1 FROM withdrawal w WHERE w.approval_id = a.id)
               AND a.approver_id = NEW.approver_id
         )
        """,
    ),
    Guard(
        "approval_not_taken_back",
        "approval",
        "that very approval was taken back; sign another, with another reason",
        """
        EXISTS (
            SELECT 1 FROM withdrawal w JOIN approval a ON a.id = w.approval_id
             WHERE a.signature = NEW.signature AND a.approver_id = NEW.approver_id
        )
        """,
    ),
    Guard(
        "approval_by_own_passkey",
        "approval",
        "a passkey decides for its own person, until it is revoked",
        """
        NEW.passkey_id IS NOT NULL
         AND NOT EXISTS (
             SELECT 1 FROM passkey k
              WHERE k.id = NEW.passkey_id
               AND k.principal_id = NEW.approver_id
               AND NOT EXISTS (SELECT 1 FROM passkey_end x WHERE x.passkey_id = k.id)
         )
        """,
    ),
    Guard(
        "approval_expires",
        "approval",
        "an approval expires as the policy says",
        later_than("NEW.expires_at", "NEW.at", POLICY_DAYS),
    ),
    Guard(
        "withdrawal_unused",
        "withdrawal",
        "an approval is taken back only before it is used",
        f"""
        NOT EXISTS (
            SELECT 1 FROM approval a
             WHERE a.id = NEW.approval_id
              AND a.decision = 'approve'
              AND (
                  (a.gate = 'spend' AND {state("a.request_id")} IN ('submitted', 'approved'))
                   OR (
                       a.gate = 'publish'
                        AND {state("a.request_id")} = 'produced'
                        AND NOT EXISTS (
                            SELECT 1 FROM publication p JOIN artifact f ON f.id = p.artifact_id
                             WHERE f.request_id = a.request_id
                        )
                   )
                   OR (
                       a.gate = 'proposal'
                        AND NOT EXISTS (SELECT 1 FROM carried c WHERE c.proposal_id = a.proposal_id)
                   )
              )
        )
        """,
    ),
    Guard(
        "withdrawal_by_own_passkey",
        "withdrawal",
        "a passkey takes back what its own person has approved, until it is revoked",
        """
        NEW.passkey_id IS NOT NULL
         AND NOT EXISTS (
             SELECT 1 FROM passkey k JOIN approval a ON a.id = NEW.approval_id
              WHERE k.id = NEW.passkey_id
               AND k.principal_id = a.approver_id
               AND NOT EXISTS (SELECT 1 FROM passkey_end x WHERE x.passkey_id = k.id)
         )
        """,
    ),
    Guard(
        "artifact_complete",
        "artifact",
        "an artifact needs every part of its plan armed on every block, and committed",
        f"""
        NOT EXISTS (
            SELECT 1 FROM invocation i WHERE i.request_id = NEW.request_id AND i.attempt = NEW.attempt
        )
         OR EXISTS (
             SELECT 1 FROM invocation i LEFT JOIN hold h ON h.invocation_id = i.id
              WHERE i.request_id = NEW.request_id
               AND i.attempt = NEW.attempt
               AND NOT {has_entry("h.id", "COMMIT")}
         )
         OR {uncharged("NEW.request_id")}
        """,
    ),
    Guard(
        "evaluation_of_run",
        "evaluation",
        "public and charged figures are recorded once, by the run that made the texts",
        f"""
        NEW.exposure <> 'internal'
         AND (
             NOT EXISTS (
                 SELECT 1 FROM artifact f
                  WHERE f.id = NEW.artifact_id
                   AND f.created_by = NEW.created_by
                   AND {state("f.request_id")} = 'running'
             )
              OR EXISTS (
                  SELECT 1 FROM evaluation x
                   WHERE x.artifact_id = NEW.artifact_id AND x.metric = NEW.metric
              )
         )
        """,
    ),
    Guard(
        "evaluation_charged",
        "evaluation",
        "a charged metric needs an armed hold of its own request, and has it alone",
        """
        NEW.exposure = 'charged'
         AND NOT EXISTS (
             SELECT 1 FROM artifact f JOIN invocation i ON i.request_id = f.request_id
              JOIN hold h ON h.invocation_id = i.id JOIN entry e ON e.hold_id = h.id
              WHERE f.id = NEW.artifact_id
               AND i.id = NEW.invocation_id
               AND e.kind = 'ARM'
               AND NOT EXISTS (SELECT 1 FROM evaluation x WHERE x.invocation_id = i.id)
         )
        """,
    ),
    Guard(
        "evaluation_viewed",
        "evaluation",
        "unprotected figures of governed data are recorded by somebody who is recorded to see them",
        """
        NEW.exposure = 'internal'
         AND NOT EXISTS (
             SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id
              JOIN dataset d ON d.id = r.dataset_id
              WHERE f.id = NEW.artifact_id
               AND (
                   NOT d.governed
                    OR EXISTS (
                        SELECT 1 FROM internal_view v WHERE v.artifact_id = f.id AND v.actor_id = NEW.created_by
                    )
               )
         )
        """,
    ),
    Guard(
        "publication_approved",
        "publication",
        "the publish gate is not passed",
        f"""
        NOT EXISTS (
            SELECT 1 FROM artifact f JOIN request r ON r.id = f.request_id
             JOIN policy_version p ON p.id = r.policy_id
             WHERE f.id = NEW.artifact_id
              AND {PUBLISH_GATE}
              AND {state("r.id")} = 'produced'
              AND {latest_artifact("r.id")} = f.digest
        )
        """,
    ),
)
