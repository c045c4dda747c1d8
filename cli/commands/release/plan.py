"""`almoner plan`: complete requests side by side, one of them written as a request file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.result_types import ChosenParameter, PriceData
from cli.framework.tables import table
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_yaml
from models_db.errors import UsageError
from models_db.services import datasets
from models_db.values.requests import file_invalid

if TYPE_CHECKING:
    from flows.datasets.plan_release import ReleasePlan


class RehearsedShare(TypedDict):
    """How far such a request went from the public model to no privacy, by a metric, on public corpora."""

    metric: str
    share: int
    low: int
    high: int
    corpora: list[str]
    without_share: list[str]
    model: str
    texts: int


class AlternativeData(TypedDict):
    """A complete request with what to expect of it; `request` is what a request file would hold."""

    number: int
    name: str
    request: dict[str, object]
    choices: dict[str, ChosenParameter]
    texts: int
    references: int | None
    tokens: int | None
    clip_norm: str | None
    influence: str | None
    judgement: str
    rehearsed: list[RehearsedShare]
    guess_right_at_most: str
    price: PriceData


class PlanData(TypedDict):
    """Complete requests side by side; `written` is the request file of the chosen one, or null."""

    dataset: str
    population: int
    epsilon: str
    epsilon_while_secret: str | None
    delta: str
    model: str
    device: str
    verdict: str
    reasons: dict[str, str]
    alternatives: list[AlternativeData]
    notes: list[str]
    written: str | None


def register(root: typer.Typer) -> None:
    """Register `almoner plan`."""
    command(root, "plan")(plan)


def plan(
    context: CommandContext,
    dataset: DatasetName,
    epsilon: Annotated[
        str | None, typer.Option(help="Epsilon of the release. Default: a quarter of the remaining budget.")
    ] = None,
    epsilon_while_secret: Annotated[
        str | None,
        typer.Option(help="Calibrate to this epsilon while the assignment is secret; --epsilon is then the most."),
    ] = None,
    delta: Annotated[
        str | None, typer.Option(help="Delta of the release. Default: a power of ten below 1/(100 x population).")
    ] = None,
    kind: Annotated[
        str, typer.Option(help="synthetic_corpus, demonstrations, records or insights.")
    ] = "synthetic_corpus",
    samples: Annotated[int | None, typer.Option(help="Number of texts that are wanted.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Most tokens of a text.")] = None,
    temperature: Annotated[
        str | None, typer.Option(help="Temperature of the texts. Default: 0.7; a lower one makes plainer texts.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A public label of the texts; repeat it for each label.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="JSON schema of the records, for --kind records.")] = None,
    population: Annotated[
        int | None, typer.Option(help="A public number of people, where the dataset declares none.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model. Default: the best recommended one here.")] = None,
    time: Annotated[
        str | None, typer.Option(metavar="45m|8h", help="Longest estimated time on two cores. Default: 8h.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device of the run: cpu, or cuda, which has no estimate of time.")
    ] = "cpu",
    description: Annotated[str | None, typer.Option(help="Description of the texts for the model; public.")] = None,
    examples: Annotated[
        Path | None, typer.Option(help="YAML file: a list of public examples of texts, which you wrote yourself.")
    ] = None,
    choice: Annotated[int | None, typer.Option(help="Number of the alternative to write.")] = None,
    write: Annotated[Path | None, typer.Option(help="Request file to write the chosen alternative to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> CommandResult[PlanData]:
    """Plan a release: propose complete requests side by side. Reads no private text and spends nothing.

    Example: almoner plan clinic --epsilon 4 --samples 100 --choice 2 --write request.yaml
    """
    if (choice is None) != (write is None):
        raise UsageError(
            "`--choice N` and `--write PATH` belong together: which alternative, and where to.",
            "Give both, or neither to see the plan alone.",
            code="ChoiceIncomplete",
        )
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        datasets.find_dataset(session, dataset)  # before the libraries of pricing are loaded
    from flows.datasets.plan_release import parse_minutes, parse_options, plan_release, write_request

    given: dict[str, Any] = {
        "epsilon": epsilon, "epsilon_while_secret": epsilon_while_secret, "delta": delta, "kind": kind,
        "samples": samples, "tokens": tokens, "temperature": temperature,
        "labels": label,
        "schema": _content(schema, "The schema", "docs/records.md"),
        "population": population, "model": model, "description": description,
        "examples": _content(examples, "The file of examples", "docs/planning.md"), "device": device,
    }  # fmt: skip
    planned = plan_release(workspace, dataset, parse_options({**given, "minutes": parse_minutes(time)}))
    written: list[RenderableType] = []
    if choice is not None and write is not None:
        write_request(write, planned, choice, force=force)
        fill_in = " Replace its two examples by texts that you invent." if planned.needs_examples(choice) else ""
        written = [f"Written: {write}.{fill_in}"]
    data = cast(PlanData, {**planned.to_json(), "written": None if write is None else str(write)})
    return CommandResult(data, [*plan_tables(planned), *written, _next_step(planned, write)])


def _content(path: Path | None, what: str, page: str) -> object:
    """Return the content of an option's YAML file; None without the option.

    Raises:
        FileUnreadable, FileInvalid: the file cannot be read, or has no content.
    """
    if path is None:
        return None
    found = read_yaml(path, what, page)
    if found is None:
        raise file_invalid(what, ["the file is empty"], page)
    return found


def _next_step(planned: "ReleasePlan", written: Path | None) -> str:
    """Return the next command: write an alternative, rehearse it, request it."""
    if written is None:
        names = [one.name for one in planned.alternatives]
        proposed = names.index("balanced") + 1 if "balanced" in names else 1
        return f"Next: `almoner plan {planned.terms.dataset} ... --choice {proposed} --write request.yaml`."
    file = shlex.quote(str(written))
    request = f"`almoner release request {file}`"
    if planned.terms.kind == "insights":
        return f"Next: {request}."
    return (
        f"Next: rehearse it: `almoner rehearse {file} --on PUBLIC` (a public dataset of texts like yours; it spends"
        f" no budget). Then {request}."
    )


def plan_tables(planned: "ReleasePlan") -> list[RenderableType]:
    """Return the question, the verdict, the alternatives side by side, and the notes."""
    terms, alternatives = planned.terms, planned.alternatives
    columns = ["", *(f"{number} {one.name}" for number, one in enumerate(alternatives, 1))]
    entries = [_entries(planned, number) for number in range(len(alternatives))]
    rows = [[name, *(entry[name] for entry in entries)] for name in entries[0]]
    title = f"Plans for {terms.dataset}: population {terms.population}, delta {terms.delta:f}, {terms.model}"
    return [
        _question(planned),
        planned.verdict,
        table(columns, [row for row in rows if set(row[1:]) != {"-"}], title),
        *(f"{number} {one.name}: {one.judgement}" for number, one in enumerate(alternatives, 1)
          if terms.kind == "insights"),
        *(f"{name}: {reason}." for name, reason in planned.reasons.items() if name != "delta"),
        *planned.notes,
    ]  # fmt: skip


def _question(planned: "ReleasePlan") -> str:
    """Return which questions other releases answer better than this one."""
    from tasks.systems.registry import SYSTEMS

    others = [system.other_question for system in SYSTEMS.own.values() if system.other_question is not None]
    texts = ["About what do they write? `--kind insights`. This plan is for texts."]
    return " ".join(others if planned.terms.kind == "insights" else others + texts)


def _entries(planned: "ReleasePlan", place: int) -> dict[str, str]:
    """Return one column of the table."""
    from flows.datasets.plan_release import best_guess
    from tasks.planning.secret_assignment import shown_epsilon
    from tasks.release.claim import format_guesses

    one = planned.alternatives[place]
    quote, budget = one.quote, one.quote.dataset.budget
    secret = quote.secret_assignment if planned.terms.epsilon_while_secret is not None else None
    influence, texts = quote.influence, one.references is not None
    people = "-" if one.references is None else str(one.references)
    length = getattr(quote.parameters, "max_new_tokens", "-") if texts else "-"
    entries = {
        "texts": str(one.samples) if texts else f"topics, {one.samples} at most",
        "people behind a text": people,
        "tokens of a text": str(length),
        "private texts move a word": "-" if influence is None else influence.level.name,
        "epsilon": f"{quote.request.epsilon:f}",
        "epsilon while secret": "-" if secret is None else shown_epsilon(secret),
        "a guess is right": format_guesses(best_guess(one)),
    }
    if planned.device == "cpu":
        entries["time on two cores"] = ("about " if texts else "over ") + _time_text(quote.seconds)
    if planned.with_balance:
        after = budget.epsilon_of(budget.spent + quote.plan.loss)
        entries["lifetime epsilon then"] = f"{after} of {budget.claim.epsilon}"
    return entries


def _time_text(seconds: int) -> str:
    minutes = max(1, round(seconds / 60))
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"
