"""Card of a release (`README.md`): the whole claim in plain words first, then its basis and its limits.

A pure function of the record and the publishable metrics. The order follows the pyramid of NIST SP 800-226 (figures,
algorithm, trust), the wording the W3C note "Considerations for Reviewing Differential Privacy Systems": readers
without mathematics must be able to tell what is promised, to whom, and what is not.

Verification of a bundle writes its card again and compares every byte, so no second claim can hide in one. Other words
here are therefore another format of the record.

Its front matter has the fields that the Hugging Face Hub reads. Each value is one line of JSON, which is YAML too, so
typed text can neither open another field nor end the front matter. It states only facts that the request declares or
the kind implies, in the Hub's own words. A declared licence has the form of catalogues: an SPDX identifier, an address,
or a plain name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from models_db.values.canonical_json import Json
from models_db.values.requests import model_to_json
from tasks.evaluation.policy_bounds import describe_checks, missed
from tasks.inference.prompt_rendering import CHARACTERS_PER_TOKEN
from tasks.planning.block_selection import describe_cohorts
from tasks.planning.secret_assignment import CONDITION, asked_while_secret
from tasks.publishing.documents.markup import block, code, table, visible
from tasks.release import card_text, description
from tasks.release.approved_request import groups_asked
from tasks.release.bundle_format import PARQUET
from tasks.release.card_text import parameter_text
from tasks.release.claim import Claim, describe_replace_one
from tasks.release.description import NOT_A_FACT, reads_nothing, wording_of, written
from tasks.release.record import CapChange, Lifetime, ReleaseRecord, SecondOpinion, UnprotectedFigures
from tasks.systems.base import System
from tasks.systems.registry import SYSTEMS
from tasks.values.results import MetricResult, ReleaseKind

_CLAIM: Final = "## The claim"
_ASKED: Final = "The model was asked for texts that match this public description:"

CUT_FACT: Final = "reference tokens"
"""The public parameter of plans for the length at which a unit's documents are cut."""


def card(record: ReleaseRecord, metrics: Sequence[MetricResult]) -> str:
    """Return the card, as Markdown with a YAML front matter."""
    parts = [
        front_matter(record),
        f"# Release {record.release} from {code(record.dataset.name)}",
        _what_this_is(record),
        *_declared(record),
        *_claim_sections(record),
        *_mechanisms(record),
        *([description.how_to_read(record)] if record.kind == ReleaseKind.INSIGHTS else []),
        *([card_text.limits_section(record.declared.texts_published)] if record.claim else []),
        _people(record),
        *_measurements(record, metrics),
        card_text.VERIFY,
        card_text.files(record.kind, labelled=bool(record.labels)),
    ]
    return "\n\n".join(parts) + "\n"


def _what_this_is(record: ReleaseRecord) -> str:
    if record.kind == ReleaseKind.INSIGHTS:
        return f"{written(record, code)} (kind: {code(record.kind)}). {NOT_A_FACT}{_outside(record)}"
    return (
        f"Texts written by the language model {code(record.model.name)} through the mechanism {code(record.mechanism)}"
        f" (kind: {code(record.kind)}). {NOT_A_FACT}{_outside(record)}"
    )


def _outside(record: ReleaseRecord) -> str:
    return f" {card_text.EXTERNAL}" if record.model.external else ""


def _declared(record: ReleaseRecord) -> list[str]:
    """Return the request's declared facts, each value as code, so that it cannot be read as markup."""
    declared = model_to_json(record.declared)
    if not isinstance(declared, Mapping) or not declared:
        return []
    rows = [
        (name, ", ".join(map(code, value)) if isinstance(value, list) else code(value))
        for name, value in declared.items()
    ]
    return [card_text.DECLARED, table(("declared", "value"), rows)]


def _claim_sections(record: ReleaseRecord) -> list[str]:
    if record.claim is None:
        return [_CLAIM, f"**{card_text.NO_CLAIM}** {card_text.PUBLIC_DATA}"]
    unit = _unit(record)
    return [
        _CLAIM,
        f"This release is (epsilon, delta)-differentially private. It protects **{unit}**.",
        table(("figure", "value"), _figures(record, record.claim, unit)),
        *([card_text.EXTENDS.format(release=record.parent)] if record.parent else []),
        card_text.describe_blocks(record.claim, record.population),
        *([card_text.secret_assignment(record.claim)] if record.claim.secret_assignment else []),
        f"{card_text.BEFOREHAND} Conversion: {record.claim.conversion}.",
        *([_lifetime(record.lifetime)] if record.lifetime else []),
        *([card_text.COHORTS.format(describe_cohorts(record.cohorts))] if record.cohorts else []),
        *([_cap_changes(record.cap_changes)] if record.cap_changes else []),
        *([_unprotected(record.unprotected_figures)] if record.unprotected_figures else []),
    ]


