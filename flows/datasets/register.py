"""Registration of a corpus with its lifetime claim, and ingestion of its versions."""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flows.audit.lifetime_claims import lifetime_of
from flows.workspace.home_keys import load_overlap_key, load_partition_key, require_own_keys
from flows.workspace.workspace import Workspace, partition_key_path
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.services import budget, cohorts, datasets, erasures
from models_db.services.cohorts import CohortPlan
from models_db.services.datasets import Registration
from models_db.sessions.database import OutcomeUnknown
from models_db.tables import Dataset
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import PublicMetadata, model_to_json, parse_model
from models_db.values.untrusted_text import escape_controls, require_plain_name
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.common.published_values import format_small
from tasks.corpus.keys import create_key
from tasks.corpus.readers.documents import BadRecord, NoUnit, TextTemplate
from tasks.corpus.readers.field_names import read_field_names
from tasks.corpus.readers.readers import read_documents
from tasks.corpus.readers.sources import Source
from tasks.corpus.readers.text_form import AS_FOUND, TextForm, describe_forms
from tasks.corpus.unit_notes import ALIKE, RepeatSurvey, UnitSurvey
from tasks.corpus.units import LabelFields
from tasks.ingest import RecordedVersion, ingest_version
from tasks.release.claim import describe_promise, lifetime_weaknesses, require_accepted, undeclared_population

RECORDS_CHECKED: Final = 1000
"""Records that are read before a dataset is registered."""
METADATA_PAGE: Final = "docs/bundle.md"


@dataclass(frozen=True)
class ClaimTerms:
    """The lifetime claim of a registration as it was written; None where it was left out.

    Attributes:
        epsilon, delta: decimal text.
        blocks: the number of disjoint blocks of the units, each with the whole budget.
        sharing: the dataset whose account, and so whose claim and blocks, this one shares.
        accept_weak_promise: whether a claim that almoner calls weak may be registered.
    """

    epsilon: str | None = None
    delta: str | None = None
    blocks: int | None = None
    sharing: str | None = None
    accept_weak_promise: bool = False


def register(workspace: Workspace, registration: Registration, terms: ClaimTerms) -> None:
    """Register a dataset with a budget of its own, or on that of another one; nothing is read.

    Until its first version, proposal or erasure it may be registered again; the newest registration counts.

    Raises:
        ClaimRequired: it has neither a claim nor another dataset.
        UnexpectedClaim: it has both.
        WeakPromise: the claim is weak and was not accepted.
        The errors of `register_dataset` and `register_sharing`.
    """
    epsilon, delta = _require_claim(terms)
    if terms.sharing:
        register_sharing(workspace, registration, terms.sharing)
        return
    if registration.governed:
        require_strong_claim(epsilon, delta, registration.population, accepted=terms.accept_weak_promise)
    register_dataset(workspace, registration, epsilon, delta, terms.blocks or 1)


def _require_claim(terms: ClaimTerms) -> tuple[str, str]:
    """Return epsilon and delta of a registration; both are empty where it shares an account.

    Raises:
        ClaimRequired: it has neither a claim nor another dataset.
        UnexpectedClaim: it has both.
    """
    if terms.sharing:
        if (terms.epsilon, terms.delta, terms.blocks) != (None, None, None):
            raise UsageError(
                "A dataset that shares an account has that account's epsilon, delta and blocks.",
                "Leave out --epsilon, --delta and --blocks.",
                code="UnexpectedClaim",
            )
        return "", ""
    if terms.epsilon is None or terms.delta is None:
        raise UsageError(
            "A dataset needs a lifetime claim: --epsilon and --delta.",
            "For example `--epsilon 8 --delta 1e-6`; or draw on another's budget: `--shares-account-with NAME`.",
            code="ClaimRequired",
        )
    return terms.epsilon, terms.delta


