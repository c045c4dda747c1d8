"""`almoner demo`: all steps of a release on a small fictional clinic, and the same request without privacy."""

import io
import json
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.panel import Panel
from rich.text import Text
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command, make_console
from cli.framework.tables import plain_text, table
from models_db.errors import EnvironmentProblem, UsageError
from tasks.corpus.demo_clinic import DEMO_PATIENTS, find_secrets, write_demo_corpus, write_joined_corpus

DEMO_REQUEST: dict[str, Any] = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "epsilon": 6.0,
    "delta": 1.0e-5,
    "model": "smollm2-135m-instruct",
    "parameters": {
        "samples": 12,
        "references": 12,
        "max_new_tokens": 160,
        "temperature": 0.6,
        "top_k": 100,
        "max_reference_tokens": 128,
        "form": (
            "Seen today: {who}\nComplaint: {complaint}\nExamination: {finding}\nTreatment: {medicine}\nPlan: {plan}\n"
            "Record number: MRN-{number}\nTelephone: ({phone}"
        ),
        "slot_tokens": 10,
    },
    "prompt": {
        "form": "completion",
        "description": "Notes that a doctor writes after seeing a patient in a clinic.",
        "examples": [
            (
                "Seen today: a 52-year-old electrician\nComplaint: pain in the left wrist after a fall\n"
                "Examination: a swollen wrist without fracture\nTreatment: a splint for ten days\n"
                "Plan: gentle exercises from next week"
            ),
            (
                "Seen today: a 31-year-old woman\nComplaint: a sore throat since Sunday\n"
                "Examination: red tonsils and no fever\nTreatment: paracetamol 500 mg as needed\n"
                "Plan: rest and plenty to drink"
            ),
            (
                "Seen today: a 78-year-old retired teacher\nComplaint: a sudden pain in the big toe\n"
                "Examination: a red and hot joint\nTreatment: colchicine 500 micrograms twice a day\n"
                "Plan: a blood test in four weeks"
            ),
        ],
    },
    "evaluation": ["length", "distinct", "perplexity"],
}
"""Form and examples are public and written for the demo; the form asks for identities, which is the hardest case."""

CLAIM = f"--unit patient_id --epsilon 10 --delta 1e-5 --population {DEMO_PATIENTS}"
NOTES_SHOWN = 2
COMPARISONS = ("non_private", "public_only")

Keep = Annotated[Path | None, typer.Option(help="Keep the demo's home and bundle in this new folder.")]
Model = Annotated[str | None, typer.Option(help="Model of all texts. Default: smollm2-135m-instruct, a small one.")]
Details = Annotated[bool, typer.Option("--details", help="Show all that each command prints, and the time it took.")]


class DemoStep(TypedDict):
    """A command of the demo."""

    command: str
    seconds: float


class DemoData(TypedDict):
    """What the demo did: its texts, and the planted secrets that were found in each kind of release."""

    steps: list[DemoStep]
    texts: list[str]
    secrets_planted: int
    secrets_found: dict[str, int]
    texts_searched: dict[str, int]
    secrets_found_in_bundle: int


def _demo_failed(step: str, code: int, expected: int) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The demo's step {step!r} ended with {code}, not {expected}.",
        "Run `almoner doctor`; if that finds nothing, report the output above.",
        {"step": step, "exit_code": code},
        code="DemoFailed",
    )


def register(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "demo")(demo)


def demo(
    opened: CommandContext,
    context: typer.Context,
    keep: Keep = None,
    model: Model = None,
    details: Details = False,
) -> CommandResult[DemoData]:
    """Run a demo on a fictional clinic: a release from request to bundle, and secrets that leak without privacy.

    Example: almoner demo --keep ./demo
    """
    root = context.find_root().command  # the commands that a person would type
    # Under --json the story goes to stderr, so that the answer stands alone.
    with redirect_stdout(sys.stderr if opened.as_json else sys.stdout):
        if keep is not None:
            _make_folder(keep)
            return _run_demo(DemoRunner(root, keep.absolute(), details), model)
        with tempfile.TemporaryDirectory(prefix="almoner-demo-") as folder:
            return _run_demo(DemoRunner(root, Path(folder), details), model)


