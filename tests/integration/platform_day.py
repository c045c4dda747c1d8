"""A day of a platform (docs/day.md) as plain functions: twelve datasets, three teams, two runners, and what each types.

Commands of people are counted; schedules, workers and a process that dies are the machines' part and are not.
"""

import getpass
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flows.schedules.slots import run_due
from flows.workspace.workspace import open_workspace
from tests.integration.story import NOTES, REQUEST, Almoner
from tests.integration.test_insights import INSIGHTS, TOLD, WORDS
from tests.integration.test_release_flow_killed import Machines, kill, wait_until
from tests.support import fetch

TEAMS = {
    "clinic": ("ward", "surgery", "pharmacy", "reception"),
    "harbour": ("ferry", "pier", "tide", "atlas"),
    "library": ("desk", "shelf", "archive", "reading"),
}
ANALYSTS = {"clinic": "anna", "harbour": "adam", "library": "alma"}
STEWARDS = {"clinic": "sue", "harbour": "tom", "library": "lena"}
DEPUTY = "dora"
ROLES = {
    "anna": "analyst", "adam": "analyst", "alma": "analyst", "asker": "analyst",
    "sue": "steward", "tom": "steward", "lena": "steward", "dora": None,
    "rick": "runner", "rosa": "runner", "olga": "auditor",
}  # fmt: skip
DATASETS = tuple(name for names in TEAMS.values() for name in names)
TEAM_OF = {name: team for team, names in TEAMS.items() for name in names}
AD_HOC, WEEKLY, LOW, ERASED = "atlas", "ward", "ferry", "shelf"
NIGHTLY = tuple(name for name in DATASETS if name != AD_HOC)
EPSILON = 20
LOW_EPSILON = 3.3
"""Lifetime epsilon of the dataset whose budget affords two nights and not a third."""
NIGHT: dict[str, Any] = INSIGHTS | {"epsilon": 2.0, "delta": 1e-7}
WEEK: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-7, "evaluation": ["length"]}
UNIT = f"{ERASED}-p003"
SECRET = "zanzibarquux"
UNITS = 48
NIGHTS_BEFORE = 2
"""Nights of the dataset `LOW` before the day."""


def chats(dataset: str) -> list[dict[str, str]]:
    """Short chats of units of one dataset; each has a word that nobody else says."""
    return [
        {
            "patient_id": f"{dataset}-p{unit:03}",
            "text": f"{TOLD[turn].format(WORDS[unit % 4])} {SECRET}{dataset}{unit:03}",
        }
        for unit in range(UNITS)
        for turn in (unit % 4, (unit + 1) % 4)
    ]


def notes(dataset: str) -> list[dict[str, str]]:
    """Notes of a doctor, of units of one dataset."""
    return [{**note, "patient_id": f"{dataset}-{note['patient_id']}"} for note in NOTES]


@dataclass
class Platform:
    """Homes by name on one ledger, and how many commands each person has typed: beforehand, and on the day.

    Attributes:
        part: `beforehand` or `the day`, for which a command counts.
    """

    root: Almoner
    patch: pytest.MonkeyPatch
    part: str = "beforehand"
    typed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def at(self, name: str) -> Almoner:
        """Sit down at somebody's home."""
        made = self.root if name == "root" else Almoner(self.root.folder / name)
        made.folder.mkdir(exist_ok=True)
        self.patch.setenv("ALMONER_HOME", str(made.home.root))
        self.patch.setattr(getpass, "getuser", lambda: name)
        return made

    def ask(self, name: str, line: str, *, confirmed: str = "") -> Any:
        """One command of a person, which is counted; what a program reads of its answer."""
        self.typed[name, self.part] += 1
        return self.at(name).ask(line, piped=f"{confirmed}\n")

    def steward_of(self, dataset: str) -> str:
        """Who decides on a dataset today."""
        steward = STEWARDS[TEAM_OF[dataset]]
        return DEPUTY if steward == "lena" and self.part == "the day" else steward

    def approve(self, number: int, gate: str, dataset: str) -> Any:
        """The steward of a dataset, or their deputy, approves."""
        line = f'approve {number} --gate {gate} --reason "as agreed"'
        return self.ask(self.steward_of(dataset), line, confirmed=dataset)

    def approve_release(self, number: int, dataset: str) -> Any:
        """The same at the publish gate: the texts are in a runner's home, whose owner hands the question over."""
        runner = runner_of(dataset)
        question = self.at(runner).folder / f"question-{number}.json"
        self.ask(runner, f"approve {number} --gate publish --export {question}")
        line = f'approve --from {question} --reason "names nobody"'
        return self.ask(self.steward_of(dataset), line, confirmed=dataset)