def is_registered(workspace: Workspace, registration: Registration, terms: ClaimTerms) -> bool:
    """Return whether the dataset of that name is registered with these fields, and on this claim or shared account.

    Raises:
        ClaimRequired, UnexpectedClaim, InvalidTarget: the claim is missing, doubled or none.
        DatasetUnknown: the dataset that it shares with is not there.
    """
    epsilon, delta = _require_claim(terms)
    with workspace.database.read() as session:
        try:
            found = datasets.find_dataset(session, registration.name)
        except datasets.DatasetUnknown:
            return False
        stored = Registration(
            found.name, found.unit_field, found.text_field, found.governed, found.population, found.public_metadata
        )
        if stored != registration or datasets.joined_account(session, found) != (terms.sharing is not None):
            return False
        if terms.sharing is not None:
            other = datasets.find_dataset(session, terms.sharing)
            return other.id != found.id and other.account_id == found.account_id
        claim = lifetime_of(session, found)
        blocks = cohorts.blocks_per_cohort(session, found.account_id)
    asked = lifetime_claim(epsilon, delta)
    return (claim.epsilon, claim.delta, blocks) == (asked.epsilon, asked.delta, terms.blocks or 1)


def metadata_text(written: object) -> str:
    """Return the owner's statements on published data as the ledger stores them.

    Raises:
        FileInvalid: they do not follow the format of public metadata.
    """
    parsed = parse_model(PublicMetadata, written, "The public metadata", METADATA_PAGE)
    return encode_canonical(model_to_json(parsed)).decode()


def register_dataset(
    workspace: Workspace, registration: Registration, epsilon: str, delta: str, blocks: int = 1
) -> None:
    """Register a dataset with a budget of its own; nothing is read.

    Args:
        epsilon, delta: the lifetime claim, as decimal text; it is never exceeded and never reset.
        blocks: the number of disjoint blocks of its units, each with the whole budget.

    Raises:
        InvalidTarget: epsilon and delta do not form a claim.
        InvalidPlainName, TextTemplateInvalid: the name or the text field is not usable.
        DatasetExists: the registration of that name is final.
        KeyTooOpen, KeyDiffers: a key of this home is not the one of the beginning.
        RuleViolated: only a steward or an admin registers a dataset.
    """
    _require_usable_names(registration)
    with _new_partition_key(workspace.home) as (key_name, key), workspace.database.write() as session:
        require_own_keys(workspace.home, session)
        claim = lifetime_claim(epsilon, delta)
        account = datasets.open_account(session, claim, blocks, key_name, create_key(key), workspace.actor)
        datasets.register(session, workspace.actor, registration, account.id)


def _require_usable_names(registration: Registration) -> None:
    """Check the dataset's name and its text template.

    Raises:
        InvalidPlainName: the name could be mistaken for another one.
        TextTemplateInvalid: the text is neither a field nor a template of fields.
    """
    require_plain_name("a dataset", registration.name)
    TextTemplate.parse(registration.text_field)


def source_fields(text: str, *others: str | None) -> tuple[str, ...]:
    """Return the fields that a source must have: those of the text or of its template, and the others that are named.

    Raises:
        TextTemplateInvalid: the text is neither a field nor a template of fields.
    """
    return (*TextTemplate.parse(text).fields, *(each for each in others if each is not None))


