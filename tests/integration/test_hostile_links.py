"""Links that almoner cannot have written, put in past the guards with right hashes: every reader goes on."""

import csv
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection, text
from starlette.testclient import TestClient

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from models_db.database.base import utc_now
from models_db.services.audit import log
from models_db.services.audit.log import MOST_BODY_BYTES, parse_body
from models_db.services.verification import verify_rows
from models_db.sessions.database import Database
from models_db.writes.link_content import link_hash
from tests.conftest import Ledgers
from tests.contracts import whole_story
from tests.integration.story import Almoner
from tests.support import World, fetch

CONCERNS = ("cli/web", "flows/audit", "flows/dashboard", "models_db/services/audit")

BODIES = {
    "digits": '{"n":' + "9" * 5000 + "}",
    "digits of an attempt": '{"attempt":' + "9" * 300 + ',"reason":"Swept"}',
    "nested lists": '{"n":' + "[" * 3000 + "]" * 3000 + "}",
    "nested objects": '{"n":' * 3000 + "1" + "}" * 3000,
    "empty": "",
    "no JSON": "almoner",
    "cut": '{"attempt":1',
    "list": '[{"attempt":1}]',
    "text": '"attempt"',
    "null": "null",
    "no number": '{"attempt":NaN}',
    "half of a pair": '{"attempt":1,"reason":"\\ud800"}',
    "ten megabytes": '{"n":"' + "x" * 10 * MOST_BODY_BYTES + '"}',
    "an attempt of another type": '{"attempt":{"a":[1]},"proposal":"one\\ntwo","reason":{"a":1}}',
    "amounts": '{"attempt":1,"rho":"many","delta":null,"mechanisms":"all","proposal":1701411834604692317}',
    "signs that steer": '{"attempt":true,"reason":"\\u001b[2J\\u202egnp"}',
    "rows of no list": '{"rows":{"table":"entry"}}',
    "a table of another type": '{"rows":[{"content":"","ids":"1","table":["entry"]}]}',
    "no table": '{"rows":[{"content":"","ids":"1","table":"audit_head"}]}',
    "ids of another type": '{"rows":[{"content":"","ids":[1],"table":"entry"}]}',
    "ids backwards": '{"rows":[{"content":"","ids":"9-1","table":"entry"}]}',
    "ids beyond all numbers": '{"rows":[{"content":"","ids":"1-9999999999999999999","table":"entry"}]}',
    "a table twice": '{"rows":[' + ",".join(['{"content":"","ids":"1-2000","table":"entry"}'] * 1500) + "]}",
    "ids far apart": '{"rows":[{"content":"","ids":"'
    + ",".join(f"{n}-{n + 9}" for n in range(1, 300_000, 50))
    + '","table":"hold"}]}',
    "ids that are not there": '{"rows":[{"content":"","ids":"8000000-9000000000000000000","table":"request"}]}',
    "a content of another type": '{"rows":[{"content":{},"ids":"1","table":"request"}]}',
    "rows of another link": '{"rows":[{"content":"","ids":"1","table":"request"}]}',
    "words of another type": '{"artifact":[],"digest":{},"gate":7,"kind":[],"mechanism":{},"name":3,"schedule":"1",'
    '"slot":{},"skipped":[1],"state":false,"version":"x","view":null}',
}
"""What no reader may end at; each stands under every kind of link that there is."""
UNREADABLE = {name for name, body in BODIES.items() if parse_body(body) is None}
LARGE = ("ten megabytes", "a table twice", "ids far apart")
UNTOLD = "note.hostile"
STEERING = "an\x1b[2Jna\u202egnp.exe"


@dataclass(frozen=True)
class Link:
    """A link to be put in; `stored` is how SQL writes the body, where that is not the text itself."""

    kind: str
    body: str
    stored: str = ":body"
    at: str = ""
    request: int | None = 1


@dataclass(frozen=True)
class Implanted:
    """A home whose chain ends with hostile links; `unreadable` are their numbers, of those that nobody parses."""

    almoner: Almoner
    kinds: Sequence[str]
    numbers: Sequence[int]
    unreadable: Sequence[int]


def implant(database: Database, links: Sequence[Link]) -> list[int]:
    """Append links as the owner of the database, with the hashes that they must have. Returns their numbers."""
    [(last, previous)] = fetch(database, "SELECT seq, hash FROM audit_head")
    number, above = int(str(last)), str(previous)
    with past_guards(database) as connection:
        for link in links:
            number, at = number + 1, link.at or utc_now()
            made = link_hash(number, above, at, STEERING, link.kind, "clinic", link.request, link.body)
            values = {"seq": number, "previous": above, "hash": made, "at": at, "actor": STEERING, "kind": link.kind,
                      "request": link.request}  # fmt: skip
            connection.execute(
                text(
                    "INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)"
                    f" VALUES (:seq, :previous, :hash, :at, :actor, :kind, 'clinic', :request, {link.stored})"
                ),
                values | ({"body": link.body} if link.stored == ":body" else {}),
            )
            above = made
        connection.execute(text("UPDATE audit_head SET seq = :seq, hash = :hash"), {"seq": number, "hash": above})
    return list(range(int(str(last)) + 1, number + 1))