def _unit(record: ReleaseRecord) -> str:
    if record.dataset.unit == "record":
        return "one record of the dataset"
    return f"all records of the dataset with one value of {code(record.dataset.unit)}, however many they are"


def _figures(record: ReleaseRecord, claim: Claim, unit: str) -> list[tuple[str, str]]:
    other, asked = claim.replace_one, record.request.get("epsilon_while_secret")
    return [
        ("epsilon", code(claim.epsilon)),
        *((f"epsilon {CONDITION}", code(one.epsilon)) for one in (claim.secret_assignment,) if one is not None),
        *((("asked for", asked_while_secret(code(str(asked)))),) if asked is not None else ()),
        ("delta", code(claim.delta)),
        ("privacy unit", unit),
        ("relation", "add or remove one unit"),
        ("rho (zCDP) behind it", code(claim.rho)),
        ("part of delta for mechanisms that can fail", code(claim.delta_fail)),
        ("for replacing one unit by another", describe_replace_one(other, exact=True)),
    ]


def _lifetime(lifetime: Lifetime) -> str:
    together = " Several datasets share this budget; the claim is for all of them together." if lifetime.shared else ""
    return (
        "**The dataset.** Losses add up. Everything ever run on the dataset, published or not, this release included,"
        f" is together (epsilon {code(lifetime.epsilon)}, delta {code(lifetime.delta)})-differentially private for the"
        f" same unit; a ledger refuses any release that would exceed that.{together} {card_text.CHOICES}"
    )


def _cap_changes(changes: Sequence[CapChange]) -> str:
    rows = [
        (code(change.old_epsilon), code(change.old_delta), code(change.new_epsilon), code(change.new_delta))
        for change in changes
    ]
    heads = ("epsilon before", "delta before", "epsilon after", "delta after")
    return f"{card_text.CAP_CHANGES}\n\n{table(heads, rows)}"


def _unprotected(figures: UnprotectedFigures) -> str:
    return card_text.unprotected_figures(figures.since, figures.people)


def _mechanisms(record: ReleaseRecord) -> list[str]:
    events = [(code(e.mechanism), str(e.count), code(e.loss.rho_text), _inline(e.parameters)) for e in record.events]
    sections = [
        "## How it was made",
        f"{description.ABOUT_THE_CORPUS if record.kind == ReleaseKind.INSIGHTS else _ASKED}\n\n{block(record.prompt)}",
        *_wording(record),
        table(("mechanism", "invocations", "rho in all", "parameters"), events),
        "Public parameters, approved with the request before private text was read:",
        table(("parameter", "value"), _rows(record.facts)),
        *_choices(record),
    ]
    if CUT_FACT in record.facts:
        documents = card_text.OF_A_GROUP if record.kind == ReleaseKind.SUMMARIES else card_text.OF_A_UNIT
        sections.append(card_text.CUT.format(documents, tokens=record.facts[CUT_FACT], characters=CHARACTERS_PER_TOKEN))
    if record.released:
        sections += ["Declared, or released by a mechanism above:", table(("figure", "value"), _rows(record.released))]
    if record.second_opinion:
        sections.append(_opinion(record.second_opinion))
    sections.append(
        f"Licence of the model: {code(record.model.licence)}; SHA-256 of"
        f" {'the configuration of its endpoint' if record.model.external else 'its files'}:"
        f" {code(record.model.sha256)}.{_merged_from(record)} {card_text.RANDOMNESS[record.rng]}"
    )
    if (guarantee := card_text.guarantee_of_model(record.model.name)) is not None:
        sections.append(guarantee)
    return sections


def _choices(record: ReleaseRecord) -> list[str]:
    """Return the parameters that almoner chose because the request's author left them out, with the reasons."""
    chosen = record.request.get("choices") or {}
    if not chosen:
        return []
    rows = [
        (code(name), code(parameter_text(record.request["parameters"][name])), code(why))
        for name, why in chosen.items()
    ]
    return [card_text.CHOSEN_PARAMETERS, table(("parameter", "value", "reason"), rows)]


def _merged_from(record: ReleaseRecord) -> str:
    """Return the sentence on base and adapter of a model that was merged from them; nothing for any other."""
    parts = [str(record.request["model"].get(name, "")) for name in ("base_sha256", "adapter_sha256")]
    return card_text.MERGED.format(*map(code, parts)) if all(parts) else ""


