"""Whether the tables say what the chain tells: no fact without its link, and no link without its fact.

Guards refuse a change that is not told, but whoever may drop a guard may put it back afterwards: the schema and the
chain then look as they did. What the chain tells is compared with the rows, as sums of digests, so that the comparison
needs no memory for them. Links can be rewritten too; bundles and checkpoints outside tell that (`audit_check`).
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.canonical import canonical
from models_db.services import erasures

_MANY = 10_000
_DIGESTS = 2**256

_COUNTED = {
    # what: the number of its rows, the kind of its links
    "datasets": ("SELECT count(*) FROM dataset", "dataset.registered"),
    "versions of data": ("SELECT count(*) FROM dataset_version", "dataset.ingested"),
    "requests": ("SELECT count(*) FROM request", "request.submitted"),
    "attempts": ("SELECT count(*) FROM transition WHERE to_state = 'running'", "run.started"),
    "artifacts": ("SELECT count(*) FROM artifact", "run.produced"),
    "publications": ("SELECT count(*) FROM publication", "release.published"),
    "deliveries": ("SELECT count(*) FROM delivery", "release.delivered"),
    "delegations": ("SELECT count(*) FROM delegation", "delegation.given"),
    "ended delegations": ("SELECT count(*) FROM delegation_end", "delegation.ended"),
    "motions": ("SELECT count(*) FROM motion", "motion.proposed"),
    "carried motions": ("SELECT count(*) FROM carried", "motion.carried"),
    "envelopes": ("SELECT count(*) FROM account WHERE kind = 'scope'", "scope.opened"),
    "closed envelopes": ("SELECT count(*) FROM scope_end", "scope.closed"),
    "schedules": ("SELECT count(*) FROM schedule", "schedule.created"),
    "changes of schedules": ("SELECT count(*) FROM schedule_change", "schedule.changed"),
    "slots of schedules": ("SELECT count(*) FROM schedule_slot", "slot.decided"),
    "ended erasures": ("SELECT count(*) FROM erasure_end", "dataset.erasure_ended"),
    "runs given up": ("SELECT count(*) FROM slot_end", "slot.ended"),
}

_ARMED = """
SELECT i.request_id, i.attempt, i.sequence, h.instalment, min(h.rho), max(h.rho), min(h.delta), max(h.delta),
       sum(CASE a.kind WHEN 'block' THEN 1 ELSE 0 END)
  FROM entry e JOIN hold h ON h.id = e.hold_id JOIN invocation i ON i.id = h.invocation_id
  JOIN account a ON a.id = h.account_id
 WHERE e.kind = 'ARM' GROUP BY i.request_id, i.attempt, i.sequence, h.instalment"""

_DECIDED = """
SELECT coalesce(a.request_id, a.motion_id), a.gate, a.decision, a.subject_digest, a.reason, a.expires_at, a.signature,
       p.name, b.name
  FROM approval a JOIN principal p ON p.id = a.approver_id LEFT JOIN principal b ON b.id = a.on_behalf_of"""

_GRANTED = "SELECT p.name, g.role FROM role_grant g JOIN principal p ON p.id = g.principal_id"
_REVOKED = """
SELECT DISTINCT p.name, g.role FROM role_revocation v JOIN role_grant g ON g.id = v.grant_id
  JOIN principal p ON p.id = g.principal_id"""
_ADOPTED = """
SELECT p.digest FROM policy_adoption y JOIN policy_version p ON p.id = y.policy_id ORDER BY y.id"""

_VIEWED = """
SELECT f.request_id, p.name, v.kind FROM internal_view v JOIN artifact f ON f.id = v.artifact_id
  JOIN principal p ON p.id = v.actor_id"""
_GOVERNED = """
SELECT r.id FROM request r JOIN dataset d ON d.id = r.dataset_id WHERE d.governed"""
_VIEWS = {"evaluation.internal": "computed", "evaluation.shown": "shown"}

Facts = Iterable[Iterable[object]]


def differences(session: Session) -> list[str]:
    """What the tables and the chain do not agree on, in words; empty when they do."""
    compared: dict[str, tuple[Facts, Facts]] = {
        "people": (_rows(session, "SELECT name, public_key FROM principal"), _enrolled(session)),
        "roles": (_rows(session, _GRANTED), _granted(session)),
        "revoked roles": (_rows(session, _REVOKED), _revoked(session)),
        "decisions": (_rows(session, _DECIDED), _decided(session)),
        "withdrawn approvals": (_rows(session, "SELECT DISTINCT signature FROM withdrawal"), _withdrawn(session)),
        "views of unprotected figures": (_rows(session, _VIEWED), _viewed(session)),
        "erasures": (_erased_rows(session), _erased(session)),
        "what was spent": (_armed_rows(session), _armed(session)),
    }
    wrong = [what for what, (rows, links) in compared.items() if _sum(rows) != _sum(links)]
    if not _policy_agrees(session):
        wrong.append("the policy in force")
    return wrong + _miscounted(session)


def _sum(facts: Facts) -> int:
    """The same for the same facts in any order, however often each occurs."""
    total = 0
    for fact in facts:
        total += int.from_bytes(hashlib.sha256(canonical([None if x is None else str(x) for x in fact])).digest())
    return total % _DIGESTS


def _rows(session: Session, query: str) -> Iterator[Any]:
    return iter(session.execute(text(query), execution_options={"yield_per": _MANY}))


def _links(session: Session, *kinds: str) -> Iterator[tuple[str, str, int | None, dict[str, Any]]]:
    """Kind, actor, request and body of all links of these kinds, oldest first."""
    for kind in kinds:
        query = text("SELECT kind, actor, request_id, body FROM audit WHERE kind = :kind ORDER BY seq")
        for row in session.execute(query, {"kind": kind}, execution_options={"yield_per": _MANY}):
            yield row.kind, row.actor, row.request_id, _body(row.body)


def _body(told: str) -> dict[str, Any]:
    """What a link says; one that was damaged says nothing, and `audit_check` says so."""
    try:
        body = json.loads(told)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _miscounted(session: Session) -> list[str]:
    query = text("SELECT kind, count(*) AS number FROM audit GROUP BY kind")
    told: dict[str, int] = {row.kind: row.number for row in session.execute(query)}
    return [what for what, (rows, kind) in _COUNTED.items() if session.scalar(text(rows)) != told.get(kind, 0)]


def _policy_agrees(session: Session) -> bool:
    """The last adoption is the last link's; a ledger from before adoptions were recorded may have fewer of them."""
    adopted = session.scalars(text(_ADOPTED)).all()
    told = [body.get("digest") for _, _, _, body in _links(session, "policy.adopted")]
    return not adopted or (len(adopted) <= len(told) and told[-1] == adopted[-1])