def _run_demo(runner: "DemoRunner", model: str | None) -> CommandResult[DemoData]:
    with _isolated_home(runner.folder):
        return _demo_steps(runner, DEMO_REQUEST if model is None else DEMO_REQUEST | {"model": model})


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
        raise UsageError(
            f"{folder} cannot be made: {problem.strerror or type(problem).__name__}.",
            "Name a folder that is not there yet.",
            code="InvalidDemoFolder",
        ) from None


def _demo_steps(runner: "DemoRunner", request: Mapping[str, Any]) -> CommandResult[DemoData]:
    from tasks.inference.catalogue.registry import RECOMMENDED

    started = time.monotonic()
    secrets = write_demo_corpus(runner.folder / "notes.jsonl")
    runner.print_text(
        f"A fictional clinic: {DEMO_PATIENTS} patients with several notes each, and {len(secrets)} planted secrets "
        "(names, telephone numbers, e-mail addresses, record numbers). The demo releases notes that nobody wrote."
    )
    if request["model"] != (better := RECOMMENDED[0]):
        runner.print_text(
            f"The model is {request['model']}. {better} writes better notes and takes ten times as long: "
            f"`make demo MODEL={better}`, or `almoner demo --model {better}` once it is pulled."
        )
    notes = _release(runner, request)
    _refusals(runner, request)
    found = {"invisible_ink": find_secrets(notes, secrets)}
    texts = {"invisible_ink": notes}
    for mechanism in COMPARISONS:
        compared = yaml.safe_dump({**request, "mechanism": mechanism}, sort_keys=False)
        (runner.folder / f"{mechanism}.yaml").write_text(compared)
    runner.print_text("The same request without privacy, one word of the file changed: almoner refuses it.")
    runner.run_command("release request non_private.yaml", expected=1, shown=("NotForGovernedData",))
    runner.print_text(
        "It is for public data only. These patients are fictional, so the demo may declare their notes public, in a "
        "home of its own. Never do that with people."
    )
    write_joined_corpus(runner.folder / "patients.jsonl")
    runner.use_home("comparison")
    runner.run_command("init", shown=("Project home",))
    runner.run_command(f"dataset register clinic --public {CLAIM}", shown=("Registered",))
    runner.run_command("dataset ingest clinic patients.jsonl", shown=("Ingested",))
    for number, mechanism in enumerate(COMPARISONS, 1):
        texts[mechanism] = _compare(runner, number, mechanism)
        found[mechanism] = find_secrets(texts[mechanism], secrets)
    bundle = [path.read_text(errors="replace") for path in sorted((runner.folder / "out").rglob("*")) if path.is_file()]
    in_bundle = find_secrets(bundle, secrets)
    epsilon = f"{request['epsilon']:g}"
    headline = (
        f"Without privacy, {len(found['non_private'])} of the {len(secrets)} planted secrets appear in "
        f"{len(texts['non_private'])} notes; with almoner at epsilon {epsilon}, {len(found['invisible_ink'])} in "
        f"{len(notes)}; by chance, from the model that read no note, {len(found['public_only'])} in "
        f"{len(texts['public_only'])}."
    )
    data = DemoData(
        steps=[DemoStep(command=line, seconds=round(seconds, 1)) for line, seconds in runner.times],
        texts=notes,
        secrets_planted=len(secrets),
        secrets_found={name: len(each) for name, each in found.items()},
        texts_searched={name: len(each) for name, each in texts.items()},
        secrets_found_in_bundle=len(in_bundle),
    )
    columns = (f"{len(notes)} notes each", "secrets", "notes with one", "for example")
    rows = [
        ("without privacy (non_private)", len(found["non_private"]), *_examples(texts, found, "non_private")),
        (f"by almoner at epsilon {epsilon}", len(found["invisible_ink"]), *_examples(texts, found, "invisible_ink")),
        ("by the model alone (public_only)", len(found["public_only"]), *_examples(texts, found, "public_only")),
    ]
    shown: list[Any] = [f"\n{headline}", table(columns, rows)]
    shown.append(
        f"The published bundle holds {len(in_bundle)}. A search that finds nothing proves nothing; the claim rests on "
        "the mechanism, and the bundle carries what is needed to recompute it."
    )
    if runner.details:
        times = [(step, f"{seconds:.1f}") for step, seconds in runner.times]
        shown.insert(0, table(("step", "seconds"), times, "Time of each step"))
    shown.append(f"The demo took {time.monotonic() - started:.0f} s. To do it by hand: docs/guides/first-release.md.")
    return CommandResult(data, shown)


