"""The story of a release as people type it: one object per project home, one method per stage."""

import getpass
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate

import yaml
from sqlalchemy import Connection
from typer.testing import CliRunner

from cli.app import app
from models_db.home import ProjectHome
from models_db.sessions.database import Database
from models_db.values.canonical_json import digest
from tasks.corpus.demo_clinic import demo_notes, planted_secrets
from tests import tiny_model
from tests.conftest import PostgreSQL
from tests.support import snapshot

PATIENTS = 12
NOTES = [note for note in demo_notes() if note["patient_id"] <= f"patient-{PATIENTS:03}"]
SECRETS = [secret for secret in planted_secrets() if any(secret in note["text"] for note in NOTES)]
REQUEST: dict[str, Any] = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 4.0,
    "delta": 1.0e-7,
    "model": tiny_model.NAME,
    "parameters": {
        "samples": 3,
        "references": 4,
        "max_new_tokens": 12,
        "temperature": 1.0,
        "top_k": 50,
        "max_reference_tokens": 48,
        "instalment": 4,
    },
    "prompt": {"description": "Short notes that a doctor writes."},
    "evaluation": ["length", "distinct", "perplexity"],
}


@dataclass(frozen=True)
class Told:
    """What a command said, and how it ended."""

    line: str
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer to a command with --json."""
        return json.loads(self.out)


def kept(
    stage: "Callable[Concatenate[Almoner, ...], None]",
) -> "Callable[Concatenate[Almoner, ...], None]":
    """What a stage leaves behind is kept, and copied for the next test that wants the same."""

    @wraps(stage)
    def bring(self: "Almoner", options: str = "", **changes: Any) -> None:
        self.brought(f"{stage.__name__} {options} {changes!r}", lambda: stage(self, options, **changes))

    return bring


@dataclass(frozen=True)
class Served:
    """A ledger that is a database of a server, and no file of the home."""

    server: PostgreSQL
    name: str

    def keep(self, name: str) -> None:
        """Copy it, so that it can be brought again."""
        self.server.create(name, self.name)

    def bring(self, name: str) -> None:
        """Make it what was kept under that name."""
        self.server.drop(self.server.database(self.name))
        self.server.create(self.name, name)


STEPS = {
    "approved": "approve {number} --gate spend --reason agreed",
    "produced": "run {number}",
    "passed": "approve {number} --gate publish --reason agreed",
    "published": "publish {number} --to {out}",
}
"""What is typed to bring a request that waits at the spend gate to each stage."""
CONFIRMED = "clinic\n"
"""What a steward types who has read about the story's dataset."""


