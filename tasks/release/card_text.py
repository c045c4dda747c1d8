"""Fixed sentences of a card, each a promise or a warning: they change together with docs/privacy-guarantee.md.

Values of a request's parameters are said in a few words (`parameter_text`).
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from models_db.values.canonical_json import Json
from models_db.values.exposures import CONDITIONAL_CLAIM
from tasks.common.published_values import figure
from tasks.release.bundle_format import label_field
from tasks.release.claim import Claim, describe_guesses, release_weaknesses
from tasks.values.results import ReleaseKind

NO_CLAIM: Final = "No differential privacy is claimed for this release."
PUBLIC_DATA: Final = "Its owner has marked the dataset as public, and the texts may repeat it word for word."

EXTERNAL: Final = (
    "The model is behind an API, **external model: sees only DP outputs**: it received public words, and values that"
    " a mechanism above had released, and no private text left the machine that holds it."
)

OWN_GUARANTEES: Final = {
    "google/vaultgemma-1b": (
        "The public model was itself trained with differential privacy: epsilon 2 at delta 1.1e-10 for each sequence of"
        " 1,024 tokens, as its makers state (arXiv 2510.15001). That is a claim about the people in its training data"
        " and not about this dataset; the two are not added."
    )
}
"""Privacy guarantees that the makers of public models state, by name on the hub."""

MERGED: Final = (
    " It is a base model with a LoRA adapter added to its weights: SHA-256 of the base {}, of the adapter {}."
)

_LIMITS: Final = """\
## What is not protected

- **Other people.** A record protects its unit. Other people mentioned in it are not units of this claim.
- **One person under several units** (two ids, two records without an id field, or another dataset): the losses add up.
- **What is true of many.** General knowledge can say something about a person, even one who was never in the data.
- **Small groups.** Features that few units share are suppressed on purpose: rare cases are missing or wrong in these
  texts, and no quality is promised.
- **The people and machines that hold the data.** Trust is central: everybody who runs the software sees the private
  text. The claim is about published content, not about access rights, backups or theft.
- **Side channels outside the release**: when and for how long something ran, memory, electricity.
- **Choices made outside the ledger.** If somebody looked at the private text, or at an unprotected measurement, to
  write the description, to choose parameters or to decide about publication, the figures above no longer hold.
- **The public model.** Text that it had memorised before this release is not covered. {contamination}
- **Delta** is not zero: with about that probability the bound of epsilon may fail, in whatever way.
- **Faults** in this software, its libraries or the operating system's random numbers would not show in the texts."""

_CONTAMINATION: Final = {
    None: "Whether it had read this corpus is not known, and its owner declares nothing about it.",
    "never": "Its owner declares that the corpus had never been published; whether the model had read it was not"
    " measured here.",
    "partly": "Its owner declares that part of the corpus had been published, so the model may have read that.",
    "fully": "Its owner declares that the corpus had been published, so the model may have read it.",
}
"""What is known of it without a charge; a figure worked out from private text would have to be charged."""


def limits_section(texts_published: str | None) -> str:
    """Return the section on what is not protected.

    Args:
        texts_published: what the owner declares of the corpus (`PublicMetadata`).
    """
    return _LIMITS.format(contamination=_CONTAMINATION[texts_published])


VERIFY: Final = """\
## Check it yourself

`almoner verify-release DIR --key PUBLIC_KEY`, without network or database, recomputes every mechanism's loss and
epsilon, and checks all digests and signatures. Get the publisher's public key from a source you trust: without one the
check shows that the files belong together, not who made them. `sha256sum -c SHA256SUMS` needs no almoner.

A published release can be retracted, but not called back. Later bundles of the publisher list the retracted releases:
`almoner verify-release DIR --revocations LATER_BUNDLE` shows whether this is one of them."""

_FILES: Final = """\
## Files

| file | content |
| --- | --- |
| `texts.jsonl` | the {content} per line; nothing else of the corpus is included |
| `texts.parquet` | the same rows in columns |
| `checklist.md` | the questions of NIST SP 800-226, with the answers of the record, and the ones left open |
| `croissant.json` | this description for machines: Croissant 1.1 with its Responsible AI terms |
| `deployment.yaml` | a draft for the OpenDP registry of deployments |
| `report.html` | this release on one page, for a browser or a printer |
{explorer}| `evaluation.json` | the measurements, with method and source |
| `release.json` | the record: claim, mechanisms, parameters, request, policy; the generated files follow from it |
| `approvals.json` | the signed decisions |
| `attestation.json` | claim and digests as an in-toto statement, signed by those who approved, and by the publisher |
| `revocations.json` | artifacts that the publisher had retracted, or whose assignment had got out, before delivery |
| `checkpoint.json` | the head of the publisher's audit chain, signed |
| `SHA256SUMS`, `SHA256SUMS.sig` | digests of all of these, and their signature |"""
_EXPLORER_ROW: Final = "| `explorer.html` | the insights as a map and a tree, for a browser |\n"


