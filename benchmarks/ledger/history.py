"""A ledger with a long past, made in bulk: no guard is asked, and yet its counters are right and its chain holds.

The past is runs that failed: each of its requests was approved and run once, invoked a hundred mechanisms on every
block, armed them all and forfeited them. All of it is on the dataset that is there, because a guard that reads more
than it must reads most where accounts are shared.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.ledger.audit import without_guards, write
from models_db.database.base import utc_now
from models_db.services.audit import chain, verify_chain
from models_db.services.audit.chain import ChainPosition
from models_db.services.audit.log import LoggedLink
from models_db.services.lifecycle import ledger
from models_db.sessions.database import Database
from models_db.tables.accounts import CURVE_COLUMNS
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical

PER_REQUEST = 100
LOSS = Amount(1000, 1)
KINDS = ("hold", "arm", "forfeit")
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
STEPS = (("draft", "submitted"), ("submitted", "approved"), ("approved", "running"), ("running", "approved"))

REQUESTS = """
INSERT INTO request (dataset_id, version_id, policy_id, canonical, digest, requester_id, created_at, expires_at)
{numbers} SELECT dataset_id, version_id, policy_id, canonical, {digits}, requester_id, :at, expires_at
FROM n, request WHERE request.id = 1
"""
PLANS = tuple(
    f"INSERT INTO {table} (request_id, {columns}) SELECT q.id, {columns} FROM request q, {table} w"
    " WHERE q.id > :before AND w.request_id = 1"
    for table, columns in {
        "planned_block": "first_block, last_block",
        "planned_invocation": "sequence, mechanism, event, instalments",
        "planned_instalment": "sequence, first_instalment, last_instalment, rho, delta",
        "planned_release": "invocations",
    }.items()
)
APPROVALS = """
INSERT INTO approval (request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at, signature)
SELECT q.id, a.gate, q.digest, a.approver_id, a.decision, a.reason, :at, a.expires_at, a.signature
FROM request q, approval a WHERE q.id > :before AND a.id = 1 ORDER BY q.id
"""
TRANSITIONS = f"""
INSERT INTO transition (request_id, number, from_state, to_state, detail, at, actor_id)
SELECT q.id, s.number, s.was, s.is_now, '', :at, 1
FROM request q, ({
    " UNION ALL ".join(
        f"SELECT {number} AS number, '{was}' AS was, '{now}' AS is_now" for number, (was, now) in enumerate(STEPS, 1)
    )
}) s
WHERE q.id > :before ORDER BY q.id, s.number
"""
_CURVE = ", ".join(CURVE_COLUMNS)
CHARGES = f"""
INSERT INTO renyi_charge (request_id, attempt, rho, {_CURVE}, at, actor_id)
SELECT q.id, 1, c.rho, {_CURVE}, :at, 1 FROM request q, renyi_charge c WHERE q.id > :before AND c.id = 1 ORDER BY q.id
"""
INVOCATIONS = """
INSERT INTO invocation (request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
{numbers} SELECT q.id, 1, n.i - 1, o.mechanism, o.event, o.relation, 'os', o.device, o.code_digest, o.libraries,
{digits}, :at, 1 FROM request q, n, (SELECT * FROM invocation WHERE id = 1) o WHERE q.id > :before ORDER BY q.id, n.i
"""
HOLDS = """
INSERT INTO hold (invocation_id, account_id, instalment, rho, delta)
SELECT i.id, b.id, 0, :rho, :delta FROM invocation i, account b
WHERE i.id > :before AND b.parent_id IS NOT NULL ORDER BY i.id, b.id
"""
ENTRIES = f"""
INSERT INTO entry (hold_id, kind, at, actor_id) SELECT h.id, k.kind, :at, 1
FROM hold h, ({" UNION ALL ".join(f"SELECT '{kind.upper()}' AS kind, {n} AS n" for n, kind in enumerate(KINDS))}) k
WHERE h.id > :before ORDER BY h.id, k.n
"""
COUNTERS = """
UPDATE account SET rho_spent = rho_spent + :rho, delta_spent = delta_spent + :delta,
last_entry_id = (SELECT max(e.id) FROM entry e JOIN hold h ON h.id = e.hold_id WHERE h.account_id = account.id)
WHERE parent_id IS NOT NULL
"""


def lengthen(database: Database, invocations: int) -> None:
    """Give the ledger, in which one request has run, that many invocations more, a multiple of a hundred."""
    with database.write() as session:
        guards = without_guards(session)
        _rows(session, invocations)
        _links(session, invocations)
        for statement in guards:
            session.connection().exec_driver_sql(statement)
    if not database.is_sqlite:  # what the server does by itself some time after
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))
    database.dispose()
    examine(database)


def _rows(session: Session, invocations: int) -> None:
    digits = "printf('%064d', {})" if session.get_bind().dialect.name == "sqlite" else "lpad(CAST({} AS text), 64, '0')"
    requests = NUMBERS.format(last=invocations // PER_REQUEST)
    given = {"at": utc_now()}
    before = {
        table: session.scalar(text(f"SELECT max(id) FROM {table}")) for table in ("request", "invocation", "hold")
    }
    session.execute(text(REQUESTS.format(numbers=requests, digits=digits.format("n.i"))), given)
    since = given | {"before": before["request"]}
    for plan in PLANS:
        session.execute(text(plan), since)
    session.execute(text(APPROVALS), since)
    session.execute(text(TRANSITIONS), since)
    session.execute(text(CHARGES), since)
    mechanisms, key = NUMBERS.format(last=PER_REQUEST), digits.format(f"q.id * {10 * PER_REQUEST} + n.i")
    session.execute(text(INVOCATIONS.format(numbers=mechanisms, digits=key)), since)
    session.execute(text(HOLDS), {"before": before["invocation"], "rho": LOSS.rho, "delta": LOSS.delta})
    session.execute(text(ENTRIES), given | {"before": before["hold"]})
    session.execute(text(COUNTERS), {"rho": LOSS.rho * invocations, "delta": LOSS.delta * invocations})


def _links(session: Session, invocations: int) -> None:
    head = chain.read_chain_head(session)
    asked = "SELECT (SELECT at FROM audit WHERE seq = :seq), (SELECT name FROM dataset), (SELECT max(id) FROM request)"
    began, dataset, newest = session.execute(text(asked), {"seq": head.seq}).one()
    first = newest - invocations // PER_REQUEST + 1
    last = write(session, _chain(head, datetime.fromisoformat(began), dataset, first, invocations))
    session.execute(text("UPDATE audit_head SET seq = :seq, hash = :hash"), {"seq": last.seq, "hash": last.row_hash})


def _chain(
    head: ChainPosition, began: datetime, dataset: str, first_request: int, invocations: int
) -> Iterator[LoggedLink]:
    """Three links for each invocation, a microsecond apart: the past must be over when the stopwatch starts."""
    previous = head.hash
    for number in range(3 * invocations):
        said: dict[str, Json] = {"rows": [{"table": "entry", "ids": str(number + 1), "content": previous}]}
        at, request = utc_now(began + timedelta(microseconds=number)), first_request + number // 3 // PER_REQUEST
        body, kind = encode_canonical(said).decode(), f"ledger.{KINDS[number % 3]}"
        link = LoggedLink(head.seq + number + 1, previous, "", at, "bench", kind, dataset, request, body)
        link = link._replace(row_hash=verify_chain.link_hash(link))
        previous = link.row_hash
        yield link


def examine(database: Database) -> None:
    """A benchmark of a ledger that lost count would be worth nothing."""
    with database.read() as session:
        if ledger.differing_counters(session) or not verify_chain.verify_chain(session).sound:
            raise SystemExit("the ledger lost count, or its chain is broken")