def runner_of(dataset: str) -> str:
    """The runner in whose home the data is."""
    return "rosa" if dataset == AD_HOC else "rick"


# --- Beforehand ------------------------------------------------------------------------------------------------


def found(platform: Platform) -> None:
    """The founder makes the ledger, everybody joins, and roles are separate from then on."""
    platform.ask("root", "init")
    platform.patch.setenv("ALMONER_DATABASE_URL", platform.root.home.database_url)
    for name, role in ROLES.items():
        line = platform.ask(name, "init")["admin_types"].removeprefix("almoner ").split(" --login")[0]
        platform.ask("root", line.split(" --role")[0] + (f" --role {role}" if role else ""))
    root = platform.at("root")
    policy = root.home.policy.read_text().replace("several_roles: true", "several_roles: false")
    platform.ask("root", f"policy adopt {root.write('team.yaml', policy)}")


def fill(platform: Platform) -> None:
    """Stewards register twelve datasets; the runners take the data in, each into the home that will read it."""
    for dataset in DATASETS:
        epsilon = LOW_EPSILON if dataset == LOW else EPSILON
        line = f"dataset register {dataset} --unit patient_id --epsilon {epsilon} --delta 1e-6 --accept-weak-promise"
        platform.ask("root", line)
    for name in ("rick", "rosa"):
        for key in (*platform.root.home.keys.glob("partition-*.key"), platform.root.home.keys / "overlap.key"):
            shutil.copy(key, platform.at(name).home.keys / key.name)
    for dataset in DATASETS:
        runner, corpus = runner_of(dataset), notes(dataset) if dataset == AD_HOC else chats(dataset)
        file = platform.at(runner).notes_file(f"{dataset}.jsonl", corpus)
        platform.ask(runner, f"dataset ingest {dataset} {file}")


def schedule(platform: Platform, now: datetime) -> None:
    """Each analyst proposes the nightly insights of their datasets; stewards authorise a hundred runs once."""
    for dataset in NIGHTLY:
        nights = NIGHTS_BEFORE if dataset == LOW else 0
        recurring(platform, dataset, NIGHT, "--every 1d", now - timedelta(days=nights, hours=6))
    recurring(platform, WEEKLY, WEEK, "--every 1w", now - timedelta(hours=6))


def recurring(platform: Platform, dataset: str, request: dict[str, Any], rule: str, start: datetime) -> None:
    """One standing authorisation, and the schedule that draws on it."""
    analyst = ANALYSTS[TEAM_OF[dataset]]
    file = platform.at(analyst).request_file(**{**request, "dataset": dataset})
    line = f'standing propose {file} --runs 100 --until 2099-12-31 --reason "agreed for the year"'
    number = platform.ask(analyst, line)["proposal"]
    platform.approve(number, "proposal", dataset)
    began = start.replace(microsecond=0).isoformat()
    platform.ask(analyst, f'schedule create {number} {rule} --start {began} --reason "agreed for the year"')


# --- What machines do ------------------------------------------------------------------------------------------


def night(platform: Platform, now: datetime) -> dict[str, dict[str, Any]]:
    """`almoner schedule run` of each service account: the asker requests, the two runners run."""
    accounts = ("asker", "rosa", "rick")
    return {name: asdict(run_due(open_workspace(platform.at(name).home), now)) for name in accounts}


def start_node(platform: Platform, machines: Machines) -> subprocess.Popen[bytes]:
    """One of the two machines that serve the pool from rosa's home."""
    platform.at("rosa")
    return machines.start_worker()


def lose_node(platform: Platform, machines: Machines, node: subprocess.Popen[bytes], number: int) -> None:
    """A node dies in the middle of the run; its process ends with it, and the other node is there."""
    rosa = platform.at("rosa")
    machines.wait_until_held()
    assert paid(rosa, number) >= 2
    kill(node)
    wait_until(lambda: rosa.state(number) == "approved")
    machines.hold.unlink()
    start_node(platform, machines)


