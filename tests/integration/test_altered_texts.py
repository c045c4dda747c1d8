"""Each text of the ledger becomes something that no reader can use, past every guard: readers name it, or go on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from starlette.testclient import TestClient

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from models_db.sessions.database import Database
from tests.integration.story import Almoner
from tests.integration.test_altered_ledger import alter
from tests.integration.test_rehearsal import ASKED, TWIN, fast_models

NO_TEXT = "x'00ff'"
JSON_TEXT_COLUMNS = {
    "proposal": ("configuration", "choices"), "policy_version": ("body",), "request": ("canonical",),
    "invocation": ("event", "libraries"), "artifact": ("files",), "evaluation": ("result",),
    "dataset": ("public_metadata",), "rehearsal": ("result",),
}  # fmt: skip
"""The columns of texts by people that hold JSON, by table."""
MALFORMED = {
    "nothing": "''",
    "no JSON": "'{'",
    "another type": "'[]'",
    "no keys": "'{}'",
    "keys of another type": """'{"dataset":7,"plan":[],"version":"2","mechanism":{},"epsilon":[],"blocks":"x"}'""",
    "nested": "'" + "[" * 3000 + "]" * 3000 + "'",
    "digits": '\'{"dataset":' + "9" * 5000 + "}'",
    "half of a pair": """'{"dataset":"\\ud800"}'""",
    "no text": NO_TEXT,
}
READERS = (
    "release list", "release show 1", "release show 3", "budget show clinic", "dataset show clinic",
    "proposal list", "schedule show 1", "approve 2 --gate spend --reason x --confirm ward",
)  # fmt: skip
PAGES = ("/", "/approvals.json", "/releases/1", "/datasets/clinic")
NAMED = {"LedgerAltered", "PolicyAltered", "MetadataAltered"}
SMALL = {"epsilon": 1.0, "delta": 1.0e-7, "evaluation": ["length"]}


def lived_in(almoner: Almoner) -> None:
    """One release out, a standing authorisation with a schedule, a request that waits, and a rehearsed one."""

    def make() -> None:
        almoner.published()
        file = almoner.request_file(**SMALL)
        almoner.type(f'standing propose {file} --runs 3 --until 2099-12-31 --reason "every month"')
        almoner.type('approve 1 --gate proposal --reason "agreed"')
        almoner.type('schedule create 1 --every 1w --start 2099-01-01 --reason "every week"')
        almoner.type(f"release request {file}")
        almoner.type("dataset register plain --public --epsilon 8 --delta 1e-6")
        almoner.type(f"dataset ingest plain {almoner.notes_file('twin.jsonl', TWIN)}")
        almoner.type(f"release request {almoner.write('asked.yaml', ASKED)}")
        with pytest.MonkeyPatch.context() as patch:
            fast_models(patch)
            almoner.type("rehearse 3 --on plain --texts 6")

    almoner.brought("altered texts", make)


@contextmanager
def altered(database: Database, table: str, column: str, value: str) -> Iterator[bool]:
    """Inside, the first row has this value in the column; yields whether there is a row."""
    past = "PRAGMA ignore_check_constraints=ON"
    with database.engine.connect() as connection:
        query = f"SELECT rowid, hex({column}), typeof({column}) FROM {table} ORDER BY rowid LIMIT 1"
        kept = connection.exec_driver_sql(query).all()
    for number, _, _ in kept:
        alter(database, past, f"UPDATE {table} SET {column} = {value} WHERE rowid = {number}")
    yield bool(kept)
    for number, text, kind in kept:
        was = "NULL" if kind == "null" else f"CAST(x'{text}' AS TEXT)"
        alter(database, past, f"UPDATE {table} SET {column} = {was} WHERE rowid = {number}")


def read_by_everybody(almoner: Almoner, readers: Sequence[str] = READERS, pages: Sequence[str] = PAGES) -> list[str]:
    """The errors that readers end with, by name; a traceback is raised here. Nobody decides anything."""
    named = []
    for line in readers:
        done = almoner.type(f"{line} --json", None)
        named += [str(done.json["error"])] if done.code else []
        assert done.code or not line.startswith("approve")
        assert done.code in (0, 1, 2, 3)
    behind = access_policy(AccessOptions())
    client = TestClient(application(almoner.home, behind, faulty), base_url=behind.url.rstrip("/"))
    for path in pages:
        assert client.get(path).status_code in (200, 400, 403, 404, 503)
    return [name for name in named if name != "ConfirmationWrong"]


def faulty(problem: BaseException) -> None:
    """A page that ends in an error which nobody named."""
    raise problem


CONCERNS = ("cli/commands", "flows/approvals", "flows/dashboard", "flows/reports", "models_db/services")


@pytest.mark.parametrize(
    "table", [pytest.param(name, marks=() if name == "request" else pytest.mark.slow) for name in JSON_TEXT_COLUMNS]
)
def test_an_altered_json_text_is_named(almoner: Almoner, table: str) -> None:
    lived_in(almoner)
    columns = JSON_TEXT_COLUMNS[table]
    tried = 0
    for column in columns:
        for what in MALFORMED if (table, column) in READ else ("no keys", "digits", "no text"):
            value = MALFORMED[what]
            with altered(almoner.database, table, column, value) as there:
                named = read_by_everybody(almoner)
                assert not named or NAMED & set(named), (column, what, named)
                assert there
                tried += 1
                if (table, column) in READ:
                    assert named, (column, what)
    assert tried >= 3 * len(columns)
    assert read_by_everybody(almoner) == []


READ = {("request", "canonical"), ("policy_version", "body")}
"""What the readers here parse; results are read by the card."""