@dataclass(frozen=True)
class Almoner:
    """A project home in `folder`, whose ALMONER_HOME names it, and everything typed there.

    Attributes:
        shelf: where folders are kept as the stages leave them; None where every stage is to be typed.
        served: its ledger where that lies on a server.
    """

    folder: Path
    shelf: Path | None = None
    served: Served | None = None

    @property
    def home(self) -> ProjectHome:
        """The project home."""
        return ProjectHome(self.folder / "home")

    @property
    def database(self) -> Database:
        """Its ledger."""
        return Database(self.home.database_url)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A transaction of another program; the database is held, because it closes its connections when it goes."""
        database = self.database
        with database.engine.begin() as connection:
            yield connection

    @property
    def bundle(self) -> Path:
        """Where request 1 is published."""
        return self.folder / "out" / "clinic-release-1"

    def type(self, line: str, expected: int | None = 0, *, piped: str | None = CONFIRMED) -> Told:
        """One command, in this process; anything but an orderly end (with None: any exit code) is raised.

        `piped` is its standard input: the name of the story's dataset, which a steward has to type; None is empty.
        """
        done = CliRunner().invoke(app, shlex.split(line), input=piped)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        told = Told(line, done.exit_code, done.stdout, done.stderr)
        assert expected in (None, told.code), told
        return told

    def ask(self, line: str, expected: int = 0, *, piped: str | None = CONFIRMED) -> Any:
        """The same with --json: what a program reads."""
        return self.type(f"{line} --json", expected, piped=piped).json

    def write(self, name: str, content: Any) -> Path:
        """A file beside the home: text, bytes, or something to be written as YAML."""
        path = self.folder / name
        text = content if isinstance(content, str | bytes) else yaml.safe_dump(content, sort_keys=False)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def request_file(self, **changes: Any) -> Path:
        """REQUEST with some fields changed."""
        return self.write("request.yaml", REQUEST | changes)

    def notes_file(self, name: str = "notes.jsonl", notes: Any = NOTES) -> Path:
        """The corpus as JSONL."""
        return self.write(name, "".join(json.dumps(note) + "\n" for note in notes))

    def brought(self, stage: str, make: Callable[[], object]) -> None:
        """An empty folder becomes what `make` makes of it, once; later ones become copies of that, ledger and all.

        A folder in which something lies already is another beginning, and a ledger that only the environment knows
        cannot be copied: there `make` is called every time.
        """
        elsewhere = "ALMONER_DATABASE_URL" in os.environ and self.served is None
        if self.shelf is None or elsewhere or any(self.folder.iterdir()):
            make()
            return
        kept = digest({"stage": stage, "by": getpass.getuser(), "served": self.served and self.served.server.uri})
        found, ledger = self.shelf / kept, f"kept_{kept[:16]}"
        if found.exists():
            shutil.copytree(found, self.folder, dirs_exist_ok=True)
            if self.served:
                self.served.bring(ledger)
        else:
            make()
            if self.served:
                self.served.keep(ledger)
            else:
                self.complete_file()
            # By another process: whoever closes a file loses this process' locks on it, and SQLite rests on them.
            subprocess.run(["cp", "-a", str(self.folder), str(found)], check=True)

    def complete_file(self) -> None:
        """Bring all that was committed into the ledger's one file; an open connection keeps it beside the file."""
        with closing(sqlite3.connect(self.home.root / "almoner.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @kept
    def registered(self, options: str = "") -> None:
        """A home with an empty dataset."""
        self.type("init")
        self.type(f"dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6 {options}")

    @kept
    def roles_apart(self, options: str = "") -> None:
        """A home with an empty dataset, where nobody approves what they asked for or ran."""
        self.registered(options)
        policy = self.home.policy.read_text().replace("several_roles: true", "several_roles: false")
        self.type(f"policy adopt {self.write('team.yaml', policy)}")

    @kept
    def ingested(self, options: str = "") -> None:
        """A home with a corpus."""
        self.registered(options)
        self.type(f"dataset ingest clinic {self.notes_file()}")

    @kept
    def submitted(self, options: str = "", **changes: Any) -> None:
        """A request waits at the spend gate."""
        self.ingested(options)
        self.type(f"release request {self.request_file(**changes)}")

    @kept
    def approved(self, options: str = "", **changes: Any) -> None:
        """A request may run."""
        self.submitted(options, **changes)
        self.type('approve 1 --gate spend --reason "a first look"')

    @kept
    def produced(self, options: str = "", **changes: Any) -> None:
        """A release waits at the publish gate."""
        self.approved(options, **changes)
        self.type("run 1")

    @kept
    def passed(self, options: str = "", **changes: Any) -> None:
        """A release may be published."""
        self.produced(options, **changes)
        self.type('approve 1 --gate publish --reason "names nobody"')

    @kept
    def published(self, options: str = "", **changes: Any) -> None:
        """A release is out."""
        self.passed(options, **changes)
        self.type(f"publish 1 --to {self.folder / 'out'}")

    def go_on_to(self, stage: str, number: int = 1, *, after: str = "submitted") -> None:
        """A request that is at the stage `after` is brought to a later one."""
        stages = ["submitted", *STEPS]
        for step in stages[stages.index(after) + 1 : stages.index(stage) + 1]:
            self.type(STEPS[step].format(number=number, out=self.folder / "out"))

    def state(self, request: int = 1) -> str:
        """Where a request is."""
        return str(self.ask(f"release show {request}")["state"])

    def everything(self) -> tuple[Any, Any]:
        """Every row of the ledger, and every file of the home but the ledger's own."""
        ledger = snapshot(self.database)
        files = {
            str(path.relative_to(self.home.root)): path.read_bytes() if path.is_file() else None
            for path in self.home.root.rglob("*")
            if not path.name.startswith("almoner.db")
        }
        return ledger, files
