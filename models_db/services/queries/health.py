"""What of the ledger's health the database alone can tell; comparing its schema is `migrations.schema_inventory`'s."""

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.findings import Finding
from models_db.services.audit import verify_chain
from models_db.services.catalogue import request_plans
from models_db.services.lifecycle import ledger
from models_db.services.verification import verify_rows


def examine(session: Session) -> list[Finding]:
    """Every check, in one snapshot of the ledger; the time grows with its length."""
    found = [_counters(session), _chain(session), _told(session), _plans(session)]
    if session.get_bind().dialect.name == "sqlite":
        found += [_references(session), _storage(session)]
    return found


def _counters(session: Session) -> Finding:
    """Every account's counters are the sums of its entries."""
    wrong = ledger.recomputed(session)
    detail = "; ".join(f"account {account}: {counter} is not the sum of its entries" for account, counter in wrong)
    return Finding("counters", not wrong, detail or "the counters of every account are the sums of its entries")


def _chain(session: Session) -> Finding:
    """Every link of the audit chain fits, up to the head and through every signed checkpoint."""
    report = verify_chain.verify(session)
    if not report.holds:
        return Finding("audit chain", False, f"broken at link {report.broken_at}: {report.reason}")
    said = (("the clock went back at", report.clock_back), ("no reader can parse", report.unreadable))
    wrong = "; ".join(f"{what} link {', '.join(map(str, links))}" for what, links in said if links)
    return Finding("audit chain", not wrong, wrong or f"{report.links} links, head {report.head.hash[:12]}")


def _told(session: Session) -> Finding:
    """The tables say what the chain tells."""
    wrong = verify_rows.differences(session)
    detail = (
        f"not as the chain tells: {', '.join(wrong)}" if wrong else "every fact has its link, and every link its fact"
    )
    return Finding("told", not wrong, detail)


def _plans(session: Session) -> Finding:
    """Guards hold every request to the plan that its text says."""
    wrong = request_plans.altered(session)
    return Finding("plans", not wrong, _planned(wrong))


def _planned(wrong: list[int]) -> str:
    return (
        f"not as its text says: request {_numbers(wrong)}" if wrong else "every request is held to what its text says"
    )


def _numbers(found: list[int], most: int = 20) -> str:
    return ", ".join(map(str, found[:most])) + (f" and {len(found) - most} more" if len(found) > most else "")


def _references(session: Session) -> Finding:
    """No row points nowhere: on SQLite a connection can write without checking foreign keys."""
    tables = sorted({str(row[0]) for row in session.execute(text("PRAGMA foreign_key_check"))})
    return Finding(
        "foreign keys", not tables, f"rows without their parent in {', '.join(tables)}" if tables else "whole"
    )


def _storage(session: Session) -> Finding:
    """The file is sound, and no row breaks a CHECK: on SQLite a connection can write without checking those."""
    said = [str(row[0]) for row in session.execute(text("PRAGMA integrity_check"))]
    return Finding("storage", said == ["ok"], "; ".join(said[:3]))
