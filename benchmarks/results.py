"""All tables and figures of the results pages, written again from the data in docs/figures.

    python -m benchmarks.results             # writes every table and figure; `make results`
    python -m benchmarks.results --check     # writes nothing; names what differs, and ends with 1

Tables stand in marked regions of the pages (`common/regions.py`). No model and no corpus is read. A benchmark writes
its data to docs/figures, and then this command the pages.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import random_allocation, records, rehearsals
from benchmarks.common.json_lines import read_lines
from benchmarks.common.plotting import STYLE, plt, save
from benchmarks.common.regions import RegionError, body, filled, regions, transcribed_tables
from benchmarks.external_models import figures as api_figures
from benchmarks.external_models.tables import at_epsilon
from benchmarks.gpu.reports import tables as gpu_tables
from benchmarks.in_context import accuracy as in_context
from benchmarks.insights import questions, truthfulness
from benchmarks.insights import tables as insights_tables
from benchmarks.invented_facts import worlds as facts
from benchmarks.reproductions import email_extraction
from benchmarks.secret_assignment import audits as secret_assignment_audits
from benchmarks.summaries import controls as summaries_controls
from benchmarks.summaries import tables as summaries_tables
from benchmarks.utility import ablation, next_tokens
from benchmarks.utility import figures as utility_figures
from benchmarks.utility.systems import AMIN, ICL, INK, PAPER, PUBLIC, SINGLE
from benchmarks.utility.texts import NOTES

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES, TRANSCRIBED = DOCS / "figures", DOCS / "figures" / "transcribed"

Rows = Callable[[], Iterable[str]]


@cache
def lines(name: str) -> Sequence[Any]:
    """All lines of a file of docs/figures."""
    return read_lines(FIGURES / f"{name}.jsonl")


def rehearsed_library() -> Sequence[Any]:
    """All lines of the library of rehearsals, which plans read too."""
    path = DOCS.parent / "tasks" / "pricing" / "rehearsed_shares.jsonl"
    return read_lines(path)


@cache
def measured(name: str) -> Sequence[next_tokens.Measured]:
    """Results along real texts."""
    return next_tokens.read_results(FIGURES / f"{name}.jsonl")


TABLES: Mapping[str, Mapping[str, Rows]] = {
    "api-results": {
        "accuracy": lambda: at_epsilon(
            lines("api"), "6", {"agnews": "AG News", "dbpedia14": "DBpedia", "mts_dialog": "mts_dialog"}
        ),
    },
    "attacks": {
        "emails": lambda: email_extraction.table(lines("email_extraction")),
    },
    "in-context": {
        "calibrated": lambda: in_context.table(lines("in_context"), "calibrated"),
    },
    "gpu": {
        "passed": lambda: gpu_tables.isolation_table(lines("gpu")),
        "speed": lambda: gpu_tables.speed_table(lines("gpu")),
    },
    "insights-results": {
        "levels": lambda: insights_tables.levels_table(lines("insights")),
        "truthfulness": lambda: truthfulness.table([line for line in lines("insights_truth") if not line["level"]]),
        "questions": lambda: questions.table(
            [line for line in lines("insights_questions") if line["rule"] != "keywords, first"]
        ),
        "leakage": lambda: insights_tables.leakage_rows([each for each in lines("insights") if "leakage" in each]),
    },
    "planning": {
        "rehearsed": lambda: rehearsals.table(rehearsed_library()),
    },
    "proofs/secret-assignment": {
        "add-bound": random_allocation.account_table,
        "release-audits": lambda: secret_assignment_audits.table(lines("secret_assignment_audits")),
    },
    "records": {
        "films": lambda: records.table([*lines("records_films"), *lines("records_content")]),
        "content": lambda: records.content_table(lines("records_content")),
        "systems": lambda: records.table(lines("records_systems")),
    },
    "summaries-results": {
        "scores": lambda: summaries_tables.short_table(summaries_tables.gathered(lines("summaries"))),
        "own-and-others": lambda: summaries_controls.table(
            [line for line in lines("summaries_controls") if line["epsilon"] in (None, "120")]
        ),
    },
    "utility": {
        "kl": lambda: next_tokens.systems_table(
            measured("utility"), "kl", next_tokens.USUAL_CANDIDATES, (PUBLIC, SINGLE, INK, PAPER, AMIN, ICL)
        ),
        "coherence": lambda: ablation.coherence_table([line for line in lines("coherence") if line["data"] == NOTES]),
    },
    "options-results": {
        "drawn-wordings": lambda: ablation.wordings_table(lines("drawn_wordings")),
    },
    "facts": {
        "facts": lambda: facts.table([line for line in lines("facts") if line["system"] != "phrases of 2 words"]),
    },
}
"""Tables that are worked out from data, by page; those of `figures/transcribed` come beside them."""


def drawings() -> Iterator[tuple[str, Any]]:
    """Yield every figure of docs/figures with the name of its file."""
    yield "epsilon", utility_figures.draw({(found.data, found.setting): found for found in measured("utility")})
    yield "api_accuracy", api_figures.draw(lines("api"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and end with 1 if a page or figure differs"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of pages that are written or compared")
    arguments = parser.parse_args()
    found = [*pages(arguments.docs, write=not arguments.check), *figures(arguments.docs, write=not arguments.check)]
    print("\n".join(found) or "every table and figure is that of the data")
    sys.exit(1 if arguments.check and found else 0)


@cache
def tables_of(page: str) -> dict[str, list[str]]:
    """Return the rows of every table of a page."""
    path = TRANSCRIBED / f"{page}.jsonl"
    found = transcribed_tables(path) if path.exists() else {}
    return found | {name: list(rows()) for name, rows in TABLES.get(page, {}).items()}


def marked_pages() -> list[str]:
    """Return the names of the pages that have marked regions."""
    return sorted({*TABLES, *(path.stem for path in TRANSCRIBED.glob("*.jsonl"))})


def pages(docs: Path, *, write: bool) -> Iterator[str]:
    """Yield what differs, or cannot be written; with `write`, write it."""
    for name in marked_pages():
        path = docs / f"{name}.md"
        old, tables = path.read_text(encoding="utf-8"), tables_of(name)
        try:
            there, new = regions(old), filled(old, tables)
        except RegionError as error:
            yield f"docs/{name}.md: {error}"
            continue
        yield from (f"docs/{name}.md: table {each} differs" for each in tables if there[each] != body(tables[each]))
        if write and new != old:
            path.write_text(new, encoding="utf-8")


def figures(docs: Path, *, write: bool) -> Iterator[str]:
    """Yield the figures that differ; with `write`, write them."""
    with plt.rc_context(STYLE), tempfile.TemporaryDirectory() as folder:
        for name, figure in drawings():
            path, new = docs / "figures" / f"{name}.svg", Path(folder) / f"{name}.svg"
            save(figure, new)
            if not path.exists() or not alike(path.read_text(encoding="utf-8"), new.read_text(encoding="utf-8")):
                yield f"docs/figures/{name}.svg differs"
                if write:
                    path.write_bytes(new.read_bytes())


def alike(one: str, other: str) -> bool:
    """Return whether two drawings differ at most in the last digits that two processors may give.

    Ids that matplotlib makes of a path are compared by the order in which they come.
    """
    first, second = _with_short_ids(one), _with_short_ids(other)
    return _NUMBER.sub("x", first) == _NUMBER.sub("x", second) and all(
        abs(float(mine) - float(theirs)) < CLOSE
        for mine, theirs in zip(_NUMBER.findall(first), _NUMBER.findall(second), strict=True)
    )


CLOSE = 0.02
"""Of coordinates, in points."""
_ID, _NUMBER = re.compile(r"(?<=[#\"])[A-Za-z][0-9a-f]{10}(?![0-9a-f])"), re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def _with_short_ids(drawing: str) -> str:
    places: dict[str, str] = {}
    return _ID.sub(lambda found: places.setdefault(found[0], f"id{len(places)}"), drawing)


if __name__ == "__main__":
    main()
