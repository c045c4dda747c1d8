"""`almoner plan`: complete requests side by side, one of them written as a request file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.price_data import ChosenParameter, PriceData
from cli.framework.tables import table
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_yaml
from models_db.errors import UsageError
from models_db.services.catalogue import datasets
from models_db.values.requests import FileInvalid

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
        str | None, typer.Option(help="Temperature of the texts. Default: 1; a lower one makes plainer texts.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A public label of the texts; repeat it for each label.")
    ] = None,
    label_rule: Annotated[
        Path | None, typer.Option(help="YAML file of a rule that labels documents by their words.")
    ] = None,
    label_allocation: Annotated[
        str, typer.Option(help="Texts of each label: equal, or proportional to a noisy histogram.")
    ] = "equal",
    schema: Annotated[Path | None, typer.Option(help="JSON schema of the records, for --kind records.")] = None,
    population: Annotated[
        int | None, typer.Option(help="A public number of people, where the dataset declares none.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model. Default: smollm2-135m-instruct.")] = None,
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
    scope: Annotated[str | None, typer.Option(help="Envelope to draw on.")] = None,
    choice: Annotated[int | None, typer.Option(help="Number of the alternative to write.")] = None,
    write: Annotated[Path | None, typer.Option(help="Request file to write the chosen alternative to.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> CommandResult[PlanData]:
    """Plan a release: propose complete requests side by side. Reads no private text and spends nothing.

    Example: almoner plan clinic --epsilon 4 --samples 100 --choice 2 --write request.yaml
    """
    if (choice is None) != (write is None):
        raise ChoiceIncomplete
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        datasets.find_dataset(session, dataset)  # before the libraries of pricing are loaded
    from flows.datasets.plan_release import parse_minutes, parse_options, plan_release
    from flows.datasets.request_file import write_request

    given: dict[str, Any] = {
        "epsilon": epsilon, "epsilon_while_secret": epsilon_while_secret, "delta": delta, "kind": kind,
        "samples": samples, "tokens": tokens, "temperature": temperature,
        "labels": label, "label_allocation": label_allocation,
        "label_rule": _content(label_rule, "The label rule", "docs/requests.md"),
        "schema": _content(schema, "The schema", "docs/records.md"),
        "population": population, "model": model, "description": description, "scope": scope,
        "examples": _content(examples, "The file of examples", "docs/planning.md"), "device": device,
    }  # fmt: skip
    planned = plan_release(workspace, dataset, parse_options({**given, "minutes": parse_minutes(time)}))
    written: list[RenderableType] = []
    if choice is not None and write is not None:
        write_request(write, planned, choice, force=force)
        written = [f"Written: {write}.", f"Next: `almoner release request {write} --dry-run`."]
    data = cast(PlanData, {**planned.to_json(), "written": None if write is None else str(write)})
    return CommandResult(data, [*plan_tables(planned), *(written or [_next_step(dataset)])])


def _content(path: Path | None, what: str, page: str) -> object:
    """Return the content of an option's YAML file; None without the option.

    Raises:
        FileUnreadable, FileInvalid: the file cannot be read, or has no content.
    """
    if path is None:
        return None
    found = read_yaml(path, what, page)
    if found is None:
        raise FileInvalid(what, ["the file is empty"], page)
    return found


def _next_step(dataset: str) -> str:
    return f"Next: `almoner plan {dataset} ... --choice N --write request.yaml`."


def plan_tables(planned: "ReleasePlan") -> list[RenderableType]:
    """Return the alternatives side by side, the expected quality of each, and the notes."""
    terms, alternatives = planned.terms, planned.alternatives
    columns = ["", *(f"{number} {one.name}" for number, one in enumerate(alternatives, 1))]
    entries = [_entries(planned, number) for number in range(len(alternatives))]
    rows = [[name, *(entry[name] for entry in entries)] for name in entries[0]]
    title = f"Plans for {terms.dataset}: population {terms.population}, delta {terms.delta:f}, {terms.model}"
    expected = [[f"{number} {one.name}", one.judgement] for number, one in enumerate(alternatives, 1)]
    reasons = [f"{name}: {reason}." for name, reason in planned.reasons.items()]
    return [
        table(columns, rows, title),
        table(("", "expected quality"), expected),
        *reasons,
        *planned.notes,
        *_origins(planned),
    ]


def _entries(planned: "ReleasePlan", place: int) -> dict[str, str]:
    """Return one column of the table."""
    from flows.datasets.plan_release import best_guess
    from tasks.planning.secret_assignment import shown_epsilon
    from tasks.release.promise_strength import format_guesses

    one = planned.alternatives[place]
    quote, budget = one.quote, one.quote.dataset.budget
    secret = quote.secret_assignment
    influence, texts = quote.influence, one.references is not None
    vector = quote.request.mechanism == "steering_vector"
    parameters = one.request["parameters"]
    fields = parameters if isinstance(parameters, dict) else {}
    entries = {
        "mechanism": quote.request.mechanism,
        "epsilon": f"{quote.request.epsilon:f}",
        "epsilon while secret": "-" if secret is None else shown_epsilon(secret),
        "a guess is right": format_guesses(best_guess(one)),
        "texts": str(one.samples) if texts else f"topics, {one.samples} at most",
        "references B": ("-" if one.references is None else str(one.references)) + (" in all" if vector else ""),
        "tokens T": str(fields.get("max_new_tokens", "-")),
        "temperature": str(fields.get("temperature", "-")),
        "candidates k": str(fields.get("top_k", "-")),
        "clip norm C": "-" if influence is None else f"{influence.clip_norm:.3f}",
        "private texts move a word": "-" if influence is None else influence.level.name,
        "tokens in all": "-" if one.tokens is None else str(one.tokens),
    }
    if planned.device == "cpu":
        entries["time on two cores"] = ("about " if texts else "over ") + _time_text(quote.seconds)
    entries |= _shares(planned, place)
    if planned.with_balance:
        after = budget.epsilon_of(budget.spent + quote.plan.loss)
        entries["lifetime epsilon then"] = f"{after} of {budget.claim.epsilon}"
    return entries


def _shares(planned: "ReleasePlan", place: int) -> dict[str, str]:
    """Return the rows of rehearsed shares: one for each metric that some alternative has a share by."""
    names = dict.fromkeys(share.name for one in planned.alternatives for share in one.expected_shares)
    expected = {share.name: share.words for share in planned.alternatives[place].expected_shares}
    return {f"to no privacy, {name}": expected.get(name, "-") for name in names}


def _origins(planned: "ReleasePlan") -> list[str]:
    """Return where the rehearsed shares come from."""
    origins = dict.fromkeys(share.origin for one in planned.alternatives for share in one.expected_shares)
    if not origins:
        return []
    meaning = "'To no privacy' is the share of the way from the public model's texts to texts without privacy"
    rehearse = "Rehearse a request on public data like yours: `almoner rehearse request.yaml --on PUBLIC`."
    return [f"{meaning} [95 % interval]. {'; '.join(origins)}.", rehearse]


def _time_text(seconds: int) -> str:
    minutes = max(1, round(seconds / 60))
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


class ChoiceIncomplete(UsageError):
    """`--choice` without `--write`, or the other way round."""

    def __init__(self) -> None:
        super().__init__(
            "`--choice N` and `--write PATH` belong together: which alternative, and where to.",
            "Give both, or neither to see the plan alone.",
        )
