"""Keywords that a request's own selection releases, by the rho of the set and by the settings of `tfidf`.

    python -m benchmarks.keywords.rho_sweep           # draws what docs/figures/keyword_rho.jsonl does not have; minutes
    python -m benchmarks.keywords.rho_sweep --table   # the table of docs/keywords.md

A unit is one text, facets are RAKE's, the set's delta is 1e-7 and all of it is for the selection. Each release is drawn
five times. The control is what at least ten units propose before any noise (`keywords/selection.py`): a number that no
private selection can know. `most_shared` is how many units the commonest word is in, of those that may be keywords.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common.figures_parser import figures_parser
from benchmarks.common.intervals import written
from benchmarks.common.json_lines import append_lines, read_lines, read_lines_if_there
from benchmarks.keywords.selection import (
    METHODS,
    Wallet,
    common_candidates,
    corpora,
    difference_in_means,
    even_count,
    with_deviation,
)
from models_db.values.amounts import DELTA_UNIT, RHO_UNIT, Amount
from models_db.values.requests import parse_model
from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor
from tasks.analysis.keywords.keyword_set import keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.text.keyword_normalisation import tokens_of

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "keyword_rho.jsonl"
RHOS = ("0.05", "0.2", "1")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "tfidf": {"method": "tfidf"},
    "tfidf, k = 3": {"method": "tfidf", "per_unit": 3},
    "tfidf, rare words too": {"method": "tfidf", "only_common": False},
    "model": {"method": "model"},
}
"""With rare words, units propose as in the paper; selections are the default ones."""
DELTA = DELTA_UNIT // 10**7
TRIALS = 5


def main() -> None:
    arguments = figures_parser(__doc__, OUT).parse_args()
    if not arguments.table:
        for name, texts in {**corpora(), **corpora(dev=True)}.items():
            append_lines(arguments.out, releases(texts, name, read_lines_if_there(arguments.out)))
    print("\n".join(table(read_lines(arguments.out))))


def releases(texts: Sequence[str], corpus: str, known: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield every release from one corpus that is not known."""
    there = {(row["corpus"], row["rho"], row["setting"], row["trial"]) for row in known}
    missing = [place for place in product(RHOS, SETTINGS, range(TRIALS)) if (corpus, *place) not in there]
    if not missing:
        return
    facets = RuleBasedExtractor(FacetSettings())(texts)
    common = {method: common_candidates(method, facets) for method in METHODS}
    frequency = Counter(word for unit in facets for word in tokens_of(unit.text))
    most_shared = max(frequency.values(), default=0)
    for rho, setting, trial in missing:
        settings = parse_model(KeywordSettings, {**SETTINGS[setting], "size": 2000}, "`keywords`")
        planned = keyword_set_for(settings, Amount(int(float(rho) * RHO_UNIT), DELTA))
        released = len(planned.draw(Wallet(), lambda: facets, OS_RANDOM))
        yield {
            "corpus": corpus, "units": len(texts), "rho": rho, "setting": setting, "trial": trial,
            "even_count": even_count(planned), "released": released, "common": common[settings.method],
            "most_shared": most_shared,
        }  # fmt: skip


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield Markdown, a row for each corpus and rho: mean keywords and the standard deviation of the draws.

    The last but one column is what the default has more than with k = 3, with Welch's 95 % interval over the draws.
    """
    default, few = list(SETTINGS)[:2]
    heads = ("corpus", "rho", "half of the time at", *map(_title, SETTINGS), f"`{default}` less k = 3", "in common")
    yield f"| {' | '.join(heads)} |"
    yield "|" + " --- |" * len(heads)
    for corpus, rho in dict.fromkeys((row["corpus"], row["rho"]) for row in rows):
        own = [row for row in rows if (row["corpus"], row["rho"]) == (corpus, rho)]
        by = {setting: [row for row in own if row["setting"] == setting] for setting in SETTINGS}
        draws = {setting: [row["released"] for row in some] for setting, some in by.items()}
        low, middle, high = difference_in_means(draws[default], draws[few])
        common = ", ".join(str(by[name][0]["common"]) for name in METHODS)
        place = f"{corpus}, {own[0]['units']:,} units | {rho} | {by[default][0]['even_count']} units"
        cells = (*map(with_deviation, draws.values()), written((middle, low, high), 1), common)
        yield f"| {place} | {' | '.join(cells)} |"


def _title(setting: str) -> str:
    method, comma, rest = setting.partition(",")
    return f"`{method}`{comma}{rest}"


if __name__ == "__main__":
    main()
