"""Checklist of NIST SP 800-226 (`checklist.md`): its questions on a claim of differential privacy, for one release.

The order is that of the publication's pyramid: the figures rest on the algorithm, and the algorithm on trust in the
holders of the data. Each answer states its basis: the record of this release, the software (whose proofs and tests
hold for every release), or nothing, where a ledger cannot know the answer and the owner must give it.

Source: NIST SP 800-226, "Guidelines for Evaluating Differential Privacy Guarantees", March 2025, in our own words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final

from tasks.publishing.documents.markup import code, plain, table
from tasks.release import card_text, description
from tasks.release.claim import Claim, describe_replace_one
from tasks.release.record import PublicContent, ReleaseRecord
from tasks.values.results import ReleaseKind


class Basis(Enum):
    """The basis of an answer."""

    RECORD = "record"
    SOFTWARE = "software"
    OPEN = "not in the ledger"


@dataclass(frozen=True)
class Answer:
    """One question with its answer and the basis of it."""

    question: str
    text: str
    basis: Basis


_HEAD: Final = """\
# Checklist of release {number} from {dataset}

The questions of NIST SP 800-226, from the top of its pyramid to the bottom: a level is worth what the levels below it
are worth. Every answer states its basis: **record** - `release.json` of this bundle, which
`almoner verify-release` recomputes; **software** - how almoner works for every release, proven and tested in its
sources; **not in the ledger** - nothing here can answer it, and the owner of the data must."""


def checklist(release: PublicContent) -> str:
    """Return the checklist, as Markdown."""
    record = release.record
    levels = (
        ("The figures: epsilon, delta, unit", _figures(record)),
        ("The budget: composition over time", _budget(record)),
        ("The algorithm: mechanisms and their correctness", _algorithm(record)),
        ("Utility and bias", _utility(release)),
        ("Side channels", _side_channels()),
        ("Trust: who sees what", _trust(record)),
        ("The ground: collection and keeping of the data", _collection(record)),
    )
    parts = [_HEAD.format(number=record.release, dataset=code(record.dataset.name))]
    parts += [f"## {title}\n\n{_rows(answers)}" for title, answers in levels]
    return "\n\n".join(parts) + "\n"


def _rows(answers: Sequence[Answer]) -> str:
    rows = [(answer.question, plain(answer.text), answer.basis.value) for answer in answers]
    return table(("question", "answer", "rests on"), rows)


def _figures(record: ReleaseRecord) -> tuple[Answer, ...]:
    claim = record.claim
    if claim is None:
        return (Answer("What is claimed?", description.claimed(record), Basis.RECORD),)
    other = claim.replace_one
    return (
        Answer(
            "What is epsilon, and what does it mean?",
            f"{claim.epsilon}. {description.impact(record)}{description.secret_figure(claim)}",
            Basis.RECORD,
        ),
        Answer("What is delta, and is it far below one over the number of units?", _delta(record, claim), Basis.RECORD),
        Answer(
            "Which variant of differential privacy, and how was it converted?",
            f"zCDP with rho {claim.rho}; {claim.conversion}. Figures of releases are comparable at the same delta, unit"
            " and relation only.",
            Basis.RECORD,
        ),
        Answer("What is the unit of privacy?", f"{description.unit(record)}.", Basis.RECORD),
        Answer(
            "What are neighbouring datasets?",
            f"One unit more or less. For replacing one unit by another: {describe_replace_one(other, exact=True)}.",
            Basis.RECORD,
        ),
        Answer(
            "How much can one unit contribute?",
            description.contribution(record),
            Basis.SOFTWARE,
        ),
        Answer(
            "Is a person one unit?",
            "Unknown here. A person mentioned in a record is not its unit; losses of one person under several"
            " identifiers add up.",
            Basis.OPEN,
        ),
    )


def _delta(record: ReleaseRecord, claim: Claim) -> str:
    population = record.request["population"]
    sentence = f"{claim.delta}, of which {claim.delta_fail} is for mechanisms that can fail."
    if population is None:
        return f"{sentence} The number of units is private, so no outsider can compare delta with it."
    share = format((Decimal(claim.delta) * int(population)).normalize(), "f")
    return f"{sentence} Times the declared population of {population}: {share}. That should be far below 1."


def _budget(record: ReleaseRecord) -> tuple[Answer, ...]:
    changes = [
        f"epsilon {change.old_epsilon} became {change.new_epsilon}, delta {change.old_delta} became {change.new_delta}"
        for change in record.cap_changes
    ]
    return (
        Answer("How do losses of several releases add up?", description.composition(record), Basis.RECORD),
        Answer(
            "Is the budget ever given back or renewed?",
            "Never by time, by a failure, or by deleting a release. Changes that stewards approved:"
            f" {'; '.join(changes) or 'none'}.",
            Basis.RECORD,
        ),
        Answer(
            "What enforces it?",
            "The database: integer amounts, a constraint on every account, entries that are only ever added. The"
            " amount that a run may spend is charged before it reads the text, and stays charged if the run fails.",
            Basis.SOFTWARE,
        ),
        Answer("Were parameters tuned on private data?", description.TUNING, Basis.OPEN),
        Answer(
            "Is anything published without protection, or released elsewhere from the same data?",
            "Nothing in this bundle: counts of units and documents are private and in no file. The ledger"
            " does not know of anything published outside it.",
            Basis.OPEN,
        ),
    )


def _algorithm(record: ReleaseRecord) -> tuple[Answer, ...]:
    opinion = record.second_opinion
    checked = (
        f"{opinion.library} ({opinion.accountant} accountant) computes epsilon {opinion.epsilon} from the same events."
        if opinion
        else "Nothing is charged, so there is nothing to recompute."
    )
    return (
        Answer("Which mechanisms, with which parameters?", ". ".join(description.mechanisms(record)), Basis.RECORD),
        Answer(
            "Is the loss of each proven, and its implementation correct?",
            "The proof is documented beside the draw of each mechanism. Audits attack it with neighbouring inputs, and"
            " must detect a twin that was broken on purpose.",
            Basis.SOFTWARE,
        ),
        Answer("Does an independent accountant agree?", checked, Basis.RECORD),
        Answer("Can floating point break it?", description.EXACTNESS, Basis.SOFTWARE),
        Answer("Where do random numbers come from?", card_text.RANDOMNESS[record.rng].replace("**", ""), Basis.RECORD),
        Answer("What happens to the data before the mechanism?", description.preprocessing(record), Basis.SOFTWARE),
        Answer("What happens after the mechanism?", description.post_processing(record), Basis.SOFTWARE),
        Answer(
            "What had the model learned before?",
            f"{_model(record)} The claim does not cover text that it had memorised before this release.",
            Basis.OPEN,
        ),
    )


def _model(record: ReleaseRecord) -> str:
    model = record.model
    if model.external:
        return (
            f"{model.name} (configuration {model.sha256}) is behind an API, an external model that sees only DP"
            " outputs; its weights are its provider's."
        )
    return f"{model.name} (files {model.sha256}) is public."


def _utility(release: PublicContent) -> tuple[Answer, ...]:
    names = ", ".join(f"{metric.name} ({metric.exposure})" for metric in release.metrics)
    use = release.record.declared.intended_use
    content = "insights" if release.record.kind == ReleaseKind.INSIGHTS else "texts"
    return (
        Answer(f"How good are the {content}?", f"Measurements in evaluation.json: {names or 'none'}.", Basis.RECORD),
        Answer("Fit for which use?", use or "Unknown here.", Basis.RECORD if use else Basis.OPEN),
        Answer("Which groups does it serve worse?", " ".join(description.BIASES), Basis.SOFTWARE),
        Answer("Was the corpus biased to begin with?", "Unknown here.", Basis.OPEN),
    )


def _side_channels() -> tuple[Answer, ...]:
    return (
        Answer(
            "Do time, memory or failures reveal anything?",
            "Outside the claim. No time, no number of attempts, of batches with content or of crashes is published, and"
            " a bundle shows neither when nor after how many attempts it was made.",
            Basis.SOFTWARE,
        ),
        Answer(
            "Does an error message or a log reveal anything?",
            "No private text is in logs, errors or the orchestrator; a test searches them for planted words.",
            Basis.SOFTWARE,
        ),
        Answer("Who can watch the machines?", "Unknown here.", Basis.OPEN),
    )


def _trust(record: ReleaseRecord) -> tuple[Answer, ...]:
    rules = record.policy.rules_for(record.dataset.name)
    roles = card_text.SEVERAL_ROLES if record.policy.several_roles else card_text.SEPARATE_ROLES
    spend_decision = (
        f"A standing authorisation replaced the decision before the run (at least {rules.proposal} stewards)."
        if record.standing
        else f"At least {rules.spend} stewards approved before private text was read."
    )
    return (
        Answer(
            "Which model of trust?",
            "Central: everybody who runs the software sees the private text; all others see the published files.",
            Basis.SOFTWARE,
        ),
        Answer(
            "Which model of queries?",
            "One release of files, not interactive. Readers may work together: the claim is for all of them at once.",
            Basis.SOFTWARE,
        ),
        Answer(
            "Who requested, ran and decided?",
            f"Requested by {record.people.requester.name}, run by {record.people.runner.name}. {spend_decision} At"
            f" least {rules.publish} approved exactly these files. {roles.replace('**', '')} Signed decisions are in"
            " approvals.json.",
            Basis.RECORD,
        ),
        Answer(
            "Can an outsider check it?",
            "Yes, offline: the loss of every mechanism, epsilon, digests and signatures. An outsider cannot see"
            " that the draws were made as the record says; that is the publisher's word.",
            Basis.RECORD,
        ),
        Answer("Who else has access to the data and the machines?", "Unknown here.", Basis.OPEN),
    )


def _collection(record: ReleaseRecord) -> tuple[Answer, ...]:
    standing = (
        "The dataset is governed: it has a budget and gates."
        if record.dataset.governed
        else "Its owner has marked the dataset as public."
    )
    return (
        Answer("What is the standing of the data?", standing, Basis.RECORD),
        Answer(
            "How was it collected, with whose consent, and what was exposed in the process?",
            "Unknown here.",
            Basis.OPEN,
        ),
        Answer("How is it kept, encrypted, and deleted?", "Unknown here.", Basis.OPEN),
        Answer(
            "Is the same data under another budget somewhere?",
            "Within this ledger no: a dataset whose units are already known must share their budget. Outside it,"
            " unknown.",
            Basis.OPEN,
        ),
    )
