"""A platform's day (docs/day.md): played once under a real Prefect server, and looked at from every side."""

import gc
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_URL, temporary_settings

import flows.releases.execute
from models_db.values.amounts import Amount, total_amount
from tests import tiny_model
from tests.integration import platform_day as day
from tests.integration.killing import instalments
from tests.integration.platform_day import AD_HOC, DATASETS, ERASED, LOW, NIGHTLY, SECRET, Platform
from tests.integration.story import Almoner
from tests.integration.test_dashboard_release import client_of
from tests.integration.test_erasure import everything_in
from tests.integration.test_release_flow_killed import LOST_SERVER, Machines, wait_until
from tests.support import PATIENCE, fetch

CONCERNS = ("flows/orchestration", "flows/schedules", "flows/dashboard")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "day.md"
NIGHT_RELEASES = len(NIGHTLY) - 1 + 1
"""The nightly insights without those of `LOW`, and the weekly corpus."""

NUMBERS = {
    "datasets": 12,
    "people and service accounts": 12,
    "commands typed beforehand": 92,
    "commands typed on the day": 52,
    "attempts begun": 13,
    "attempts lost with their node": 1,
    "slots skipped for lack of budget": 1,
    "waits at the spend gate": 1,
    "waits at the publish gate": 12,
    "waits of proposals": 1,
    "times that Prefect suspended a run at a gate": 2,
    "flow runs on Prefect's page": 1,
    "releases published": 12,
    "releases retracted": 1,
    "erasures": 1,
}

pytestmark = [pytest.mark.slow, LOST_SERVER]


