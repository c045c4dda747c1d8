"""`almoner dataset`: register a corpus with its lifetime claim, ingest, show, mock it; change its claim."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.commands.dataset import erase
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import DatasetName
from cli.framework.progress import progress_bar
from cli.framework.review_screen import waiting_sentence
from cli.framework.tables import fact_list, groups_table, table, warning_panel
from flows.datasets.inventory import describe_datasets, list_datasets
from flows.workspace.workspace import Workspace, open_workspace
from flows.workspace.yaml_files import read_fields
from models_db.errors import EnvironmentProblem, UsageError
from models_db.services import datasets, erasures
from models_db.services.datasets import Registration
from models_db.values.requests import PublicGroup, PublicMetadata
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.common.published_values import format_small
from tasks.corpus.readers.text_form import AS_FOUND, TextForm, parse_form
from tasks.object_storage.hub_dataset import parse_source

if TYPE_CHECKING:
    from flows.datasets.register import IngestPreview

app = typer.Typer(no_args_is_help=True, help="Manage datasets: register, ingest, list, show, mock, cap, erase.")
erase.register(app)

Unit = Annotated[str | None, typer.Option(help="Field that names the person; without it, each record is a unit.")]
Epsilon = Annotated[str | None, typer.Option(help="Lifetime epsilon: never exceeded, never reset.")]
Delta = Annotated[str | None, typer.Option(help="Lifetime delta.")]
Blocks = Annotated[
    int | None, typer.Option(min=1, max=100_000, help="Disjoint blocks, each with the whole budget [1].")
]
TextField = Annotated[
    str, typer.Option(help="Field that holds the text, or a template of several: '{title}\\n\\n{body}'.")
]
Population = Annotated[
    int | None, typer.Option(min=1, help="Declared, public number of people; without it, a release buys a noisy count.")
]
Public = Annotated[bool, typer.Option("--public", help="The data is public: no guarantee is made or needed.")]
Metadata = Annotated[
    Path | None,
    typer.Option(help="YAML file with the owner's statements on published data (licence, language); shown on cards."),
]
LabelField = Annotated[
    list[str] | None,
    typer.Option(
        help="Field with a document's label or group, for `labels` and summaries; kept private. Repeat it for a label"
        " of several fields."
    ),
]
Check = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Read the first records of this source before the fields and the claim are fixed."
    ),
]
AllowUnit = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Take this id of a unit although it spells a missing value, such as Null."),
]
Encoding = Annotated[
    str | None,
    typer.Option(help="Encoding of the source, such as cp1252. Default: UTF-8, or what the file's first bytes say."),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        help="Delimiter of a CSV file: comma, semicolon, tab or pipe. Default: that which divides its header into the"
        " fields."
    ),
]
AcceptWeak = Annotated[
    bool,
    typer.Option("--accept-weak-promise", help="Accept a claim that almoner calls weak: epsilon or delta is large."),
]
Shared = Annotated[str | None, typer.Option(help="Share the budget of this dataset of the same people.")]


class DatasetData(TypedDict):
    """A dataset with its claim and its budget."""

    name: str
    unit: str
    relation: str
    governed: bool
    epsilon_cap: str
    delta_cap: str
    rho_cap: str
    epsilon_spent: str
    rho_left: str
    blocks: int
    cohorts: int
    population: int | None
    public_metadata: dict[str, object]
    versions: int
    account: int


class VersionData(TypedDict):
    """A version of a dataset; `labels` names the fields of its labels."""

    version: int
    ingested_at: str
    uid: str
    labels: str | None
    erased: bool


class DatasetShown(DatasetData):
    """A dataset with its versions."""

    history: list[VersionData]


class OpenedCohort(TypedDict):
    """The budget of a cohort that an ingest would open."""

    blocks: int
    rho_each: str
    delta_fail_each: str


class IngestPreviewData(TypedDict):
    """What an ingest would do (--dry-run)."""

    dataset: str
    version: int
    cohort_of_new_units: int
    opens: OpenedCohort | None
    labels: str | None


class IngestedVersion(TypedDict):
    """An ingested version; `opened_cohort` is null where it opened none, `repeats` where no earlier one is the same."""

    dataset: str
    version: int
    labels: str | None
    opened_cohort: int | None
    repeats: int | None


class MockFile(TypedDict):
    """A file of fictional records."""

    dataset: str
    path: str
    rows: int
    units: int
    labels: list[str]


class ClaimData(TypedDict):
    """A lifetime claim, and what is spent under it."""

    epsilon: str
    delta: str
    rho: str
    delta_fail: str
    epsilon_spent: str
    rho_spent: str


class ClaimChange(TypedDict):
    """A proposed lifetime claim; `proposal` is null in a dry run."""

    proposal: int | None
    dataset: str
    sharing: list[str]
    before: ClaimData
    after: ClaimData
    approvals_needed: int


@command(app, "register")
def register_dataset(
    context: CommandContext,
    name: DatasetName,
    unit: Unit = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    blocks: Blocks = None,
    text: TextField = "text",
    population: Population = None,
    public: Public = False,
    public_metadata: Metadata = None,
    shares_account_with: Shared = None,
    accept_weak_promise: AcceptWeak = False,
    check: Check = None,
    allow_unit: AllowUnit = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
) -> CommandResult[DatasetData]:
    """Register a dataset with its lifetime claim. Reads no data. May be repeated until the first ingest.

    With --check it first reads some records of a source and refuses fields that they lack; it keeps nothing of them.
    --encoding and --delimiter say how that source is written, and are not kept either.

    Example: almoner dataset register clinic --unit patient_id --epsilon 8 --delta 1e-6
    """
    from flows.datasets import register as registration

    workspace = open_workspace(context.home)
    registration_terms = Registration(name, unit, text, not public, population, _read_metadata(public_metadata))
    form = parse_form(encoding, delimiter)
    if check is not None:
        _check_fields(context, registration_terms, check, form, allow_unit or ())
    elif form != AS_FOUND:
        raise UsageError(
            "--encoding and --delimiter say how the source of --check is written, and there is none.",
            "Name a source with --check, or leave them out: `almoner dataset ingest` has them too.",
            code="NothingToCheck",
        )
    terms = registration.ClaimTerms(epsilon, delta, blocks, shares_account_with, accept_weak_promise)
    registration.register(workspace, registration_terms, terms)
    with workspace.database.read() as session:
        found = datasets.find_dataset(session, name)
        (shown,) = describe_datasets(session, [found])
    sentence, warnings = registration.describe_registration(shown)
    return CommandResult(
        cast(DatasetData, shown),
        [
            f"Registered dataset {name}. {sentence}",
            *(["It replaces an earlier registration of that name."] if found.registration > 1 else []),
            *([warning_panel(warnings)] if warnings else []),
            f"`almoner dataset show {name}` lists its fields. Until the first ingest this command changes them.",
            f"Next: `almoner dataset ingest {name} PATH`.",
        ],
    )


def _check_fields(
    context: CommandContext, terms: Registration, path: str, form: TextForm, allowed_units: Sequence[str]
) -> None:
    """List the fields of a source on the terminal, then read its first records with the fields of a registration.

    Raises:
        UsageError: the source cannot be read, or a record lacks a field (`tasks.corpus.readers`).
    """
    from flows.datasets.register import check_fields, fields_sentence
    from flows.workspace.object_stores import open_source

    with open_source(context.home, parse_source(path)) as source, _notes_on_terminal(context) as tell:
        if context.console.is_terminal and (listed := fields_sentence(source, terms, form)):
            context.print_progress(listed)
        if (read_as := check_fields(source, terms, form, allowed_units, tell)) is not None:
            context.print_progress(read_as)


@contextmanager
def _notes_on_terminal(context: CommandContext) -> Iterator[Callable[[str], None] | None]:
    """Collect what looks wrong about the units, and print it at the end if stderr is a terminal; None elsewhere."""
    if context.as_json or not context.console.is_terminal:
        yield None
        return
    notes: list[str] = []
    yield notes.append
    if notes:
        context.print_progress(warning_panel(notes, "Is the unit a person? Only this terminal is told"))


@command(app, "ingest")
def ingest_dataset(
    context: CommandContext,
    name: DatasetName,
    path: Annotated[
        str,
        typer.Argument(
            help="JSONL, CSV, Parquet, Arrow, or a folder of such files or of .txt; a path, s3://, gs://, az:// or hf://datasets/"
        ),
    ],
    label_field: LabelField = None,
    new_cohort: Annotated[
        bool, typer.Option("--new-cohort", help="Units that are new from here on get a budget of their own.")
    ] = False,
    population: Annotated[
        int | None, typer.Option(min=1, help="Declared, public number of units of the new cohort.")
    ] = None,
    allow_unit: AllowUnit = None,
    encoding: Encoding = None,
    delimiter: Delimiter = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done; read nothing and stop.")
    ] = False,
) -> CommandResult[IngestPreviewData | IngestedVersion]:
    """Copy a corpus into the home as the dataset's next version: all of it, or nothing.

    A record without the label field is kept without a label. almoner never shows the labels or their number.
    Open a cohort (`--new-cohort`) at times that are fixed in public, and never because of the data's content.

    Example: almoner dataset ingest clinic notes.jsonl --label-field section
    """
    from flows.datasets import register as registration
    from flows.workspace.object_stores import open_source

    workspace = open_workspace(context.home)
    form = parse_form(encoding, delimiter)
    coming = registration.preview_ingest(workspace, name, new_cohort=new_cohort, population=population)
    if dry_run:
        return CommandResult(
            _preview_data(name, coming, label_field or ()),
            [*_preview_result(name, coming), _NOTHING_READ],
        )
    with (
        _notes_on_terminal(context) as tell,
        progress_bar(context),
        open_source(context.home, parse_source(path)) as source,
    ):
        version = registration.ingest(
            workspace,
            name,
            source,
            label_field,
            new_cohort=new_cohort,
            population=population,
            form=form,
            allowed_units=allow_unit or (),
            tell=tell,
        )
    shown = IngestedVersion(
        dataset=name,
        version=version.number,
        labels=_shown_fields(label_field or ()),
        opened_cohort=coming.cohort if coming.opens else None,
        repeats=version.repeats,
    )
    return CommandResult(
        shown,
        [
            f"Ingested version {version.number} of {name}: {version.documents:,} documents read.",
            *([] if version.read_as is None else [version.read_as]),
            *([] if version.repeats is None else [warning_panel([_repeated_sentence(version.repeats)])]),
            *([f"{version.left_out:,} records of erased units were left out."] if version.left_out else []),
            "That number is private: it is on no card and in no log. Choose no parameter by it.",
            *([f"Opened: {_cohort_sentence(coming)}. See `almoner budget show {name}`."] if coming.opens else []),
        ],
    )


_NOTHING_READ = "Nothing was read, and nothing was changed."


def _preview_data(name: str, coming: "IngestPreview", label_fields: Sequence[str]) -> IngestPreviewData:
    opened = OpenedCohort(blocks=coming.blocks, rho_each=coming.rho, delta_fail_each=coming.delta_fail)
    return IngestPreviewData(
        dataset=name,
        version=coming.number,
        cohort_of_new_units=coming.cohort,
        opens=opened if coming.opens else None,
        labels=_shown_fields(label_fields),
    )


def _preview_result(name: str, coming: "IngestPreview") -> list[str]:
    return [
        f"It would be version {coming.number} of {name}. Known units keep their cohort and their budget.",
        f"Would open: {_cohort_sentence(coming)}."
        if coming.opens
        else f"New units would be of cohort {coming.cohort}.",
    ]


def _repeated_sentence(version: int) -> str:
    return (
        f"This is version {version} again: the same file, or the same units and texts; only labels can differ. If that"
        " was a slip, nothing is lost: new requests read the newest version, and all versions share one budget."
    )


def _cohort_sentence(coming: "IngestPreview") -> str:
    blocks = f"{coming.blocks} blocks" if coming.blocks > 1 else "1 block"
    return f"Cohort {coming.cohort} for all new units, with {blocks} of rho {coming.rho} each"


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[DatasetData]]:
    """List all datasets with their budgets.

    Example: almoner dataset list
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        rows = list(list_datasets(session))
    columns = ("name", "unit", "versions", "blocks", "epsilon_cap", "delta_cap", "epsilon_spent", "rho_left")
    data = cast(list[DatasetData], rows)
    shown = [row | {"delta_cap": format_small(str(row["delta_cap"]))} for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    return CommandResult(data, [table(headings, [[row[c] for c in columns] for row in shown])])


@command(app, "show")
def show_dataset(context: CommandContext, name: DatasetName) -> CommandResult[DatasetShown]:
    """Show a dataset: claim, partition, versions, budget; whether a version has labels, never which or how many.

    Example: almoner dataset show clinic
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        (shown,) = describe_datasets(session, [dataset])
        gone = erasures.erased_versions(session)
        versions = [
            VersionData(
                version=v.number,
                ingested_at=v.created_at,
                uid=v.uid,
                labels=None if v.id in gone else _label_field_of(workspace, v.uid),
                erased=v.id in gone,
            )
            for v in datasets.list_versions(session, dataset)
        ]
    rows = [
        (v["version"], v["ingested_at"][:19], v["uid"], v["labels"], "yes" if v["erased"] else "no") for v in versions
    ]
    columns = ("version", "ingested (UTC)", "uid", "labels from", "erased")
    data = DatasetShown(**cast(DatasetData, shown), history=versions)
    return CommandResult(data, [*_dataset_page(shown), table(columns, rows)])


@command(app, "mock")
def write_mock_records(
    context: CommandContext,
    name: DatasetName,
    path: Annotated[Path, typer.Argument(help="New file that ends in .jsonl.")],
    rows: Annotated[int, typer.Option(min=1, max=1_000_000, help="Records.")] = 200,
    units: Annotated[
        int | None, typer.Option(min=1, help="Units that they belong to [a third of the records].")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(help="A label that occurs; once for each.")] = None,
    label_field: Annotated[str, typer.Option(help="Field of a record's label.")] = "label",
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal records.")] = 0,
) -> CommandResult[MockFile]:
    """Write fictional records with the dataset's declared fields, to try requests on. The dataset's texts are not read.

    Example: almoner dataset mock clinic mock.jsonl --rows 500 --label-field section --label admission
    """
    from flows.datasets.mock import write_mock

    shape = write_mock(open_workspace(context.home), name, path, rows, units, label_field, label or (), seed)
    return CommandResult(
        MockFile(dataset=name, path=str(path), rows=shape.rows, units=shape.units, labels=list(shape.labels)),
        [
            f"Wrote {shape.rows:,} fictional records of {shape.units:,} units to {path}. No text of {name} was read.",
            "Next: in a home of its own, register a dataset with the same fields, ingest the file and try requests.",
        ],
    )


@command(app, "cap")
def propose_cap_change(
    context: CommandContext,
    name: DatasetName,
    epsilon: Annotated[str, typer.Option(help="The proposed lifetime epsilon of the dataset.")],
    delta: Annotated[str, typer.Option(help="The proposed lifetime delta.")],
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change and stop.")] = False,
    accept_weak_promise: AcceptWeak = False,
) -> CommandResult[ClaimChange]:
    """Propose another lifetime claim. Spent budget stays spent; every later card shows the change.

    Example: almoner dataset cap clinic --epsilon 10 --delta 1e-6 --reason "one more study" --dry-run
    """
    from flows.approvals.propose_change import propose_cap
    from flows.datasets.register import require_strong_claim

    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        population = datasets.find_dataset(session, name).population
    require_strong_claim(epsilon, delta, population, accepted=dry_run or accept_weak_promise)
    proposal = propose_cap(workspace, name, epsilon, delta, reason, dry_run=dry_run)
    before, after = (
        ClaimData(
            epsilon=claim.epsilon,
            delta=claim.delta,
            rho=claim.cap.rho_text,
            delta_fail=claim.cap.delta_text,
            epsilon_spent=lifetime_epsilon(proposal.spent, claim.delta_conversion),
            rho_spent=proposal.spent.rho_text,
        )
        for claim in (proposal.before, proposal.after)
    )
    data = ClaimChange(
        proposal=proposal.number,
        dataset=name,
        sharing=list(proposal.sharing),
        before=before,
        after=after,
        approvals_needed=proposal.needed,
    )
    sentences = [
        proposal.growth,
        "Every later card of these datasets shows the change: " + ", ".join(proposal.sharing) + ".",
    ]
    if proposal.raises:
        sentences.insert(0, "It RAISES the most that these people may ever lose and replaces the promise to them.")
    values = [(field, now, then) for (field, now), then in zip(before.items(), after.values(), strict=True)]
    shown = table(("", "now", "with this proposal"), values, f"Lifetime claim of {name}")
    return CommandResult(data, [shown, *sentences, *waiting_sentence(proposal.number, proposal.needed)])


def _shown_fields(fields: Sequence[str]) -> str | None:
    """Return the names of label fields as labels have their values; None without labels."""
    return " / ".join(fields) or None


def _label_field_of(workspace: Workspace, uid: str) -> str | None:
    """Return the fields of a version's labels; they were named at ingest, so they are public."""
    from tasks.corpus.store import open_corpus

    try:
        return _shown_fields(open_corpus(workspace.home, uid).label_fields())
    except EnvironmentProblem:  # a home may have the ledger, and not the texts
        return "(not readable here)"


def _read_metadata(path: Path | None) -> str | None:
    if path is None:
        return None
    from flows.datasets.register import METADATA_PAGE, metadata_text

    return metadata_text(read_fields(path, "The public metadata", PublicMetadata.model_fields, METADATA_PAGE))


def _dataset_page(shown: Mapping[str, object]) -> list[RenderableType]:
    """Return a dataset for people: the owner's declaration field by field, and the catalogue of groups as a table."""
    declared = shown["public_metadata"]
    metadata = dict(declared) if isinstance(declared, Mapping) else {}
    groups = [PublicGroup.model_validate(group) for group in metadata.pop("groups", ())]
    plain = {name: value for name, value in shown.items() if name != "public_metadata"}
    rows = [(group.id, group.shown) for group in groups]
    return [
        fact_list({**plain, **{f"declared: {name}": value for name, value in metadata.items()}}),
        *([groups_table(rows, "Catalogue for summaries")] if groups else []),
    ]
