"""A ledger as an earlier schema left it: every row in the order in which it was once written, through the guards.

`golden/ledger_0001.jsonl` was recorded in a ledger of schema 0001, worked by the code of that time: its town (a row in
every table, a request in every state), and three policies. The first line tells what the tests call its requests.
"""

import json
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, LargeBinary, MetaData

from migrations.upgrade import upgrade
from models_db.engine import Database
from models_db.services import datasets, ledger, people, releases
from models_db.services.audits import Actor
from models_db.services.ledger import Attempt
from models_db.tables import Dataset
from tests.support import World

RECORDED = Path(__file__).parent / "golden" / "ledger_0001.jsonl"
ADMIN_SEED = b"0001" * 8
"""The private key of the first principal in the record."""


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
