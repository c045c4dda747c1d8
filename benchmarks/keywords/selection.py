"""Keywords that two kinds of selection release from public corpora, at the same rho and the same delta.

    python -m benchmarks.keywords.selection --to docs/figures/keyword_selection.jsonl   every release, and the table
    python -m benchmarks.keywords.selection --from docs/figures/keyword_selection.jsonl the table of docs/keywords.md

A unit is one text; its candidates are its own words by TF-IDF, or its key phrases (RAKE). A release has a quarter of a
claim's rho and a tenth of its delta, as a request of insights has by default, and is drawn five times. The control is
how many candidates at least ten units propose before any noise, by the same rule without a noisy table: a number that
no private selection can know.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.common.json_lines import DATA, read_lines, write_lines
from benchmarks.insights.data import chats
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.requests import parse_model
from tasks.accounting.zcdp import rho_of
from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor, rake
from tasks.analysis.keywords.keyword_set import KeywordSet, keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.values.insight import Facets

CLAIMS = (("1", "1e-6"), ("4", "1e-7"), ("8", "1e-6"))
KINDS = ("truncated_geometric", "gaussian")
METHODS = ("tfidf", "model")
SHARE, DELTA_SHARE = Fraction(1, 4), Fraction(1, 10)
TRIALS = 5
COMMON = 10
"""Units of the control."""


class Wallet:
    """A budget that pays whatever is asked: the corpora are public."""

    def release(self, numbers: int | Sequence[int], prepare: Callable[[], Any], draw: Callable[[Any], Any]) -> Any:
        """Draw at once."""
        return draw(prepare())


def corpora() -> dict[str, list[str]]:
    """Texts by the name of their corpus."""
    return {
        "chats": [unit.text for unit in chats()],
        "yelp": [line["text"] for line in read_lines(DATA / "yelp.jsonl")],
    }


def amount_of(epsilon: str, delta: str) -> Amount:
    """What a keyword set gets of a claim."""
    return Amount(int(rho_of(epsilon, delta) * SHARE), int(Fraction(delta) * DELTA_SHARE * DELTA_UNIT))


def releases(texts: Sequence[str], corpus: str) -> Iterator[dict[str, Any]]:
    """Every release from one corpus."""
    facets = RuleBasedExtractor(FacetSettings(), rake)(texts)
    common = {method: common_candidates(method, facets) for method in METHODS}
    for epsilon, delta in CLAIMS:
        for method in METHODS:
            for kind in KINDS:
                written = {"method": method, "selection": kind, "size": 2000}
                settings = parse_model(KeywordSettings, written, "`keywords`")
                planned = keyword_set_for(settings, amount_of(epsilon, delta))
                for trial in range(TRIALS):
                    released = planned.draw(Wallet(), lambda: facets, OS_RANDOM)
                    yield {
                        "corpus": corpus, "units": len(texts), "epsilon": epsilon, "delta": delta, "method": method,
                        "selection": kind, "trial": trial, "even_count": even_count(planned),
                        "released": len(released), "common": common[method],
                    }  # fmt: skip


def common_candidates(method: str, facets: Sequence[Facets]) -> int:
    """How many candidates at least ten units propose, with so large a budget that there is hardly any noise."""
    settings = parse_model(KeywordSettings, {"method": method}, "`keywords`")
    selecting = keyword_set_for(settings, Amount(10**17, 10**17)).selecting
    if selecting is None:
        raise ValueError(f"{method} selects nothing")
    candidates = selecting.proposing.prepare(facets, OS_RANDOM)()
    shared = Counter(candidate for unit in candidates for candidate in unit)
    return sum(units >= COMMON for units in shared.values())


def even_count(planned: KeywordSet) -> int:
    """How many units release a keyword as likely as not."""
    return planned.selecting.selection.even_count() if planned.selecting else 0


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of docs/keywords.md: means with standard deviations over the draws."""
    lines = [
        "| corpus | method | claim | units for an even chance | keywords released | in common |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for corpus, method, epsilon in dict.fromkeys((row["corpus"], row["method"], row["epsilon"]) for row in rows):
        cell = [row for row in rows if (row["corpus"], row["method"], row["epsilon"]) == (corpus, method, epsilon)]
        kinds = [[row for row in cell if row["selection"] == kind] for kind in KINDS]
        needed = " -> ".join(str(kind[0]["even_count"]) for kind in kinds)
        released = " -> ".join(_spread([row["released"] for row in kind]) for kind in kinds)
        name = f"{corpus}, {cell[0]['units']:,} units"
        lines.append(
            f"| {name} | `{method}` | ({epsilon}, {cell[0]['delta']}) | {needed} | {released} | {cell[0]['common']} |"
        )
    return lines


def _spread(values: Sequence[int]) -> str:
    return f"{mean(values):.0f} +- {stdev(values):.1f}"


def main() -> None:
    """Draw, or read what was drawn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--from", type=Path, dest="source")
    options = parser.parse_args()
    if options.source:
        rows = read_lines(options.source)
    else:
        rows = [row for name, texts in corpora().items() for row in releases(texts, name)]
    if options.to:
        write_lines(options.to, rows)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
