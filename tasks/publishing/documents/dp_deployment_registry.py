"""Draft entry for the OpenDP registry of deployments (`deployment.yaml`), tier 3.

The fields are those of the registry's entry template as of autumn 2026; the registry still changes, so compare a record
with the newest template before submitting it. `SCHEMA` states our knowledge of it: the fields, which of them are
required, and the words that we use for choices.

Facts that only people know are in the draft as far as the request declares them, and `NOT_DECLARED` where the registry
requires a text. The number of units is left out, because it is private, and the day of publication wherever none was
declared, because a bundle states no time.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from models_db.values.canonical_json import Json
from tasks.publishing.documents.card import pretty_name
from tasks.publishing.documents.markup import Value, yaml_lines
from tasks.release import description
from tasks.release.claim import Claim, describe_replace_one
from tasks.release.record import PublicContent, ReleaseRecord
from tasks.values.results import ReleaseKind

NOT_DECLARED: Final = "Not declared"
NOTHING: Final = "# Nothing to register: no differential privacy is claimed for this release.\n"
HEAD: Final = (
    "# A draft, generated from release.json. Before submission: complete the fields that are not declared, and add\n"
    "# publication_date and data_curator_type where they are missing.\n"
)
PURE, APPROXIMATE, CONCENTRATED = "Pure DP", "Approximate DP", "Zero-concentrated DP"


def deployment(release: PublicContent) -> str:
    """Return the record, as YAML; a comment and no record where nothing is claimed."""
    claim = release.record.claim
    return NOTHING if claim is None else HEAD + yaml_lines(_record(release.record, claim))


def _record(record: ReleaseRecord, claim: Claim) -> Mapping[str, Value]:
    return {
        "url_slug": _slug(f"{record.declared.name or record.dataset.name}-release-{record.release}"),
        "deployment": {
            "basic": _basic(record),
            "dp_variant": _variant(record, claim),
            "privacy_loss": _privacy_loss(record, claim),
            "deployment_model": _model(record),
            "implementation": _implementation(record),
            "administrative": {
                "status": "Draft",
                "registry_authors": ["almoner, from the release record"],
                "tier": 3,
            },
        },
    }


def _basic(record: ReleaseRecord) -> Mapping[str, Value]:
    declared = record.declared
    fields: dict[str, Value] = {
        "name": pretty_name(record),
        "data_curators": [{"data_curator_name": name} for name in declared.creators or (NOT_DECLARED,)],
        "description": description.whole(record),
        "intended_use": declared.intended_use or NOT_DECLARED,
        "data_product_type": "Summary statistics" if record.kind == ReleaseKind.INSIGHTS else "Synthetic data",
        "data_product_region": declared.region or NOT_DECLARED,
    }
    optional = {"data_product_sector": declared.sector, "publication_date": declared.publication_date}
    return fields | {name: value for name, value in optional.items() if value is not None}


def _variant(record: ReleaseRecord, claim: Claim) -> Mapping[str, Value]:
    concentrated = CONCENTRATED if claim.delta_fail == "0" else APPROXIMATE
    return {
        "variant_name": PURE if claim.epsilon == claim.delta == "0" else concentrated,
        "data_domain": "Collections of texts, each text under the identifier of one privacy unit.",
        "unprotected_quantities": (
            "None of the data. Counts of units, documents and batches with content are private and in no file; figures"
            f" that were released went through the mechanisms ({', '.join(sorted(record.released)) or 'none'})."
        ),
    }


def _privacy_loss(record: ReleaseRecord, claim: Claim) -> Mapping[str, Value]:
    figures = {"epsilon": claim.epsilon, "delta": claim.delta, "rho": claim.rho}
    other = claim.replace_one
    return {
        "privacy_unit": record.dataset.unit,
        "privacy_unit_details": (
            f"The unit is {description.unit(record)}. Neighbouring datasets differ by adding or removing one unit."
            f" For replacing one unit by another: {describe_replace_one(other, exact=True)}."
        ),
        "privacy_parameters": {name: Decimal(value) for name, value in figures.items()},
        "privacy_parameters_details": (
            "Fixed and approved before private text was read. rho is the zCDP loss of all mechanisms;"
            f" {claim.conversion}. Part of delta for mechanisms that can fail: {claim.delta_fail}."
            f" {description.impact(record)}{description.secret_figure(claim)}"
        ),
    }


def _model(record: ReleaseRecord) -> Mapping[str, Value]:
    return {
        "model_name": "Central",
        "model_name_details": "People who run the software see the private text; the published files are protected.",
        "trust_assumptions": (
            "The curator, the people who run the software and their machines are trusted with the data. Readers of the"
            " release are not: they may know everything else, and may work together."
        ),
        "actors": (
            f"- Requested by {record.people.requester.name}, run by {record.people.runner.name}.\n"
            "- Stewards approved the request before private text was read, and the files before publication.\n"
            "- Anybody may read the release, and every reader counts as an adversary."
        ),
        "release_type": "One release",
        "release_type_details": description.lifetime(record),
        "data_source_type": "Static",
        "data_source_type_details": "One ingested version of the dataset, named in the request.",
        "access_type": "Non-interactive",
        "access_type_details": "The release is a folder of files; nobody can query the data through it.",
    }


def _implementation(record: ReleaseRecord) -> Mapping[str, Value]:
    return {
        "preprocessing_and_hyperparameter_tuning": (f"{description.preprocessing(record)} {description.TUNING}"),
        "mechanisms": "\n".join([*(f"- {one}" for one in description.mechanisms(record)), description.EXACTNESS]),
        "composition": description.composition(record),
        "post_processing": description.post_processing(record),
        "justification": description.justification(record),
        "utility": "Measurements of the release are in its evaluation.json, each with method and source.",
        "additional_information": (
            "`almoner verify-release` recomputes the loss of every mechanism, epsilon, and this file from release.json,"
            f" offline. SHA-256 of the approved request: {record.request_sha256}; of the code: {record.code_sha256}."
        ),
    }


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _object(needed: Mapping[str, Json], optional: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Return the schema of a closed object."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(needed),
        "properties": {**needed, **(optional or {})},
    }


_TEXT: Final[Json] = {"type": "string", "minLength": 1}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT, "minItems": 1}
_POSITIVE: Final[Json] = {"type": "number", "minimum": 0}

SCHEMA: Final[dict[str, Json]] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **_object({
        "url_slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
        "deployment": _object({
            "basic": _object(
                {
                    "name": _TEXT,
                    "data_curators": {
                        "type": "array",
                        "minItems": 1,
                        "items": _object({"data_curator_name": _TEXT}, {"data_curator_type": _TEXT}),
                    },
                    "description": _TEXT,
                    "intended_use": _TEXT,
                    "data_product_type": {"enum": ["Synthetic data", "Summary statistics", "Machine learning model"]},
                    "data_product_region": _TEXT,
                },
                {"data_product_sector": _TEXT, "publication_date": {"type": "string", "format": "date"}},
            ),
            "dp_variant": _object({
                "variant_name": {"enum": [PURE, APPROXIMATE, CONCENTRATED, "Renyi DP", "Custom"]},
                "data_domain": _TEXT,
                "unprotected_quantities": _TEXT,
            }),
            "privacy_loss": _object({
                "privacy_unit": _TEXT,
                "privacy_unit_details": _TEXT,
                "privacy_parameters": _object({"epsilon": _POSITIVE, "delta": _POSITIVE, "rho": _POSITIVE}),
                "privacy_parameters_details": _TEXT,
            }),
            "deployment_model": _object({
                "model_name": {"enum": ["Local", "Central", "Shuffle", "Federated"]},
                "model_name_details": _TEXT,
                "trust_assumptions": _TEXT,
                "actors": _TEXT,
                "release_type": {"enum": ["One release", "Many releases"]},
                "release_type_details": _TEXT,
                "data_source_type": {"enum": ["Static", "Dynamic"]},
                "data_source_type_details": _TEXT,
                "access_type": {"enum": ["Interactive", "Non-interactive"]},
                "access_type_details": _TEXT,
            }),
            "implementation": _object({
                "preprocessing_and_hyperparameter_tuning": _TEXT,
                "mechanisms": _TEXT,
                "composition": _TEXT,
                "post_processing": _TEXT,
                "justification": _TEXT,
                "utility": _TEXT,
                "additional_information": _TEXT,
            }),
            "administrative": _object({
                "status": {"enum": ["Draft", "Pending", "Approved"]},
                "registry_authors": _TEXTS,
                "tier": {"enum": [1, 2, 3]},
            }),
        }),
    }),
}  # fmt: skip
"""Our description of the registry's schema; a record that satisfies it has every field of tier 3."""
