"""Generation under labels: public places, one label a unit, and a label that no unit has."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

import tasks.decoding.generate
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.corpus.store import Corpus
from tasks.decoding.loop import GenerationJob
from tasks.decoding.run_context import RunContext
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.base import System
from tasks.systems.baselines import BaselineParameters, NonPrivate, PublicOnly
from tasks.systems.invisible_ink import InvisibleInk
from tasks.values.results import Generated
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.systems.asking import ask, ink
from tests.unit.tasks.systems.workshop import NOTES, NoCorpus, Workshop, store

SECTIONS = sorted({note["section"] for note in NOTES})
NOBODY = "astrology"
LABELS = (SECTIONS[0], NOBODY, SECTIONS[1])
BASELINE: dict[str, Any] = {"samples": 6, "max_new_tokens": 3, "temperature": "1", "max_reference_tokens": 16}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("labelled")
    return store(ProjectHome(folder / "home"), folder / "notes.jsonl", NOTES, "section")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[GenerationJob]:
    """Every generation that is decoded."""
    seen: list[GenerationJob] = []
    decode = tasks.decoding.generate.decode

    def watched(engine: Any, given: Any, *rest: Any, **more: Any) -> Any:
        listed = list(given)
        seen.extend(listed)
        return decode(engine, iter(listed), *rest, **more)

    monkeypatch.setattr(tasks.decoding.generate, "decode", watched)
    return seen


def context(corpus: Any, labels: tuple[str, ...] = LABELS, blocks: int = 1) -> RunContext:
    return asking_for(labels, Workshop(corpus, blocks))


def asking_for(labels: tuple[str, ...], workshop: Workshop) -> RunContext:
    return replace(workshop.context(), prompt=PromptSpec.of(Prompt(description="Short notes."), labels))


def make(system: System, wanted: BaseModel, work: RunContext, blocks: int = 1, **facts: Any) -> Generated:
    return system.generate(system.plan(ask(wanted, blocks=blocks, **facts)), wanted, work)


def told(job: GenerationJob) -> str:
    return str(tiny_tokenizer().decode(job.public.tokens))


# --- a private system ------------------------------------------------------------------------------------------


def test_every_label_has_its_share_of_texts_in_the_declared_order(labelled: Corpus, jobs: list[GenerationJob]) -> None:
    made = make(InvisibleInk(), ink(samples=5, labels=LABELS), context(labelled))
    assert [text.label for text in made.texts] == [LABELS[0], LABELS[0], NOBODY, NOBODY, LABELS[2]]
    assert [f"Category: {text.label}\n" in told(job) for text, job in zip(made.texts, jobs, strict=True)] == [True] * 5


def test_rows_are_documents_of_the_label_and_a_unit_is_in_one_row(labelled: Corpus, jobs: list[GenerationJob]) -> None:
    parameters = ink(samples=3, labels=LABELS, batches=1, max_reference_tokens=400)
    made = make(InvisibleInk(), parameters, context(labelled))
    for text, job in zip(made.texts, jobs, strict=True):
        own = {note["text"] for note in NOTES if note["section"] == text.label}
        assert all(tiny_tokenizer().decode(row) in own for row in job.references)
    carrying = {note["patient_id"] for note in NOTES if note["section"] in LABELS}
    assert sum(len(job.references) for job in jobs) == len(carrying)


def test_a_label_that_no_unit_has_is_generated_and_charged_like_any_other(
    labelled: Corpus, jobs: list[GenerationJob]
) -> None:
    made = make(InvisibleInk(), ink(samples=3, labels=LABELS), context(labelled))
    (job,) = [job for text, job in zip(made.texts, jobs, strict=True) if text.label == NOBODY]
    assert job.references == ()
    assert [text.tokens for text in made.texts] == [12, 12, 12]
    plans = [InvisibleInk().plan(ask(ink(samples=3, labels=labels))) for labels in (LABELS, (), (NOBODY,))]
    assert len({plan.loss for plan in plans}) == 1


def test_labels_and_blocks_go_together(labelled: Corpus, jobs: list[GenerationJob]) -> None:
    made = make(InvisibleInk(), ink(samples=6, labels=LABELS), context(labelled, blocks=2), blocks=2)
    assert Counter(text.label for text in made.texts) == dict.fromkeys(LABELS, 2)


def test_labels_are_refused_of_a_version_without_before_anything_is_armed(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    with refusal("LabelsNotKept"):
        make(InvisibleInk(), ink(samples=3, labels=LABELS), asking_for(LABELS, workshop))
    assert workshop.seen == []


def test_fewer_samples_than_labels_are_refused_when_priced() -> None:
    for system, wanted in (
        (InvisibleInk(), ink(samples=2, labels=LABELS)),
        (PublicOnly(), BaselineParameters.model_validate(BASELINE | {"samples": 2, "labels": LABELS})),
    ):
        with refusal("LabelWithoutSample"):
            system.plan(ask(wanted))


def test_a_plan_without_labels_says_nothing_of_them() -> None:
    assert "labels" not in InvisibleInk().plan(ask(ink())).facts
    assert InvisibleInk().plan(ask(ink(labels=LABELS))).facts["labels"] == ", ".join(LABELS)


def test_a_declared_population_is_shared_by_the_labels() -> None:
    plan = InvisibleInk().plan(ask(ink(samples=3, references=4, labels=LABELS), population=120))
    assert plan.facts["batches per block"] == "10"
    assert plan.rows == 3 + 3 * 4


# --- the references --------------------------------------------------------------------------------------------


def test_public_only_has_labels_and_reads_nothing(jobs: list[GenerationJob]) -> None:
    wanted = BaselineParameters.model_validate(BASELINE | {"labels": LABELS})
    made = make(PublicOnly(), wanted, context(NoCorpus()))
    assert [text.label for text in made.texts] == [label for label in LABELS for _ in range(2)]
    assert all(f"Category: {text.label}\n" in told(job) for text, job in zip(made.texts, jobs, strict=True))


def test_non_private_reads_documents_of_the_label_and_makes_none_without(
    labelled: Corpus, jobs: list[GenerationJob]
) -> None:
    wanted = BaselineParameters.model_validate(BASELINE | {"labels": LABELS})
    made = make(NonPrivate(), wanted, context(labelled), governed=False)
    assert [text.label for text in made.texts] == [LABELS[0]] * 2 + [LABELS[2]] * 2
    for text, job in zip(made.texts, jobs, strict=True):
        assert any(note["text"][:16] in told(job) for note in NOTES if note["section"] == text.label)


def test_non_private_tells_how_many_documents_were_cut(labelled: Corpus) -> None:
    lengths = [len(note["text"].encode()) for note in NOTES[:4]]
    limit = sorted(lengths)[1]
    wanted = BaselineParameters.model_validate(BASELINE | {"samples": 4, "max_reference_tokens": limit})
    made = make(NonPrivate(), wanted, context(labelled, ()), governed=False)
    assert made.released == {"references_cut": str(sum(length > limit for length in lengths))}


def test_parameters_without_labels_say_nothing_of_them() -> None:
    plain = BaselineParameters.model_validate(BASELINE)
    assert "labels" not in plain.stored_fields
    assert "labels" not in ink().stored_fields
    assert "labels" in ink(labels=LABELS).stored_fields
