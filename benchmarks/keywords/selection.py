"""Keywords that kinds of selection release from public corpora, at the same rho and the same delta.

    python -m benchmarks.keywords.selection --to docs/figures/keyword_selection.jsonl   draw what is missing
    python -m benchmarks.keywords.selection --from docs/figures/keyword_selection.jsonl the tables of docs/keywords.md

A unit is one text; its candidates are its own words by TF-IDF, or its key phrases (RAKE). A release has a quarter of a
claim's rho and a tenth of its delta, as a request of insights has by default, and is drawn five times. The control is
how many candidates at least ten units propose before any noise, by the same rule without a noisy table: a number that
no private selection can know.

Of single words a release also keeps in how many units its keywords really are, sorted: `shared`. Weighted rounds
(k = 10, rounds 1 : 4) were chosen on `--dev`, agnews and dbpedia14, which the tables do not report.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.common.json_lines import DATA, append_lines, read_lines, read_lines_if_there
from benchmarks.insights.data import chats
from models_db.values.amounts import DELTA_UNIT, Amount
from models_db.values.requests import parse_model
from tasks.accounting.zcdp import rho_of
from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor
from tasks.analysis.keywords.keyword_set import KeywordSet, keyword_set_for
from tasks.analysis.keywords.parameters import KeywordSettings
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.text.keyword_normalisation import tokens_of
from tasks.values.insight import Facets

CLAIMS = (("1", "1e-6"), ("4", "1e-7"), ("8", "1e-6"))
KINDS = ("truncated_geometric", "gaussian", "weighted")
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


def corpora(dev: bool = False) -> dict[str, list[str]]:
    """Texts by the name of their corpus."""
    if dev:
        return {name: [line["text"] for line in read_lines(DATA / f"{name}.jsonl")] for name in ("agnews", "dbpedia14")}
    return {
        "chats": [unit.text for unit in chats()],
        "yelp": [line["text"] for line in read_lines(DATA / "yelp.jsonl")],
    }


def amount_of(epsilon: str, delta: str) -> Amount:
    """What a keyword set gets of a claim."""
    return Amount(int(rho_of(epsilon, delta) * SHARE), int(Fraction(delta) * DELTA_SHARE * DELTA_UNIT))


def releases(texts: Sequence[str], corpus: str, known: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every release from one corpus that is not known."""
    facets = RuleBasedExtractor(FacetSettings())(texts)
    common = {method: common_candidates(method, facets) for method in METHODS}
    frequency = Counter(word for unit in facets for word in tokens_of(unit.text))
    there = {_place(row) for row in known}
    for trial, (epsilon, delta), method, kind in product(range(TRIALS), CLAIMS, METHODS, KINDS):
        place = {
            "corpus": corpus, "units": len(texts), "epsilon": epsilon, "delta": delta, "method": method,
            "selection": kind, "trial": trial,
        }  # fmt: skip
        if _place(place) in there:
            continue
        settings = parse_model(KeywordSettings, {"method": method, "selection": kind, "size": 2000}, "`keywords`")
        planned = keyword_set_for(settings, amount_of(epsilon, delta))
        released = planned.draw(Wallet(), lambda: facets, OS_RANDOM)
        shared = {"shared": sorted(frequency[word] for word in released)} if method == "tfidf" else {}
        yield place | {
            "even_count": even_count(planned), "released": len(released), "common": common[method], **shared,
        }  # fmt: skip


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("corpus", "epsilon", "method", "selection", "trial"))


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
    for corpus, method, epsilon, cell in _cells(rows):
        kinds = [[row for row in cell if row["selection"] == kind] for kind in KINDS]
        needed = " -> ".join(str(kind[0]["even_count"]) for kind in kinds)
        released = " -> ".join(with_deviation([row["released"] for row in kind]) for kind in kinds)
        name = f"{corpus}, {cell[0]['units']:,} units"
        lines.append(
            f"| {name} | `{method}` | ({epsilon}, {cell[0]['delta']}) | {needed} | {released} | {cell[0]['common']} |"
        )
    return lines


def gains_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What weighted rounds release beside Gaussian counts, and of how many units those keywords are."""
    lines = [
        "| corpus | method | claim | difference | times as many | units of a keyword, median | of ten units or more |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for corpus, method, epsilon, cell in _cells(rows):
        before, after = ([row for row in cell if row["selection"] == kind] for kind in KINDS[1:])
        counts = [[row["released"] for row in kind] for kind in (before, after)]
        if not any(map(any, counts)):
            continue
        low, middle, high = difference_in_means(counts[1], counts[0])
        factor = f"{mean(counts[1]) / mean(counts[0]):.2f}" if any(counts[0]) else ""
        shared = [[number for row in kind for number in row.get("shared", ())] for kind in (before, after)]
        medians = " -> ".join(f"{median(own):.0f}" if own else "-" for own in shared) if method == "tfidf" else ""
        enough = [f"{sum(number >= COMMON for number in own) / len(own):.3f}" if own else "-" for own in shared]
        precision = " -> ".join(enough) if method == "tfidf" else ""
        lines.append(
            f"| {corpus} | `{method}` | ({epsilon}, {cell[0]['delta']}) | {middle:.1f} [{low:.1f}, {high:.1f}] "
            f"| {factor} | {medians} | {precision} |"
        )
    return lines


def difference_in_means(after: Sequence[int], before: Sequence[int]) -> tuple[float, float, float]:
    """Return Welch's 95 % interval of the difference of two means, with the difference in the middle."""
    from scipy.stats import ttest_ind

    middle = mean(after) - mean(before)
    if len({*after}) == len({*before}) == 1:
        return middle, middle, middle
    ends = ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    return float(ends.low), middle, float(ends.high)


def _cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, list[Mapping[str, Any]]]]:
    for place in dict.fromkeys((row["corpus"], row["method"], row["epsilon"]) for row in rows):
        yield *place, [row for row in rows if (row["corpus"], row["method"], row["epsilon"]) == place]


def with_deviation(values: Sequence[int]) -> str:
    """Return the mean of some draws and their standard deviation, as the tables have them."""
    return f"{mean(values):.0f} +- {stdev(values):.1f}"


def main() -> None:
    """Draw, or read what was drawn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="JSON lines; what is there is not drawn again")
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--dev", action="store_true", help="the corpora on which settings were chosen")
    options = parser.parse_args()
    if not options.source:
        if options.to is None:
            parser.error("--to is needed to draw")
        for name, texts in corpora(options.dev).items():
            for row in releases(texts, name, read_lines_if_there(options.to)):
                append_lines(options.to, [row])
    rows = read_lines(options.source or options.to)
    print("\n".join([*table(rows), "", *gains_table(rows)]))


if __name__ == "__main__":
    main()