def _wording(record: ReleaseRecord) -> list[str]:
    """Return the words that the request writes out, the digest of its prompts, and its labels or groups."""
    system = SYSTEMS.get(record.mechanism)
    unused: tuple[str, ...] = ()
    if system is not None:
        unused = system.unused_templates if system.shows_private_text else ("private", "again")
    words = {name: text for name, text in record.wording.items() if name not in unused}
    sections = [_introduced(record, system)] if words else []
    sections += [f"{code(name)}\n\n{block(text)}" for name, text in words.items()]
    if record.prompt_sha256:
        sections.append(card_text.RENDERED.format(code(record.prompt_sha256)))
    if record.kind == ReleaseKind.SUMMARIES:
        return [*sections, *_groups(record)]
    if record.labels:
        sections += [f"{card_text.LABELS}\n\n{', '.join(map(code, record.labels))}"]
    return sections


def _introduced(record: ReleaseRecord, system: System | None) -> str:
    """Return the sentence that introduces the templates."""
    if system is not None and system.templates_sentence is not None:
        return system.templates_sentence
    if system is not None and not system.shows_private_text:
        return card_text.TEMPLATES_OF_PUBLIC
    if "form" in record.wording:
        return card_text.COMPLETION
    return f"{card_text.EXAMPLES} {card_text.TEMPLATES}" if "example 1" in record.wording else card_text.TEMPLATES


def _groups(record: ReleaseRecord) -> list[str]:
    """Return the summarised groups, and the number of groups in which a unit could count."""
    parameters = record.request["parameters"]
    rows = [(code(group.id), code(group.shown)) for group in groups_asked(record.kind, parameters)]
    reads_private_text = record.claim is not None and not reads_nothing(record)
    sentence = card_text.GROUPS.format(_for_groups(parameters.get("groups_per_unit", 1))) if reads_private_text else ""
    return [f"{card_text.GROUPS_ARE} {sentence}".strip(), table(("group", "name given to the model"), rows)]


def _for_groups(most: int) -> str:
    return "one of them" if most == 1 else f"at most {most} of them"


def _opinion(opinion: SecondOpinion) -> str:
    return (
        f"A second opinion: {code(opinion.library)} ({code(opinion.accountant)} accountant), from the stored events"
        f" alone, gives epsilon {code(opinion.epsilon)} at delta {code(opinion.delta)}. {card_text.OPINION}"
    )


def _people(record: ReleaseRecord) -> str:
    requester, runner = record.people.requester.name, record.people.runner.name
    roles = card_text.SEVERAL_ROLES if record.policy.several_roles else card_text.SEPARATE_ROLES
    rules = record.policy.rules_for(record.dataset.name)
    first = (
        f"{card_text.STANDING} (at least {rules.proposal})" if record.standing else card_text.SPEND.format(rules.spend)
    )
    return (
        f"## Who decided\n\nRequested by {code(requester)}, run by {code(runner)}. {first} and again for exactly these"
        f" files (at least {rules.publish}); {card_text.DECISIONS} {roles}"
    )


def _measurements(record: ReleaseRecord, metrics: Sequence[MetricResult]) -> list[str]:
    if not metrics:
        return ["## Measurements", "The request names none."]
    rows = [(code(metric.name), metric.exposure, *figures) for metric in metrics for figures in _figures_of(metric)]
    notes = [words for name, words in card_text.MEASURED_BY_EXPOSURE.items() if name in {m.exposure for m in metrics}]
    heads = ("metric", "exposure", "figure", "value")
    outside = missed(record.policy.rules_for(record.dataset.name).required, {m.name: m for m in metrics})
    return [
        "## Measurements",
        *([card_text.OUTSIDE.format(code(describe_checks(outside)))] if outside else []),
        table(heads, rows),
        " ".join([*notes, card_text.MEASURED_HOW]),
    ]


def _figures_of(metric: MetricResult) -> Iterator[tuple[str, str]]:
    for name, value in sorted(metric.values.items()):
        yield code(name), code(value if value is not None else "not measurable")


def _inline(parameters: Mapping[str, str | int]) -> str:
    return ", ".join(code(f"{name} = {value}") for name, value in sorted(parameters.items())) or "none"


def _rows(values: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(code(name), code(value)) for name, value in sorted(values.items())]


_TASKS: Final[dict[str, tuple[str, ...]]] = {
    ReleaseKind.SYNTHETIC_CORPUS: ("text-generation",),
    ReleaseKind.SUMMARIES: ("summarization",),
}
_SIZES: Final = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")


