"""Front matter of a dataset card, in the fields that the Hugging Face Hub reads.

Each value is one line of JSON, which is YAML too, so typed text can neither open another field nor end the front
matter. It states only facts that the request declares or the kind implies, in the Hub's own words.
"""

import json
from collections.abc import Mapping
from typing import Final

from models_db.values.canonical_json import Json
from tasks.publishing.documents.licences import hub_licence
from tasks.publishing.documents.markdown import visible
from tasks.release.file_names import PARQUET
from tasks.release.record import ReleaseRecord
from tasks.release.wording.insight_text import wording_of
from tasks.values.release_kinds import ReleaseKind

_TASKS: Final[dict[str, tuple[str, ...]]] = {
    ReleaseKind.SYNTHETIC_CORPUS: ("text-generation",),
    ReleaseKind.SUMMARIES: ("summarization",),
}
_SIZES: Final = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")


def front_matter(record: ReleaseRecord) -> str:
    """Return the front matter with its two fences, without a final line end."""
    lines = [f"{name}: {_flow(value)}" for name, value in _fields(record).items()]
    if record.declared.licence is None:
        lines.append("# license: for the owner of the data to choose")
    return "\n".join(["---", *lines, "---"])


def pretty_name(record: ReleaseRecord) -> str:
    """Return the name of the release in a catalogue."""
    return f"{record.declared.name or record.dataset.name}, release {record.release}"


def keywords(record: ReleaseRecord) -> list[str]:
    """Return the keywords under which a catalogue lists it."""
    content = ["insights", wording_of(record).rows] if record.kind == ReleaseKind.INSIGHTS else ["synthetic"]
    return [*content, *(["differential-privacy"] if record.claim else []), "almoner"]


def _fields(record: ReleaseRecord) -> Mapping[str, Json]:
    declared = record.declared
    classified = bool(record.labels) and record.kind != ReleaseKind.SUMMARIES
    tasks = [*_TASKS.get(record.kind, ()), *(["text-classification"] if classified else [])]
    return {
        "pretty_name": pretty_name(record),
        **(hub_licence(declared.licence) if declared.licence is not None else {}),
        **_languages(declared.language),
        **({"task_categories": tasks} if tasks else {}),
        **({} if (rows := _requested_rows(record)) is None else {"size_categories": [_size(rows)]}),
        "tags": keywords(record),
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
