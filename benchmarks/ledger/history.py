"""A ledger with a long past, made in bulk: no guard is asked, and yet its counters are right and its chain holds.

The past is runs that failed: each of its requests was approved and run once, invoked a hundred mechanisms on every
block, armed them all and forfeited them. Rows and links are those that as many transactions would have left. All of it
is on the dataset that is there, because a guard that reads more than it must reads most where accounts are shared.
"""

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.ledger.audit import without_guards, write
from models_db.database.base import utc_now
from models_db.services import budget
from models_db.services.audit import chain, verify_chain
from models_db.services.audit.log import LoggedLink
from models_db.sessions.database import Database
from models_db.tables.accounts import CURVE_COLUMNS
from models_db.values.amounts import Amount
from models_db.values.canonical_json import encode_canonical
from models_db.writes.link_content import digest_of_contents, link_fields, name_rows
from models_db.writes.links import contents_between, views_of_rows

PER_REQUEST = 100
LOSS = Amount(1000, 1)
KINDS = ("HOLD", "ARM", "FORFEIT")
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
STEPS = (("draft", "submitted"), ("submitted", "approved"), ("approved", "running"), ("running", "approved"))

REQUESTS = """
INSERT INTO request (id, dataset_id, version_id, policy_id, canonical, digest, requester_id, created_at, expires_at)
{numbers} SELECT :request + n.i, dataset_id, version_id, policy_id, canonical, {digits}, requester_id, :at, expires_at
FROM n, request WHERE request.id = 1
"""
COPIES = tuple(
    f"INSERT INTO {table} (request_id, {columns}) SELECT q.number, {columns}"
    f" FROM (SELECT id AS number FROM request WHERE id > :request) q, {table} w WHERE w.request_id = 1"
    for table, columns in {
        "planned_block": "first_block, last_block",
        "planned_invocation": "sequence, mechanism, event, instalments",
        "planned_instalment": "sequence, first_instalment, last_instalment, rho, delta",
        "planned_release": "invocations",
        "lease": "attempt, token, owner, expires_at",
    }.items()
)
APPROVALS = """
INSERT INTO approval (id, request_id, gate, subject_digest, approver_id, decision, reason, at, expires_at, signature)
SELECT :approval + row_number() OVER (ORDER BY q.id), q.id, a.gate, q.digest, a.approver_id, a.decision, a.reason, :at,
a.expires_at, a.signature FROM request q, approval a WHERE q.id > :request AND a.id = 1
"""
TRANSITIONS = f"""
INSERT INTO transition (id, request_id, number, from_state, to_state, detail, at, actor_id)
SELECT :transition + row_number() OVER (ORDER BY q.id, s.number), q.id, s.number, s.was, s.is_now, '', :at, 1
FROM request q, ({
    " UNION ALL ".join(
        f"SELECT {number} AS number, '{was}' AS was, '{now}' AS is_now" for number, (was, now) in enumerate(STEPS, 1)
    )
}) s
WHERE q.id > :request
"""
_CURVE = ", ".join(CURVE_COLUMNS)
CHARGES = f"""
INSERT INTO renyi_charge (id, request_id, attempt, rho, {_CURVE}, at, actor_id)
SELECT :renyi_charge + row_number() OVER (ORDER BY q.id), q.id, 1, c.rho, {_CURVE}, :at, 1
FROM request q, renyi_charge c WHERE q.id > :request AND c.id = 1
"""
INVOCATIONS = """
INSERT INTO invocation (id, request_id, attempt, sequence, mechanism, event, relation, rng_kind, device, code_digest,
                        libraries, idem_key, created_at, created_by)
{numbers} SELECT :invocation + row_number() OVER (ORDER BY q.id, n.i), q.id, 1, n.i - 1, o.mechanism, o.event,
o.relation, 'os', o.device, o.code_digest, o.libraries, {digits}, :at, 1
FROM request q, n, (SELECT * FROM invocation WHERE id = 1) o WHERE q.id > :request
"""
HOLDS = """
INSERT INTO hold (id, invocation_id, account_id, instalment, rho, delta)
SELECT :hold + row_number() OVER (ORDER BY i.id, b.id), i.id, b.id, 0, :rho, :delta FROM invocation i, account b
WHERE i.id > :invocation AND b.parent_id IS NOT NULL
"""
ENTRIES = f"""
INSERT INTO entry (id, hold_id, kind, at, actor_id)
SELECT :entry + row_number() OVER (ORDER BY i.request_id, k.n, h.id), h.id, k.kind, :at, 1
FROM hold h JOIN invocation i ON i.id = h.invocation_id,
({" UNION ALL ".join(f"SELECT '{kind}' AS kind, {n} AS n" for n, kind in enumerate(KINDS))}) k WHERE h.id > :hold
"""
COUNTERS = """
UPDATE account SET rho_spent = rho_spent + :rho_more, delta_spent = delta_spent + :delta_more,
last_entry_id = (SELECT max(e.id) FROM entry e JOIN hold h ON h.id = e.hold_id WHERE h.account_id = account.id)
WHERE parent_id IS NOT NULL
"""


