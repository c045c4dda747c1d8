"""Content of links: one view for each table, with the same text on both databases.

Every row of the ledger is named by one link of the chain, with the SHA-256 of its content. A view gives kind, actor,
dataset and request of the link, and the fields of its body that people and exports read: names instead of numbers,
amounts as text, nothing that changes later and nothing private. A new table needs a view here and a rank in
`audit_log`.
"""

from migrations.schema.definitions import Both, Sql

# Three fields of what is asked, for whoever reads the record. On SQLite, which does not let views use its JSON
# functions before 3.41, the text is read by `models_db.writes.links`.
ASKED = Both(
    sqlite="x.canonical AS asked",
    postgresql=", ".join(
        f"CASE WHEN x.canonical IS JSON OBJECT THEN substr(x.canonical::json ->> '{name}', 1, 255) END AS {name}"
        for name in ("kind", "mechanism", "epsilon")
    ),
)

OF_DATASET = "(SELECT d.name FROM dataset d WHERE d.id = {id})"
OF_REQUEST = "(SELECT d.name FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE r.id = {id})"
FIRST_DATASET = "(SELECT d.name FROM dataset d WHERE d.account_id = {id} ORDER BY d.id LIMIT 1)"
NOBODY = "'unknown'"


def view(table: str, kind: str, actor: str | None, dataset: str = "NULL", request: str = "NULL", told: str = "",
         joined: str = "") -> str:  # fmt: skip
    """Return the query of a view; row `x` is the subject, `p` the principal who acts."""
    name = "p.name" if actor else NOBODY
    who = f" LEFT JOIN principal p ON p.id = {actor}" if actor else ""
    return (
        f"SELECT x.id AS row_id, {kind} AS link_kind, coalesce({name}, {NOBODY}) AS link_actor,"
        f" CAST({dataset} AS VARCHAR(255)) AS link_dataset, CAST({request} AS INTEGER) AS link_request"
        f"{', ' if told else ''}{told} FROM {table} x{who}{joined}"
    )


def words(column: str, name: str = "") -> str:
    """Return the SQL of an amount as text."""
    return f"CAST({column} AS VARCHAR(40)) AS {name or column.split('.')[-1]}"


ATTEMPT = (
    "(SELECT count(*) FROM transition t WHERE t.request_id = x.request_id AND t.to_state = 'running'"
    " AND t.number <= x.number)"
)
ENDS = "x.to_state = 'running' OR x.from_state = 'running'"
PUBLISHED = (
    " JOIN artifact f ON f.id = {publication}.artifact_id JOIN request r ON r.id = f.request_id"
    " JOIN dataset d ON d.id = r.dataset_id"
)
OWN = "LEFT JOIN request r ON r.id = x.request_id LEFT JOIN proposal m ON m.id = x.proposal_id"
DECIDED = OWN.replace("x.", "a.")
BY_ACCOUNT = FIRST_DATASET.format(id="x.account_id")
OF_SLOT = " JOIN schedule s ON s.id = {schedule} JOIN dataset d ON d.id = s.dataset_id"
BROUGHT = "coalesce(x.brought_by, {approver})"

