"""Expected keywords: what is said before a selection is paid for, and that its figures are the measured ones."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

from tasks.analysis.keywords.expected_keywords import EXPECTED, MEASURED, expected_keywords, kind_of, nearest
from tests.unit.tasks.analysis.keywords.test_keyword_set import SMALL, set_for

FIGURES = Path(__file__).resolve().parents[5] / "docs" / "figures" / "keyword_selection.jsonl"


def test_what_to_expect_follows_from_the_declared_units() -> None:
    selecting = set_for(SMALL, method="model").selecting
    needed = selecting.selection.even_count()
    (unknown,) = expected_keywords(selecting, None).values()
    assert unknown.startswith("unknown")
    said = {
        population: expected_keywords(selecting, population)[EXPECTED]
        for population in (needed - 1, needed, 10 * needed - 1, 10 * needed, 1000 * needed)
    }
    assert [text.split(" ", 1)[0].rstrip(":") for text in said.values()] == ["none", "next", "next", "those", "those"]
    assert said[needed].startswith(f"next to none: a keyword needs 100 % of the declared {needed} units")
    assert said[1000 * needed] == (
        f"those that 0.1 % of the declared {1000 * needed} units or more propose; where 0.6 % were needed, releases"
        " had 28 keywords (public chats) and 29 (Yelp reviews)"
    )
    assert expected_keywords(None, 10) == {}


def test_the_numbers_are_those_of_the_measured_releases() -> None:
    """Of each share the mean over releases, and of the two corpora's shares the mean."""
    shares, released = defaultdict(list), defaultdict(list)
    for line in map(json.loads, FIGURES.read_text().splitlines()):
        cell = line["method"], line["selection"], line["epsilon"]
        shares[cell].append(100 * line["even_count"] / line["units"])
        released[*cell, line["corpus"]].append(line["released"])
    found = {
        (method, kind): [
            (round(mean(shares[cell]), 1), *(round(mean(released[*cell, corpus])) for corpus in ("chats", "yelp")))
            for cell in sorted(shares, key=lambda cell: mean(shares[cell]))
            if cell[:2] == (method, kind)
        ]
        for method, kind in MEASURED
    }
    assert found == {key: [(one.share, one.chats, one.reviews) for one in rows] for key, rows in MEASURED.items()}


@pytest.mark.parametrize("method", ["model", "tfidf"])
@pytest.mark.parametrize("kind", ["gaussian", "weighted", "truncated_geometric"])
@pytest.mark.parametrize(("percent", "place"), [(0.01, 0), (3.4, 1), (9.9, 2)])
def test_the_nearest_share_of_the_same_selection_is_quoted(method: str, kind: str, percent: float, place: int) -> None:
    selecting = set_for(SMALL, method=method, selection=kind).selecting
    assert kind_of(selecting) == kind
    rows = MEASURED[method, kind]
    expected = place if kind == "truncated_geometric" else min(2 * place, 2)
    assert nearest(selecting, percent) == rows[expected]
