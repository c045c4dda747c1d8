"""`almoner demo`: the whole story on a small fictional clinic, in a temporary home."""

import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.text import Text

from cli.framework.command import Answer, Opened, command, make_console
from cli.framework.tables import table
from models_db.errors import EnvironmentProblem, UsageError
from tasks.corpus.demo.clinic import DEMO_PATIENTS, write_demo_corpus

REQUEST = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 6.0,
    "delta": 1.0e-5,
    "model": "smollm2-135m-instruct",
    "parameters": {
        "samples": 5,
        "references": 30,
        "max_new_tokens": 56,
        "temperature": 0.9,
        "top_k": 100,
        "max_reference_tokens": 128,
    },
    "prompt": {"description": "A short note that a doctor writes after seeing a patient in a clinic."},
    "evaluation": ["length", "distinct", "perplexity"],
}

Keep = Annotated[Path | None, typer.Option(help="Keep the demo's home and bundle in this new folder.")]


class DemoFailed(EnvironmentProblem):
    """A step of the demo did not end as the story says."""

    def __init__(self, step: str, code: int, expected: int) -> None:
        super().__init__(
            f"The demo's step {step!r} ended with {code}, not {expected}.",
            "Run `almoner doctor`; if that finds nothing, report the output above.",
            {"step": step, "exit_code": code},
        )


class FolderUnfit(UsageError):
    """The demo needs a new folder."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder} cannot be made: {reason}.", "Name a folder that is not there yet.")


def add_to(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "demo")(demo)


def demo(opened: Opened, context: typer.Context, keep: Keep = None) -> Answer:
    """The whole story: register, ingest, request, approve, run, publish, verify, and three refusals.

    Example: almoner demo --keep ./demo
    """
    root = context.find_root().command  # the commands that a person would type
    # Under --json the story goes to stderr, so that the answer stands alone.
    with redirect_stdout(sys.stderr if opened.as_json else sys.stdout):
        if keep is not None:
            _make(keep)
            return _told(root, keep.absolute())
        with tempfile.TemporaryDirectory(prefix="almoner-demo-") as folder:
            return _told(root, Path(folder))


def _told(root: Callable[..., object], folder: Path) -> Answer:
    with _alone_in(folder):
        return _story(Teller(root, folder))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """In `folder`, with a home and a ledger of the demo's own, whatever the environment names."""
    before, environment = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    os.environ["ALMONER_HOME"] = str(folder / "home")
    os.environ.pop("ALMONER_DATABASE_URL", None)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as problem:
        raise FolderUnfit(folder, problem.strerror or type(problem).__name__) from None


def _story(teller: "Teller") -> Answer:
    folder = teller.folder
    secrets = write_demo_corpus(folder / "notes.jsonl")
    (folder / "request.yaml").write_text(yaml.safe_dump(REQUEST, sort_keys=False))
    (folder / "greedy.yaml").write_text(yaml.safe_dump({**REQUEST, "epsilon": 9.0}, sort_keys=False))
    teller.tell("A project home: ledger, keys, policy. Everything below happens in it.")
    teller.run("init")
    teller.tell(
        f"A fictional clinic of {DEMO_PATIENTS} patients with several notes each. The unit of privacy is the patient."
    )
    teller.run(f"dataset register clinic --unit patient_id --epsilon 10 --delta 1e-5 --population {DEMO_PATIENTS}")
    teller.run("dataset ingest clinic notes.jsonl")
    teller.tell("An analyst asks. The price comes first: what is spent, and what stays.")
    teller.run("release request request.yaml")
    teller.tell("Nobody runs what no steward has approved.")
    teller.run("run 1", expected=1)
    teller.run('approve 1 --gate spend --reason "a first look at synthetic notes" --confirm clinic')
    teller.run("run 1")
    teller.tell("The texts wait in quarantine. A steward sees public figures and samples, then decides again.")
    teller.run('approve 1 --gate publish --reason "reads like notes, names nobody" --confirm clinic')
    teller.run("publish 1 --to out")
    teller.tell("Anybody can check the bundle: no ledger, no network.")
    teller.run("verify-release out/clinic-release-1")
    found = _leaked(folder / "out", secrets)
    teller.tell(
        f"Of {len(secrets)} planted secrets (phones, e-mails, names, record numbers), the bundle holds {found}."
    )
    teller.tell("One changed byte is found:")
    card = folder / "out" / "clinic-release-1" / "README.md"
    card.write_bytes(card.read_bytes().replace(b"epsilon", b"Epsilon", 1))
    teller.run("verify-release out/clinic-release-1", expected=1)
    teller.tell("The budget only goes down, and the ledger refuses what it cannot afford.")
    teller.run("budget show clinic")
    teller.run("release request greedy.yaml", expected=1)
    teller.tell("And all of it is on the record.")
    teller.run("audit log --dataset clinic")
    teller.run("audit verify")
    teller.run("doctor")
    texts = [
        json.loads(line)["text"] for line in (folder / "out/clinic-release-1/texts.jsonl").read_text().splitlines()
    ]
    data = {
        "steps": [{"command": c, "seconds": round(s, 1)} for c, s in teller.times],
        "texts": texts,
        "secrets_found": found,
    }
    rows = [(step, f"{seconds:.1f}") for step, seconds in teller.times]
    return Answer(data, [table(("step", "seconds"), rows, "Time of each step")])


def _leaked(folder: Path, secrets: list[str]) -> int:
    published = "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    return sum(secret in published for secret in secrets)


class Teller:
    """Runs commands as a person would type them, and keeps their times."""

    def __init__(self, root: Callable[..., object], folder: Path) -> None:
        self.root, self.folder = root, folder
        self.times: list[tuple[str, float]] = []
        self._console = make_console()

    def tell(self, text: str) -> None:
        """A sentence of the story."""
        self._console.print(Text(f"\n{text}", style="bold"), soft_wrap=True)

    def run(self, line: str, expected: int = 0) -> None:
        """One command, in this process, with its output on the terminal.

        Raises:
            DemoFailed: it ended otherwise than the story says.
        """
        self._console.print(Text(f"\n$ almoner {line}", style="cyan"), soft_wrap=True)
        started = time.monotonic()
        try:
            self.root(shlex.split(line), prog_name="almoner")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        else:
            code = 0
        sys.stdout.flush()
        self.times.append((line, time.monotonic() - started))
        if code != expected:
            raise DemoFailed(line, code, expected)
