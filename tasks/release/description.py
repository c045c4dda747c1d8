"""Prose description of a release, shared by all documents that have a field for it.

Fixed words and the figures of the record: verification of a bundle writes them again, so other words here are another
format of the record. They follow docs/privacy-guarantee.md, as the card does. Documents of a release of insights say
how to read it in the wording of its system (`tasks.systems.insights.wording`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from models_db.values.amounts import Amount
from tasks.mechanisms.core.uncharged import UNPROTECTED, loss_paid_by_parent
from tasks.planning.secret_assignment import while_secret
from tasks.release.card_text import EXTENDS, NO_CLAIM, PUBLIC_DATA, describe_bounds, limits_section, unprotected_figures
from tasks.release.claim import Claim
from tasks.release.record import ReleaseRecord
from tasks.systems.insights.wording import TOPICS, InsightWording
from tasks.systems.registry import SYSTEMS
from tasks.values.results import ReleaseKind

BIASES: Final = (
    "Features that few units share are suppressed on purpose, so rare cases and small groups are missing or wrong.",
    "The language model brings the biases of its own training texts, which are not those of the corpus.",
    "No bias was measured against the corpus, because such a figure would not be protected.",
)
MAINTENANCE: Final = (
    "A release never changes. It can be retracted: later bundles of the publisher list the digests of retracted ones,"
    " and `almoner verify-release DIR --revocations LATER_BUNDLE` compares this one with such a list."
)
TUNING: Final = (
    "Parameters are declared in the request and approved before private text is read; none is derived from the data."
    " A parameter chosen by looking at the data, outside the ledger, would be outside the claim."
)
EXACTNESS: Final = (
    "Values computed from private text are rounded to a public grid and summed as integers, exactly; draws and noise"
    " come from exact samplers. One unit's text changes no bit of the values computed for another unit."
)
POST_PROCESSING: Final = (
    "Texts are written down as they were drawn. Measurements marked public read only released texts."
)
NOT_A_FACT: Final = "Nothing that they say is a fact about anybody."
_SECOND_FIGURE: Final = "That holds against anybody; against readers of bounded means it is {}."
_WRITTEN: Final = "Texts written by the language model {model} through the mechanism {mechanism}"


def whole(record: ReleaseRecord) -> str:
    """Return a paragraph on the whole release, after the owner's description, if there is one."""
    declared = f"{record.declared.description}\n\n" if record.declared.description else ""
    return f"{declared}{written(record)}. {NOT_A_FACT} {claimed(record)}"


def claimed(record: ReleaseRecord) -> str:
    """Return the claim in one sentence, and the release that it extends, if any."""
    claim = record.claim
    if claim is None:
        return f"{NO_CLAIM} {PUBLIC_DATA}"
    return (
        f"The release is (epsilon {claim.epsilon}, delta {claim.delta})-differentially private; it protects"
        f" {unit(record)}, added or removed.{secret_figure(claim)}{_extends(record)}"
    )


def secret_figure(claim: Claim) -> str:
    """Return a sentence on the figure while the assignment is secret, after a space; empty without one."""
    return f" {_SECOND_FIGURE.format(while_secret(claim.secret_assignment))}" if claim.secret_assignment else ""


def _extends(record: ReleaseRecord) -> str:
    return f" {EXTENDS.format(release=record.parent)}" if record.parent else ""


def unit(record: ReleaseRecord) -> str:
    """Return the privacy unit in words."""
    if record.dataset.unit == "record":
        return "one record of the dataset"
    return f"all records of the dataset with one value of the field {record.dataset.unit!r}, however many they are"


def collection(record: ReleaseRecord) -> str:
    """Return the source of the texts; only the owner can say how the corpus was collected."""
    if reads_nothing(record):
        return f"{written(record)}. No private text was read for them."
    if record.kind == ReleaseKind.INSIGHTS:
        corpus = f"The corpus is the dataset {record.dataset.name!r}. How its texts were collected is not part of a"
        return f"{written(record)}. {corpus} release."
    return (
        f"{written(record)}, which read texts of the dataset {record.dataset.name!r}. How these texts were collected is"
        " not part of a release."
    )


def preprocessing(record: ReleaseRecord) -> str:
    """Return the description of the processing of a unit's documents before the model reads them."""
    if reads_nothing(record):
        return "None: no private text was read."
    if record.kind == ReleaseKind.INSIGHTS:
        return wording_of(record).sentences.preprocessing
    documents = (
        "All documents of a unit in one group" if record.kind == ReleaseKind.SUMMARIES else "All documents of a unit"
    )
    return (
        f"{documents} were joined into one text, in an order that a key fixes, and cut at a public number of"
        " characters and tokens. Nothing was filtered, balanced or deduplicated across units."
    )


def personal(record: ReleaseRecord) -> str:
    """Return whether the texts hold information about a person."""
    if record.claim is None:
        return "The corpus is marked as public, and the texts may repeat it word for word."
    if record.kind == ReleaseKind.INSIGHTS:
        return wording_of(record).sentences.personal
    return (
        "No text is a record of anybody: they are drawn from a language model. The claim bounds how far a detail of one"
        " unit can show in them; it does not cover people who are mentioned in a record without being its unit."
    )


def impact(record: ReleaseRecord) -> str:
    """Return the meaning of the claim for the units of the corpus."""
    if record.claim is None:
        return NO_CLAIM
    if reads_nothing(record):
        return "No private text was used for it: without the dataset it would have come out the same way."
    times, right = describe_bounds(record.claim)
    return (
        f"Any finding in the release is at most {times} as likely with a unit in the data as without it, and the other"
        f" way round, up to an additional probability of {record.claim.delta}. A guess at even odds whether a unit"
        f" was in the data is right {right}. General knowledge that the texts carry can still say"
        " something about a person, also about one who was never in the data."
    )


