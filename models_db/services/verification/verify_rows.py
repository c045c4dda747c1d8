"""Comparison of all tables with the chain: one link names every row, and the content of every link matches its rows.

Guards refuse a change that no link records, but a role that may drop a guard may restore it afterwards: the schema and
the chain then look unchanged. So every column of every table is compared: with the link that commits to it, or, where
it changes, with the rows from which it follows. Links can be rewritten too; bundles and checkpoints outside the ledger
show that (`verify_chain`).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.services import budget, requests
from models_db.services.audit.chain import read_chain_head
from models_db.services.audit.log import LogFilter, LoggedLink, stream_chunks
from models_db.services.audit.stored_text import is_unreadable
from models_db.services.audit.verify_chain import Progress
from models_db.services.verification.compare_rows import Comparison
from models_db.writes.unit_claims import digest_claims

_MARK_BATCH = 10_000

DOCUMENTED_EXCEPTIONS = {
    ("lease", "token"): "whose run it is: random, and gone with the run",
    ("lease", "owner"): "a process, for people to look at",
    ("lease", "expires_at"): "the heartbeat of a run",
}
"""Columns that are not compared, with reasons: a lease is advisory, because holds fence a late runner."""


def compare_rows_with_chain(session: Session, progress: Progress | None = None) -> list[str]:
    """Return the differences between tables and chain, by table and id or by link; empty when they agree.

    `progress` is called with the numbers of links done and of all links.
    """
    comparison = Comparison(session)
    comparison.compare(_link_differences(session, progress))
    comparison.finish()
    derived = {
        "unit_mark": unit_claim_differences,
        "account": account_differences,
        "planned_release": _plan_differences,
        "lease": _lease_differences,
        "pending_link": _pending_link_differences,
    }
    add_derived_differences(comparison, {table: partial(compare, session) for table, compare in derived.items()})
    return comparison.differences


def add_derived_differences(comparison: Comparison, checks: Mapping[str, Callable[[], Iterator[str]]]) -> None:
    """Add the findings of checks; a check that fails on an altered value does not stop the others.

    Args:
        checks: by the table that each is about.
    """
    for table, check in checks.items():
        try:
            for difference in check():
                comparison.add_difference(difference)
        except Exception as problem:
            if not is_unreadable(problem):
                raise
            comparison.add_difference(f"{table} cannot be read")


def _link_differences(session: Session, progress: Progress | None) -> Iterator[LoggedLink]:
    total, done = read_chain_head(session).seq, 0
    for chunk in stream_chunks(session, LogFilter()):
        yield from chunk
        done += len(chunk)
        if progress:
            progress(done, total)


def unit_claim_differences(session: Session) -> Iterator[str]:
    """Yield each claim whose marks differ from its digest, and each mark without a claim."""
    claims = {row.id: row for row in session.execute(text("SELECT id, salt, digest FROM unit_claim"))}
    query = text("SELECT claim, mark, account_id, cohort FROM unit_mark ORDER BY mark")
    marks = session.connection().execute(query, execution_options={"yield_per": _MARK_BATCH})
    for number, digest in digest_claims({number: claim.salt for number, claim in claims.items()}, marks).items():
        if digest is None:
            yield f"unit_mark of unit_claim {number} cannot be read"
        elif digest != claims[number].digest:
            yield f"unit_mark of unit_claim {number} are not those that it claimed"
    stray = text("SELECT DISTINCT claim FROM unit_mark WHERE claim NOT IN (SELECT id FROM unit_claim) ORDER BY claim")
    for number in session.scalars(stray):
        yield f"unit_mark of unit_claim {number} has no claim"


def account_differences(session: Session, root: int | None = None) -> Iterator[str]:
    """Differences of caps and counters, of one root account and those below it or everywhere."""
    yield from _cap_differences(session, root)
    yield from _counter_differences(session, root)


def _cap_differences(session: Session, root: int | None) -> Iterator[str]:
    """Yield each account whose cap differs from the one claimed or approved.

    The cap of a root account and its blocks is that of the last proposal carried for it, or of its first claim.
    """
    for row in session.execute(_CAPS_QUERY, {"root": root}):
        yield f"account {row.id}: rho_cap or delta_cap differs from its claim or proposal"


_CAPS_QUERY = text("""
SELECT a.id FROM account a LEFT JOIN account r ON r.id = coalesce(a.parent_id, a.id)
  LEFT JOIN (SELECT d.account_id, max(y.id) AS id FROM carried y JOIN proposal m ON m.id = y.proposal_id
             JOIN dataset d ON d.id = m.dataset_id WHERE m.kind = 'cap' GROUP BY d.account_id) last
    ON last.account_id = r.id
  LEFT JOIN carried y ON y.id = last.id LEFT JOIN proposal m ON m.id = y.proposal_id
 WHERE (CAST(:root AS BIGINT) IS NULL OR coalesce(a.parent_id, a.id) = :root)
   AND (a.rho_cap <> coalesce(m.rho, r.rho, -1) OR a.delta_cap <> coalesce(m.delta_fail, r.delta_fail, -1))
 ORDER BY a.id