@dataclass
class Seen:
    """What was seen on the day, while it went on."""

    forecasts: list[int] = field(default_factory=list)
    alerts: list[list[str]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    bundles: list[Path] = field(default_factory=list)
    polls: dict[str, dict[str, Any]] = field(default_factory=dict)
    suspensions: int = 0
    ad_hoc: int = 0
    first_link: int = 0


@pytest.fixture
def platform(team_almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """Nobody has joined yet; a model that ends its answers."""
    monkeypatch.setattr(flows.releases.execute, "load", tiny_model.load_tiny_that_ends)
    return Platform(team_almoner, monkeypatch)


@pytest.fixture
def machines(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A Prefect server that is not started yet, and the two nodes of rosa's home."""
    made = Machines(platform.at("rosa"), tmp_path_factory.mktemp("server"))
    with temporary_settings({PREFECT_API_URL: made.url}):
        yield made
    for process in made.processes:
        process.kill()
        process.wait(PATIENCE)
    gc.collect()


def overview(platform: Platform) -> dict[str, Any]:
    """The dashboard's first page, as the auditor sees it, by dataset."""
    page = client_of(platform.at("olga")).get("/index.json").json()
    return {line["name"]: line for line in page["overview"]["datasets"]}


def queue(platform: Platform) -> list[dict[str, Any]]:
    """The dashboard's queue, proposals and requests."""
    page = client_of(platform.at("olga")).get("/approvals.json").json()["approvals"]
    return [*page["requests"], *page["proposals"]]


def prepare(platform: Platform, now: datetime) -> Seen:
    """All that happened before the day."""
    seen = Seen()
    day.found(platform)
    day.fill(platform)
    day.schedule(platform, now)
    seen.forecasts = list(day.nights_before(platform, now))
    seen.first_link = day.newest_link(platform)
    return seen


def play(platform: Platform, machines: Machines, now: datetime, seen: Seen) -> None:
    """The day itself, in the order of docs/day.md."""
    platform.part = "the day"
    platform.patch.setenv("PREFECT_API_URL", machines.url)
    platform.ask("root", "deploy --pool pool")
    seen.forecasts.append(day.forecast(platform, "tom"))
    seen.alerts.append(overview(platform)[LOW]["alerts"])

    seen.ad_hoc, run = day.request_ad_hoc(platform)
    node = day.start_node(platform, machines)
    wait_until(lambda: machines.state_of(run) == "Suspended")
    machines.hold.touch()
    platform.approve(seen.ad_hoc, "spend", AD_HOC)
    day.go_on_holiday(platform)
    day.lose_node(platform, machines, node, seen.ad_hoc)
    seen.polls = day.night(platform, now)
    rosa = platform.at("rosa")
    wait_until(lambda: rosa.state(seen.ad_hoc) == "produced" and machines.state_of(run) == "Suspended")

    seen.waiting = queue(platform)
    day.retract(platform, 2)
    day.approve_night(platform, seen.waiting)
    seen.bundles = day.publish_night(platform, seen.waiting)
    wait_until(lambda: machines.state_of(run) == "Completed")
    seen.bundles.append(platform.at("rosa").folder / "out" / f"{AD_HOC}-release-{seen.ad_hoc}")
    seen.suspensions = suspensions(run)
    day.erase(platform)
    for name, line in (("olga", "audit verify"), ("olga", "audit log"), ("rick", "doctor"), ("rosa", "doctor")):
        done = platform.ask(name, line)
        assert isinstance(done, list) or done.get("ok", done.get("sound")) is True, (name, line)


def suspensions(run: UUID) -> int:
    """At how many gates of its release a flow run has waited: it is resumed once for each."""
    with get_client(sync_client=True) as client:
        return sum(state.name == "Resuming" for state in client.read_flow_run_states(run))


def flow_runs() -> dict[str, list[str]]:
    """The states of the flow runs on Prefect's page, by name."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.START_TIME_ASC, limit=200)
    found: dict[str, list[str]] = {}
    for run in runs:
        if run.name.startswith("release"):
            found.setdefault(run.name, []).append(str(run.state_name))
    return found


def test_a_platforms_day(platform: Platform, machines: Machines) -> None:
    now = datetime.now(UTC)
    seen = prepare(platform, now)
    machines.start_server()
    play(platform, machines, now, seen)
    the_budget_was_forecast(seen)
    two_runners_shared_the_night(seen)
    the_lost_run_paid_once(platform, seen)
    the_ledger_agrees(platform, seen)
    the_deputy_counts(platform)
    the_retraction_is_listed(platform, seen)
    the_erased_unit_is_gone(platform)
    prefect_shows_it(seen)
    the_dashboard_shows_it(platform, seen)
    the_page_says_so(platform, seen)


def the_budget_was_forecast(seen: Seen) -> None:
    assert seen.forecasts == [2, 1, 0]
    assert seen.alerts == [["Another release like request 2 does not fit."]]
    skipped = [(slot["schedule"], slot["skipped"]) for slot in seen.polls["asker"]["slots"] if slot["skipped"]]
    assert skipped == [(1 + NIGHTLY.index(LOW), "BudgetExceeded")]


def two_runners_shared_the_night(seen: Seen) -> None:
    """The runner without the data left all of it to the other, and nothing was given up."""
    others, own = seen.polls["rosa"]["runs"], seen.polls["rick"]["runs"]
    assert {(run["outcome"], run["reason"]) for run in others} == {("not now", "VersionMissing")}
    assert [run["outcome"] for run in own] == ["produced"] * NIGHT_RELEASES
    assert [poll["problems"] for poll in seen.polls.values()] == [[], [], []]


def the_lost_run_paid_once(platform: Platform, seen: Seen) -> None:
    kinds = fetch(platform.root.database, "SELECT kind FROM audit WHERE request_id = :n", n=seen.ad_hoc)
    counted = Counter(part for (kind,) in kinds for part in str(kind).split("+"))
    assert (counted["run.started"], counted["run.failed"], counted["release.published"]) == (2, 1, 1)


def the_ledger_agrees(platform: Platform, seen: Seen) -> None:
    """Each dataset has paid the plans of its releases to the unit, and holds nothing."""
    root = platform.at("root")
    rows = root.ask("release list")
    for dataset in DATASETS:
        paid = [part for row in rows if row["dataset"] == dataset for part in instalments(root, row["request"])]
        budget = root.ask(f"budget show {dataset}")
        assert (budget["rho_spent"], budget["rho_held"]) == (total_amount(paid).rho_text, Amount().rho_text), dataset
    states = Counter(row["state"] for row in rows)
    assert states == {"published": NIGHT_RELEASES + 2, "retracted": 1}
    published = fetch(
        root.database, "SELECT a.request_id FROM publication p JOIN artifact a ON a.id = p.artifact_id ORDER BY 1"
    )
    assert published == [(number,) for number in range(1, len(rows) + 1)]
    delivered = fetch(root.database, "SELECT count(*) FROM delivery")
    assert delivered == [(len(rows),)]


def the_deputy_counts(platform: Platform) -> None:
    given = fetch(
        platform.root.database,
        "SELECT d.name FROM approval a JOIN principal p ON p.id = a.approver_id JOIN request r ON r.id = a.request_id"
        " JOIN dataset d ON d.id = r.dataset_id WHERE p.name = 'dora' ORDER BY d.name",
    )
    assert given == [(name,) for name in sorted(day.TEAMS["library"])]


def the_retraction_is_listed(platform: Platform, seen: Seen) -> None:
    """In every bundle of the day, and each of these holds."""
    rick = platform.at("rick")
    artifact = rick.ask("release show 2")["artifact"]
    assert len(seen.bundles) == NIGHT_RELEASES + 1
    for bundle in seen.bundles:
        assert artifact in (bundle / "revocations.json").read_text(), bundle.name
        assert rick.ask(f"verify-release {bundle}")["holds"] is True
    retracted = rick.folder / "out" / f"{LOW}-release-2"
    rick.type(f"verify-release {retracted} --revocations {seen.bundles[0]}", expected=1)


def the_erased_unit_is_gone(platform: Platform) -> None:
    home = platform.at("rick").home
    text = "\n".join(everything_in(path) for path in home.root.rglob("*") if path.is_file())
    assert f"{SECRET}{ERASED}003" not in text
    assert f"{SECRET}{ERASED}004" in text


def prefect_shows_it(seen: Seen) -> None:
    """The release that it carries, and nothing of what people type."""
    assert seen.suspensions == 2
    assert flow_runs() == {f"release-request-{seen.ad_hoc}": ["Completed"]}


def the_dashboard_shows_it(platform: Platform, seen: Seen) -> None:
    root = platform.at("root")
    budgets = {name: root.ask(f"budget show {name}")["rho_spent"] for name in DATASETS}
    lines = overview(platform)
    assert {name: line["figures"]["rho_spent"] for name, line in lines.items()} == budgets
    assert {name for name, line in lines.items() if line["alerts"]} == {LOW}
    assert {item["step"] for item in seen.waiting} == {"publish"}
    assert queue(platform) == []
    client = client_of(platform.at("olga"))
    shown = {row["number"]: row["state"] for row in client.get("/releases.json").json()["releases"]["requests"]}
    assert shown == {row["request"]: row["state"] for row in platform.at("root").ask("release list")}
    newest = client.get("/audit.json").json()["audit"]["links"][0]
    assert (newest["seq"], newest["kind"]) == (day.newest_link(platform), "role.revoked")


def numbers(platform: Platform, seen: Seen) -> dict[str, int]:
    """What is counted at the end of the day."""
    links = day.links_since(platform, seen.first_link)
    typed = day.typed_by(platform)
    runs = [name for name, states in flow_runs().items() for _ in states]
    return {
        "datasets": len(DATASETS),
        "people and service accounts": len(typed),
        "commands typed beforehand": sum(before for before, _ in typed.values()),
        "commands typed on the day": sum(today for _, today in typed.values()),
        "attempts begun": links["run.started"],
        "attempts lost with their node": links["run.failed"],
        "slots skipped for lack of budget": sum(bool(slot["skipped"]) for slot in seen.polls["asker"]["slots"]),
        "waits at the spend gate": links["request.approve"] - len(seen.waiting),
        "waits at the publish gate": len(seen.waiting),
        "waits of proposals": links["proposal.proposed"],
        "times that Prefect suspended a run at a gate": seen.suspensions,
        "flow runs on Prefect's page": len(runs),
        "releases published": links["release.published"],
        "releases retracted": links["proposal.carried"],
        "erasures": links["dataset.erased"],
    }


def table(heading: str) -> list[list[str]]:
    """The rows of the table below a heading of docs/day.md, without its head."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def the_page_says_so(platform: Platform, seen: Seen) -> None:
    """The table of commands in docs/day.md is this run's own."""
    own = numbers(platform, seen)
    assert own == NUMBERS
    assert {row[0]: (int(row[2]), int(row[3])) for row in table("Who typed what")} == day.typed_by(platform)