def files(kind: str, *, labelled: bool) -> str:
    """Return the section on the bundle's files; `tasks.release.bundle_format` writes the lines of `texts.jsonl`."""
    label = f", `{label_field(kind)}`" if labelled else ""
    if kind == ReleaseKind.INSIGHTS:
        content = "insights, one JSON object (`id`, `parent`, `level`, `name`, `text`, `keywords`, `size`)"
    elif kind == ReleaseKind.RECORDS:
        content = f"records, one JSON object (`id`{label}, `raw`, and `record` where `raw` is a JSON object)"
    else:
        content = f"texts, one JSON object (`id`{label}, `text`)"
    return _FILES.format(content=content, explorer=_EXPLORER_ROW if kind == ReleaseKind.INSIGHTS else "")


TEMPLATES: Final = (
    "The model was given these templates, with `{description}`, `{label}` and `{reference}` filled in (`{reference}` is"
    " the private text of one unit; where no template has it, it is given as an earlier answer):"
)
EXAMPLES: Final = "The public examples were given as earlier answers, in this order."
TEMPLATES_OF_PUBLIC: Final = (
    "The model was given these templates, with `{description}` and `{label}` filled in, and released values beside"
    " them, in the words that the parameters below state. It was shown no private text:"
)
COMPLETION: Final = (
    "The model went on with one text: `public`, with `{description}` and `{label}` filled in, the examples, and, where"
    " it was shown one, the private text of one unit, each followed by the separator on a line of its own. A text ends"
    " where the model writes that line:"
)
RENDERED: Final = "The token ids of the prompts, without a private text, have SHA-256 {}, which the request fixes."
LABELS: Final = (
    "Labels: a public set that the request declares, not one derived from the data. A unit was read under one of the"
    " labels that its documents carry; texts were generated also for a label that no unit has."
)
GROUPS_ARE: Final = "Groups: one text for each group of a public list, which was not derived from the data."
GROUPS: Final = (
    "A unit that wrote in several groups was read for {}, chosen by a key, and the claim counts every group that it may"
    " have been read for. A group in which no unit wrote has a text too; nothing here says which group that is, and"
    " such a text says nothing about its group."
)
OF_A_UNIT: Final = "A unit's documents"
OF_A_GROUP: Final = "A unit's documents in one group"
CHOSEN_PARAMETERS: Final = (
    "Chosen by almoner from public facts when the request was priced, because its author left them out:"
)

CUT: Final = (
    "{} are joined in an order that a key fixes, and cut: at {tokens} tokens, and before that at {characters}"
    " characters for each of these tokens. Only the beginning of longer ones is read. The number of documents that"
    " were cut is private and is published nowhere."
)

SECOND_FIGURE: Final = (
    "**While the assignment is secret.** A unit was read behind one text at most, which a key chose that was destroyed"
    " after the draws: one of {batches} batches, or more, of its block and label, of which at most {read} were read."
    " Against a reader who does not know that choice and whose means are bounded, the release is (epsilon {epsilon},"
    " delta {delta})-differentially private. This is a promise of another kind: it rests on HMAC-SHA256, and on nobody"
    " having kept the assignment. It ends where the assignment gets out; the publisher's later revocation lists then"
    " name this release, and `almoner verify-release DIR --revocations LATER_BUNDLE` says so. The first figure, epsilon"
    " {unconditional}, holds against everybody all the same; every limit and everything else on this card refers to it."
)
EXTENDS: Final = (
    "These texts were made from values that release {release} of the same dataset had released, and no private text was"
    " read for them. The claim is that of release {release} and covers both together: this one cost the dataset nothing"
    " more."
)

BEFOREHAND: Final = "These figures were fixed and approved before private text was read; none was computed afterwards."
CHOICES: Final = (
    "It holds as long as each choice - what to ask, what to publish, when to stop - follows from protected outputs and"
    " public facts alone."
)
OPINION: Final = (
    "It is reported for comparison and decides nothing; for token draws its fixed grid of orders puts it a little above"
    " the tight figure."
)
MEASURED_BY_EXPOSURE: Final = {
    "public": (
        "**Public**: computed from the released texts and public models alone, after the figures of the claim were"
        " fixed."
    ),
    "charged": (
        "**Charged**: computed from private data by a mechanism whose cost is part of the claim above, and published"
        " with its noise."
    ),
    "internal": (
        "**Internal**: computed from the corpus without protection. This is done for public data only, and nothing"
        " is promised about it."
    ),
}
OUTSIDE: Final = (
    "**Outside the bounds of its policy:** {}. It was published only because everybody who approved it overrode that,"
    " by name and with a reason, which is in `approvals.json`."
)
MEASURED_HOW: Final = "Method and source of each: `evaluation.json`."

