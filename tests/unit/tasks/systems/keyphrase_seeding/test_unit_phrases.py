"""Units' phrases and vectors: their own whatever the others are, streamed, and zero where there is nothing."""

import itertools
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models_db.home import ProjectHome
from tasks.analysis.facets.extractor import extractor_for
from tasks.mechanisms.vectors.kde_sketch import FourierFeatures, calibrate_kde
from tasks.systems.keyphrase_seeding import phrases as unit_phrases
from tasks.systems.keyphrase_seeding.phrases import PhraseReader, facets_of
from tasks.systems.keyphrase_seeding.stages import KeyphraseParameters
from tests.tiny_embedder import Letters
from tests.unit.tasks.systems.workshop import Workshop, store

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/systems/keyphrase_seeding",)

KERNEL = FourierFeatures.of(27, 20, 1)
TOLD = ("The {} whistles and the copper kettle boils.", "I planted a ripe {} behind the old garage.")
NOTES = [
    {"patient_id": f"p{unit}", "text": TOLD[unit % 2].format(word), "ward": "ab"[unit % 2]}
    for unit, word in enumerate(["kettle", "tomato", "violin", "pumpkin", "radio", "zucchini"])
]


def reader(tmp_path: Path, notes: Iterable[dict[str, str]] = NOTES, **changes: Any) -> PhraseReader:
    wanted = KeyphraseParameters.model_validate({"samples": 4, "references": 6} | changes)
    folder = tmp_path / f"home{len(list(tmp_path.iterdir()))}"
    label = "ward" if wanted.labels else None
    corpus = store(ProjectHome(folder), tmp_path / f"{folder.name}.jsonl", notes, label)
    return PhraseReader(wanted, Workshop(corpus).context(), extractor_for(facets_of(wanted)), Letters())


def phrases(found: PhraseReader) -> list[tuple[str, ...]]:
    return [own for some in found.phrases() for own in some]


def added(found: PhraseReader) -> list[tuple[int, bytes]]:
    """What each unit adds, in no order."""
    chunks = found.vectors(KERNEL)
    return sorted(
        (int(label), row.tobytes()) for labels, rows in chunks for label, row in zip(labels, rows, strict=True)
    )


MODES = [
    {},
    {"ranked_by": "embedding"},
    {"sequences": "iterative", "phrases_per_text": 3},
    {"labels": ["a", "b"]},
]


@pytest.mark.parametrize("changes", MODES, ids=str)
def test_what_a_unit_adds_is_its_own_bit_for_bit(tmp_path, monkeypatch, changes):
    everybody = added(reader(tmp_path, **changes))
    assert len(everybody) == len(NOTES)
    for gone in range(0, len(NOTES), 2):
        left = added(reader(tmp_path, NOTES[:gone] + NOTES[gone + 1 :], **changes))
        alone = added(reader(tmp_path, [NOTES[gone]], **changes))
        assert sorted(left + alone) == everybody
    monkeypatch.setattr(unit_phrases, "UNITS_AT_ONCE", 2)
    assert added(reader(tmp_path, NOTES[::-1], **changes)) == everybody


def test_phrases_are_spelt_and_at_most_l(tmp_path):
    found = phrases(reader(tmp_path, phrases_per_unit=5))
    assert len(found) == len(NOTES)
    assert "copper kettle boils" not in found[0]  # two words at most
    assert all(1 <= len(own) == len(set(own)) <= 5 for own in found)
    assert all(phrase == phrase.casefold() for own in found for phrase in own)


def test_the_embedding_ranks_what_the_extractor_found(tmp_path):
    by_extractor, by_embedding = (
        phrases(reader(tmp_path, ranked_by=way, phrases_per_unit=20)) for way in ("extractor", "embedding")
    )
    assert [set(own) for own in by_extractor] == [set(own) for own in by_embedding]
    assert by_extractor != by_embedding
    embed = Letters()
    text = embed([NOTES[0]["text"]])[0]
    near = [float(embed([phrase])[0] @ text) for phrase in by_embedding[0]]
    assert near == sorted(near, reverse=True)


