"""A unit has one vote, whatever it wrote and however often, and nobody else's vote depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.corpus.store import SHARDS, Corpus
from tasks.decoding import run_context
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.systems.private_evolution.run import VoteHistogram
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.electing import Note, corpus_of, note
from tests.unit.tasks.systems.workshop import Workshop

PUBLIC = ["aaaa", "oooo", "uuuu"]
LABELS = ("x", "y")


def counts(
    corpus: Any, candidates: Sequence[Sequence[str]], labels: Sequence[str] = (), embed: Any = None, blocks: int = 1
) -> list[int]:
    embed = embed or Letters()
    context = Workshop(corpus, blocks).context()
    public = [points_of(embed, own) for own in candidates]
    return VoteHistogram(context, range(blocks), labels, embed).voters.counts(public)


def without_labels(folder: Path, texts: Sequence[str]) -> Corpus:
    return corpus_of(folder, [note(f"unit {number}", text) for number, text in enumerate(texts)])


def test_every_unit_votes_for_its_nearest_candidate(tmp_path: Path) -> None:
    corpus = without_labels(tmp_path, ["aaab", "aaac", "ooou", "uuuuuo", "aoooooo"])
    assert counts(corpus, [PUBLIC]) == [2, 2, 1]
    assert counts(corpus, [PUBLIC], blocks=3) == [2, 2, 1]


def test_a_unit_with_many_documents_votes_once(tmp_path: Path) -> None:
    notes = [note("one", "aaaa"), note("one", "aaab"), *[note("other", "oooo")] * 50]
    assert counts(corpus_of(tmp_path, notes), [PUBLIC]) == [1, 1, 0]


def test_a_unit_with_many_labels_votes_under_one_of_them(tmp_path: Path) -> None:
    notes = [note(f"unit {number}", "aaaa", label) for number in range(40) for label in (*LABELS, "unknown")]
    found = counts(corpus_of(tmp_path, notes), [PUBLIC, PUBLIC], LABELS)
    assert sum(found) == 40
    assert found[0] > 5 < found[3]  # and which one is a matter of its own key
    assert found[0] + found[3] == 40


def test_only_documents_of_that_label_decide(tmp_path: Path) -> None:
    notes = [note("one", "aaaa", "x"), *[note("one", "oooo", "unknown")] * 9]
    assert counts(corpus_of(tmp_path, notes), [PUBLIC, PUBLIC], LABELS) == [1, 0, 0, 0, 0, 0]


def test_a_unit_without_a_declared_label_has_no_vote_and_a_label_without_units_no_votes(tmp_path: Path) -> None:
    notes = [note("one", "aaaa", "unknown"), note("two", "oooo", "y"), note("three", "aaaa")]
    assert counts(corpus_of(tmp_path, notes), [PUBLIC, PUBLIC], LABELS) == [0, 0, 0, 0, 1, 0]


def everybody() -> list[Note]:
    texts = ["aaab", "oou", "uuo", "aou", "zzz", "a", "9", "77", "eiao"]
    return [
        note(f"unit {number}", text + extra, label)
        for number, text in enumerate(texts)
        for extra, label in (("", LABELS[number % 2]), ("o" * number, LABELS[0]))
    ]


@pytest.mark.parametrize("gone", range(9))
def test_a_unit_more_or_less_moves_one_count_by_one_at_most(tmp_path: Path, gone: int) -> None:
    """Also with candidates that are equally near, and with labels of which it has two."""
    candidates = [["aa", "oo", "oo", ""], ["uu", "aa", "aa", "i"]]
    notes = everybody()
    every = np.array(counts(corpus_of(tmp_path / "all", notes), candidates, LABELS))
    others = [each for each in notes if each["patient_id"] != f"unit {gone}"]
    moved = every - np.array(counts(corpus_of(tmp_path / "less", others), candidates, LABELS))
    assert moved.min() >= 0
    assert moved.sum() <= 1


def test_of_equally_near_candidates_the_first_has_the_vote(tmp_path: Path) -> None:
    corpus = without_labels(tmp_path, ["aaaa", "ao", "oooo"])
    assert counts(corpus, [["same"] * 4]) == [3, 0, 0, 0]
    assert counts(corpus, [["a", "o"]]) == [2, 1]


def test_an_empty_candidate_is_one(tmp_path: Path) -> None:
    corpus = without_labels(tmp_path, ["aaaa", "oooo", "9999"])
    # Nothing but figures is, in letters, nothing: its point is the empty text's.
    assert counts(corpus, [["", "oooo"]]) == [1, 1]
    assert counts(corpus, [["", ""]]) == [2, 0]


@pytest.mark.parametrize("labels", [(), LABELS])
def test_votes_are_the_same_however_many_units_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: Sequence[str]
) -> None:
    corpus = corpus_of(tmp_path, [note(f"unit {n}", "aeiou"[n % 5] * (1 + n % 3), LABELS[n % 2]) for n in range(40)])
    context = Workshop(corpus, 2).context()
    together = VoteHistogram(context, [1, 0], labels, Letters()).voters
    monkeypatch.setattr(run_context, "lots", partial(run_context.lots, least=7))
    apart = VoteHistogram(context, [1, 0], labels, Letters()).voters
    assert len(together.label) == 40
    assert np.array_equal(together.label, apart.label)
    assert together.points.steps.tobytes() == apart.points.steps.tobytes()
    assert np.array_equal(together.points.usable, apart.points.usable)


def test_without_units_nobody_votes() -> None:
    @dataclass(frozen=True)
    class Nobody:
        def each_shard(self, scheme: Any, name: str, blocks: Any, labels: Any = ()) -> Any:
            return iter([[]] * SHARDS)

    assert counts(Nobody(), [PUBLIC]) == [0, 0, 0]
    assert counts(Nobody(), [PUBLIC, PUBLIC], LABELS) == [0] * 6


class Stumbling(Letters):
    """Makes nothing of some texts."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = super().__call__(texts)
        rows[[index for index, text in enumerate(texts) if "nan" in text]] = np.nan
        rows[[index for index, text in enumerate(texts) if "zero" in text]] = 0.0
        return rows


def test_units_that_cannot_be_embedded_have_no_vote_and_disturb_nobody(tmp_path: Path) -> None:
    corpus = without_labels(tmp_path, ["aaaa", "nan aaaa", "zero oooo", "oooo", "\x00<|end|> aaaa \u2028"])
    assert counts(corpus, [PUBLIC], embed=Stumbling()) == [2, 1, 0]


def test_each_unit_is_embedded_by_itself_once_and_not_before_it_is_asked_for(tmp_path: Path) -> None:
    embed = Letters()
    workshop = Workshop(without_labels(tmp_path, ["aaaa", "oooo", "oooo"]))
    told: list[tuple[str, int, int]] = []
    context = replace(workshop.context(), progress=lambda *said: told.append(said))
    electorate = VoteHistogram(context, [0], (), embed)
    assert workshop.seen == embed.asked == []
    for _ in range(3):
        assert electorate.voters.counts([points_of(Letters(), PUBLIC)]) == [1, 2, 0]
    assert len(workshop.seen) == 1
    assert sorted(text for text in embed.asked if text) == ["aaaa", "oooo", "oooo"]
    assert {total for _, _, total in told} == {10}  # tenths: how many units there are is told to nobody