def _release(runner: "DemoRunner", request: Mapping[str, Any]) -> list[str]:
    """Run a release from the corpus to its bundle; the released notes."""
    folder = runner.folder
    (folder / "request.yaml").write_text(yaml.safe_dump(dict(request), sort_keys=False))
    runner.print_text("A home, and a dataset with a lifetime budget for each patient: epsilon 10 over all releases.")
    runner.run_command("init", shown=("Project home",))
    runner.run_command(f"dataset register clinic {CLAIM}", shown=("Registered",))
    runner.run_command("dataset ingest clinic notes.jsonl", shown=("Ingested", "That number"))
    runner.print_text(
        "A request has a price before anything is read. Its form even asks for a record number and a telephone number."
    )
    runner.run_command(
        "release request request.yaml",
        shown=("It costs", "Epsilon", "The private texts", "Submitted"),
    )
    runner.print_text("No request runs before a steward has approved it.")
    runner.run_command("run 1", expected=1, shown=("GateClosed",))
    reason = (
        f"fictional patients; epsilon {request['epsilon']:g} of a lifetime 10 for a first release; "
        "form and examples are public"
    )
    runner.run_command(
        f'approve 1 --gate spend --reason "{reason}" --confirm clinic', shown=("It costs", "Approved by")
    )
    runner.run_command("run 1", shown=("Request 1", "rho spent"), progress=True)
    runner.print_text("The notes wait in quarantine. The steward reads them, then decides again.")
    listed = runner.read_json("release texts 1")["texts"]
    for text in listed[:NOTES_SHOWN]:
        runner.print_note(text["id"], len(listed), text["text"])
    doubts = Counter(doubt for text in listed for doubt in text["doubts"])
    said = ", ".join(f"{doubt} {count}" for doubt, count in doubts.most_common()) or "none found"
    reason = (
        f"fictional patients; {len(listed)} notes listed, doubts: {said}; the form asks for numbers; "
        "medical sense not checked, unfit for care"
    )
    runner.run_command(f'approve 1 --gate publish --reason "{reason}" --confirm clinic', shown=("Approved by",))
    runner.run_command("publish 1 --to out", shown=("Published",))
    runner.print_text("Anybody can check the bundle: no ledger, no network. One changed byte is found.")
    runner.run_command("verify-release out/clinic-release-1", shown=("All ", "The bundle is whole"))
    card = folder / "out" / "clinic-release-1" / "README.md"
    original = card.read_bytes()
    card.write_bytes(original.replace(b"epsilon", b"Epsilon", 1))
    runner.run_command("verify-release out/clinic-release-1", expected=1, shown=("Do not rely",))
    card.write_bytes(original)
    return _texts(listed)


def _refusals(runner: "DemoRunner", request: Mapping[str, Any]) -> None:
    (runner.folder / "greedy.yaml").write_text(yaml.safe_dump({**request, "epsilon": 9.0}, sort_keys=False))
    runner.print_text("The budget only goes down, and the ledger refuses a request that exceeds it. All is on record.")
    runner.run_command("budget show clinic", shown=("",), lines=1)
    runner.run_command("release request greedy.yaml", expected=1, shown=("BudgetExceeded",))
    runner.run_command("audit log --dataset clinic", shown=("",), lines=5)
    runner.run_command("audit verify", shown=("The chain holds",))
    runner.run_command("doctor", shown=("Everything holds",))


