"""Croissant 1.1 description of a release (`croissant.json`), with the terms of its Responsible AI extension.

Sources: Croissant 1.1 and Croissant RAI 1.0, MLCommons. Neither has terms for differential privacy; the terms here have
a namespace of their own, a URN that is not an address: figures are decimal strings, as everywhere in a bundle.

The extension asks for limits, biases and uses in words. Those words hold for every release; facts that only the owner
of the data knows are present where they were declared, and left out otherwise.
"""

import json
from collections.abc import Mapping
from typing import Final

from models_db.values.canonical_json import Json
from tasks.publishing.documents.card import card_keywords, licence_address, pretty_name
from tasks.release import description
from tasks.release.bundle_format import PARQUET, TEXTS, label_field
from tasks.release.record import PublicContent, ReleaseRecord
from tasks.values.results import ReleaseKind

CONFORMS_TO: Final = ("http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0")
PRIVACY_TERMS: Final = "urn:almoner:dp:v1:"

_TABLE: Final = "texts"
_ENCODINGS: Final = {TEXTS: "application/jsonlines", PARQUET: "application/x-parquet"}
_OF_INSIGHTS: Final = (
    ("id", "sc:Integer", "The number of the insight, from 1: parents before their children."),
    ("parent", "sc:Integer", "The number of the group that it belongs to; null at the top."),
    ("level", "sc:Integer", "0 for clusters, 1 for groups of clusters, and so on upwards."),
    ("name", "sc:Text", "Its name: by a model, or a question or answer of the request."),
    ("text", "sc:Text", "Its description: by a model, or a count with its margin of error."),
    ("size", "sc:Integer", "How many units belong to it, with noise; null where it was not measured."),
    ("clusters", "sc:Integer", "How many released clusters, or counts, it consists of."),
)
_LISTS_OF_INSIGHTS: Final = (
    ("keywords", "sc:Text", "Keywords, the most telling first."),
    ("support", "sc:Integer", "How many of its units chose each keyword, with noise; null where it was not counted."),
    ("origins", "sc:Text", "Of each keyword: selected from the data, of the request, or built_in; null if unknown."),
)
_ALIASES: Final = (
    "arrayShape",
    "citeAs",
    "column",
    "containedIn",
    "equivalentProperty",
    "extract",
    "field",
    "fileObject",
    "fileProperty",
    "fileSet",
    "format",
    "includes",
    "isArray",
    "isLiveDataset",
    "jsonPath",
    "key",
    "md5",
    "parentField",
    "path",
    "recordSet",
    "references",
    "regex",
    "repeated",
    "replace",
    "samplingRate",
    "separator",
    "source",
    "subField",
    "transform",
)
"""Croissant's own terms that may be written without their prefix."""


def croissant(release: PublicContent) -> str:
    """Return the file, as indented JSON-LD."""
    record = release.record
    content = {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": pretty_name(record),
        "description": description.whole(record),
        "version": f"{record.release}.0.0",
        "isLiveDataset": False,
        "keywords": card_keywords(record),
        **_declared(record),
        "distribution": [_file(name, release.data[name]) for name in sorted(release.data)],
        "recordSet": [_record_set(record)],
        **_responsible(record),
        **_provenance(record),
        **_privacy(record),
    }
    return json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def _context() -> dict[str, Json]:
    return {
        "@language": "en",
        "@vocab": "https://schema.org/",
        "cr": "http://mlcommons.org/croissant/",
        "dct": "http://purl.org/dc/terms/",
        "dp": PRIVACY_TERMS,
        "prov": "http://www.w3.org/ns/prov#",
        "rai": "http://mlcommons.org/croissant/RAI/",
        "sc": "https://schema.org/",
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "description": {"@container": "@language"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "name": {"@container": "@language"},
        **{name: f"cr:{name}" for name in _ALIASES},
    }


def _declared(record: ReleaseRecord) -> dict[str, Json]:
    declared = record.declared
    fields: dict[str, Json] = {
        "license": licence_address(declared.licence) if declared.licence is not None else None,
        "inLanguage": list(declared.language),
        "creator": [{"@type": "sc:Organization", "name": name} for name in declared.creators],
        "citeAs": declared.citation,
        "url": declared.url,
        "datePublished": declared.publication_date,
    }
    return {name: value for name, value in fields.items() if value}


def _file(name: str, facts: Mapping[str, str | int]) -> dict[str, Json]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{facts['bytes']} B",
        "encodingFormat": _ENCODINGS[name],
        "sha256": facts["sha256"],
    }