@contextmanager
def past_guards(database: Database) -> Iterator[Connection]:
    """A transaction that no guard and no form of a column watches; afterwards all of them are there again."""
    with database.engine.begin() as connection:
        forms: Sequence[Any] = ()
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            forms = connection.execute(text(FORMS)).all()
        for name, _ in forms:
            connection.exec_driver_sql(f"ALTER TABLE audit DROP CONSTRAINT {name}")
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        guards = connection.exec_driver_sql(query).all() if database.is_sqlite else []
        for name, _ in guards:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        yield connection
        for _, guard in guards:
            connection.exec_driver_sql(guard)
        for name, form in forms:
            connection.execute(text(f"ALTER TABLE audit ADD CONSTRAINT {name} {form} NOT VALID".replace(":", "\\:")))
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")


FORMS = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE conrelid = CAST('audit' AS regclass) AND starts_with(conname, 'ck_') AND conname LIKE '%_form'"""


def hostile(almoner: Almoner, kinds: Sequence[str], names: Collection[str] = BODIES.keys()) -> Implanted:
    """Every body under each of the kinds, the largest ones under the first alone, and what only SQLite keeps."""
    wanted = [(kind, name) for kind, name in product(kinds, names) if name not in LARGE or kind == kinds[0]]
    links = [(Link(kind, "{}", request=2**31 - 1), False) for kind in kinds]
    if almoner.database.is_sqlite:
        links += [(Link(kind, "{}", at="tomorrow"), False) for kind in kinds]
        links += [(Link(kind, "{\ufffd\ufffd}", "CAST(x'7bfffe7d' AS TEXT)"), True) for kind in kinds]
    links += [(Link(kind, BODIES[name]), name in UNREADABLE) for kind, name in wanted]
    links.append((Link(f"note.{STEERING}", "{}"), False))
    numbers = implant(almoner.database, [link for link, _ in links])
    unreadable = [number for number, (_, hidden) in zip(numbers, links, strict=True) if hidden]
    return Implanted(almoner, kinds, numbers, unreadable)


@pytest.fixture(scope="module")
def kinds(ledgers: Ledgers) -> tuple[str, ...]:
    """Every kind of link that this version writes, alone and with others, as in a whole story."""
    with ledgers.new("sqlite") as database:
        whole_story.tell(World.create(database))
        happened = {str(kind) for (kind,) in fetch(database, "SELECT DISTINCT kind FROM audit")}
    assert len(happened) >= 30
    return (UNTOLD, *sorted(happened | set(log.KINDS)))


@pytest.fixture
def implanted(any_almoner: Almoner, kinds: Sequence[str]) -> Implanted:
    """One home, in which all of them were put once, and copies of it."""
    found: list[Implanted] = []

    def make() -> None:
        any_almoner.published()
        found.append(hostile(any_almoner, kinds))
        any_almoner.write("numbers.json", json.dumps([found[0].numbers, found[0].unreadable]))

    any_almoner.brought("hostile links of all kinds", make)
    numbers, unreadable = json.loads((any_almoner.folder / "numbers.json").read_text())
    return Implanted(any_almoner, kinds, numbers, unreadable)


@pytest.mark.slow
def test_the_log_shows_each_of_them_with_its_number(implanted: Implanted) -> None:
    almoner, everything = implanted.almoner, f"audit log --limit {len(implanted.numbers) + 100}"
    out = almoner.type(everything).out
    shown = out.splitlines()
    assert "\x1b" not in out
    assert "\u202e" not in out
    for number in implanted.unreadable:
        (first,) = [at for at, line in enumerate(shown) if line.split()[:1] == [str(number)]]
        assert "unreadable" in " ".join(shown[first : first + 3]), "a long kind takes lines of its own"
    links = {link["seq"]: link for link in almoner.ask(everything)}
    assert {number for number, link in links.items() if "unreadable" in link} == set(implanted.unreadable)
    assert all(links[number]["body"] is None for number in implanted.unreadable)
    assert set(links) >= set(implanted.numbers)
    assert len(implanted.numbers) >= len(implanted.kinds) * (len(BODIES) - len(LARGE)) >= 45 * 25
    found = almoner.ask("audit log --mechanism integer_draw")
    assert found
    assert {link["request"] for link in found} == {1}, "with what claims to be about it"


def test_exports_go_on_and_name_them(implanted: Implanted) -> None:
    almoner = implanted.almoner
    files = {form: almoner.folder / form for form in ("jsonl", "csv")}
    done = {form: almoner.ask(f"audit export --format {form} --to {file}") for form, file in files.items()}
    assert done["jsonl"]["unreadable"] == done["csv"]["unreadable"] == list(implanted.unreadable)[:20]
    links = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    assert [link["seq"] for link in links if link["body"] is None] == list(implanted.unreadable)
    with files["csv"].open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["seq"] for row in rows] == [str(link["seq"]) for link in links]
    assert [int(row["seq"]) for row in rows if row["body"].startswith("link ")] == list(implanted.unreadable)
    assert "Unreadable: link" in almoner.type(f"audit export --to {almoner.folder / 'again'}").out


def test_verify_reports_them_and_the_chain_holds(implanted: Implanted) -> None:
    found = implanted.almoner.ask("audit verify", expected=1)
    assert (found["holds"], found["sound"]) == (True, False)
    assert found["unreadable"] == list(implanted.unreadable)[: len(found["unreadable"])]
    assert f"NO READER CAN PARSE link {implanted.unreadable[0]}" in implanted.almoner.type("audit verify", 1).out


def test_doctor_reports_them(implanted: Implanted) -> None:
    findings = implanted.almoner.ask("doctor", expected=3)["findings"]
    found = {one["check"]: one for one in findings if not one["ok"]}
    assert f"link {implanted.unreadable[0]}" in found["audit chain"]["detail"]
    assert "link" in found["rows and links"]["detail"]


def test_the_comparison_names_every_one_of_them(implanted: Implanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_rows, "MOST_DIFFERENCES", len(implanted.numbers) * 2)
    with implanted.almoner.database.read() as session:
        found = verify_rows.compare_rows_with_chain(session)
    named = {int(number) for each in found for number in re.findall(r"\blink (\d+)", each)}
    assert set(implanted.numbers) <= named


UNTYPED = ("body = x'7b7d'", "body = 7", "at = x'00ff'", "at = 7", "actor = x'00ff'", "kind = x'00ff'", "kind = 7",
           "dataset = x'00ff'", "dataset = 7", "request_id = 'one'", "request_id = x'00ff'", "request_id = 0.5",
           "row_hash = x'00ff'", "prev_hash = 7", "seq = 0", "seq = -1")  # fmt: skip
"""What SQLite keeps in a column of another type."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run.produced", "release.published"])
def test_values_of_another_type_are_named(almoner: Almoner, kind: str) -> None:
    almoner.published()
    for change in UNTYPED:
        [number] = implant(almoner.database, [Link(kind, '{"attempt":1}')])
        with past_guards(almoner.database) as connection:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=ON")
            connection.exec_driver_sql(f"UPDATE audit SET {change} WHERE seq = {number}")
    for form in ("jsonl", "csv"):
        almoner.type(f"audit export --format {form} --to {almoner.folder / form}")
    almoner.type("audit log --limit 200")
    assert not almoner.ask(f"audit verify --against {almoner.bundle}", expected=1)["sound"]
    assert "broken at link" in almoner.type("doctor", 3).out
    for line in ("budget show clinic", "release list", "release show 1"):
        assert almoner.ask(line, 1)["error"] == "LedgerRolledBack"  # the last change moves a link that was seen
    behind = access_policy(AccessOptions())
    client = TestClient(application(almoner.home, behind, faulty), base_url=behind.url.rstrip("/"))
    assert {client.get(path).status_code for path in PAGES} == {200}


