"""Labels by a public rule: every door of a version answers as if a field had held them, and no other unit moves one."""

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models_db.home import ProjectHome
from tasks.corpus import store
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.store import Corpus, LabelsNotKept, PartOfCorpus, StoreUnreadable, open_corpus
from tasks.planning.keyword_rule import DocumentLabeller, LabelRule
from tests.unit.tasks.corpus.identity.test_label_batches import KEY

pytestmark = pytest.mark.dear

ANSWERS = [{"name": "money", "keywords": ["invoice"]}, {"name": "parcels", "keywords": ["parcel", "pay back"]}]
RULE = LabelRule.model_validate({"answers": ANSWERS})
WITH_DEFAULT = LabelRule.model_validate({"answers": ANSWERS, "default": "other"})
SCHEME, SPLIT = PartitionScheme(KEY, 2), BatchSplit(KEY, "r1")
TEXTS = ("an invoice", "Parcels!", "invoice of a parcel, a parcel", "good morning", "pay back", "\u0000 x")
RECORDS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(TEXTS)), max_size=12)
Record = tuple[int, str]
STAYS: Record = (99, "an invoice about a parcel")


@contextmanager
def corpora(records: list[Record], rule: LabelRule) -> Iterator[tuple[Corpus, Corpus]]:
    """The same records, labelled by the rule when they are read and by a field when they were ingested."""
    label_of = DocumentLabeller.of(rule)
    with tempfile.TemporaryDirectory() as folder:
        home, source = ProjectHome(Path(folder) / "home"), Path(folder) / "a.jsonl"
        home.create()
        lines = [{"who": unit, "text": text, "topic": label_of(text) or ""} for unit, text in [*records, STAYS]]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        plain = open_corpus(home, ingest(home, source, "who", KEY).uid)
        kept = open_corpus(home, ingest(home, source, "who", KEY, label_field="topic").uid)
        yield plain.labelled_by(label_of), kept


def through_every_door(corpus: Corpus, labels: tuple[str, ...], scheme: PartitionScheme = SCHEME) -> list[object]:
    places = list(itertools.product(range(scheme.blocks), range(len(labels)), range(2)))
    return [
        corpus.batches(scheme, SPLIT, 2, places, labels),
        corpus.batches(scheme, SPLIT, 2, places, labels, most=2),
        corpus.label_counts(scheme, SPLIT, labels),
        sorted((label, row.unit, row.text) for label, row in corpus.each(scheme, SPLIT, labels)),
        sorted(
            (one.order, one.unit.unit, one.unit.text)
            for shard in corpus.each_shard(scheme, SPLIT, range(scheme.blocks), labels)
            for one in shard
        ),
        corpus.unit_count(),
    ]


@settings(max_examples=25, deadline=None)
@given(RECORDS, st.sampled_from([RULE, WITH_DEFAULT]))
def test_a_rule_is_a_field_that_holds_its_answers(records: list[Record], rule: LabelRule) -> None:
    with corpora(records, rule) as (by_rule, by_field):
        assert through_every_door(by_rule, rule.labels) == through_every_door(by_field, rule.labels)
        assert list(by_rule.labelled()) == list(by_field.labelled())
        for label in (*rule.labels, "unknown", None):
            assert list(by_rule.texts(label)) == list(by_field.texts(label))
        part = SomeBlocks.of(SCHEME, (1,))
        some = [through_every_door(PartOfCorpus.of(one, part), rule.labels, part) for one in (by_rule, by_field)]
        assert some[0] == some[1]


@settings(max_examples=25, deadline=None)
@given(RECORDS)
def test_one_unit_moves_one_count_by_one_and_the_rows_of_one_label(records: list[Record]) -> None:
    """However many documents it has, and whatever they say: the sensitivity that is charged."""
    unit = [(7, text) for text in TEXTS]
    places = list(itertools.product(range(2), range(3), range(2)))
    counts, rows = [], []
    for given_records in (records, [*records, *unit]):
        with corpora(given_records, WITH_DEFAULT) as (corpus, _):
            counts.append(corpus.label_counts(SCHEME, SPLIT, WITH_DEFAULT.labels))
            rows.append(corpus.batches(SCHEME, SPLIT, 2, places, WITH_DEFAULT.labels))
    assert sorted(after - before for before, after in zip(*counts, strict=True)) == [0, 0, 1]
    changed = [place for place in places if rows[0][place] != rows[1][place]]
    assert len(changed) == 1
    assert [row for row in rows[1][changed[0]] if row.unit != "7"] == rows[0][changed[0]]


def test_a_version_has_labels_by_a_rule_and_not_without(home: ProjectHome, jsonl: Callable[..., Path]) -> None:
    corpus = open_corpus(home, ingest(home, jsonl([{"who": "p", "text": "an invoice"}]), "who", KEY).uid)
    assert corpus.has_labels is False
    with pytest.raises(LabelsNotKept, match="without any"):
        corpus.require_labels()
    by_rule = corpus.labelled_by(DocumentLabeller.of(RULE))
    by_rule.require_labels()
    assert by_rule.label_fields() == ()
    assert "invoice" not in repr(by_rule)


def test_labels_of_a_rule_take_the_place_of_those_of_a_field() -> None:
    with corpora([(1, "a parcel")], RULE) as (_, by_field):
        everything = by_field.labelled_by(lambda text: "all")
        assert everything.label_counts(SCHEME, SPLIT, ("all",)) == [2]


def test_an_interruption_in_the_rule_is_one_and_another_failure_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(text: str) -> str:
        raise KeyboardInterrupt

    def failing(text: str) -> str:
        raise ValueError(text)

    with corpora([(1, "a parcel")], RULE) as (corpus, _):
        with pytest.raises(KeyboardInterrupt):
            corpus.labelled_by(interrupted).label_counts(SCHEME, SPLIT, ("a",))
        with monkeypatch.context() as patch:
            # A signal while SQLite works is handled before the first line of the function, which keeps nothing then.
            patch.setattr(store, "_recorded", lambda label_of, problems: label_of)
            with pytest.raises(KeyboardInterrupt):
                corpus.labelled_by(interrupted).label_counts(SCHEME, SPLIT, ("a",))
        with pytest.raises(StoreUnreadable) as refused:
            corpus.labelled_by(failing).label_counts(SCHEME, SPLIT, ("a",))
        assert "parcel" not in str(refused.value)


def test_no_pass_sorts_units_and_labels_in_a_temporary_file() -> None:
    """SQLite would write them into a folder outside the home."""
    with corpora([(1, "a parcel")], RULE) as both:
        for corpus in both:
            with corpus._reading() as connection:
                for query, values in ((store._CARRIED, ()), (store._CARRIED_OF_SHARD, (b"a",))):
                    steps = connection.execute(f"EXPLAIN QUERY PLAN {query}", values).fetchall()
                    assert [step for *_, step in steps if "TEMP" in step or "MATERIALIZE" in step] == []