def _record_set(record: ReleaseRecord) -> dict[str, Json]:
    return {
        "@type": "cr:RecordSet",
        "@id": _TABLE,
        "name": _TABLE,
        "key": {"@id": f"{_TABLE}/id"},
        "field": _columns(record),
    }


def _columns(record: ReleaseRecord) -> list[dict[str, Json]]:
    if record.kind == ReleaseKind.INSIGHTS:
        return [_field(*column) for column in _OF_INSIGHTS] + [_list_of(*column) for column in _LISTS_OF_INSIGHTS]
    columns = [("id", "sc:Integer", "The number of the text, from 1, in the public order of texts.")]
    if record.labels:
        of = f"One of the public {label_field(record.kind)}s that the request declares."
        columns.append((label_field(record.kind), "sc:Text", of))
    if record.kind == ReleaseKind.RECORDS:
        columns.append(("raw", "sc:Text", "The text that the model wrote."))
        columns.append(("record", "sc:Text", "The JSON object in `raw`, written again; null where `raw` is not one."))
    else:
        columns.append(("text", "sc:Text", "The text that the model wrote."))
    return [_field(*column) for column in columns]


def _list_of(name: str, kind: str, meaning: str) -> dict[str, Json]:
    return {**_field(name, kind, meaning), "isArray": True, "arrayShape": "-1"}


def _field(name: str, kind: str, meaning: str) -> dict[str, Json]:
    return {
        "@type": "cr:Field",
        "@id": f"{_TABLE}/{name}",
        "name": name,
        "description": meaning,
        "dataType": kind,
        "source": {"fileObject": {"@id": PARQUET}, "extract": {"column": name}},
    }


def _responsible(record: ReleaseRecord) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "rai:hasSyntheticData": True,
        "rai:dataCollection": description.collection(record),
        "rai:dataCollectionType": ["Software Collection"],
        "rai:dataPreprocessingProtocol": [description.preprocessing(record)],
        "rai:dataLimitations": list(description.limits(record)),
        "rai:dataBiases": list(description.BIASES),
        "rai:personalSensitiveInformation": [description.personal(record)],
        "rai:dataUseCases": [record.declared.intended_use] if record.declared.intended_use else None,
        "rai:dataSocialImpact": description.impact(record),
        "rai:dataReleaseMaintenancePlan": description.MAINTENANCE,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _provenance(record: ReleaseRecord) -> dict[str, Json]:
    """Return the provenance of the texts in the terms of PROV-O; of the corpus it states the name alone."""
    return {
        "prov:wasDerivedFrom": {"@type": "sc:Dataset", "name": record.dataset.name},
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"{record.kind} by {record.mechanism}",
            "prov:wasAssociatedWith": {
                "@type": "prov:SoftwareAgent",
                "name": record.model.name,
                "dp:endpointSha256" if record.model.external else "dp:modelSha256": record.model.sha256,
            },
        },
    }


def _privacy(record: ReleaseRecord) -> dict[str, Json]:
    """Return the claim; figures as decimal strings."""
    claim, lifetime, figures = record.claim, record.lifetime, record.unprotected_figures
    if claim is None:
        return {"dp:claimed": False}
    return {
        "dp:claimed": True,
        "dp:epsilon": claim.epsilon,
        **({"dp:epsilonWhileAssignmentIsSecret": secret.epsilon} if (secret := claim.secret_assignment) else {}),
        "dp:delta": claim.delta,
        "dp:rho": claim.rho,
        "dp:privacyUnit": record.dataset.unit,
        "dp:neighbouringRelation": record.dataset.relation,
        "dp:replaceOneEpsilon": claim.replace_one.epsilon,
        "dp:replaceOneDelta": claim.replace_one.delta,
        "dp:mechanism": sorted({event.mechanism for event in record.events}),
        **({"dp:lifetimeEpsilon": lifetime.epsilon, "dp:lifetimeDelta": lifetime.delta} if lifetime else {}),
        **({"dp:unprotectedFiguresSeenSince": figures.since} if figures else {}),
    }
