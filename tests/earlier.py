"""A ledger as an earlier schema left it: every row in the order in which it was once written, through the guards.

`golden/ledger_0001.jsonl` was recorded in a ledger of schema 0001, worked by the code of that time: its town (a row in
every table, a request in every state), and three policies. The first line tells what the tests call its requests.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, LargeBinary, MetaData, text

from migrations.upgrade import upgrade
from models_db.canonical import canonical, digest
from models_db.engine import Database
from models_db.services import datasets, ledger, people, releases
from models_db.services.audits import Actor
from models_db.services.ledger import Attempt
from models_db.tables import Dataset
from tests.support import World

RECORDED = Path(__file__).parent / "golden" / "ledger_0001.jsonl"


def private_key(name: str) -> Ed25519PrivateKey:
    """The key of one of its people."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"0001 {name}".encode()).digest())


@dataclass(frozen=True)
class Earlier:
    """What the tests call the rows of the record.

    Attributes:
        policies: ids by name.
        requests: a request's number, or that and the number of an attempt.
    """

    policies: dict[str, int]
    requests: dict[str, Any]


def described() -> Earlier:
    """The first line of the record."""
    return Earlier(_lines()[0]["policies"], _lines()[0]["requests"])


def rebuild(database: Database) -> Earlier:
    """Make an empty database a ledger of schema 0001 with rows in every table."""
    upgrade(database, "0001")
    with database.engine.begin() as connection:
        _replay(connection)
        _tell(connection)
    return described()


@cache
def _lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def _replay(connection: Connection) -> None:
    known = MetaData()
    known.reflect(connection)  # the columns of that time, whatever the models have become
    for line in _lines()[1:]:
        table = known.tables[line["into"]]
        binary = {column.name for column in table.columns if isinstance(column.type, LargeBinary)}
        row = {name: bytes.fromhex(value) if name in binary else value for name, value in line["row"].items()}
        connection.execute(table.insert().values(row))


_UNTOLD = {
    # kind of the link, and every row that needs one: actor, request, dataset, and what its body names
    "request": "SELECT p.name, a.request_id, d.name AS dataset, a.gate, a.subject_digest AS subject, a.reason,"
    " a.expires_at, a.signature, a.decision FROM approval a JOIN principal p ON p.id = a.approver_id"
    " JOIN request r ON r.id = a.request_id JOIN dataset d ON d.id = r.dataset_id ORDER BY a.id",
    "run.produced": "SELECT p.name, f.request_id, d.name AS dataset, f.digest AS artifact FROM artifact f"
    " JOIN principal p ON p.id = f.created_by JOIN request r ON r.id = f.request_id"
    " JOIN dataset d ON d.id = r.dataset_id ORDER BY f.id",
    "release.published": "SELECT p.name, f.request_id, d.name AS dataset, f.digest AS artifact FROM publication b"
    " JOIN artifact f ON f.id = b.artifact_id JOIN principal p ON p.id = b.actor_id"
    " JOIN request r ON r.id = f.request_id JOIN dataset d ON d.id = r.dataset_id ORDER BY b.id",
    "release.delivered": "SELECT p.name, f.request_id, d.name AS dataset, v.destination, v.bundle_digest AS bundle"
    " FROM delivery v JOIN publication b ON b.id = v.publication_id JOIN artifact f ON f.id = b.artifact_id"
    " JOIN principal p ON p.id = b.actor_id JOIN request r ON r.id = f.request_id"
    " JOIN dataset d ON d.id = r.dataset_id ORDER BY v.id",
}


def _tell(connection: Connection) -> None:
    """Links for what the town of that time wrote by hand, past the services, which would have told of it."""
    told = [
        (row.kind, row.request_id, json.loads(row.body))
        for row in connection.execute(text("SELECT kind, request_id, body FROM audit"))
    ]
    for kind, query in _UNTOLD.items():
        for row in connection.execute(text(query)).mappings().all():
            body = {name: row[name] for name in row if name not in ("name", "request_id", "dataset", "decision")}
            whole = f"{kind}.{row['decision']}" if "decision" in row else kind
            same = [link for link in told if link[:2] == (whole, row["request_id"]) and body.items() <= link[2].items()]
            if same:
                told.remove(same[0])
            else:
                _append(connection, row["name"], whole, row["dataset"], row["request_id"], canonical(body).decode())


def _append(connection: Connection, actor: str, kind: str, dataset: str, request_id: int, body: str) -> None:
    seq, previous = connection.execute(text("SELECT seq, hash FROM audit_head")).one()
    at = connection.scalar(text("SELECT max(at) FROM audit"))
    link = {"seq": str(seq + 1), "prev_hash": previous, "at": at, "actor": actor, "kind": kind, "dataset": dataset,
            "request_id": request_id, "body": body}  # fmt: skip
    columns = {**link, "seq": seq + 1, "row_hash": digest(link)}
    names = ", ".join(columns)
    values = ", ".join(f":{name}" for name in columns)
    connection.execute(text(f"INSERT INTO audit ({names}) VALUES ({values})"), columns)


def inherited(database: Database) -> World:
    """The people of the record, in a ledger that was upgraded; all of them have every role but the admin's."""
    with database.read() as session:
        admin, analyst, steward, runner = (
            Actor(people.find(session, name).id, name) for name in ("admin", "analyst", "steward", "runner")
        )
    return World(database, described().policies["first"], admin, analyst, steward, runner, count(1000))


def attempt_of(database: Database, name: str) -> Attempt:
    """An attempt of the record, as the services know it."""
    request_id, number = described().requests[name]
    with database.read() as session:
        dataset = session.get_one(Dataset, releases.find(session, request_id).dataset_id)
        blocks = tuple(range(datasets.partition(session, dataset).blocks))
        return ledger.attempt_of(session, request_id, number, blocks)
