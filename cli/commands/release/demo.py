"""`almoner demo`: all steps of a release on a small fictional clinic, in a temporary home."""

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

from cli.framework.command import CommandContext, CommandResult, command, make_console
from cli.framework.tables import table
from models_db.errors import EnvironmentProblem, UsageError
from tasks.corpus.demo.clinic import DEMO_PATIENTS, write_demo_corpus

DEMO_REQUEST = {
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


class InvalidDemoFolder(UsageError):
    """The demo needs a new folder."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"{folder} cannot be made: {reason}.", "Name a folder that is not there yet.")


def register(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "demo")(demo)


def demo(opened: CommandContext, context: typer.Context, keep: Keep = None) -> CommandResult:
    """Run a demo on a fictional clinic: register, ingest, request, approve, run, publish, verify, three refusals.

    Example: almoner demo --keep ./demo
    """
    root = context.find_root().command  # the commands that a person would type
    # Under --json the story goes to stderr, so that the answer stands alone.
    with redirect_stdout(sys.stderr if opened.as_json else sys.stdout):
        if keep is not None:
            _make_folder(keep)
            return _run_demo(root, keep.absolute())
        with tempfile.TemporaryDirectory(prefix="almoner-demo-") as folder:
            return _run_demo(root, Path(folder))


def _run_demo(root: Callable[..., object], folder: Path) -> CommandResult:
    with _isolated_home(folder):
        return _demo_steps(DemoRunner(root, folder))


@contextmanager
def _isolated_home(folder: Path) -> Iterator[None]:
    """Work in `folder` with the demo's own home and ledger, not those that the environment names."""
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


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as problem:
        raise InvalidDemoFolder(folder, problem.strerror or type(problem).__name__) from None


def _demo_steps(runner: "DemoRunner") -> CommandResult:
    folder = runner.folder
    secrets = write_demo_corpus(folder / "notes.jsonl")
    (folder / "request.yaml").write_text(yaml.safe_dump(DEMO_REQUEST, sort_keys=False))
    (folder / "greedy.yaml").write_text(yaml.safe_dump({**DEMO_REQUEST, "epsilon": 9.0}, sort_keys=False))
    runner.print_text("A project home: ledger, keys, policy. Everything below happens in it.")
    runner.run_command("init")
    runner.print_text(
        f"A fictional clinic of {DEMO_PATIENTS} patients with several notes each. The unit of privacy is the patient."
    )
    runner.run_command(
        f"dataset register clinic --unit patient_id --epsilon 10 --delta 1e-5 --population {DEMO_PATIENTS}"
    )
    runner.run_command("dataset ingest clinic notes.jsonl")
    runner.print_text("An analyst requests a release. The price comes first: the amount to spend, and the budget left.")
    runner.run_command("release request request.yaml")
    runner.print_text("No request runs before a steward has approved it.")
    runner.run_command("run 1", expected=1)
    runner.run_command('approve 1 --gate spend --reason "a first look at synthetic notes" --confirm clinic')
    runner.run_command("run 1")
    runner.print_text("The texts wait in quarantine. A steward sees public figures and samples, then decides again.")
    runner.run_command('approve 1 --gate publish --reason "a small model: a test of the pipeline" --confirm clinic')
    runner.run_command("publish 1 --to out")
    runner.print_text("Anybody can check the bundle: no ledger, no network.")
    runner.run_command("verify-release out/clinic-release-1")
    leaked = _leaked_secrets(folder / "out", secrets)
    runner.print_text(
        f"Of {len(secrets)} planted secrets (phones, e-mails, names, record numbers), the bundle holds {leaked}."
    )
    runner.print_text("One changed byte is found:")
    card = folder / "out" / "clinic-release-1" / "README.md"
    card.write_bytes(card.read_bytes().replace(b"epsilon", b"Epsilon", 1))
    runner.run_command("verify-release out/clinic-release-1", expected=1)
    runner.print_text("The budget only goes down, and the ledger refuses a request that exceeds it.")
    runner.run_command("budget show clinic")
    runner.run_command("release request greedy.yaml", expected=1)
    runner.print_text("And all of it is on the record.")
    runner.run_command("audit log --dataset clinic")
    runner.run_command("audit verify")
    runner.run_command("doctor")
    texts = [
        json.loads(line)["text"] for line in (folder / "out/clinic-release-1/texts.jsonl").read_text().splitlines()
    ]
    data = {
        "steps": [{"command": c, "seconds": round(s, 1)} for c, s in runner.times],
        "texts": texts,
        "secrets_found": leaked,
    }
    rows = [(step, f"{seconds:.1f}") for step, seconds in runner.times]
    return CommandResult(data, [table(("step", "seconds"), rows, "Time of each step")])


def _leaked_secrets(folder: Path, secrets: list[str]) -> int:
    published = "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    return sum(secret in published for secret in secrets)


class DemoRunner:
    """Runs commands as a person would type them, and keeps their times."""

    def __init__(self, root: Callable[..., object], folder: Path) -> None:
        self.root, self.folder = root, folder
        self.times: list[tuple[str, float]] = []
        self._console = make_console()

    def print_text(self, text: str) -> None:
        """A sentence of the story."""
        self._console.print(Text(f"\n{text}", style="bold"), soft_wrap=True)

    def run_command(self, line: str, expected: int = 0) -> None:
        """Run one command in this process, with its output on the terminal.

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