@contextmanager
def _new_partition_key(home: ProjectHome) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of a key to be made; it does not stay if the dataset was not registered."""
    name = secrets.token_hex(8)
    path = partition_key_path(home, name)
    try:
        yield name, path
    except OutcomeUnknown:  # the ledger may have a scheme of that key
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def require_strong_claim(epsilon: str, delta: str, population: int | None, *, accepted: bool) -> None:
    """Check that a lifetime claim is not weak, or that its weakness was accepted.

    Raises:
        InvalidTarget: epsilon and delta do not form a claim.
        WeakPromise: the claim is weak and was not accepted.
    """
    claim = lifetime_claim(epsilon, delta)
    require_accepted(lifetime_weaknesses(claim.epsilon, claim.delta, population), accepted=accepted)


def describe_registration(dataset: Mapping[str, object]) -> tuple[str, list[str]]:
    """Return what a new dataset's lifetime claim means as a sentence, and warnings on it.

    Args:
        dataset: the dataset as `flows.datasets.inventory.describe_datasets` gives it.
    """
    epsilon, delta, population = str(dataset["epsilon_cap"]), str(dataset["delta_cap"]), dataset["population"]
    if not dataset["governed"]:
        return "It is marked public: almoner protects nobody in it.", []
    sentence = (
        f"All its releases together may have at most epsilon {epsilon} at delta {format_small(delta)}; with all of"
        f" them, {describe_promise(epsilon, delta, str(dataset['unit']))}."
    )
    people = population if isinstance(population, int) else None
    unknown = [undeclared_population(delta)] if people is None else []
    return sentence, [*lifetime_weaknesses(epsilon, delta, people), *unknown]


def fields_sentence(source: Source, registration: Registration, form: TextForm = AS_FOUND) -> str | None:
    """Return the names of a source's fields in a sentence, for the terminal of a person who may read the source.

    It belongs on no log and in no error. None where there are no names to show.
    """
    asked = [*TextTemplate.parse(registration.text_field).fields, *filter(None, [registration.unit_field])]
    names = read_field_names(source, asked, form)
    if names is None:
        return None
    if names.header_doubtful:
        return (
            f"The first line of this CSV file has none of the fields that you name in its cells ({names.withheld}; they"
            " are separated by what divides the line most often). It may be somebody's record, so it is not shown here;"
            " `head -n 1` shows it, and `--delimiter` and `--encoding` say how it is written."
        )
    rest = f"; {names.withheld} more are long or in few records, and not shown" if names.withheld else ""
    return f"Fields of the source: {', '.join(map(escape_controls, names.shown)) or 'none'}{rest}."


def check_fields(
    source: Source,
    registration: Registration,
    form: TextForm = AS_FOUND,
    allowed_units: Collection[str] = (),
    tell: Callable[[str], None] | None = None,
) -> str | None:
    """Read the first records of a source with the fields of a registration; nothing of them is kept.

    Args:
        allowed_units: ids of units that are taken although they spell a missing value.
        tell: prints on the terminal, and nowhere else, what looks wrong about the units.

    Returns:
        How they were read, as a sentence; None of plain UTF-8 with commas.

    Raises:
        UsageError: the source cannot be read, one of these records lacks a field, or all of them lack one of a
            template. NoUnit counts the records without a usable unit.
    """
    unit, text = registration.unit_field, registration.text_field
    survey, repeats, refused, records = UnitSurvey(unit or ""), RepeatSurvey(), list[NoUnit](), 0
    forms: set[TextForm] = set()
    try:
        with closing(
            read_documents(
                source,
                unit,
                text,
                most=RECORDS_CHECKED,
                allowed_units=allowed_units,
                on_bad_unit=refused.append,
                form=form,
                forms=forms,
            )
        ) as documents:
            for document in documents:
                records += 1
                survey.see(document)
                repeats.see(document)
        if refused:
            refused[0].count(refused, records)
            raise refused[0]
    except BadRecord as problem:
        first = refused[0] if refused else problem
        first.advise_unregistered()
        raise first from None
    if tell is not None and registration.governed:
        for note in (*repeats.notes(), *survey.notes(), *([ALIKE] if survey.alike() else [])):
            tell(note)
    return describe_forms(forms)


def register_sharing(workspace: Workspace, registration: Registration, other: str) -> None:
    """Register a dataset on the budget of another one, because they share people.

    Raises:
        DatasetUnknown: there is no `other`.
        InvalidPlainName, DatasetExists, RuleViolated: as `register_dataset`.
        AccountMismatch: one of the two is public, or their unit fields differ where there are several blocks.
        KeyTooOpen, KeyDiffers: a key of this home is not the one of the beginning.
    """
    _require_usable_names(registration)
    with workspace.database.write() as session:
        require_own_keys(workspace.home, session)
        account = datasets.find_dataset(session, other).account_id
        datasets.register(session, workspace.actor, registration, account)


@dataclass(frozen=True)
class IngestPreview:
    """Effect of an ingest, computed without reading the data.

    Attributes:
        number: the number of the new version.
        cohort: the cohort of all units that are new to the account.
        opens: whether that cohort is new; a new cohort has `blocks` blocks, each with `rho` and `delta_fail`.
    """

    number: int
    cohort: int
    opens: bool
    blocks: int
    rho: str
    delta_fail: str


def ingest(
    workspace: Workspace,
    name: str,
    source: Source,
    label_field: LabelFields = None,
    *,
    new_cohort: bool = False,
    population: int | None = None,
    allowed_units: Collection[str] = (),
    tell: Callable[[str], None] | None = None,
    form: TextForm = AS_FOUND,
) -> RecordedVersion:
    """Copy a corpus into the home as the dataset's next version: all of it, or nothing.

    Args:
        source: JSONL, CSV, Parquet, Arrow, or a folder of such files or of .txt; on this machine, or in a store
            (`flows.workspace.object_stores.open_source`).
        label_field: the field of a document's label or group, or several whose values together are the label; kept
            private.
        new_cohort: whether units that are new to the account get their own blocks and budgets from this version on.
            The decision is public, and must not depend on the content of the version.
        population: the declared, public number of units of the new cohort.
        allowed_units: ids of units that are taken although they spell a missing value, such as the name `Null`.
        tell: prints on the terminal, and nowhere else, what looks wrong about the units.
        form: the encoding and the delimiter of the source, where they are named.

    Raises:
        DatasetUnknown: there is no such dataset.
        UnitFieldRequired: without a unit field the version would put one person into two blocks.
        RoleRequired, InvalidCohort, UnexpectedPopulation: no cohort can be opened, or not by the owner of this home.
        CohortsChanged: another version was ingested meanwhile, so that units may belong to other cohorts.
        UnitErasedConcurrently: a unit was erased meanwhile.
        KeyMissing, KeyTooOpen, KeyDiffers: this home lacks the key that recognises units, or the one of their blocks,
            or has another one.
        UsageError: the source cannot be read as a corpus.
        Refused: the ledger refuses the version.
    """
    dataset, growth = _load_preview(workspace, name, new_cohort, population)
    with workspace.database.read() as session:
        load_partition_key(workspace.home, session, dataset)  # with another one, nobody would be in their block
        overlap_key = load_overlap_key(workspace.home, session)
        erased = erasures.erased_units(session, dataset)
    return ingest_version(
        workspace.home,
        workspace.database,
        workspace.actor,
        dataset,
        source,
        overlap_key,
        label_field,
        growth,
        erased,
        allowed_units,
        tell,
        form,
    )


def preview_ingest(
    workspace: Workspace, name: str, *, new_cohort: bool = False, population: int | None = None
) -> IngestPreview:
    """Return the effect of `ingest` without reading the source or the corpora.

    Raises:
        DatasetUnknown, UnitFieldRequired, RoleRequired, InvalidCohort, UnexpectedPopulation: as `ingest`.
    """
    dataset, growth = _load_preview(workspace, name, new_cohort, population)
    with workspace.database.read() as session:
        cap = budget.balance(session, dataset.account_id).cap
        return IngestPreview(
            number=len(datasets.list_versions(session, dataset)) + 1,
            cohort=growth.newest,
            opens=growth.opens,
            blocks=cohorts.blocks_per_cohort(session, dataset.account_id),
            rho=cap.rho_text,
            delta_fail=cap.delta_text,
        )


def _load_preview(
    workspace: Workspace, name: str, new_cohort: bool, population: int | None
) -> tuple[Dataset, CohortPlan]:
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        datasets.require_version_allowed(session, dataset)
        growth = cohorts.plan_cohorts(session, workspace.actor, dataset, opens=new_cohort, declared=population)
    return dataset, growth