def _enrolled(session: Session) -> Facts:
    for _, _, _, body in _links(session, "principal.enrolled"):
        yield body.get("name"), body.get("public_key")


def _granted(session: Session) -> Facts:
    for _, _, _, body in _links(session, "role.granted"):
        yield body.get("name"), body.get("role")
    for _, _, _, body in _links(session, "principal.enrolled"):
        yield from ((body.get("name"), role) for role in body.get("roles", ()))
    for _, _, _, body in _links(session, "roles.migrated"):  # what everybody could do before roles were recorded
        query = text("SELECT name FROM principal ORDER BY id LIMIT :number")
        for name in session.scalars(query, {"number": body.get("principals")}).all():
            yield from ((name, role) for role in ("analyst", "runner", "steward", "auditor"))
        yield body.get("admin"), "admin"


def _revoked(session: Session) -> Facts:
    yield from {(body.get("name"), body.get("role")) for _, _, _, body in _links(session, "role.revoked")}


def _decided(session: Session) -> Facts:
    for kind, actor, request_id, body in _links(
        session, "request.approve", "request.reject", "motion.approve", "motion.reject"
    ):
        said = [body.get(name) for name in ("subject", "reason", "expires_at", "signature")]
        approver, behalf = body.get("approver", actor), body.get("on_behalf_of")
        yield body.get("motion", request_id), body.get("gate"), kind.split(".")[1], *said, approver, behalf


def _withdrawn(session: Session) -> Facts:
    for _, _, _, body in _links(session, "request.approval_withdrawn"):
        yield (body.get("signature"),)


def _viewed(session: Session) -> Facts:
    """Figures of public data are free: whoever sees them is marked nowhere."""
    governed = set(session.scalars(text(_GOVERNED)))
    for kind, actor, request_id, _ in _links(session, *_VIEWS):
        if request_id in governed:
            yield request_id, actor, _VIEWS[kind]


def _erased_rows(session: Session) -> Facts:
    for made in erasures.every(session):
        yield (canonical(erasures.told(session, made)).decode(),)


def _erased(session: Session) -> Facts:
    for _, _, _, body in _links(session, "dataset.erased"):
        yield (canonical(body).decode(),)


def _armed_rows(session: Session) -> Facts:
    """Each instalment with its amount and the number of blocks it was entered on."""
    for request, attempt, sequence, instalment, rho, most_rho, delta, most_delta, blocks in _rows(session, _ARMED):
        alike = (rho, delta) == (most_rho, most_delta)
        yield request, attempt, sequence, instalment, rho if alike else "several", delta, blocks


def _armed(session: Session) -> Facts:
    blocks = {
        (request_id, body.get("attempt")): len(body.get("blocks", ()))
        for _, _, request_id, body in _links(session, "ledger.hold")
    }  # fmt: skip
    for _, _, request_id, body in _links(session, "ledger.arm"):
        said = [body.get(name) for name in ("attempt", "sequence", "instalment", "rho", "delta")]
        yield request_id, *said, blocks.get((request_id, body.get("attempt")))
