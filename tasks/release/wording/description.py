"""What is said of a release in prose, once, for every file that asks for it in its own terms.

Fixed words and the figures of the record: whoever verifies a bundle makes them again, so other words here are another
format of the record. They follow docs/privacy-guarantee.md, as the card does.
"""

from collections.abc import Callable, Iterable
from typing import Final

from models_db.values.amounts import Amount
from tasks.mechanisms.core.post_processing import loss_paid_by_parent
from tasks.mechanisms.core.uncharged import UNPROTECTED
from tasks.release.record import ReleaseRecord
from tasks.release.wording import insight_text
from tasks.release.wording.card_text import EXTENDS, LIMITS, NO_CLAIM, PUBLIC_DATA, describe_bounds, unprotected_figures
from tasks.values.release_kinds import ReleaseKind

BIASES: Final = (
    "What few units have in common is drowned on purpose, so rare cases and small groups are missing or wrong.",
    "The language model brings the biases of its own training texts, which are not those of the corpus.",
    "No bias was measured against the corpus, because such a figure would not be protected.",
)
MAINTENANCE: Final = (
    "A release never changes. It can be retracted: later bundles of the publisher list the digests of retracted ones,"
    " and `almoner verify-release DIR --revocations LATER_BUNDLE` holds this one against such a list."
)
TUNING: Final = (
    "Parameters are declared in the request and approved before private text is read; none is read off the data. A"
    " parameter that was chosen by looking at the data, past the ledger, would be outside the claim."
)
EXACTNESS: Final = (
    "What is computed from private text is rounded to a public grid and summed as integers, exactly; draws and noise"
    " come from exact samplers. What one unit's text does to what is computed for another is zero, bit for bit."
)
POST_PROCESSING: Final = (
    "Texts are written down as they were drawn. Measurements marked public read only released texts."
)
NOT_A_FACT: Final = "What they say is not a fact about anybody."
_WRITTEN: Final = "Texts written by the language model {model} through the mechanism {mechanism}"


def whole(record: ReleaseRecord) -> str:
    """What the release is, in a paragraph: the owner's words first, if there are any."""
    declared = f"{record.declared.description}\n\n" if record.declared.description else ""
    return f"{declared}{written(record)}. {NOT_A_FACT} {claimed(record)}"


def claimed(record: ReleaseRecord) -> str:
    """The claim in a sentence."""
    claim = record.claim
    if claim is None:
        return f"{NO_CLAIM} {PUBLIC_DATA}"
    return (
        f"The release is (epsilon {claim.epsilon}, delta {claim.delta})-differentially private; what it protects is"
        f" {unit(record)}, added or removed.{_extends(record)}"
    )


def _extends(record: ReleaseRecord) -> str:
    return f" {EXTENDS.format(release=record.parent)}" if record.parent else ""


def unit(record: ReleaseRecord) -> str:
    """The privacy unit in words."""
    if record.dataset.unit == "record":
        return "one record of the dataset"
    return f"all records of the dataset with one value of the field {record.dataset.unit!r}, however many they are"


def collection(record: ReleaseRecord) -> str:
    """Where the texts come from; how the corpus was collected is its owner's to say."""
    if reads_nothing(record):
        return f"{written(record)}. No private text was read for them."
    if record.kind == ReleaseKind.INSIGHTS:
        corpus = f"The corpus is the dataset {record.dataset.name!r}. How its texts were collected is not part of a"
        return f"{written(record)}. {corpus} release."
    return (
        f"{written(record)}, which read texts of the dataset {record.dataset.name!r}. How those were collected is not"
        " part of a release."
    )


def preprocessing(record: ReleaseRecord) -> str:
    """What happens to a unit's documents before the model reads them."""
    if reads_nothing(record):
        return "None: no private text was read."
    if record.kind == ReleaseKind.INSIGHTS:
        return insight_text.PREPROCESSING
    documents = (
        "All documents of a unit in one group" if record.kind == ReleaseKind.SUMMARIES else "All documents of a unit"
    )
    return (
        f"{documents} were joined into one text, in an order that a key fixes, and cut at a public number of"
        " characters and tokens. Nothing was filtered, balanced or deduplicated across units."
    )


def personal(record: ReleaseRecord) -> str:
    """Whether the texts hold something about somebody."""
    if record.claim is None:
        return "The corpus is marked as public, and the texts may repeat it word for word."
    if record.kind == ReleaseKind.INSIGHTS:
        return insight_text.PERSONAL
    return (
        "No text is a record of anybody: they are drawn from a language model. How far a detail of one unit can show in"
        " them is bounded by the claim; whoever is mentioned in a record without being its unit is not covered by it."
    )


