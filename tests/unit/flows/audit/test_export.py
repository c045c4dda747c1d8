"""The record in other tools' forms: nothing is lost on the way, and a spreadsheet computes nothing of it."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.audit import export as exporting
from flows.audit.export import (
    FORMULA_STARTS,
    ExportFormat,
    export_links,
    link_details,
    link_to_cells,
    link_to_json,
)
from flows.workspace.workspace import ReadOnlyWorkspace
from models_db.home import ProjectHome
from models_db.services import attempts
from models_db.services.audit import chain, log
from models_db.services.audit.log import LogFilter, LoggedLink, details_of_links
from models_db.sessions.read_only import ReadOnlyDatabase
from tasks.common.progress import listening
from tests.conftest import Ledgers
from tests.refusals import refusal
from tests.support import TEN, World, append_link, planned


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, ledgers: Ledgers) -> Iterator[World]:
    """Attempts that ended in every way, and a link that would like to be a formula."""
    with ledgers.new(request.param) as database:
        world = World.create(database)
        world.dataset()
        world.published()
        world.person("dora", "auditor")
        for reason in ("Interrupted", "OutOfMemory", "Swept"):
            attempt = world.running("clinic", planned(TEN, TEN), planned(TEN, mechanism="noisy_count"))
            world.hold(attempt, planned(TEN, TEN))
            world.arm(attempt)
            with database.write() as session:
                attempts.fail_attempt(session, world.runner, attempt, reason)
        with database.write() as session:
            append_link(session, chain.Actor(1, "=cmd|' /C calc'!A0"), "@kind", {"reason": "=1+1"}, "+clinic")
        yield world


@pytest.fixture
def record(world: World, tmp_path: Path) -> ReadOnlyWorkspace:
    return ReadOnlyWorkspace(ProjectHome(tmp_path), ReadOnlyDatabase(world.database.url), "")


def links(world: World, wanted: LogFilter) -> list[LoggedLink]:
    with world.database.read() as session:
        return list(log.stream_links(session, wanted))


def written(record: ReadOnlyWorkspace, form: ExportFormat, wanted: LogFilter | None = None) -> str:
    to = record.home.root / "record.txt"
    to.unlink(missing_ok=True)
    count = export_links(record, wanted or LogFilter(), form, to).count
    text = to.read_bytes().decode()
    assert count == len(text.splitlines()) - (form is ExportFormat.CSV)
    return text


@pytest.mark.parametrize("wanted", [LogFilter(), LogFilter(dataset="clinic", kind="ledger")])
def test_json_lines_are_the_links(world: World, record: ReadOnlyWorkspace, wanted: LogFilter) -> None:
    found = [json.loads(line) for line in written(record, ExportFormat.JSONL, wanted).splitlines()]
    with world.database.read() as session:
        details = details_of_links(session, links(world, wanted))
    assert found == [link_to_json(link, details[link.seq]) for link in links(world, wanted)]
    assert all(line["details"] for line in found if "rows" in line["body"])


def test_the_chain_can_be_checked_from_json_lines_alone(world: World, record: ReadOnlyWorkspace) -> None:
    """An export is worth something without the ledger: bodies are canonical, so each hash can be computed again."""
    found = [json.loads(line) for line in written(record, ExportFormat.JSONL).splitlines()]
    for line, link in zip(found, links(world, LogFilter()), strict=True):
        assert json.dumps(line["body"], sort_keys=True, separators=(",", ":"), ensure_ascii=False) == link.body


def test_csv_comes_back(world: World, record: ReadOnlyWorkspace) -> None:
    rows = list(csv.reader(io.StringIO(written(record, ExportFormat.CSV), newline="")))
    assert tuple(rows[0]) == exporting.CSV_COLUMNS
    expected = [
        ["" if cell is None else str(cell) for cell in (x.seq, x.at, x.actor, x.kind, x.dataset, x.request_id)]
        for x in links(world, LogFilter())
    ]
    assert [[cell.removeprefix("'") for cell in row[:6]] for row in rows[1:]] == expected


def test_no_cell_of_the_csv_begins_like_a_formula(record: ReadOnlyWorkspace) -> None:
    cells = [cell for row in csv.reader(io.StringIO(written(record, ExportFormat.CSV), newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(FORMULA_STARTS) and not cell.startswith("'")]
    assert {"'=cmd|' /C calc'!A0", "'@kind", "'+clinic"} <= set(cells)


@given(st.text(min_size=1), st.sampled_from(["", *FORMULA_STARTS]))
def test_any_text_is_harmless_and_comes_back(text: str, begin: str) -> None:
    link = LoggedLink(1, "", "", "", begin + text, "", None, None, "{}")
    cell = link_to_cells(link, [])[2]
    assert cell[0] not in "=+-@\t\r\n＝＋－＠"
    assert (cell[1:] if cell.startswith("'") else cell) == begin + text


def test_of_a_failed_export_nothing_is_left(record: ReadOnlyWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(exporting, "link_to_json", fails)
    to = record.home.root / "record.jsonl"
    with pytest.raises(ZeroDivisionError):
        export_links(record, LogFilter(), ExportFormat.JSONL, to)
    assert not to.exists()


def test_a_file_that_is_there_is_kept(record: ReadOnlyWorkspace) -> None:
    to = record.home.root / "record.jsonl"
    to.write_text("mine")
    with refusal("FileUnwritable"):
        export_links(record, LogFilter(), ExportFormat.JSONL, to)
    assert to.read_text() == "mine"


@pytest.mark.parametrize("form", ExportFormat)
def test_it_tells_how_far_it_is(world: World, record: ReadOnlyWorkspace, form: ExportFormat) -> None:
    told: list[tuple[str, int, int]] = []
    with listening(lambda *what: told.append(what)):
        written(record, form)
    with world.database.read() as session:
        end = chain.read_chain_head(session).seq
    assert told[-1] == ("links", end, end)


UNKNOWN = [
    (LogFilter(dataset="clinc"), "DatasetUnknown", "Registered: clinic."),
    (LogFilter(request_id=99), "RequestUnknown", "almoner release list"),
    (LogFilter(actor="stewart"), "PrincipalNotFound", "steward"),
    (LogFilter(kind="run.fail_"), "SearchedNameUnknown", "run.failed"),
    (LogFilter(kind="foo"), "SearchedNameUnknown", "ledger"),
    (LogFilter(mechanism="invisible_inc"), "SearchedNameUnknown", "invisible_ink"),
    (LogFilter(mechanism="gauss"), "SearchedNameUnknown", "noisy_count"),
    (LogFilter(dataset="clinic", mechanism="token"), "SearchedNameUnknown", "integer_draw"),
]


@pytest.mark.parametrize(("wanted", "code", "advice"), UNKNOWN)
def test_a_name_that_exists_nowhere_is_refused(
    record: ReadOnlyWorkspace, wanted: LogFilter, code: str, advice: str
) -> None:
    for form in ExportFormat:
        with refusal(code) as refused:
            written(record, form, wanted)
        assert advice in refused.value.advice
        assert not (record.home.root / "record.txt").exists()


@pytest.mark.parametrize(
    "wanted",
    [
        LogFilter(kind="passkey.reg"),
        LogFilter(mechanism="urania"),
        LogFilter(actor="dora"),
        LogFilter(dataset="clinic", actor="=cmd|' /C calc'!A0"),
        LogFilter(request_id=2, kind="release."),
    ],
)
def test_a_name_that_exists_may_have_no_link(record: ReadOnlyWorkspace, wanted: LogFilter) -> None:
    """Names of this version, people who did nothing yet, and pairs that do not occur."""
    assert written(record, ExportFormat.JSONL, wanted) == ""


def test_names_that_only_links_have_are_found(record: ReadOnlyWorkspace) -> None:
    """Whoever altered the ledger, or a later version, may have written them."""
    for wanted in (LogFilter(dataset="+clinic"), LogFilter(kind="@kind"), LogFilter(actor="=cmd|' /C calc'!A0")):
        assert len(written(record, ExportFormat.JSONL, wanted).splitlines()) == 1


LINK = LoggedLink(3, "", "", "", "root", "ledger.arm", None, None, '{"rows":[]}')


def test_amounts_of_the_budget_are_decimals() -> None:
    """On the terminal and in the dashboard, which show these details."""
    rows = [{"table": "entry", "id": 7, "rho": 266312971361, "delta": 0}]
    assert list(link_details(LINK, rows)) == [("rho", "0.266312971361"), ("delta", "0")]
    assert link_to_json(LINK, rows)["details"] == [{"table": "entry", "id": 7, "rho": "266312971361", "delta": "0"}]


@pytest.mark.parametrize("rho", ["1e9", -1, 9**400, True, None, 0.5])
def test_altered_amounts_are_shown_and_break_nothing(rho: object) -> None:
    assert ("attempt", "1") in list(link_details(LINK, [{"table": "entry", "id": 1, "rho": rho, "attempt": 1}]))


def test_many_rows_are_one_line() -> None:
    rows = [{"table": "hold", "id": number, "kind": "HOLD", "block": number} for number in range(9)]
    assert list(link_details(LINK, rows)) == [("kind", "HOLD"), ("block", "0, 1, 2, 3, 4 and 4 more")]


def test_a_link_that_nobody_parses_says_so() -> None:
    assert next(link_details(LINK, None))[0] == "unreadable"