VIEWS: dict[str, Sql] = {
    "principal": view("principal", "'principal.enrolled'", "coalesce(x.created_by, x.id)",
                      told="x.name, x.public_key, x.login"),
    "role_grant": view("role_grant", "'role.granted'", "x.granted_by",
                       told='q.name, x.role, x.valid_from AS "from", x.valid_to AS "to", x.reason',
                       joined=" JOIN principal q ON q.id = x.principal_id"),
    "role_revocation": view("role_revocation", "'role.revoked'", "x.revoked_by", told="q.name, g.role, x.reason",
                            joined=" JOIN role_grant g ON g.id = x.grant_id"
                                   " JOIN principal q ON q.id = g.principal_id"),
    "passkey": view("passkey", "'passkey.registered'", "x.created_by",
                    told="x.id AS passkey, q.name, x.public_key, x.rp_id, x.origin, x.signature",
                    joined=" JOIN principal q ON q.id = x.principal_id"),
    "passkey_end": view("passkey_end", "'passkey.revoked'", "x.ended_by",
                        told="x.passkey_id AS passkey, q.name, x.reason",
                        joined=" JOIN passkey k ON k.id = x.passkey_id JOIN principal q ON q.id = k.principal_id"),
    "policy_version": view("policy_version", "'policy.recorded'", None, told="x.digest, x.several_roles"),
    "policy_rule": view("policy_rule", "'policy.recorded'", None, told="v.digest, x.dataset AS rule",
                        joined=" JOIN policy_version v ON v.id = x.policy_id"),
    "policy_adoption": view("policy_adoption", "'policy.adopted'", "x.adopted_by", told="v.digest, v.several_roles",
                            joined=" JOIN policy_version v ON v.id = x.policy_id"),
    "account": view("account", "'account.opened'", "x.created_by",
                    told="x.id AS account, x.block, x.epsilon, x.delta, x.blocks, x.key_commitment"),
    "overlap_key": view("overlap_key", "'key.committed'", "x.created_by", told="x.key_commitment"),
    "dataset": view("dataset", "'dataset.registered'", "x.created_by", "x.name",
                    told="x.name, x.registration, x.unit_field AS unit, x.text_field AS text, x.relation, x.governed,"
                         " a.epsilon, a.delta, a.blocks, x.account_id AS account, x.population",
                    joined=" LEFT JOIN account a ON a.id = x.account_id"),
    "dataset_version": view("dataset_version", "'dataset.ingested'", "x.created_by",
                            OF_DATASET.format(id="x.dataset_id"), told="x.number AS version, x.uid"),
    "unit_claim": view("unit_claim", "'units.claimed'", "x.created_by", BY_ACCOUNT),
    "cohort": view("cohort", "'cohort.opened'", "x.created_by", "d.name",
                   told="x.number AS cohort, v.number AS version, a.blocks, x.population",
                   joined=" JOIN dataset_version v ON v.id = x.version_id JOIN dataset d ON d.id = v.dataset_id"
                          " LEFT JOIN account a ON a.id = x.account_id"),
    "request": ASKED.within(
        view("request", "'request.submitted'", "x.requester_id", OF_DATASET.format(id="x.dataset_id"), "x.id",
             told="x.digest, x.standing_id AS standing, @")),
    "transition": view("transition", "CASE WHEN x.to_state = 'running' THEN 'run.started'"
                       " WHEN x.from_state = 'running' AND x.to_state = 'approved' THEN 'run.failed'"
                       " WHEN x.to_state = 'withdrawn' THEN 'request.withdrawn' ELSE 'request.moved' END",
                       "x.actor_id", OF_REQUEST.format(id="x.request_id"), "x.request_id",
                       told=f"CASE WHEN {ENDS} THEN {ATTEMPT} END AS attempt,"
                            " CASE WHEN x.to_state = 'running' AND x.detail <> '' THEN x.detail END AS goes_on_from,"
                            " CASE WHEN x.to_state = 'withdrawn' OR x.from_state = 'running' THEN x.detail END"
                            f" AS reason, CASE WHEN x.to_state = 'withdrawn' OR {ENDS} THEN NULL ELSE x.to_state END"
                            " AS state"),
    "approval": view("approval", "CASE x.gate WHEN 'proposal' THEN 'proposal.' ELSE 'request.' END || x.decision",
                     BROUGHT.format(approver="x.approver_id"),
                     OF_DATASET.format(id="coalesce(r.dataset_id, m.dataset_id)"), "x.request_id",
                     told="x.gate, x.subject_digest AS subject, x.reason, x.expires_at, x.signature,"
                          " x.passkey_id AS passkey, x.proposal_id AS proposal,"
                          " CASE WHEN x.brought_by <> x.approver_id THEN q.name END AS approver",
                     joined=f" JOIN principal q ON q.id = x.approver_id {OWN}"),
    "withdrawal": view("withdrawal",
                       "CASE a.gate WHEN 'proposal' THEN 'proposal.' ELSE 'request.' END || 'approval_withdrawn'",
                       "coalesce(x.brought_by, (SELECT b.approver_id FROM approval b WHERE b.id = x.approval_id))",
                       OF_DATASET.format(id="coalesce(r.dataset_id, m.dataset_id)"), "a.request_id",
                       told="a.gate, x.reason, x.signature, x.passkey_id AS passkey, a.proposal_id AS proposal,"
                            " CASE WHEN x.brought_by <> a.approver_id THEN q.name END AS approver",
                       joined=" JOIN approval a ON a.id = x.approval_id JOIN principal q ON q.id = a.approver_id"
                              f" {DECIDED}"),
    "proposal": view("proposal", "'proposal.proposed'", "x.proposer_id", OF_DATASET.format(id="x.dataset_id"),
                   told="x.id AS proposal, x.kind, x.digest, x.reason"),
    "carried": view("carried", "'proposal.carried'", "x.actor_id", OF_DATASET.format(id="m.dataset_id"), "f.request_id",
                    told="x.proposal_id AS proposal, m.kind, m.digest",
                    joined=" JOIN proposal m ON m.id = x.proposal_id LEFT JOIN publication b ON b.id = m.publication_id"
                           " LEFT JOIN artifact f ON f.id = b.artifact_id"),
    "standing_use": view("standing_use", "'standing.used'", "x.actor_id", OF_REQUEST.format(id="x.request_id"),
                         "x.request_id", told="x.proposal_id AS proposal, x.number, x.attempt"),
    "invocation": view("invocation", "'ledger.invocation'", "x.created_by", OF_REQUEST.format(id="x.request_id"),
                       "x.request_id", told="x.attempt, x.sequence, x.mechanism"),
    "hold": view("hold", "'ledger.held'", "i.created_by", OF_REQUEST.format(id="i.request_id"), "i.request_id",
                 told=f"i.attempt, i.sequence, x.instalment, {words('x.rho')}, {words('x.delta')}")
            .replace("FROM hold x", "FROM hold x JOIN invocation i ON i.id = x.invocation_id"),
    "entry": view("entry", "'ledger.entered'", "x.actor_id", OF_REQUEST.format(id="i.request_id"), "i.request_id",
                  told="i.attempt, i.sequence, h.instalment, x.kind AS entry",
                  joined=" JOIN hold h ON h.id = x.hold_id JOIN invocation i ON i.id = h.invocation_id"),
    "renyi_charge": view("renyi_charge", "'ledger.charged'", "x.actor_id", OF_REQUEST.format(id="x.request_id"),
                         "x.request_id", told=f"x.attempt, {words('x.rho')}"),
    "artifact": view("artifact", "'run.produced'", "x.created_by", OF_REQUEST.format(id="x.request_id"), "x.request_id",
                     told='x.attempt, x.digest AS artifact, x.values_digest AS "values"'),
    "evaluation": view("evaluation", "'evaluation.' || x.exposure", "x.created_by",
                       OF_REQUEST.format(id="f.request_id"), "f.request_id", told="x.metric",
                       joined=" JOIN artifact f ON f.id = x.artifact_id"),
    "internal_view": view("internal_view",
                          "CASE x.kind WHEN 'computed' THEN 'evaluation.internal' ELSE 'evaluation.shown' END",
                          "x.actor_id", OF_REQUEST.format(id="f.request_id"), "f.request_id", told="x.kind AS view",
                          joined=" JOIN artifact f ON f.id = x.artifact_id"),
    "assignment_exposure": view("assignment_exposure", "'assignment.exposed'", "x.actor_id",
                                OF_REQUEST.format(id="x.request_id"), "x.request_id", told="x.since, x.reason"),
    "erasure": view("erasure", "'dataset.erased'", "x.actor_id", OF_DATASET.format(id="x.dataset_id"),
                    told="x.id AS erasure, x.scope, v.number AS version, x.reason",
                    joined=" LEFT JOIN dataset_version v ON v.id = x.version_id"),
    "erased_version": view("erased_version", "'dataset.version_erased'", "e.actor_id",
                           OF_DATASET.format(id="e.dataset_id"), told="x.erasure_id AS erasure, v.number AS version",
                           joined=" JOIN dataset_version v ON v.id = x.version_id")
                      .replace("FROM erased_version x", "FROM erased_version x JOIN erasure e ON e.id = x.erasure_id"),
    "erasure_end": view("erasure_end", "'dataset.erasure_ended'", "x.actor_id", OF_DATASET.format(id="e.dataset_id"),
                        told="x.erasure_id AS erasure", joined=" JOIN erasure e ON e.id = x.erasure_id"),
    "publication": view("publication", "'release.published'", "x.actor_id", "d.name", "r.id",
                        told="f.digest AS artifact", joined=PUBLISHED.format(publication="x")),
    "delivery": view("delivery", "'release.delivered'", "x.created_by", "d.name", "r.id",
                     told="x.destination, x.bundle_digest AS bundle",
                     joined=" JOIN publication b ON b.id = x.publication_id" + PUBLISHED.format(publication="b")),
    "checkpoint": view("checkpoint", "'checkpoint.recorded'", "x.created_by", told="x.seq AS link, x.hash"),
    "schedule": view("schedule", "'schedule.created'", "x.created_by", OF_DATASET.format(id="x.dataset_id"),
                     told="x.id AS schedule, x.standing_id AS standing, x.kind, x.rule, x.zone, x.starts_at, x.reason"),
    "schedule_change": view("schedule_change", "'schedule.changed'", "x.actor_id", "d.name",
                            told="x.schedule_id AS schedule, x.kind, x.reason",
                            joined=OF_SLOT.format(schedule="x.schedule_id")),
    "schedule_slot": view("schedule_slot", "'slot.decided'", "x.actor_id", "d.name", "x.request_id",
                          told="x.schedule_id AS schedule, x.slot, x.skipped",
                          joined=OF_SLOT.format(schedule="x.schedule_id")),
    "slot_end": view("slot_end", "'slot.ended'", "x.actor_id", "d.name", "o.request_id",
                     told="o.schedule_id AS schedule, o.slot, x.reason",
                     joined=" JOIN schedule_slot o ON o.id = x.slot_id" + OF_SLOT.format(schedule="o.schedule_id")),
    "restoration": view("restoration", "'backup.restored'", "x.actor_id", told="x.taken_at, x.link, x.reason"),
    "twin_attack": view("twin_attack", "'attack.public_twin'", "x.actor_id", "x.dataset",
                        told="x.request_id AS request, x.configuration, x.result, x.attacks"),
    "rehearsal": view("rehearsal", "'release.rehearsed'", "x.actor_id", "x.dataset",
                      told="x.request_id AS request, x.configuration"),
}  # fmt: skip
