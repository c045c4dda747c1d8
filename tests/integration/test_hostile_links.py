"""Links that almoner cannot have written, put in past the guards with right hashes: every reader goes on."""

import csv
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from starlette.testclient import TestClient

from cli.web.application import application
from cli.web.door import Asked, door
from flows.notices import notices
from models_db.base import moment
from models_db.chain import link_hash
from models_db.engine import Database
from models_db.link_body import MOST_BYTES, parse_body
from tests.contracts.tampering import superuser
from tests.integration.story import Almoner
from tests.support import execute, fetch

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
    "ten megabytes": '{"n":"' + "x" * 10 * MOST_BYTES + '"}',
    "an attempt of another type": '{"attempt":{"a":[1]},"motion":"one\\ntwo","reason":{"a":1}}',
    "amounts": '{"attempt":1,"rho":"many","delta":null,"mechanisms":"all","motion":1701411834604692317}',
    "signs that steer": '{"attempt":true,"reason":"\\u001b[2J\\u202egnp"}',
}
UNREADABLE = {name for name, body in BODIES.items() if parse_body(body) is None}
KINDS = ("note.hostile", "run.started", "run.produced", "run.failed", "ledger.arm", "slot.decided", "motion.proposed")
STEERING = "an\x1b[2Jna\u202egnp.exe"


@dataclass(frozen=True)
class Implanted:
    """A home whose chain ends with hostile links; `unreadable` are their numbers, of those that nobody parses."""

    almoner: Almoner
    numbers: Sequence[int]
    unreadable: Sequence[int]


def implant(database: Database, kind: str, body: str, actor: str, stored: str = ":body") -> int:
    """Append a link as the owner of the database, with the hash that it must have. Returns its number."""
    [(last, previous)] = fetch(database, "SELECT seq, hash FROM audit_head")
    number, at = int(str(last)) + 1, moment()
    made = link_hash(number, str(previous), at, actor, kind, "clinic", 1, body)
    superuser(
        database,
        "INSERT INTO audit (seq, prev_hash, row_hash, at, actor, kind, dataset, request_id, body)"
        f" VALUES (:seq, :previous, :hash, :at, :actor, :kind, 'clinic', 1, {stored})",
        "UPDATE audit_head SET seq = :seq, hash = :hash",
        seq=number, previous=previous, hash=made, at=at, actor=actor, kind=kind,
        **({"body": body} if stored == ":body" else {}),
    )  # fmt: skip
    return number


