"""One-shot summaries: whose documents are read, what a unit can move, and what of the means is kept for going on."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.corpus.store import Corpus
from tasks.decoding.journal import Journal, ResumeState
from tasks.decoding.run_context import RunContext
from tasks.inference.engine.language_model import LanguageModel
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.systems import summaries
from tasks.systems.summaries import MEANS, OneShotParameters
from tasks.values.results import Generated
from tests.tiny_model import tiny_model
from tests.unit.tasks.systems.summaries.planted import adapter
from tests.unit.tasks.systems.summaries.summing import (
    FORM,
    GROUPS,
    UNITS,
    context,
    equal_but,
    kept,
    norms,
    notes,
    notes_with,
    one_thread,
    written,
)
from tests.unit.tasks.systems.summaries.test_one_shot import SYSTEM, _folder, make, plan_of, reviews, wanted
from tests.unit.tasks.systems.workshop import KEY, Step, Workshop
from tests.watched_journal import WatchedJournal

pytestmark = pytest.mark.dear

__all__ = ["_folder", "one_thread", "reviews"]  # fixtures


@pytest.mark.parametrize("centres", [1, 3])
def test_groups_that_nobody_wrote_in_have_texts_and_are_charged(tmp_path: Path, centres: int) -> None:
    empty = kept(tmp_path, [each | {"section": "elsewhere"} for each in notes()])
    workshop = Workshop(empty)
    made = make(workshop, wanted(adapter(centres=centres, words=1)), rng=OS_RANDOM)
    assert [text.tokens for text in made.texts] == [12] * 4
    assert ("arm", 0, 0) in workshop.seen


def test_a_form_holds_its_texts_too(reviews: Corpus) -> None:
    made = make(Workshop(reviews), wanted(form=FORM, slot_tokens=3, max_new_tokens=40), rng=OS_RANDOM, stops=True)
    assert all(text.complete and text.text.startswith("It is ") and text.text.endswith("!") for text in made.texts)


@pytest.mark.parametrize(("bound", "blocks", "shots"), [(1, 1, 1), (2, 3, 2), (3, 2, 1)])
def test_a_unit_has_at_most_m_rows_and_each_is_in_k_means(reviews: Corpus, bound: int, blocks: int, shots: int) -> None:
    parameters = wanted(groups_per_unit=bound, shots=shots)
    diary = written(SYSTEM, parameters, plan_of(parameters, blocks), Workshop(reviews, blocks))
    groups = [len({n["section"] for n in notes() if n["patient_id"] == f"u{unit}"}) for unit in range(UNITS)]
    assert sum(len(rows) for rows in diary.rows) == shots * sum(min(bound, each) for each in groups)
    assert len(diary.sums) == shots * len(GROUPS)


@pytest.mark.parametrize("change", ["replaced", "lengthened", "removed", "first"])
@pytest.mark.parametrize(("bound", "shots", "centres"), [(1, 1, 1), (2, 2, 3)])
def test_one_unit_changes_its_own_contribution_and_nothing_else(
    reviews: Corpus, tmp_path: Path, change: str, bound: int, shots: int, centres: int
) -> None:
    """Through the whole way: the exact sums of all other groups are the same to the last bit."""
    parameters = wanted(adapter(centres=centres), groups_per_unit=bound, shots=shots)
    plan = plan_of(parameters)
    other_corpus = kept(tmp_path, notes_with(change))
    one, other = (written(SYSTEM, parameters, plan, Workshop(each)) for each in (reviews, other_corpus))
    apart = equal_but(one.sums, other.sums)
    assert len(apart) == (0 if change == "first" else bound * shots)
    (mean,) = one.mechanisms
    for number, row in apart:
        distance = norms((one.sums[number] - other.sums[number])[row][None])[0]
        assert 0 < distance <= (mean.clip_steps * (1 if change == "removed" else 2)) ** 2
    armed = [[step for step in each.seen if isinstance(step, tuple)] for each in (one, other)]
    assert armed[0] == armed[1]
    changed_groups = {number // shots for number, _ in apart}
    texts = [[text.tokens for text in each.seen[-1].texts] for each in (one, other)]  # type: ignore[attr-defined]
    assert len(changed_groups) == (0 if change == "first" else bound)
    assert len(texts[0]) == len(texts[1]) == 4


@pytest.mark.parametrize("clip", ["0.01", "2.5", "90000"])
def test_no_row_is_longer_than_the_clip_norm_whatever_its_centre(reviews: Corpus, clip: str) -> None:
    parameters = wanted(adapter(centres=4), clip_norm=clip)
    diary = written(SYSTEM, parameters, plan_of(parameters), Workshop(reviews))
    (mean,) = diary.mechanisms
    squares = [square for rows in diary.rows for square in norms(rows)]
    assert max(squares) <= mean.clip_steps**2
    if clip == "0.01":
        assert min(squares) > (0.9999 * mean.clip_steps) ** 2
    blocks = torch.cat([rows.view(len(rows), 4, 6).abs().sum(2) for rows in diary.rows])
    assert (blocks > 0).sum(1).max() == 1  # one vector, in one block


def test_soft_tokens_are_the_average_of_the_shots(reviews: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    made = adapter()
    parameters = wanted(made, shots=3)
    tables: list[torch.Tensor] = []
    known = LanguageModel.with_soft_tokens
    monkeypatch.setattr(
        LanguageModel, "with_soft_tokens", lambda model, table: (tables.append(table), known(model, table))[1]
    )
    plan = plan_of(parameters)
    work = context(Workshop(reviews), model=tiny_model(stops=False))
    released: dict[str, str] = {}
    work = replace(work, journal=WatchedJournal(begin=lambda first, values: released.update(values)))
    SYSTEM.generate(plan, parameters, work)
    mean = NoisyMean.from_event(plan.invocations[0].event)
    noise = float(mean.sigma) / 4
    means = torch.tensor(np.frombuffer(base64.b64decode(released[MEANS]), "<f4").reshape(4, 3, 6))
    by_hand = torch.cat([torch.stack([made.soft_tokens(one, noise) for one in shots]).mean(0) for shots in means])
    assert torch.equal(tables[0], by_hand)
    assert not torch.equal(means[:, 0], means[:, 1])


# --- going on ----------------------------------------------------------------------------------------------------


class Killed(Exception):
    """What ends an attempt."""


@dataclass
class Ward:
    """A release across attempts: what is on disk, what is armed, what was read, and what the texts are made of."""

    folder: Path
    corpus: Corpus
    parameters: OneShotParameters
    seen: list[Step] = field(default_factory=list)
    means: list[torch.Tensor] = field(default_factory=list)
    attempts: int = 0

    def run(self, *, die: str = "", key: str = "tests") -> Generated:
        """One attempt; it dies before its means are written down, after that, or within the texts."""
        self.attempts += 1
        plan = plan_of(self.parameters)
        writing = summaries._writing

        def watched(adapter: Any, means: torch.Tensor, *rest: Any) -> Any:
            self.means.append(means.clone())
            if die == "writing":
                raise Killed
            return writing(adapter, means, *rest)

        with Journal(self.folder / "1-unfinished", 1) as journal, pytest.MonkeyPatch.context() as patch:
            patch.setattr(summaries, "_writing", watched)
            work = self._bench(journal, die)
            return SYSTEM.generate(plan, self.parameters, work)

    def _bench(self, journal: Journal, die: str) -> RunContext:
        journal.assign("d", self.attempts, KEY)
        found, earlier = journal.open(), ResumeState()
        if found is not None:
            assert found.first == 1  # all that is charged lies behind it: see flows.releases.resume
            earlier = ResumeState(found.released)
            journal.go_on()

        def begun(first: int, released: Mapping[str, str]) -> None:
            if die == "before":
                raise Killed
            journal.begin(first, released)
            if die == "after":
                raise Killed

        def drawn(*given: object) -> None:
            raise AssertionError("what costs nothing is not written down")

        def progress(what: str, done: int, total: int) -> None:
            if die == "texts" and what == "tokens" and done:
                raise Killed

        work = context(Workshop(self.corpus, seen=self.seen), rng=OS_RANDOM)
        return replace(work, earlier=earlier, journal=WatchedJournal(begun, drawn), progress=progress)


@pytest.fixture
def ward(reviews: Corpus, tmp_path: Path) -> Ward:
    return Ward(tmp_path, reviews, wanted(adapter(centres=2), shots=2))


def test_who_goes_on_has_the_same_means_and_pays_and_reads_nothing(ward: Ward) -> None:
    """Fresh noise would be another draw of the same means: an attempt that drew it would have to pay for it."""
    for die in ("after", "writing", "texts"):
        with pytest.raises(Killed):
            ward.run(die=die)
    made = ward.run()
    assert [text.tokens for text in made.texts] == [12] * 4
    assert [step[0] for step in ward.seen] == ["arm", "arm", "batches"]
    assert len(ward.means) == 3
    assert all(torch.equal(each, ward.means[0]) for each in ward.means)
    assert ward.means[0].shape == (4, 2, 12)


def test_killed_before_the_means_are_written_down_nothing_of_them_is_kept(ward: Ward) -> None:
    with pytest.raises(Killed):
        ward.run(die="before")
    assert ward.means == []
    with Journal(ward.folder / "1-unfinished", 1) as journal:
        assert journal.open() is None  # so the next attempt begins anew, and holds and pays anew
    ward.run()
    assert [step[0] for step in ward.seen] == ["arm", "arm", "batches"] * 2


def test_after_the_texts_are_written_they_are_written_anew_from_the_same_means(ward: Ward) -> None:
    ward.run()
    again = ward.run()
    assert [step[0] for step in ward.seen] == ["arm", "arm", "batches"]
    assert torch.equal(*ward.means)
    assert len(again.texts) == 4