def paid(almoner: Almoner, number: int) -> int:
    """How many instalments of a request are paid."""
    query = "SELECT count(*) FROM audit WHERE kind = 'ledger.arm' AND request_id = :number"
    return int(str(fetch(almoner.database, query, number=number)[0][0]))


# --- Two nights before the day ---------------------------------------------------------------------------------


def nights_before(platform: Platform, now: datetime) -> Iterator[int]:
    """The nights of `LOW`, whose releases are published; yields how many more the forecast affords, before each."""
    for number, ago in enumerate(range(NIGHTS_BEFORE, 0, -1), 1):
        yield forecast(platform, "tom")
        night(platform, now - timedelta(days=ago))
        platform.approve_release(number, LOW)
        publish(platform, number)


def forecast(platform: Platform, name: str) -> int:
    """How many more releases like those of its nights the budget of `LOW` affords."""
    rows = platform.ask(name, f"budget forecast {LOW} --delta 1e-7")
    (row,) = (row for row in rows if float(row["epsilon"]) == NIGHT["epsilon"])
    return int(row["releases_left"])


def publish(platform: Platform, number: int) -> Path:
    """The runner of the nights publishes a release."""
    done = platform.ask("rick", f"publish {number} --to {platform.at('rick').folder / 'out'}")
    return Path(done["bundle"])


# --- The day ---------------------------------------------------------------------------------------------------


def request_ad_hoc(platform: Platform) -> tuple[int, UUID]:
    """15:00: the harbour's analyst asks for a corpus once, looks at its price first, and has Prefect carry it."""
    file = platform.at("adam").request_file(**REQUEST | WEEK | {"dataset": AD_HOC})
    platform.ask("adam", f"release request {file} --dry-run")
    number = int(platform.ask("adam", f"release request {file}")["request"])
    return number, UUID(platform.ask("adam", f"release start {number} --queue urgent")["flow_run"])


def go_on_holiday(platform: Platform) -> None:
    """17:00: the library's steward is gone, and another is a steward until she returns."""
    until = (datetime.now(UTC) + timedelta(days=14)).date().isoformat()
    platform.ask("root", f'user grant {DEPUTY} steward --until {until} --reason "lena is on holiday"')


def retract(platform: Platform, number: int) -> None:
    """08:00: the analyst proposes to retract a release of `LOW`, and its steward agrees."""
    proposal = platform.ask("adam", f'retract {number} --reason "a topic names a street"')["proposal"]
    platform.approve(proposal, "proposal", LOW)


def approve_night(platform: Platform, waiting: Sequence[Mapping[str, Any]]) -> None:
    """09:00: everything that waits at the publish gate is decided."""
    for item in waiting:
        platform.approve_release(item["number"], item["dataset"])


def publish_night(platform: Platform, waiting: Sequence[Mapping[str, Any]]) -> list[Path]:
    """10:00: the runner of the nights publishes; what Prefect carries is published by a worker."""
    return [publish(platform, item["number"]) for item in waiting if item["dataset"] != AD_HOC]


def erase(platform: Platform) -> None:
    """11:00: a person asks to be erased. Stewards erase, and the text is in a runner's home, who is one for it."""
    platform.ask("root", 'user grant rick steward --reason "request 12 for erasure"')
    line = f"dataset erase {ERASED} --unit {UNIT}"
    platform.ask("rick", f"{line} --dry-run")
    platform.ask("rick", f'{line} --reason "request 12" --confirm {ERASED}')
    platform.ask("root", 'user revoke rick steward --reason "request 12 is done"')


# --- Numbers ---------------------------------------------------------------------------------------------------


def typed_by(platform: Platform) -> dict[str, tuple[int, int]]:
    """How many commands each person typed: beforehand, and on the day."""
    return {name: (platform.typed[name, "beforehand"], platform.typed[name, "the day"]) for name in ("root", *ROLES)}


def links_since(platform: Platform, seq: int) -> Counter[str]:
    """How many links say each thing, of those behind a link."""
    rows = fetch(platform.root.database, "SELECT kind FROM audit WHERE seq > :seq", seq=seq)
    return Counter(part for (kind,) in rows for part in str(kind).split("+"))


def newest_link(platform: Platform) -> int:
    """The number of the newest link of the audit log."""
    return int(str(fetch(platform.root.database, "SELECT max(seq) FROM audit")[0][0]))