DECLARED: Final = "Declared with the dataset or the request, not derived from the data:"

CAP_CHANGES: Final = (
    "**The dataset's budget was changed.** Stewards replaced its lifetime claim by another one. A smaller claim"
    " for the dataset on an earlier card no longer holds: the claim above does. All changes so far:"
)
COHORTS: Final = (
    "**Cohorts.** The dataset grows. A unit stays permanently in the cohort that was the newest when it was first"
    " ingested, and every cohort has a budget of its own: new units bring a new budget, and known units keep the rest"
    " of theirs. The claim of the dataset holds for every unit of every cohort. This release could read units of {}"
    " alone."
)
UNPROTECTED_FIGURES: Final = (
    "**Unprotected figures were seen.** Since {since}, {people} who may see the private data had seen figures of an"
    " earlier release of this account that were computed from it without protection, before this release was made."
    " {conditional}"
)
SPEND: Final = "Approved before private text was read (at least {})"
STANDING: Final = (
    "Before private text was read, nobody decided on this single run: **a standing authorisation** for runs of its"
    " configuration, in `release.json`, took the place of that decision. Approved once for all of them"
)
DECISIONS: Final = "the signed decisions, with names and reasons, are in `approvals.json`."

SEVERAL_ROLES: Final = (
    "**The policy in force lets one person request, approve and run the same release**: an approval need not come"
    " from a second person."
)
SEPARATE_ROLES: Final = "The policy in force does not let anybody approve a release that they requested or ran."

RANDOMNESS: Final = {
    "os": "Random numbers: the operating system's, without a seed.",
    "deterministic-not-private": "Random numbers: a repeatable test generator. **NOT PRIVATE.**",
}

_MILLION = Decimal(10**6)


def guarantee_of_model(name: str) -> str | None:
    """Return the sentence on a public model's own guarantee, by its name in requests; None without one."""
    return OWN_GUARANTEES.get(name.partition("@")[0])


def unprotected_figures(since: str, people: int) -> str:
    """Return the warning that unprotected figures of the account were seen, without names."""
    number_of_people = "one person" if people == 1 else f"{people} people"
    return UNPROTECTED_FIGURES.format(since=since, people=number_of_people, conditional=CONDITIONAL_CLAIM)


def secret_assignment(claim: Claim) -> str:
    """Return the paragraph on the second figure of a claim that has one; empty for every other claim."""
    secret = claim.secret_assignment
    if secret is None:
        return ""
    return SECOND_FIGURE.format(
        batches=secret.batches,
        read=secret.read,
        epsilon=secret.epsilon,
        delta=claim.delta,
        unconditional=claim.epsilon,
    )


def describe_blocks(claim: Claim, population: int | None) -> str:
    """Return the paragraphs on what epsilon and delta mean for an attacker, the weakness of the claim first."""
    if claim.charges_nothing:
        return "No private text was used for it: without the dataset it would have come out the same way."
    times, right = describe_bounds(claim)
    weaknesses = release_weaknesses(claim.epsilon, claim.delta, population)
    weak = "".join(f"**{one}**\n\n" for one in weaknesses)
    return (
        f"{weak}**What an attacker cannot do.** Take somebody who knows every other record, this software and all its"
        " parameters, and reads all of this release. Any finding that they can make in it is at most"
        f" {times} as likely with a unit in the data as without it, and the other way round, up to an additional"
        f" probability of {claim.delta}. If they must guess at even odds whether the unit was in the data, they are"
        f" right {right}. This is a ceiling for the worst case, not an estimate; it rises fast with"
        " epsilon.\n\n"
        "**What an attacker can learn.** What many records have in common: how such texts are written, and what usually"
        " goes with what."
    )


def describe_bounds(claim: Claim) -> tuple[str, str]:
    """Return `Claim.guessing_bounds` in words: how many times as likely, and how often right."""
    factor, right = claim.guessing_bounds
    times = f"{figure(factor)} times" if factor < _MILLION else "e to the power of epsilon, more than a million, times"
    return times, describe_guesses(right)


def parameter_text(value: Json) -> str:
    """Return the value for people; of a vocabulary how it is made, and of how many phrases."""
    if isinstance(value, Mapping):
        words = value.get("words")
        return f"{value.get('method')}, {len(words) if isinstance(words, list) else 0} phrases"
    return str(value)