def transactions(blocks: int) -> tuple[dict[str, int], ...]:
    """How many rows of which table each transaction of a request adds, from its submission until its run fails."""
    held = PER_REQUEST * blocks
    return (
        {"request": 1, "transition": 1},
        {"approval": 1, "transition": 1},
        {"renyi_charge": 1, "transition": 1},
        {"entry": held, "hold": held, "invocation": PER_REQUEST},
        *[{"entry": blocks}] * PER_REQUEST,
        {"entry": held, "transition": 1},
    )


def lengthen(database: Database, invocations: int) -> None:
    """Give the ledger, in which one request has run, that many invocations more, a multiple of a hundred."""
    with database.write() as session:
        guards = without_guards(session)
        newest = _rows(session, invocations)
        _links(session, newest, invocations // PER_REQUEST)
        for statement in guards:
            session.connection().exec_driver_sql(statement)
    if not database.is_sqlite:  # what the server does by itself some time after
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))
    database.dispose()
    examine(database)


def _rows(session: Session, invocations: int) -> dict[str, int]:
    """Add all rows but the links. Returns the newest row of each table before."""
    digits = "printf('%064d', {})" if session.get_bind().dialect.name == "sqlite" else "lpad(CAST({} AS text), 64, '0')"
    requests, mechanisms = NUMBERS.format(last=invocations // PER_REQUEST), NUMBERS.format(last=PER_REQUEST)
    key = digits.format(f"q.id * {10 * PER_REQUEST} + n.i")
    newest = {table: session.execute(text(f"SELECT max(id) FROM {table}")).scalar_one()
              for transaction in transactions(1) for table in transaction}  # fmt: skip
    more = {"rho_more": LOSS.rho * invocations, "delta_more": LOSS.delta * invocations}
    given = {"at": utc_now(), "rho": LOSS.rho, "delta": LOSS.delta, **more, **newest}
    for statement in (
        REQUESTS.format(numbers=requests, digits=digits.format("n.i")),
        *COPIES,
        APPROVALS,
        TRANSITIONS,
        CHARGES,
        INVOCATIONS.format(numbers=mechanisms, digits=key),
        HOLDS,
        ENTRIES,
        COUNTERS,
    ):
        session.execute(text(statement), given)
    return newest


def _links(session: Session, newest: dict[str, int], requests: int) -> None:
    head = chain.read_chain_head(session)
    began = session.execute(text("SELECT at FROM audit WHERE seq = :seq"), {"seq": head.seq}).scalar_one()
    blocks = session.execute(text("SELECT count(*) FROM account WHERE parent_id IS NOT NULL")).scalar_one()
    last = LoggedLink(head.seq, "", head.hash, began, "", "", None, None, "")
    for _ in range(requests):
        last = write(session, iter(_chain(session, newest, last, transactions(blocks))))
    session.execute(text("UPDATE audit_head SET seq = :seq, hash = :hash"), {"seq": last.seq, "hash": last.row_hash})


def _chain(
    session: Session, newest: dict[str, int], last: LoggedLink, made: tuple[dict[str, int], ...]
) -> list[LoggedLink]:
    """Return the links of a request, a microsecond apart: the past must be over when the stopwatch starts."""
    ranges: list[dict[str, range]] = []
    for transaction in made:
        ranges.append({})
        for table, count in transaction.items():
            ranges[-1][table] = range(newest[table] + 1, newest[table] + count + 1)
            newest[table] += count
    contents, views = {}, {}
    for table in newest:
        own = [added[table] for added in ranges if table in added]
        contents[table] = contents_between(session, table, own[0][0], own[-1][-1])
        views[table] = views_of_rows(session, table, [numbers[-1] for numbers in own])
    links, at = [], datetime.fromisoformat(last.at)
    for seq, added in enumerate(ranges, last.seq + 1):
        at += timedelta(microseconds=1)
        rows = [name_rows(table, numbers[0], numbers[-1], digest_of_contents(map(contents[table].get, numbers)))
                for table, numbers in added.items()]  # fmt: skip
        said = link_fields([views[table][numbers[-1]] for table, numbers in added.items()])
        last = LoggedLink(seq, last.row_hash, "", utc_now(at), body=encode_canonical({"rows": rows}).decode(), **said)
        last = last._replace(row_hash=verify_chain.link_hash(last))
        links.append(last)
    return links


def examine(database: Database) -> None:
    """A benchmark of a ledger that lost count would be worth nothing."""
    with database.read() as session:
        if budget.differing_counters(session) or not verify_chain.verify_chain(session).sound:
            raise SystemExit("the ledger lost count, or its chain is broken")