def impact(record: ReleaseRecord) -> str:
    """What the claim means for whoever is in the corpus."""
    if record.claim is None:
        return NO_CLAIM
    if reads_nothing(record):
        return "No private text had a part in it: without the dataset it would have come out the same way."
    times, right = describe_bounds(record.claim)
    return (
        f"Whatever can be found in the release is at most {times} as likely with a unit in the data as without it, and"
        f" the other way round, give or take a probability of {record.claim.delta}. Who must guess at even odds whether"
        f" a unit was in the data is right in at most {right} % of all cases. General knowledge that the texts carry"
        " can still say something about a person, also about one who was never in the data."
    )


def lifetime(record: ReleaseRecord) -> str:
    """What is promised of everything that is ever run on the dataset."""
    found = record.lifetime
    if found is None:
        return "Nothing is promised of the dataset as a whole."
    shared = " Several datasets share this budget." if found.shared else ""
    changed = " Stewards have changed it; every change is on the card." if record.cap_changes else ""
    return (
        "Losses of all releases add up. A ledger refuses whatever would exceed epsilon"
        f" {found.epsilon} at delta {found.delta} for the dataset, over its lifetime; no time gives anything back."
        f"{shared}{changed}{_unprotected(record)}"
    )


def _unprotected(record: ReleaseRecord) -> str:
    found = record.unprotected_figures
    return f" {unprotected_figures(found.since, found.people).replace('**', '')}" if found else ""


def mechanisms(record: ReleaseRecord) -> list[str]:
    """What was invoked, how often, at which cost and with which parameters."""
    found = []
    for event in record.events:
        given = ", ".join(f"{name} {value}" for name, value in sorted(event.parameters.items())) or "none"
        found.append(
            f"{event.mechanism}: {event.count} times in a row, rho {event.loss.rho_text} in all; parameters: {given}"
        )
    return found


def composition(record: ReleaseRecord) -> str:
    """How losses add up."""
    return (
        "Sequential and adaptive: the rho of all mechanisms are added in the currency of zCDP, as integers, and"
        f" converted once.{_extends(record)} {_read_where(record)} {lifetime(record)}"
    )


def contribution(record: ReleaseRecord) -> str:
    """How much of a release a unit can have a part in."""
    if record.kind == ReleaseKind.INSIGHTS:
        return insight_text.CONTRIBUTION
    if record.kind != ReleaseKind.SUMMARIES:
        return (
            "All documents of a unit are one row of public length, in one place that a keyed function of its identifier"
            " decides; denominators are public."
        )
    most = record.request["parameters"].get("groups_per_unit", 1)
    rows = "one row" if most == 1 else f"{most} rows at most, one for each of so many groups"
    row = f"All documents of a unit in one group are one row of public length, and a unit has {rows}."
    return f"{row} Denominators are public."


def post_processing(record: ReleaseRecord) -> str:
    """What happens after the mechanism."""
    return insight_text.POST_PROCESSING if record.kind == ReleaseKind.INSIGHTS else POST_PROCESSING


def _read_where(record: ReleaseRecord) -> str:
    if record.kind == ReleaseKind.INSIGHTS:
        return insight_text.READ_WHERE
    if record.kind != ReleaseKind.SUMMARIES:
        return "A unit is read in one block and one batch, which a keyed function of its identifier decides."
    most = record.request["parameters"].get("groups_per_unit", 1)
    return (
        f"A unit is read in one block, and for {most} of the groups that it wrote in at most, as a keyed function of"
        f" its identifier decides; what one group costs is charged {most} {'time' if most == 1 else 'times'}."
    )


def justification(record: ReleaseRecord) -> str:
    """Why these figures: what was approved, and by whom."""
    stated = ", ".join(f"{name} {value}" for name, value in sorted(record.facts.items())) or "none"
    return (
        "Epsilon and delta were asked for, and approved by stewards, before private text was read. Parameters of the"
        f" plan that follow from them: {stated}. The reasons that the stewards gave are in approvals.json."
    )


def limits(record: ReleaseRecord) -> Iterable[str]:
    """What is not protected, or not promised, one sentence or two each."""
    if record.claim is None:
        return (NO_CLAIM, PUBLIC_DATA)
    joined = LIMITS.partition("\n\n")[2].replace("\n  ", " ")
    return tuple(line.removeprefix("- ").replace("**", "") for line in joined.splitlines())


def reads_nothing(record: ReleaseRecord) -> bool:
    """Whether no private text had a part in the release."""
    return loss_paid_by_parent(record.events) == Amount() and not any(
        event.mechanism in UNPROTECTED for event in record.events
    )


def written(record: ReleaseRecord, shown: Callable[[str], str] = str) -> str:
    """What made the release, without a full stop; names as `shown` writes them."""
    words = _WRITTEN
    if record.kind == ReleaseKind.INSIGHTS:
        words = insight_text.WRITTEN if record.claim else insight_text.WRITTEN_UNPROTECTED
    return words.format(model=shown(record.model.name), mechanism=shown(record.mechanism))
