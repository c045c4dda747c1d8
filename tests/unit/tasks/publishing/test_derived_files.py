"""The generated files of a bundle: always the same, forged by nobody, and without a figure that nobody may see.

`golden/` holds what they are in the present format, of style sheets and scripts the digest. Before almoner is released,
`python -m tests.unit.tasks.publishing.test_derived_files` writes them again; afterwards other words are another format.
"""

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.common.files import FileTable, measure
from tasks.publishing.documents.parquet import parquet
from tasks.publishing.draft import MAKERS, derived_files, write_draft
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import CARD, DRAFT_FILES, PARQUET, TEXTS, drafted_files, text_line
from tasks.release.record import PublicContent, SecondOpinion
from tasks.values.results import MetricResult, ReleaseKind
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import TEXTS as TWO_TEXTS
from tests.unit.tasks.publishing.builders import Release, a_record, a_request
from tests.unit.tasks.publishing.forging import failed, failures, reseal

pytestmark = pytest.mark.contract

GOLDEN = Path(__file__).parent / "golden"
DATA: FileTable = {TEXTS: {"sha256": "11" * 32, "bytes": 75}, PARQUET: {"sha256": "22" * 32, "bytes": 572}}
ROWS = tuple((text, None) for text in TWO_TEXTS)
OF_TEXTS = [name for name in MAKERS if name in DRAFT_FILES]
OPINION = SecondOpinion(library="dp-accounting 0.6.0", accountant="RDP", epsilon="4.000083", delta="0.0000001")
LENGTH = MetricResult(
    "length", "public", {"texts": 2, "mean_words": "2.5"}, "counted", "words between spaces", "2 texts"
)
LEAK = MetricResult("leak", "internal", {"nearest": "0.731942"}, "s-731942", "m-731942", "l-731942")
DECLARED = {"name": "Visits", "licence": "CC-BY-4.0", "language": ["en"], "creators": ["The clinic"]}


def golden(text: str) -> str:
    """A file as it is kept: in place of what a style sheet or a script of a page says, the digest of that."""
    return re.sub(
        r"(?s)(<(style|script)>)(.*?)(</\2>)",
        lambda found: f"{found[1]}SHA-256: {hashlib.sha256(found[3].encode()).hexdigest()}{found[4]}",
        text,
    )


def release(*metrics: MetricResult, governed: bool = True) -> PublicContent:
    request = a_request(public_metadata=DECLARED, governed=governed)
    return PublicContent(a_record(request, second_opinion=OPINION), metrics, DATA, ROWS)


def test_every_generated_file_has_a_maker_and_is_approved() -> None:
    written = {"evaluation.json", "release.json", TEXTS, PARQUET}
    assert set(MAKERS) == set(drafted_files(ReleaseKind.INSIGHTS)) - written
    assert set(derived_files(release())) == set(OF_TEXTS) == set(DRAFT_FILES) - written


@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_file_is_what_it_was(name: str) -> None:
    assert golden(MAKERS[name](release(LENGTH))) == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_file_is_the_same_after_storage(name: str) -> None:
    before = release(LENGTH)
    record = type(before.record).from_bytes(before.record.to_bytes())
    stored = MetricResult.from_json(json.loads(json.dumps(LENGTH.to_json())))
    assert MAKERS[name](PublicContent(record, (stored,), DATA, ROWS)) == MAKERS[name](before)


# --- internal figures ----------------------------------------------------------------------------------------------


def test_no_internal_figure_of_governed_data_reaches_a_maker() -> None:
    """Every maker has one argument, and that cannot be made with such a figure in it."""
    for name, make in MAKERS.items():
        assert len(inspect.signature(make).parameters) == 1, name
    with refusal("UnpublishableMetric"):
        release(LENGTH, LEAK)
    with refusal("UnpublishableMetric"):
        replace(release(LENGTH), metrics=(LEAK,))


def test_no_file_of_a_draft_holds_an_internal_figure(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    with refusal("UnpublishableMetric"):
        write_draft(folder, a_record(), TWO_TEXTS, (LENGTH, LEAK))
    assert not folder.exists()
    write_draft(folder, a_record(), TWO_TEXTS, (LENGTH,))
    assert not [path.name for path in folder.iterdir() if b"731942" in path.read_bytes()]


def test_of_public_data_it_is_on_the_card_as_what_it_is() -> None:
    made = derived_files(release(LENGTH, LEAK, governed=False))
    assert b"| `leak` | internal | `nearest` | `0.731942` |" in made[CARD]
    assert [name for name, data in made.items() if b"0.731942" in data] == [CARD]


@pytest.mark.parametrize("name", OF_TEXTS)
def test_a_governed_bundle_with_an_internal_figure_is_found(folder: Path, new_key: Callable, name: str) -> None:  # type: ignore[type-arg]
    stored = json.loads((folder / "evaluation.json").read_text())
    stored["metrics"].append(LEAK.to_json())
    (folder / "evaluation.json").write_text(json.dumps(stored, sort_keys=True, separators=(",", ":")) + "\n")
    reseal(folder, new_key("forger"))
    check = "card" if name == CARD else name
    assert {"measurements", check} <= failed(verify_release(folder))


# --- forgeries: stewards approve them, and the publisher's own key signs them ---------------------------------------

FORGERIES: dict[str, tuple[str, Callable[[bytes], bytes], set[str]]] = {
    "a smaller epsilon in the checklist": ("checklist.md", lambda d: d.replace(b"| 4. Any", b"| 1. Any"), set()),
    "an answer for an open question": ("checklist.md", lambda d: d.replace(b"Unknown here.", b"With consent."), set()),
    "a smaller epsilon for machines": (
        "croissant.json",
        lambda d: d.replace(b'epsilon": "4"', b'epsilon": "1"'),
        set(),
    ),
    "a claim of consent": (
        "croissant.json",
        lambda d: d.replace(b'"version"', b'"rai:consent": "all", "version"'),
        set(),
    ),
    "other spaces": ("croissant.json", lambda d: d.replace(b"  ", b" "), set()),
    "a smaller epsilon in the registry": (
        "deployment.yaml",
        lambda d: d.replace(b"epsilon: 4\n", b"epsilon: 1\n"),
        set(),
    ),
    "a number of units": (
        "deployment.yaml",
        lambda d: d.replace(b"  privacy_loss:\n", b"  privacy_loss:\n    number_of_privacy_units: 154\n"),
        set(),
    ),
    "one line more": ("deployment.yaml", lambda d: d + b"# approved by the registry\n", set()),
    "other rows": (
        PARQUET,
        lambda _: parquet([text_line("synthetic_corpus", 1, "real text", None)], "synthetic_corpus", labelled=False),
        {"columns", "croissant.json"},
    ),
    "no Parquet": (PARQUET, lambda _: b"PAR1", {"columns", "croissant.json"}),
}


@pytest.mark.parametrize(("name", "change", "found_by"), FORGERIES.values(), ids=list(FORGERIES))
def test_the_publisher_cannot_write_another_file(
    make_release: Callable[..., Release],
    tmp_path: Path,
    name: str,
    change: Callable[[bytes], bytes],
    found_by: set[str],
) -> None:
    made = make_release()
    honest = (made.draft / name).read_bytes()
    assert change(honest) != honest
    (made.draft / name).write_bytes(change(honest))
    files = {each: measure(made.draft / each) for each in DRAFT_FILES}
    assert failures(made.decided_again(made.draft, files), tmp_path / "out") == (found_by or {name})


if __name__ == "__main__":
    for each, content in derived_files(release(LENGTH)).items():
        (GOLDEN / each).write_text(golden(content.decode()))