def front_matter(record: ReleaseRecord) -> str:
    """Return the front matter with its two fences, without a final line end."""
    lines = [f"{name}: {_flow(value)}" for name, value in _front_fields(record).items()]
    if record.declared.licence is None:
        lines.append("# license: for the owner of the data to choose")
    return "\n".join(["---", *lines, "---"])


def pretty_name(record: ReleaseRecord) -> str:
    """Return the name of the release in a catalogue."""
    return f"{record.declared.name or record.dataset.name}, release {record.release}"


def card_keywords(record: ReleaseRecord) -> list[str]:
    """Return the keywords under which a catalogue lists it."""
    content = ["insights", wording_of(record).rows] if record.kind == ReleaseKind.INSIGHTS else ["synthetic"]
    return [*content, *(["differential-privacy"] if record.claim else []), "almoner"]


def _front_fields(record: ReleaseRecord) -> Mapping[str, Json]:
    declared = record.declared
    classified = bool(record.labels) and record.kind != ReleaseKind.SUMMARIES
    tasks = [*_TASKS.get(record.kind, ()), *(["text-classification"] if classified else [])]
    return {
        "pretty_name": pretty_name(record),
        **(hub_licence(declared.licence) if declared.licence is not None else {}),
        **_languages(declared.language),
        **({"task_categories": tasks} if tasks else {}),
        **({} if (rows := _requested_rows(record)) is None else {"size_categories": [_size(rows)]}),
        "tags": card_keywords(record),
        "configs": [{"config_name": "default", "data_files": PARQUET}],
    }


def _requested_rows(record: ReleaseRecord) -> int | None:
    """Return the requested number of rows; for insights, of clusters, None if the request leaves it open."""
    return wording_of(record).rows_asked(record) if record.kind == ReleaseKind.INSIGHTS else record.texts


def _languages(declared: tuple[str, ...]) -> dict[str, Json]:
    plain = list(dict.fromkeys(code.partition("-")[0] for code in declared))
    exact = list(declared) if plain != list(declared) else []
    languages: dict[str, list[str]] = {"language": plain, "language_bcp47": exact}
    return {name: codes for name, codes in languages.items() if codes}


def _size(texts: int) -> str:
    return _SIZES[min(max(len(str(texts)) - 3, 0), len(_SIZES) - 1)]


def _flow(value: Json) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(visible(value) if isinstance(value, str) else value)


_HUB_NAMES: Final = {
    "Apache-2.0": "apache-2.0",
    "BSD-3-Clause": "bsd-3-clause",
    "CC-BY-2.0": "cc-by-2.0",
    "CC-BY-3.0": "cc-by-3.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-NC-3.0": "cc-by-nc-3.0",
    "CC-BY-NC-4.0": "cc-by-nc-4.0",
    "CC-BY-NC-ND-4.0": "cc-by-nc-nd-4.0",
    "CC-BY-NC-SA-4.0": "cc-by-nc-sa-4.0",
    "CC-BY-ND-4.0": "cc-by-nd-4.0",
    "CC-BY-SA-3.0": "cc-by-sa-3.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
    "CC0-1.0": "cc0-1.0",
    "CDLA-Permissive-1.0": "cdla-permissive-1.0",
    "CDLA-Permissive-2.0": "cdla-permissive-2.0",
    "CDLA-Sharing-1.0": "cdla-sharing-1.0",
    "MIT": "mit",
    "ODbL-1.0": "odbl",
    "ODC-By-1.0": "odc-by",
    "PDDL-1.0": "pddl",
    "Unlicense": "unlicense",
}
"""Licences of data that SPDX and the Hugging Face Hub both know, by SPDX identifier."""

_SPDX: Final = {name.lower(): name for name in _HUB_NAMES}


def hub_licence(declared: str) -> dict[str, str]:
    """Return the fields of a dataset card that state a licence."""
    spdx = _SPDX.get(declared.lower())
    if spdx is not None:
        return {"license": _HUB_NAMES[spdx]}
    if _is_address(declared):
        return {"license": "other", "license_name": "see-link", "license_link": declared}
    return {"license": "other", "license_name": declared}


def licence_address(declared: str) -> str:
    """Return the address of the licence text; the declared value where no address is known."""
    spdx = _SPDX.get(declared.lower())
    return f"https://spdx.org/licenses/{spdx}.html" if spdx is not None else declared


def _is_address(declared: str) -> bool:
    return declared.startswith(("https://", "http://"))