OTHERS = (
    "budget show clinic", "budget forecast clinic --delta 1e-7", "release list", "release show 1",
    "dataset show clinic", "dataset list", "proposal list", "report 1 --out {folder}/report.html", "user list",
    "audit checkpoint --to {folder}/head.json", "evaluate 1 --internal", "verify-release {folder}/out/clinic-release-1",
    "audit log --actor root", "audit log --kind run.", "audit log --since 2020-01-01 --until 2090-01-01",
)  # fmt: skip


@pytest.mark.slow
def test_every_other_reader_ends_as_usual(implanted: Implanted) -> None:
    for line in OTHERS:
        implanted.almoner.type(line.format(folder=implanted.almoner.folder))
    assert len(OTHERS) == 15


PAGES = ("/", "/index.json", "/audit", "/audit.json", "/audit?kind=run", "/releases/1", "/releases/1.json",
         "/datasets/clinic", "/datasets/clinic.json", "/approvals")  # fmt: skip


def faulty(problem: BaseException) -> None:
    """A page that cannot be made is no answer."""
    raise problem


@pytest.mark.slow
def test_the_dashboard_shows_them(implanted: Implanted) -> None:
    behind = access_policy(AccessOptions())
    client = TestClient(application(implanted.almoner.home, behind, faulty), base_url=behind.url.rstrip("/"))
    found = {path: client.get(path) for path in PAGES}
    assert {answer.status_code for answer in found.values()} == {200}
    assert "unreadable" in found["/audit"].text
    links: list[dict[str, Any]] = []
    before = max(implanted.numbers) + 1
    while before:
        page = json.loads(client.get(f"/audit.json?before={before}").text)["audit"]
        links += page["links"]
        before = page["next_before"]
        assert client.get(f"/audit?before={before or 1}").status_code == 200
    named = {link["seq"] for link in links if link["details"] and link["details"][0][0] == "unreadable"}
    assert named == set(implanted.unreadable)
    assert {link["seq"] for link in links} >= set(implanted.numbers)
    assert all("\u202e" not in answer.text and "\x1b" not in answer.text for answer in found.values())