""")


def _counter_differences(session: Session, root: int | None) -> Iterator[str]:
    """Counters are the sums of entries, and within the cap; the newest entry is the one that moved them last."""
    query, values = (_ALL_BUDGETS, {}) if root is None else (_BUDGETS_OF_ROOT, {"root": root})
    for account, is_newest, fits, *agree in session.execute(query, values):
        for counter, same in zip(budget.COUNTER_COLUMNS, agree, strict=True):
            if not same:
                yield f"account {account}: {counter} is not the sum of its entries"
        if not is_newest:
            yield f"account {account}: last_entry_id is not its newest entry"
        if not fits:
            yield f"account {account}: the sum of its entries exceeds its cap"


_SUM_AGREES = "x.{counter} = coalesce(s.{counter}, 0)"
_FITS_CAP = "coalesce(s.{unit}_held, 0) + coalesce(s.{unit}_spent, 0) <= x.{unit}_cap"
_BUDGET_CONDITIONS = {
    "is_newest": "x.last_entry_id = coalesce(s.newest, 0)",
    "fits": " AND ".join(_FITS_CAP.format(unit=unit) for unit in ("rho", "delta")),
    **{counter: _SUM_AGREES.format(counter=counter) for counter in budget.COUNTER_COLUMNS},
}
_BUDGETS_QUERY = f"""
SELECT x.id, {", ".join(f"{condition} AS {name}" for name, condition in _BUDGET_CONDITIONS.items())}
  FROM account x LEFT JOIN (
    SELECT h.account_id AS id, max(e.id) AS newest,
           {",".join(budget.COUNTER_SUMS.format(u=unit) for unit in ("rho", "delta"))}
      FROM account a JOIN hold h ON h.account_id = a.id JOIN entry e ON e.hold_id = h.id
     WHERE {{summed}} GROUP BY h.account_id) s ON s.id = x.id
 WHERE ({{compared}}) AND NOT ({" AND ".join(_BUDGET_CONDITIONS.values())}) ORDER BY x.id
"""  # noqa: S608  (of constants)
_ALL_BUDGETS = text(_BUDGETS_QUERY.format(summed="TRUE", compared="TRUE"))
_BUDGETS_OF_ROOT = text(
    _BUDGETS_QUERY.format(summed="a.id = :root OR a.parent_id = :root", compared="x.id = :root OR x.parent_id = :root")
)


def _plan_differences(session: Session) -> Iterator[str]:
    """Yield each difference between the plan that guards enforce and the one in the request's text."""
    for number in requests.altered_plans(session):
        yield f"planned_release of request {number}, or a row that belongs to it, is not the plan of its text"


def _lease_differences(session: Session) -> Iterator[str]:
    """Every request that ever ran has one lease, of its last attempt."""
    for row in session.execute(_LEASES_QUERY):
        yield f"lease of request {row.request_id} is not of its last attempt"


_LEASES_QUERY = text("""
SELECT l.request_id FROM lease l WHERE l.attempt <> (SELECT count(*) FROM transition t
 WHERE t.request_id = l.request_id AND t.to_state = 'running')
 UNION SELECT t.request_id FROM transition t WHERE t.to_state = 'running'
   AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.request_id = t.request_id) ORDER BY 1
""")


def _pending_link_differences(session: Session) -> Iterator[str]:
    """Between transactions nothing waits for its link, and the chain has one head."""
    for number in session.scalars(text("SELECT id FROM pending_link ORDER BY id")):
        yield f"pending_link {number} was left behind"
    for number in session.scalars(text("SELECT id FROM audit_head WHERE id <> 1")):
        yield f"audit_head {number} is one too many"
