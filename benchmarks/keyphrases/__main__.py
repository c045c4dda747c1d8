"""When iterative sequences win: phrases of units whose phrases are correlated as was planted, or as in corpora.

    python -m benchmarks.keyphrases --out docs/figures/phrase_correlations.jsonl
    python -m benchmarks.keyphrases --out docs/figures/phrase_correlations.jsonl --corpora agnews dbpedia14
    python -m benchmarks.keyphrases --out docs/figures/phrase_correlations.jsonl --table  # and figure

What a cell is and what is told of it: `correlations`.
"""

import argparse
from pathlib import Path

from benchmarks.keyphrases.correlations import measure


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.keyphrases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--trials", type=int, nargs=2, default=(0, 5), help="the first, and the one behind the last")
    parser.add_argument("--corpora", nargs="+", default=[], help="measure these in place of what is planted")
    parser.add_argument("--table", action="store_true", help="print the tables and draw the figure of what is there")
    asked = parser.parse_args()
    if asked.table:
        from benchmarks.keyphrases.tables import told  # matplotlib takes its time

        return told(asked.out)
    if asked.corpora:
        from benchmarks.keyphrases.corpora import measure_corpora  # an embedder too

        return measure_corpora(asked.corpora, asked.out, range(*asked.trials))
    return measure(asked.out, range(*asked.trials))


if __name__ == "__main__":
    main()