def lifetime(record: ReleaseRecord) -> str:
    """Return the promise for everything that is ever run on the dataset."""
    claim = record.lifetime
    if claim is None:
        return "Nothing is promised for the dataset as a whole."
    shared = " Several datasets share this budget." if claim.shared else ""
    changed = " Stewards have changed it; every change is on the card." if record.cap_changes else ""
    return (
        "Losses of all releases add up. A ledger refuses any release that would exceed epsilon"
        f" {claim.epsilon} at delta {claim.delta} for the dataset, over its lifetime; nothing is given back with time."
        f"{shared}{changed}{_unprotected(record)}"
    )


def _unprotected(record: ReleaseRecord) -> str:
    figures = record.unprotected_figures
    return f" {unprotected_figures(figures.since, figures.people).replace('**', '')}" if figures else ""


def mechanisms(record: ReleaseRecord) -> list[str]:
    """Return a line per event: mechanism, number of invocations, cost and parameters."""
    lines = []
    for event in record.events:
        parameters = ", ".join(f"{name} {value}" for name, value in sorted(event.parameters.items())) or "none"
        lines.append(
            f"{event.mechanism}: {event.count} invocations, rho {event.loss.rho_text} in all; parameters: {parameters}"
        )
    return lines


def composition(record: ReleaseRecord) -> str:
    """Return how losses add up, within the release and over the lifetime of the dataset."""
    return (
        "Sequential and adaptive: the rho values (zCDP) of all mechanisms are added as integers and converted"
        f" once.{_extends(record)} {_read_where(record)} {lifetime(record)}"
    )


def contribution(record: ReleaseRecord) -> str:
    """Return how much one unit can contribute to a release."""
    if record.kind == ReleaseKind.INSIGHTS:
        return wording_of(record).sentences.contribution
    if record.kind != ReleaseKind.SUMMARIES:
        return (
            "All documents of a unit are one row of public length, in one place, which a keyed function of the unit's"
            " identifier selects; denominators are public."
        )
    most = record.request["parameters"].get("groups_per_unit", 1)
    rows = "one row" if most == 1 else f"at most {most} rows, one per group"
    row = f"All documents of a unit in one group are one row of public length, and a unit has {rows}."
    return f"{row} Denominators are public."


def post_processing(record: ReleaseRecord) -> str:
    """Return the description of the processing after the mechanism."""
    if record.kind == ReleaseKind.INSIGHTS:
        return wording_of(record).sentences.post_processing
    return POST_PROCESSING


def _read_where(record: ReleaseRecord) -> str:
    if record.kind == ReleaseKind.INSIGHTS:
        return READ_WHERE
    if record.kind != ReleaseKind.SUMMARIES:
        return "A unit is read in one block and one batch, which a keyed function of its identifier selects."
    most = record.request["parameters"].get("groups_per_unit", 1)
    return (
        f"A unit is read in one block, and for at most {most} of the groups that it wrote in, which a keyed function of"
        f" its identifier selects; the cost of one group is charged {most} {'time' if most == 1 else 'times'}."
    )


def justification(record: ReleaseRecord) -> str:
    """Return the reasons for these figures, and their approvers."""
    stated = ", ".join(f"{name} {value}" for name, value in sorted(record.facts.items())) or "none"
    return (
        "Epsilon and delta were requested, and approved by stewards, before private text was read. Parameters of the"
        f" plan that follow from them: {stated}. The reasons that the stewards gave are in approvals.json."
    )


def limits(record: ReleaseRecord) -> Iterable[str]:
    """Return the points that are not protected or not promised, one or two sentences each."""
    if record.claim is None:
        return (NO_CLAIM, PUBLIC_DATA)
    joined = limits_section(record.declared.texts_published).partition("\n\n")[2].replace("\n  ", " ")
    return tuple(line.removeprefix("- ").replace("**", "") for line in joined.splitlines())


def reads_nothing(record: ReleaseRecord) -> bool:
    """Return whether the release used no private text."""
    return loss_paid_by_parent(record.events) == Amount() and not any(
        event.mechanism in UNPROTECTED for event in record.events
    )


def written(record: ReleaseRecord, format_name: Callable[[str], str] = str) -> str:
    """Return the sentence on the origin of the release, without a full stop; `format_name` formats the names."""
    sentence = _WRITTEN
    if record.kind == ReleaseKind.INSIGHTS:
        sentence = wording_of(record).written(record)
    return sentence.format(model=format_name(record.model.name), mechanism=format_name(record.mechanism))


ABOUT_THE_CORPUS: Final = "The request describes the corpus publicly as:"
READ_WHERE: Final = "A unit is one row of each mechanism, in a block that a keyed function of its identifier selects."

_HOW_TO_READ: Final = "## How to read it"
_EXACT_SIZES: Final = (
    "**Sizes are counts without noise**, and the model has read texts of the corpus: nothing here is protected."
)


def wording_of(record: ReleaseRecord) -> InsightWording:
    """Return the wording of the system that made a release; that of topics where the system is not installed."""
    system = SYSTEMS.get(record.mechanism)
    return TOPICS if system is None or system.wording is None else system.wording


def reading_of_insights(record: ReleaseRecord) -> tuple[str, ...]:
    """Return the paragraphs that readers of insights need; `**` marks emphasis."""
    return wording_of(record).reading(record) if record.claim else (_EXACT_SIZES,)


def how_to_read(record: ReleaseRecord) -> str:
    """Return the card's section on reading insights."""
    return "\n\n".join([_HOW_TO_READ, *reading_of_insights(record)])
