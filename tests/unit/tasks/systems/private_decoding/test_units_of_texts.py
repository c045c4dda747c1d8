"""Which units each text is made of: one batch each, whole, whoever else is there (docs/proofs/secret-assignment.md)."""

from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tasks.corpus.store import Corpus, UnitDocuments
from tasks.planning.layout import layout_of
from tasks.systems.private_decoding import rows_of
from tests.unit.tasks.systems.asking import ink
from tests.unit.tasks.systems.workshop import NOTES, Workshop, store

pytestmark = pytest.mark.contract

UNITS = sorted({note["patient_id"] for note in NOTES})
TEXTS, BATCHES = 3, 4


def units_of_texts(corpus: Corpus) -> list[list[UnitDocuments]]:
    """The rows of every text; a batch nominally has one unit, so most have more than that or none."""
    settings = ink(samples=TEXTS, references=1, batches=BATCHES)
    sources = layout_of(settings, TEXTS, 1).sources()
    return list(rows_of(sources, BATCHES, settings, Workshop(corpus).context()))


def test_each_text_has_its_whole_batch_and_one_unit_less_leaves_all_others_as_they_are(tmp_path: Path) -> None:
    everybody = store(ProjectHome(tmp_path / "home"), tmp_path / "a.jsonl", NOTES)
    whole = units_of_texts(everybody)
    assert max(map(len, whole)) > 3
    for gone in UNITS:
        _, _, batch = Workshop(everybody).place(gone, BATCHES)
        rest = [note for note in NOTES if note["patient_id"] != gone]
        (tmp_path / gone).mkdir()
        less = units_of_texts(store(ProjectHome(tmp_path / gone / "home"), tmp_path / gone / "a.jsonl", rest))
        assert less == [[row for row in rows if row.unit != gone] for rows in whole]
        assert [gone in (row.unit for row in rows) for rows in whole] == [batch == text for text in range(TEXTS)]