def put_back(database: Database, triggers: Sequence[tuple[object, ...]]) -> None:
    """The guards of SQLite as they were, which `superuser` drops."""
    there = {row[0] for row in fetch(database, "SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    execute(database, *(str(made) for name, made in triggers if name not in there))


def hostile(almoner: Almoner, kinds: Sequence[str], names: Collection[str] = BODIES.keys()) -> Implanted:
    """Every body under each of the kinds, and on SQLite what only SQLite keeps."""
    database = almoner.database
    numbers: list[int] = []
    unreadable: list[int] = []
    guards = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    triggers = fetch(database, guards) if database.is_sqlite else []
    for kind, name in product(kinds, names):
        numbers.append(implant(database, kind, BODIES[name], STEERING))
        unreadable += numbers[-1:] if name in UNREADABLE else []
    if database.is_sqlite:
        for kind in kinds:
            numbers.append(implant(database, kind, "{\ufffd\ufffd}", STEERING, "CAST(x'7bfffe7d' AS TEXT)"))
            unreadable.append(numbers[-1])
    numbers.append(implant(database, f"note.{STEERING}", "{}", STEERING))
    if database.is_sqlite:
        put_back(database, triggers)
    return Implanted(almoner, numbers, unreadable)


@pytest.fixture
def implanted(any_almoner: Almoner) -> Implanted:
    any_almoner.published()
    return hostile(any_almoner, KINDS)


def test_the_log_shows_each_of_them_with_its_number(implanted: Implanted) -> None:
    almoner, everything = implanted.almoner, f"audit log --limit {len(implanted.numbers) + 100}"
    told = almoner.type(everything)
    shown = told.out.splitlines()
    assert "\x1b" not in told.out
    assert "\u202e" not in told.out
    for number in implanted.unreadable:
        (line,) = [line for line in shown if line.split()[:1] == [str(number)]]
        assert "UNREADABLE" in line
    links = {link["seq"]: link for link in almoner.ask(everything)}
    assert {number for number, link in links.items() if "unreadable" in link} == set(implanted.unreadable)
    assert all(links[number]["body"] is None for number in implanted.unreadable)
    assert set(links) >= set(implanted.numbers)
    assert len(implanted.numbers) >= len(KINDS) * len(BODIES)
    found = almoner.ask("audit log --mechanism token_draw")
    assert found
    assert not {link["seq"] for link in found} & set(implanted.numbers)


def test_exports_go_on_and_name_them(implanted: Implanted) -> None:
    almoner = implanted.almoner
    files = {form: almoner.folder / form for form in ("jsonl", "csv", "openlineage")}
    done = {form: almoner.ask(f"audit export --format {form} --to {file}") for form, file in files.items()}
    assert done["jsonl"]["unreadable"] == done["csv"]["unreadable"] == list(implanted.unreadable)[:20]
    assert done["openlineage"]["unreadable"]
    links = [json.loads(line) for line in files["jsonl"].read_text().splitlines()]
    assert [link["seq"] for link in links if link["body"] is None] == list(implanted.unreadable)
    with files["csv"].open(newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["seq"] for row in rows] == [str(link["seq"]) for link in links]
    assert [int(row["seq"]) for row in rows if row["body"].startswith("link ")] == list(implanted.unreadable)
    events = [json.loads(line) for line in files["openlineage"].read_text().splitlines()]
    assert [event["eventType"] for event in events][:2] == ["START", "COMPLETE"]
    assert "Unreadable: link" in almoner.type(f"audit export --to {almoner.folder / 'again'}").out


def test_verify_reports_them_and_the_chain_holds(implanted: Implanted) -> None:
    found = implanted.almoner.ask("audit verify", expected=1)
    assert (found["holds"], found["sound"]) == (True, False)
    assert found["unreadable"] == list(implanted.unreadable)[: len(found["unreadable"])]
    assert f"NO READER CAN PARSE link {implanted.unreadable[0]}" in implanted.almoner.type("audit verify", 1).out


def test_doctor_reports_them(any_almoner: Almoner) -> None:
    any_almoner.published()
    found = hostile(any_almoner, ("note.hostile",))
    told = any_almoner.ask("doctor", expected=3)
    (chain,) = [one for one in told["findings"] if one["check"] == "audit chain"]
    assert not chain["ok"]
    assert f"link {found.unreadable[0]}" in chain["detail"]


OTHERS = (
    "metrics", "budget show clinic", "budget forecast clinic --delta 1e-7", "release list", "release show 1",
    "dataset show clinic", "dataset list", "motion list", "report 1 --out {folder}/report.html", "user list",
    "audit checkpoint --to {folder}/head.json", "evaluate 1 --internal", "verify-release {folder}/out/clinic-release-1",
    "audit log --actor anybody", "audit log --kind run.", "audit log --since 2020-01-01 --until 2090-01-01",
)  # fmt: skip


def test_every_other_reader_ends_as_usual(implanted: Implanted) -> None:
    for line in OTHERS:
        implanted.almoner.type(line.format(folder=implanted.almoner.folder))
    assert len(OTHERS) == 16


def test_metrics_count_what_almoner_wrote(any_almoner: Almoner) -> None:
    any_almoner.published()
    before = attempts(any_almoner)
    assert before
    hostile(any_almoner, ("run.started", "run.produced"), UNREADABLE)
    assert attempts(any_almoner) == before


def attempts(almoner: Almoner) -> list[str]:
    return [line for line in almoner.type("metrics").out.splitlines() if line.startswith("almoner_attempts_total")]


def test_notices_are_made_of_every_link(implanted: Implanted) -> None:
    found = dict(notices(implanted.almoner.database, implanted.numbers[0]))
    assert set(found) == set(implanted.numbers)
    made = {number: notice for number, notice in found.items() if notice is not None}
    assert any(notice.get("unreadable") for notice in made.values())
    for notice in made.values():
        assert "\n" not in "".join(value for value in notice.values() if isinstance(value, str))
        json.dumps(notice, ensure_ascii=False).encode()


PAGES = ("/", "/index.json", "/audit", "/audit.json", "/audit?kind=note", "/releases/1", "/releases/1.json",
         "/datasets/clinic", "/datasets/clinic.json", "/approvals")  # fmt: skip


def faulty(problem: BaseException) -> None:
    """A page that cannot be made is no answer."""
    raise problem


def test_the_dashboard_shows_them(implanted: Implanted) -> None:
    behind = door(Asked())
    client = TestClient(application(implanted.almoner.home, behind, faulty), base_url=behind.url.rstrip("/"))
    found = {path: client.get(path) for path in PAGES}
    assert {answer.status_code for answer in found.values()} == {200}
    assert "unreadable" in found["/audit"].text
    links = json.loads(found["/audit.json"].text)["audit"]["links"]
    named = {link["seq"] for link in links if link["details"] and link["details"][0][0] == "unreadable"}
    assert named
    assert named == set(implanted.unreadable) & {link["seq"] for link in links}
    assert all("\u202e" not in answer.text and "\x1b" not in answer.text for answer in found.values())