def _compare(runner: "DemoRunner", number: int, mechanism: str) -> list[str]:
    """Run the demo's request with another mechanism on the notes that are declared public; its texts."""
    runner.run_command(f"release request {mechanism}.yaml", shown=("Submitted",))
    reason = "fictional patients, declared public; nothing is published"
    runner.run_command(f'approve {number} --gate spend --reason "{reason}" --confirm clinic', shown=("Approved by",))
    runner.run_command(f"run {number}", shown=(f"Request {number}",), progress=True)
    return _texts(runner.read_json(f"release texts {number}")["texts"])


def _texts(listed: Sequence[Mapping[str, str]]) -> list[str]:
    return [text["text"] for text in listed]


def _examples(texts: dict[str, list[str]], found: dict[str, list[str]], name: str) -> tuple[int, str]:
    """Return how many texts hold a secret, and up to three of the secrets."""
    return sum(bool(find_secrets([text], found[name])) for text in texts[name]), ", ".join(found[name][:3])


class DemoRunner:
    """Runs commands as a person would type them, and keeps their times.

    Attributes:
        details: print all that a command prints, not only the lines that the story needs.
    """

    def __init__(self, root: Callable[..., object], folder: Path, details: bool) -> None:
        self.root, self.folder, self.details = root, folder, details
        self.times: list[tuple[str, float]] = []
        self._console = make_console()

    def print_text(self, text: str) -> None:
        """A sentence of the story."""
        self._console.print(Text(f"\n{text}", style="bold"), soft_wrap=True)

    def use_home(self, name: str) -> None:
        """Let the commands that follow use another home in the demo's folder."""
        self._console.print(Text(f"$ export ALMONER_HOME=$PWD/{name}", style="cyan"), soft_wrap=True)
        os.environ["ALMONER_HOME"] = str(self.folder / name)

    def print_note(self, number: int, of: int, text: str) -> None:
        """A released note in a frame."""
        self._console.print(
            Panel(plain_text(text), title=f"Note {number} of {of}", title_align="left", expand=False, padding=(0, 1))
        )

    def run_command(
        self,
        line: str,
        expected: int = 0,
        *,
        shown: Sequence[str] = (),
        lines: int | None = None,
        progress: bool = False,
    ) -> None:
        """Run one command in this process; print what it printed, or the lines of it that the story needs.

        Args:
            expected: its exit code.
            shown: beginnings of the lines to print without `--details`.
            lines: so many of them at most.
            progress: the command reports its progress on stderr, which is left alone.

        Raises:
            DemoFailed: it ended otherwise than the story says; all that it printed is printed before.
        """
        self._console.print(Text(f"$ almoner {line}", style="cyan"), soft_wrap=True)
        printed = io.StringIO()
        with ExitStack() as captured:
            if not self.details:
                captured.enter_context(redirect_stdout(printed))
                if not progress:
                    captured.enter_context(redirect_stderr(printed))
            code = self._run(line)
        self._print_lines(printed.getvalue(), shown if code == expected else ("",), lines)
        if code != expected:
            raise _demo_failed(line, code, expected)

    def read_json(self, line: str) -> Any:
        """Run one command with --json; its answer.

        Raises:
            DemoFailed: it did not end with 0.
        """
        self._console.print(Text(f"$ almoner {line}", style="cyan"), soft_wrap=True)
        printed = io.StringIO()
        with redirect_stdout(printed):
            code = self._run(f"{line} --json")
        if code != 0:
            self._print_lines(printed.getvalue(), ("",), None)
            raise _demo_failed(line, code, 0)
        return json.loads(printed.getvalue())

    def _run(self, line: str) -> int:
        started = time.monotonic()
        try:
            self.root(shlex.split(line), prog_name="almoner")
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        else:
            code = 0
        sys.stdout.flush()
        self.times.append((line, time.monotonic() - started))
        return code

    def _print_lines(self, printed: str, shown: Sequence[str], most: int | None) -> None:
        lines = [line.strip() for line in printed.splitlines()]
        wanted = [line for line in lines if line and line.startswith(tuple(shown))]
        for line in wanted[:most]:
            self._console.print(Text(f"  {line}"), soft_wrap=True)
