"""Health of the ledger as far as the database alone can check it; `migrations.schema_inventory` compares its schema."""

from collections.abc import Callable

from sqlalchemy import text
from sqlalchemy.orm import Session

from models_db.errors import Finding
from models_db.services import budget, requests
from models_db.services.audit import verify_chain
from models_db.services.audit.stored_text import is_unreadable
from models_db.services.verification import verify_rows


def check_health(session: Session) -> list[Finding]:
    """Return the findings of all checks, in one snapshot of the ledger; the time grows with its length."""
    checks = {"counters": _check_counters, "audit chain": _check_chain,
              "rows and links": _check_rows_against_chain, "plans": _check_plans}  # fmt: skip
    if session.get_bind().dialect.name == "sqlite":
        checks |= {"foreign keys": _check_references, "storage": _check_storage}
    return [_check_readable(session, name, check) for name, check in checks.items()]


def _check_readable(session: Session, name: str, check: Callable[[Session], Finding]) -> Finding:
    """Return the finding of one check; an altered value on which it fails is a finding, and the other checks go on."""
    try:
        return check(session)
    except Exception as problem:
        if not is_unreadable(problem):
            raise
        return Finding(name, False, "a row cannot be read: it has a value that almoner does not write")


def _check_counters(session: Session) -> Finding:
    """Check that every account's counters are the sums of its entries."""
    wrong = budget.differing_counters(session)
    detail = "; ".join(f"account {account}: {counter} is not the sum of its entries" for account, counter in wrong)
    return Finding("counters", not wrong, detail or "the counters of every account are the sums of its entries")


def _check_chain(session: Session) -> Finding:
    """Check every link of the audit chain, up to the head and through every signed checkpoint."""
    report = verify_chain.verify_chain(session)
    if not report.holds:
        return Finding("audit chain", False, f"broken at link {report.broken_at}: {report.reason}")
    problems = (("the clock went back at", report.clock_back), ("no reader can parse", report.unreadable))
    wrong = "; ".join(f"{what} link {', '.join(map(str, links))}" for what, links in problems if links)
    return Finding("audit chain", not wrong, wrong or f"{report.links} links, head {report.head.hash[:12]}")


def _check_rows_against_chain(session: Session) -> Finding:
    """Compare the rows of all tables with the links of the chain."""
    wrong = verify_rows.compare_rows_with_chain(session)
    detail = (
        f"not as the chain tells: {', '.join(wrong)}"
        if wrong
        else "every row has its link, and every link agrees with its rows"
    )
    return Finding("rows and links", not wrong, detail)


def _check_plans(session: Session) -> Finding:
    """Check that every stored plan is the one in its request's text."""
    wrong = requests.altered_plans(session)
    return Finding("plans", not wrong, _plan_problem(wrong))


def _plan_problem(wrong: list[int]) -> str:
    return (
        f"not as its text says: request {_first_numbers(wrong)}"
        if wrong
        else "the plan of every request is that of its text"
    )


def _first_numbers(numbers: list[int], most: int = 20) -> str:
    return ", ".join(map(str, numbers[:most])) + (f" and {len(numbers) - most} more" if len(numbers) > most else "")


def _check_references(session: Session) -> Finding:
    """Find rows without their parent: on SQLite a connection can write without checking foreign keys."""
    tables = sorted({str(row[0]) for row in session.execute(text("PRAGMA foreign_key_check"))})
    return Finding(
        "foreign keys", not tables, f"rows without their parent in {', '.join(tables)}" if tables else "whole"
    )


def _check_storage(session: Session) -> Finding:
    """Check the file and all CHECKs: on SQLite a connection can write without checking those."""
    messages = [str(row[0]) for row in session.execute(text("PRAGMA integrity_check"))]
    return Finding("storage", messages == ["ok"], "; ".join(messages[:3]))
