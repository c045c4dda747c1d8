"""The dashboard's pages: what they tell, to whom, that they only read, and that they do so in few statements."""

import hashlib
import html
import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from sqlalchemy import delete, event
from starlette.testclient import TestClient
from typer.testing import CliRunner

from cli.app import app
from cli.web.chain_status import ChainWatch
from cli.web.responses import dataset_path
from flows.dashboard import viewer
from flows.dashboard.viewer import open_viewer
from models_db.services import datasets, people, policies
from models_db.sessions.database import LedgerUnreachable
from models_db.sessions.read_only import ReadOnlyDatabase
from models_db.tables import AuditLink
from tasks.text.doubts import describe_doubts
from tests.dashboard_homes import HOSTILE_NAMES, RTL, Home, grown, plenty
from tests.support import PATIENCE, execute, snapshot

CONCERNS = ("cli/web", "flows/dashboard")

PAGES = (
    "/",
    "/datasets/clinic",
    "/datasets/harbour",
    "/approvals",
    "/releases",
    "/releases/5",
    "/releases/5/texts",
    "/releases/7",
    "/audit",
)
JSON = (
    "/index.json",
    "/datasets/clinic.json",
    "/approvals.json",
    "/releases.json",
    "/releases/5.json",
    "/releases/5/texts.json",
    "/audit.json",
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return plenty(tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def client(many: Home) -> TestClient:
    return many.client(tell=raised)


def raised(problem: BaseException) -> None:
    raise problem


def links(page: str) -> set[str]:
    return {html.unescape(found) for found in re.findall(r'(?:href|action)="([^"]*)"', page)}


def crawled(client: TestClient) -> Iterator[tuple[str, str]]:
    """Every page that can be reached from the first one, with its text."""
    seen, ahead = set(), ["/"]
    while ahead:
        path = ahead.pop()
        if path in seen or path.startswith("#") or any(one in path for one in ("/report", "/card", "/ask.json")):
            continue
        seen.add(path)
        found = client.get(path)
        assert found.status_code == 200, path
        yield path, found.text
        if found.headers["content-type"].startswith("text/html"):
            ahead += links(found.text) - seen


def test_a_question_on_a_request_that_cannot_be_read_is_refused_by_name(many: Home) -> None:
    refused = many.client(tell=lambda problem: None).get("/approvals/spend/15/ask.json")
    assert refused.status_code == 403
    assert "is not in the format of a request" in refused.text


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_markup_that_was_typed(client: TestClient) -> None:
    pages = dict(crawled(client))
    assert len(pages) > 40
    assert {urlsplit(path).path for path in pages} >= {
        "/datasets",
        "/approvals",
        "/releases/15",
        "/audit",
        "/style.css",
    }
    for path, page in pages.items():
        assert "<script" not in page, path
        assert RTL[0] not in page, path
        assert "style=" not in page, path
        assert all(link.startswith(("/", "#")) for link in links(page)), path
    everything = "".join(pages.values())
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in everything
    assert "summaries\\u202egnp.exe" in everything
    for text in ("&lt;img src=x onerror=alert(1)&gt;", "{{ 7 * 7 }} {% raw %} \\x00\\x1b[31m\\u2028"):
        assert text in pages["/releases/1/texts"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_dataset_of_any_name_has_its_page(client: TestClient, name: str) -> None:
    page = client.get(dataset_path(name))
    assert page.status_code == 200
    assert f"<h1>{html.escape(name).replace('&quot;', '&#34;').replace('&#x27;', '&#39;')}</h1>" in page.text
    said = client.get(dataset_path(name), headers={"accept": "application/json"}).json()
    assert said["dataset"]["name"] == name


@pytest.mark.parametrize(
    "path", [*PAGES, *JSON, "/healthz", "/style.css", "/favicon.svg", "/nowhere", "/datasets/nobody"]
)
def test_headers_are_strict_everywhere(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'")
    assert "unsafe" not in policy
    assert "script" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert "set-cookie" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_it_only_reads(client: TestClient, method: str) -> None:
    for path in ("/", "/approvals", "/releases/7", "/nowhere"):
        found = client.request(method, path)
        assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD")
    assert client.head("/approvals").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8717", "127.0.0.1", "localhost:80", ""])
def test_a_host_of_somebody_else_is_turned_away(client: TestClient, host: str) -> None:
    """A name that leads here, so that a page elsewhere could read ours with the reader's own browser."""
    for path in ("/", "/healthz", "/nowhere", "/index.json"):
        found = client.get(path, headers={"host": host})
        assert found.status_code == 421
        assert "clinic" not in found.text
    assert client.get("/", headers={"host": "localhost:8717"}).status_code == 200


def test_errors_are_pages_and_json_with_names(client: TestClient) -> None:
    for path, status, name in (
        ("/nowhere", 404, "NoPage"), ("/datasets/nobody", 404, "DatasetUnknown"),
        ("/releases/9999", 404, "RequestUnknown"), ("/releases/x", 400, "InvalidNumber"),
        ("/audit?since=soon", 400, "InvalidSearch"), ("/audit?request=x", 400, "InvalidSearch"),
        ("/releases?state=lost", 400, "RequestStateUnknown"), ("/releases?dataset=nobody", 404, "DatasetUnknown"),
        ("/approvals?after=-1", 400, "InvalidNumber"), (f"/?q={'x' * 301}", 400, "InvalidParameter"),
        ("/releases/5/report?version=secret", 400, "ReportVersionUnknown"), ("/releases/²", 400, "InvalidNumber"),
        ("/releases/7/texts", 403, "DocumentWithheld"), ("/releases/9999/texts", 404, "RequestUnknown"),
        ("/releases/1/texts?page=x", 400, "InvalidNumber"),
        (f"/releases/1/texts?find={'x' * 301}", 400, "InvalidParameter"),
        ("/audit?before=99999999999999999999", 400, "InvalidNumber"), ("/audit?until=9999-99-99", 400, "InvalidSearch"),
        ("/audit?dataset=nobody", 404, "DatasetUnknown"), ("/audit?request=9999", 404, "RequestUnknown"),
        ("/audit?actor=nobody", 400, "PrincipalNotFound"), ("/audit?kind=foo", 400, "SearchedNameUnknown"),
        ("/audit?mechanism=gauss", 400, "SearchedNameUnknown"),
    ):  # fmt: skip
        found = client.get(path)
        assert (found.status_code, name in found.text) == (status, True), path
        said = client.get(path, headers={"accept": "application/json"})
        assert (said.status_code, said.json()["error"]) == (status, name), path


def test_a_fault_tells_nobody_what_it_was(
    many: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: object) -> None:
        raise ValueError("a private text")

    monkeypatch.setattr("cli.web.views.overview_page", broken)
    found = many.client().get("/")
    assert found.status_code == 500
    assert "Fault" in found.text
    said = capsys.readouterr().err
    for text in (found.text, said):
        assert "private" not in text
        assert "Traceback" not in text
    assert re.search(r"^Fault: ValueError at \S+test_dashboard\.py:\d+$", said.strip())


# --- what it tells -------------------------------------------------------------------------------------------


def test_budgets(client: TestClient, many: Home) -> None:
    lines = {one["name"]: one for one in client.get("/index.json").json()["overview"]["datasets"]}
    assert set(lines) == {"clinic", "harbour", *HOSTILE_NAMES}
    clinic, balance = lines["clinic"]["figures"], many.world.balance("clinic")
    assert clinic["spent_percent"] == "49"
    assert clinic["rho_left"] == balance.remaining.rho_text.rstrip("0")
    assert (lines["harbour"]["like"]["request"], lines["harbour"]["like"]["runs"]) == (7, 0)
    assert lines["harbour"]["alerts"] == [
        "More than 80% of the lifetime budget is spent; it never comes back.",
        "Another release like request 7 does not fit.",
    ]
    assert (lines["clinic"]["waiting"], lines["harbour"]["waiting"]) == (5, 2)
    found = client.get("/index.json?q=arb").json()["overview"]
    assert [one["name"] for one in found["datasets"]] == ["harbour"]


def test_a_dataset_agrees_with_the_commands(client: TestClient, many: Home) -> None:
    said = client.get("/datasets/clinic.json").json()["dataset"]
    shown, forecast = typed(many, "budget", "show", "clinic"), typed(many, "budget", "forecast", "clinic")
    figures = said["budget"]["figures"]
    assert float(figures["rho_spent"]) == float(shown["rho_spent"])
    assert float(figures["rho_left"]) == float(shown["rho_left"])
    assert figures["epsilon_spent"] == shown["epsilon_spent"]
    rungs = [
        (rung["epsilon"], rung["ever"], rung["after"] or "not affordable")
        for rung in said["budget"]["forecasts"][0]["ladder"]
    ]
    assert rungs == [(row["epsilon"], row["releases_left"], row["epsilon_after_one"]) for row in forecast]
    spent = {row["request"]: row["rho_spent"] for row in shown["spent_by"]}
    listed = {one["number"]: one["rho_spent"] for one in said["requests"]["requests"] if one["rho_spent"] != "0"}
    assert {number: float(rho) for number, rho in listed.items()} == {n: float(rho) for n, rho in spent.items()}
    assert said["budget"]["burn"]["points"][-1]["left_percent"] == "51"
    [schedule], [typed_schedule] = said["schedules"], typed(many, "schedule", "list", "--dataset", "clinic")
    assert schedule == typed_schedule
    assert (schedule["rule"], schedule["state"], schedule["last"]) == ("0 6 * * 1", "active", None)


def typed(home: Home, *words: str) -> Any:
    """What a command tells programs in that home."""
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(home.home.root)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_cohorts_agree_with_the_commands(tmp_path: Path) -> None:
    """Each beside the whole: what it has lost and left, who read it, its line in the burn-down, and what still fits."""
    home = grown(tmp_path)
    client = home.client(tell=raised)
    said = client.get("/datasets/clinic.json").json()["dataset"]
    shown, each = typed(home, "budget", "show", "clinic"), said["budget"]["cohorts"]
    assert [
        (one["number"], one["blocks"], one["requests"], one["newest_request"], one["figures"]["epsilon_spent"])
        for one in each
    ] == [
        (line["cohort"], line["blocks"], line["requests"], line["newest_request"], line["epsilon_spent"])
        for line in shown["cohorts"]
    ]
    assert [(one["requests"], one["newest_request"]) for one in each] == [(2, 2), (2, 3), (0, None)]
    for one, line in zip(each, shown["cohorts"], strict=True):
        for figure in ("rho_spent", "rho_left"):
            assert float(one["figures"][figure]) == float(line[figure])
        assert one["burn"]["points"][-1]["left_percent"] == one["figures"]["left_percent"]
    assert [one["figures"]["left_percent"] for one in each] == ["5", "70", "100"]
    assert said["budget"]["burn"] == each[0]["burn"], "the fullest is that of the dataset"
    of_all, newest = said["budget"]["forecasts"]
    assert (of_all["cohorts"], newest["cohorts"]) == ([1, 2, 3], [3])
    for told, options in ((of_all, ()), (newest, ("--cohorts", "newest"))):
        rows = typed(home, "budget", "forecast", "clinic", *options)
        assert [(rung["epsilon"], rung["ever"]) for rung in told["ladder"]] == [
            (row["epsilon"], row["releases_left"]) for row in rows
        ]
    page = client.get("/datasets/clinic").text
    for text in (
        "That read all cohorts",
        "That read cohort 3, the newest, alone",
        ">nobody<",
        "of cohorts 1, 2; requested",
    ):
        assert text in page
    assert [path.count("<path") for path in page.split("<figure>")[1:]] == [3]
    assert "of cohorts 2, 3" in client.get("/approvals").text


def test_a_dataset_with_one_cohort_says_nothing_of_cohorts(client: TestClient) -> None:
    said = client.get("/datasets/clinic.json").json()["dataset"]
    assert (said["cohorts"], said["budget"]["cohorts"], len(said["budget"]["forecasts"])) == (1, [], 1)
    assert "cohort" not in client.get("/datasets/clinic").text
    assert "cohort" not in client.get("/").text


def test_what_still_fits_counts_the_cohorts_that_are_read(tmp_path: Path) -> None:
    """The fullest cohort does not stand in the way of a request that does not read it."""
    home = grown(tmp_path)
    client = home.client(tell=raised)
    line = client.get("/index.json").json()["overview"]["datasets"][0]
    assert line["like"] == {"request": 4, "runs": 7, "cohorts": [2, 3]}
    assert (line["newest"]["cohort"], line["newest"]["figures"]["left_percent"]) == (3, "100")
    assert line["alerts"] == ["More than 80% of the lifetime budget of cohort 1 is spent; it never comes back."]


def test_a_dataset_that_shares_a_budget_begins_with_the_first_of_them(own: Home) -> None:
    """Its account had a past before it was registered, which belongs to the burn-down."""
    execute(
        own.world.database,
        "DROP TRIGGER dataset_no_update",
        "UPDATE dataset SET created_at = '2020-01-01T00:00:00.000000Z'",
    )
    with own.world.database.write() as session:
        account = datasets.find_dataset(session, "clinic").account_id
    own.world.dataset("later", account_id=account)
    said = own.client(tell=raised).get("/datasets/later.json").json()["dataset"]
    assert said["budget"]["burn"]["points"][0]["day"] == "2019-12-31"


def test_what_waits_is_told_with_the_command(client: TestClient) -> None:
    said = client.get("/approvals.json").json()["approvals"]
    steps = {one["number"]: (one["step"], one["command"]) for one in said["requests"]}
    assert steps[1] == ("publish", 'almoner approve 1 --gate publish --reason "..."')
    assert steps[5] == ("deliver", "almoner publish 5 --to DIR")
    assert steps[7] == ("spend", 'almoner approve 7 --gate spend --reason "..."')
    assert 15 not in steps, "it was rejected"
    assert [(one["step"], one["asks"]) for one in said["proposals"]] == [
        ("proposal", "lifetime epsilon 9 at delta 0.000002"), ("proposal", "0 of 2 runs used, until 9999-01-01"),
    ]  # fmt: skip
    page = client.get("/approvals").text
    assert "<form" not in page, "nothing is decided by web"
    assert "<button" not in page


def test_the_record_is_searched_and_turned_page_by_page(client: TestClient, many: Home) -> None:
    first = client.get("/audit.json").json()
    assert first["chain"]["verdict"] == "holds"
    numbers, before = [], ""
    while True:
        page = client.get(f"/audit.json{before}").json()["audit"]
        numbers += [link["seq"] for link in page["links"]]
        if page["next_before"] is None:
            break
        before = f"?before={page['next_before']}"
    assert numbers == list(range(first["chain"]["links"], 0, -1))
    today = datetime.now(UTC).date().isoformat()
    for search, fits in (
        ("kind=ledger.", lambda link: link["kind"].startswith("ledger.")),
        ("dataset=harbour", lambda link: link["dataset"] == "harbour"),
        ("request=5", lambda link: link["request"] == 5),
        (f"since={today}&actor={many.world.admin.name}", lambda link: link["at"] >= today),
    ):
        found = client.get(f"/audit.json?{search}").json()["audit"]["links"]
        assert found, search
        assert all(map(fits, found)), search
    assert client.get("/audit.json?until=2020-01-01").json()["audit"]["links"] == []
    held = client.get("/audit.json?mechanism=invisible_ink&kind=ledger.hold").json()["audit"]["links"]
    assert held
    assert {Decimal(dict(link["details"])["rho"]) < 1 for link in held} == {True}, "a decimal, no number of units"


def test_all_texts_of_a_release_are_read_page_by_page(own: Home) -> None:
    texts = [
        f"Text {number} says {'nothing' if number % 10 else 'that whoever comes should call 030 1234 5678'}."
        for number in range(1, 121)
    ]
    number = own.spent("clinic", 10**9, texts=texts)
    client = own.client(tell=raised)

    def page(search: str = "") -> Any:
        return client.get(f"/releases/{number}/texts.json{search}").json()["texts"]

    pages = [page(f"?page={each}") for each in (1, 2, 3)]
    assert [one["text"] for each in pages for one in each["texts"]] == texts
    assert [one["number"] for each in pages for one in each["texts"]] == list(range(1, 121))
    assert [(each["page"], each["pages"], each["of"], each["doubtful"]) for each in pages] == [
        (each, 3, 120, 12) for each in (1, 2, 3)
    ]
    assert page("?page=9") == pages[2]
    assert page() == page("?page=0") == pages[0]
    doubtful = page("?doubtful=1")
    assert [one["number"] for one in doubtful["texts"]] == list(range(10, 121, 10))
    assert {tuple(one["doubts"]) for one in doubtful["texts"]} == {("telephone number",)}
    assert [one["number"] for one in page("?find=TEXT+7")["texts"]] == [7, *range(70, 80)]
    assert [one["number"] for one in page("?find=text+7&doubtful=1")["texts"]] == [70]
    html = client.get(f"/releases/{number}/texts?find=nothing&page=2").text
    assert "50 of 120 texts shown.</strong> 108 fit the search." in html
    assert describe_doubts(12, 120) in html
    assert f"/releases/{number}/texts?find=nothing&amp;page=3" in html
    assert "No text fits" in client.get(f"/releases/{number}/texts?find=nowhere").text
    assert f'href="/releases/{number}/texts"' in client.get(f"/releases/{number}").text


def test_texts_that_were_changed_are_not_shown(own: Home) -> None:
    client, file = own.client(tell=raised), own.home.draft(1, 1) / "texts.jsonl"
    assert client.get("/releases/1/texts").status_code == 200
    whole = file.read_bytes()
    for change in (lambda: file.write_bytes(whole.replace(b"fall", b"bell")), lambda: file.write_bytes(whole + b"\n"),
                   file.unlink, lambda: file.symlink_to("/etc/passwd")):  # fmt: skip
        change()
        found = client.get("/releases/1/texts.json")
        assert (found.status_code, found.json()["error"]) == (403, "FileUnfit")


def test_an_empty_home_has_pages_too(tmp_path: Path) -> None:
    client = Home.made(tmp_path).client(tell=raised)
    for path in ("/", "/approvals", "/releases", "/audit"):
        assert client.get(path).status_code == 200
    assert "There is no dataset yet" in client.get("/").text


# --- who looks -----------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Home:
    """A home of its own, to be changed."""
    home = Home.made(tmp_path)
    home.dataset("clinic")
    home.spent("clinic", 10**9)
    return home


def only(home: Home, *roles: str) -> None:
    """Somebody else becomes admin, and the owner of the home keeps just these roles."""
    owner = home.world.admin
    other = home.world.person("other", "admin", "steward")
    for role in {"analyst", "runner", "steward", "auditor", "admin"} - {*roles}:
        with home.world.database.write() as session:
            people.revoke(session, other, owner.name, role, "for the test")


def test_what_a_run_produced_is_for_stewards(own: Home) -> None:
    client = own.client(tell=raised)
    said = client.get("/releases/1.json").json()["release"]
    assert (said["reports"], said["card"], said["texts"]) == (["steward", "public"], True, True)
    only(own, "analyst")
    said = client.get("/releases/1.json").json()["release"]
    assert (said["reports"], said["card"], said["texts"]) == ([], False, False)
    for paper in ("report?version=public", "report?version=steward", "report?version=internal", "card", "texts"):
        found = client.get(f"/releases/1/{paper}", headers={"accept": "application/json"})
        assert (found.status_code, found.json()["error"]) == (403, "DocumentWithheld"), paper


def test_a_quiet_policy_keeps_figures_from_analysts(own: Home) -> None:
    quiet = own.home.policy.read_text().replace("refusals: full", "refusals: quiet")
    own.home.policy.write_text(quiet)
    adopt(own)
    client = own.client(tell=raised)
    assert client.get("/datasets/clinic.json").json()["dataset"]["budget"] is not None
    only(own, "analyst")
    assert client.get("/datasets/clinic.json").json()["dataset"]["budget"] is None
    line = client.get("/index.json").json()["overview"]["datasets"][0]
    assert (line["figures"], line["like"], line["alerts"]) == (None, None, [])
    for path in ("/releases.json", "/datasets/clinic.json"):
        said = client.get(path).json()
        listed = said["releases"] if "releases" in said else said["dataset"]["requests"]
        assert [one["rho_spent"] for one in listed["requests"]] == [None]
    assert client.get("/releases/1.json").json()["release"]["line"]["rho_spent"] is None
    for path in ("/", "/datasets/clinic"):
        page = client.get(path).text
        assert "refusals: quiet" in page
        assert own.world.balance().remaining.rho_text.rstrip("0") not in page
    for path in ("/releases/1", "/releases/1.json"):
        assert "Lifetime budget of" not in client.get(path).text


def adopt(home: Home) -> None:
    from flows.governance.policy import adopt_policy
    from flows.workspace.policy_file import read_policy

    with home.world.database.write() as session:
        adopt_policy(session, home.world.admin, read_policy(home.home.policy, "policy.yaml"))
        assert policies.policy_in_force(session) is not None


def test_a_home_whose_owner_is_nobody_shows_nothing(own: Home) -> None:
    found = open_viewer(own.home)
    stranger = viewer.Viewer(found.home, found.database, "0" * 64)
    with pytest.raises(people.PrincipalUnknown), stranger.open_view():
        pass


def test_a_ledger_that_was_put_back_is_doubted_on_every_page(own: Home) -> None:
    seen = own.home.seen.read_text()
    own.home.seen.write_text(seen.replace(json.loads(seen)["first"], "f" * 64))
    client = own.client(tell=raised)
    for path in ("/", "/datasets/clinic", "/approvals", "/releases", "/audit"):
        assert "Everything here is in doubt" in client.get(path).text
    assert "another ledger" in client.get("/index.json").json()["doubt"]


def test_a_broken_chain_is_told_everywhere_once_it_was_walked(own: Home) -> None:
    execute(own.world.database, "DROP TRIGGER audit_no_update", "UPDATE audit SET actor = 'nobody' WHERE seq = 3")
    client = own.client(tell=raised)
    assert "not sound" not in client.get("/").text
    said = client.get("/audit.json").json()["chain"]
    assert (said["verdict"], said["told"]) == ("broken", "The chain is broken at link 3: a link was altered.")
    for path in ("/", "/audit", "/approvals"):
        assert "The audit log is not sound" in client.get(path).text


def test_a_long_walk_does_not_keep_a_page_waiting(own: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.web.chain_status.WAIT_SECONDS", 0.01)
    go, walks = threading.Event(), []

    def slow(record: object) -> object:
        walks.append(record)
        go.wait(PATIENCE)
        return walked(record)

    from flows.audit.verify import verify_record

    walked = lambda record: verify_record(record).chain  # noqa: E731
    watch = ChainWatch(own.home, slow)
    assert watch.state(7).verdict == "walking"
    assert watch.state(7).verdict == "walking"
    go.set()
    watch._thread.join(PATIENCE)
    found = watch.state(9999)
    assert found.verdict == "holds"
    assert found.newer == 9999 - found.links
    assert len(walks) == 1, "it rests after a walk"


# --- that it only reads, and in few statements ---------------------------------------------------------------


def test_nothing_is_written(many: Home) -> None:
    """Neither by what a page does, nor could it be: the session refuses."""
    client = many.client(tell=raised)
    ledger = Path(many.world.database.engine.url.database)
    many.world.database.dispose()
    rows, data, seen = snapshot(many.world.database), ledger_digest(ledger), many.home.seen.read_bytes()
    for path in (*PAGES, *JSON, "/healthz", "/nowhere", "/releases/5/report", "/releases/5/card"):
        client.get(path)
    assert snapshot(many.world.database) == rows
    many.world.database.dispose()
    assert ledger_digest(ledger) == data
    assert many.home.seen.read_bytes() == seen
    with pytest.raises(LedgerUnreachable) as refusal, open_viewer(many.home).open_view() as look:
        look.session.execute(delete(AuditLink))
    assert "readonly database" in str(refusal.value.__cause__)


def ledger_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Counted(ReadOnlyDatabase):
    """A database that counts what it is asked."""

    statements: ClassVar[list[str]] = []

    def __init__(self, url: str) -> None:
        super().__init__(url)
        event.listen(self.engine, "before_cursor_execute", lambda *told: self.statements.append(told[2]))


@pytest.mark.slow
def test_many_requests_take_no_more_statements_than_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.made(tmp_path)
    home.dataset("clinic")
    home.dataset("grown")
    home.cohort("grown")
    home.spent("clinic", 10**9)
    home.world.cap(home.world.balance().cap * 2, carry=False)
    monkeypatch.setattr(viewer, "ReadOnlyDatabase", Counted)
    client = home.client(tell=raised)
    counts = []
    for more in (0, 60):
        for number in range(more):
            if number % 12 == 0:
                name = home.dataset(f"dataset-{number}", blocks=2)
                home.cohort(name)
                home.request(name, cohorts=[2])
                home.cohort("grown")
            home.request("clinic")
        for number in range(more // 10):
            home.spent("clinic", 10**9, publish=number % 2 == 0)
        found = {}
        for path in ("/", "/datasets/clinic", "/approvals", "/releases", "/audit", "/releases/1"):
            client.get(path)
            Counted.statements.clear()
            assert client.get(path).status_code == 200
            found[path] = len(Counted.statements)
        counts.append(found)
    assert max(counts[0].pop("/audit"), counts[1].pop("/audit")) < 40  # one for each table whose rows its links added
    assert counts[0] == counts[1]
    assert max(counts[0].values()) < 40


def test_pages_end_and_go_on(tmp_path: Path) -> None:
    home = Home.made(tmp_path)
    home.dataset("clinic")
    numbers = [home.request("clinic") for _ in range(53)]
    client = home.client(tell=raised)
    first = client.get("/releases.json").json()["releases"]
    rest = client.get(f"/releases.json?before={first['next_before']}").json()["releases"]
    assert [one["number"] for one in first["requests"] + rest["requests"]] == numbers[::-1]
    assert rest["next_before"] is None
    assert f"before={first['next_before']}" in client.get("/releases").text
    queue = client.get("/approvals.json").json()["approvals"]
    later = client.get(f"/approvals.json?after={queue['next_after']}").json()["approvals"]
    assert [one["number"] for one in queue["requests"] + later["requests"]] == numbers
    assert client.get("/releases.json?dataset=clinic&state=approved").json()["releases"]["requests"] == []
