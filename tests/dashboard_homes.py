"""Homes for the dashboard to look at: an empty one, and one with something of everything, some of it hostile."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from typer.testing import CliRunner

from cli.app import app
from cli.web.access import AccessOptions, AccessPolicy, access_policy
from cli.web.application import application
from models_db.database.base import utc_now
from models_db.home import ProjectHome
from models_db.services import cohorts, datasets, people, policies, proposals, schedules
from models_db.services.audit.chain import Actor
from models_db.services.datasets import Registration
from models_db.services.schedules import Timing
from models_db.sessions.database import Database
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.common.files import file_facts
from tasks.planning.block_selection import Reading
from tasks.release.bundle_format import text_line
from tests.contracts.tampering import unchecked
from tests.support import World, plan_of, planned

EVIL = '<script>alert("x")</script>'
RTL = "\u202egnp.exe"
HOSTILE_NAMES = (f"{EVIL} & co", "a/b/../c", "..", "100 % of 'it'?x=1#y", "x.json", "W" * 100, "Ünïcödé 診療所")
TEXTS = (
    f"A note about a fall. {EVIL} <img src=x onerror=alert(1)> & 'so' on\nSecond line",
    f"Write to {RTL} a.b@example.org or javascript:alert(1), </p></article><h1>mine</h1>",
    "",
    "W" * 400,
    "{{ 7 * 7 }} {% raw %} \x00\x1b[31m\u2028 שלום ‏ עולם",
)
"""What a model may say."""
TOKEN = "t" * 20 + "0123456789abcdef"
MILLION = 10**6


@dataclass(frozen=True)
class Home:
    """A project home whose owner has every role, and the short way to every state in it."""

    home: ProjectHome
    world: World

    @classmethod
    def made(cls, folder: Path) -> "Home":
        """As `almoner init` makes it."""
        home = ProjectHome(folder / "home")
        done = CliRunner().invoke(app, ["init", "--home", str(home.root)])
        assert done.exit_code == 0, done.output
        database = Database(home.database_url)
        with database.read() as session:
            owner, policy = people.list_all(session)[0], policies.policy_in_force(session)
            assert policy is not None
        actor = Actor(owner.id, owner.name)
        return cls(home, World(database, policy.id, actor, actor, actor, actor))

    def dataset(self, name: str, epsilon: str = "8", blocks: int = 1) -> str:
        """A dataset with a lifetime claim and one version."""
        with self.world.database.write() as session:
            claim = lifetime_claim(epsilon, "1e-6")
            account = datasets.open_account(session, claim, blocks, digest(name)[:16], "0" * 64).id
            datasets.register(
                session, self.world.admin, Registration(name, "patient_id", "text", True, None, None), account
            )
        self.world.version(name, [name.encode().ljust(32, b"\0")[:32]])
        return name

    def blocks(self, dataset: str) -> tuple[int, ...]:
        """The blocks of all cohorts."""
        with self.world.database.read() as session:
            found = datasets.find_dataset(session, dataset)
            return tuple(cohorts.all_blocks(session, found.account_id))

    def request(self, dataset: str, rho: int = MILLION, blocks: Sequence[int] = (), **more: Any) -> int:
        """A request with a price, on some blocks or on all."""
        plan = plan_of(blocks or self.blocks(dataset), [planned(Amount(rho))])
        body: dict[str, Any] = {"epsilon": "1", "delta": "0.0000001", "plan": plan} | more
        return self.world.request(dataset, **body)

    def cohort(self, dataset: str) -> int:
        """One more version, which opens a cohort. Returns its number."""
        growth = self.world.growth(dataset, opens=True)
        self.world.version(dataset, [f"{dataset}-{growth.newest}".encode().ljust(32, b"\0")], growth=growth)
        return growth.newest

    def spent(
        self, dataset: str, rho: int, *, publish: bool = False, read: Reading | None = None, texts: Sequence[str] = ()
    ) -> int:
        """A request that was run, with an artifact of texts alone; it reads some cohorts, or all there are."""
        blocks = read.blocks if read else self.blocks(dataset)
        number = self.request(dataset, rho, blocks, **(read.to_json() if read else {}))
        self.world.decide(number)
        attempt = replace(self.world.start(number), blocks=blocks)
        self.world.hold(attempt, planned(Amount(rho)))
        self.world.arm(attempt)
        self.world.produce(attempt, files={"texts.jsonl": self._written(number, texts or TEXTS)})
        if publish:
            self.world.decide(number, "publish")
        return number

    def _written(self, number: int, texts: Sequence[str]) -> Json:
        """Texts in the quarantine, where a run leaves them, and their digest."""
        data = b"".join(text_line("synthetic_corpus", at, text, f"{EVIL} {number}") for at, text in enumerate(texts, 1))
        folder = self.home.draft(number, 1)
        folder.mkdir(parents=True)
        (folder / "texts.jsonl").write_bytes(data)
        return {**file_facts(data)}

    def schedule(self, dataset: str, standing: int) -> int:
        """A schedule that was never due."""
        with self.world.database.write() as session:
            found, proposal = datasets.find_dataset(session, dataset), proposals.find_proposal(session, standing)
            timing = Timing("cron", "0 6 * * 1", "Europe/Berlin", utc_now())
            return schedules.create(session, self.world.analyst, found, proposal, timing, f"weekly {EVIL}").id

    def client(self, behind: AccessPolicy | None = None, **more: Any) -> TestClient:
        """A program that asks the dashboard."""
        made = behind or access_policy(AccessOptions())
        return TestClient(
            application(self.home, made, **more), base_url=made.url.rstrip("/"), follow_redirects=False,
            raise_server_exceptions=True,
        )  # fmt: skip


def grown(folder: Path) -> Home:
    """A dataset of two blocks and three cohorts; the third nobody has read. The newest request reads two."""
    home = Home.made(folder)
    home.dataset("clinic", blocks=2)
    cap = home.world.balance("clinic").cap.rho
    home.spent("clinic", cap * 9 // 10)
    home.cohort("clinic")
    home.spent("clinic", cap // 20, read=Reading(2, (1, 2), several=True))
    home.spent("clinic", cap // 4, read=Reading(2, (2,), several=True))
    home.cohort("clinic")
    home.request("clinic", cap // 10, **Reading(2, (2, 3), several=True).to_json())
    return home


def plenty(folder: Path) -> Home:
    """Something of everything."""
    home = Home.made(folder)
    home.dataset("clinic", blocks=2)
    cap = home.world.balance("clinic").cap.rho
    for share in (7, 11, 9, 20):
        home.spent("clinic", cap * share // 100)
    home.spent("clinic", cap // 50, publish=True)
    home.dataset("harbour")
    home.spent("harbour", home.world.balance("harbour").cap.rho * 93 // 100)
    home.request("harbour", home.world.balance("harbour").cap.rho // 5)
    for name in HOSTILE_NAMES:
        with unchecked(home.world.database):
            home.dataset(name)
        home.request(name, kind=f"summaries{RTL}", mechanism="token_level_summary")
    home.world.cap(Amount(cap * 2, 10**12), carry=False)
    home.world.standing(Amount(cap // 100), carry=False)
    home.schedule("clinic", home.world.standing(Amount(cap // 100)))
    withdrawn = home.request("clinic")
    home.world.decide(withdrawn, verdict="reject")
    return home