def test_a_unit_without_phrases_adds_nothing(tmp_path):
    silent = {"patient_id": "silent", "text": " . . ! ", "ward": "a"}
    assert phrases(reader(tmp_path, [silent])) == [()]
    assert added(reader(tmp_path, [silent])) == []
    assert added(reader(tmp_path, [*NOTES, silent])) == added(reader(tmp_path))


def test_a_place_that_a_unit_has_no_phrase_for_is_zero(tmp_path):
    short = {"patient_id": "short", "text": "tomato", "ward": "a"}
    found = reader(tmp_path, [short], sequences="iterative", phrases_per_text=3)
    ((labels, rows),) = found.vectors(KERNEL)
    assert (labels.tolist(), rows.shape) == ([0], (1, 3, 40))
    assert np.linalg.norm(rows[0, 0]) == pytest.approx(1, abs=1e-4)
    assert not rows[0, 1:].any()


def test_a_unit_is_under_one_label_and_only_its_documents_there_are_read(tmp_path):
    both = [
        {"patient_id": "both", "text": "copper kettle", "ward": "a"},
        {"patient_id": "both", "text": "ripe tomato", "ward": "b"},
        {"patient_id": "other", "text": "wooden violin", "ward": "c"},
    ]
    found = reader(tmp_path, both, labels=["a", "b"])
    ((label, _),) = added(found)
    assert phrases(found) in ([("copper kettle", "copper", "kettle")], [("ripe tomato", "ripe", "tomato")])
    assert label == (0 if "kettle" in phrases(found)[0] else 1)


def test_the_keyed_order_is_not_that_of_the_extractor(tmp_path):
    found = reader(tmp_path, sequences="iterative", phrases_per_text=3)
    own = [f"phrase {number}" for number in range(8)]
    orders = {tuple(found._in_keyed_order(unit, own)) for unit in map(str, range(20))}
    assert len(orders) == 20
    assert all(set(order) == set(own) for order in orders)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_units(tmp_path):
    """All the way from the stored corpus to the sums."""
    sketches = calibrate_kde(10**11, KERNEL.features, 1, 1)

    def peak(units: int) -> int:
        notes = ({"patient_id": f"p{n}", "text": TOLD[n % 2].format(f"kettle{n}")} for n in range(units))
        found = replace(reader(tmp_path, notes), embed=lambda texts: Letters()(texts))  # it remembers nothing
        tracemalloc.start()
        sketches.sums(found.vectors(KERNEL))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)  # whatever is imported once
    few, many = peak(128), peak(1024)
    assert many < 1.3 * few


@pytest.mark.slow_except("{}")
@pytest.mark.parametrize("changes", [{}, {"sequences": "iterative", "phrases_per_text": 4}], ids=str)
def test_memory_does_not_grow_with_the_size_of_sketches_times_that_of_a_chunk(tmp_path, changes):
    """The largest sketches have 65 times as many features as usual, and 20 positions."""
    notes = [NOTES[0] | {"patient_id": f"p{unit}"} for unit in range(64)]
    kernel = FourierFeatures.of(27, 2**16, 1)
    found = reader(tmp_path, notes, **changes)
    sizes = {len(labels) for labels, rows in itertools.islice(found.vectors(kernel), 3)}
    assert sizes == {2**22 // (2 * 2**16 * found.parameters.phrases_per_unit)}
    assert {len(labels) for labels, rows in found.vectors(KERNEL)} == {64}


def test_each_chunk_is_told_in_tenths(tmp_path, monkeypatch):
    monkeypatch.setattr(unit_phrases, "UNITS_AT_ONCE", 2)
    told: list[tuple[str, int, int]] = []
    found = reader(tmp_path)
    object.__setattr__(found.context, "progress", lambda *said: told.append(said))
    list(itertools.chain(found.phrases()))
    assert told == [("units for the vocabulary", done, 10) for done in (3, 6, 10)]
