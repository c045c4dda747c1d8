"""A metric that reads every document has the same figures whoever reads them."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from tasks.evaluation import sharded_documents
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.overlap import verbatim_overlap
from tasks.evaluation.sharded_documents import ShardedDocuments
from tasks.inference.embeddings.parallel import WorkerEnvironment
from tasks.workers.pool import Runner
from tasks.workers.processes import ProcessRunner, ThreadRunner
from tests.refusals import refusal
from tests.unit.tasks.evaluation.subjects import texts

SHARDS = 9
CHOICE = random.Random(1)
DOCUMENTS = [" ".join(CHOICE.choices("abcdefg", k=CHOICE.randrange(12))) for _ in range(60)]
RELEASED = texts(*(" ".join(CHOICE.choices("abcdefgh", k=9)) for _ in range(20)), "", "z")


def shard(number: int) -> list[str]:
    """The last one is empty."""
    return DOCUMENTS[number :: SHARDS - 1] if number < SHARDS - 1 else []


def sharded(runner: Runner, workers: int, progress: Callable[[int, int], None]) -> ShardedDocuments:
    return ShardedDocuments(runner, workers, SHARDS, shard, progress)


@pytest.mark.parametrize(
    ("make", "workers"), [(ThreadRunner, 1), (ThreadRunner, 4), pytest.param(ProcessRunner, 2, marks=pytest.mark.slow)]
)
def test_overlap_is_the_same_on_workers(make: Callable[[], Runner], workers: int) -> None:
    alone = verbatim_overlap(EvaluationInput(RELEASED, documents=lambda: DOCUMENTS))
    steps: list[tuple[int, int]] = []
    on_workers = sharded(make(), workers, lambda *step: steps.append(step))
    assert verbatim_overlap(EvaluationInput(RELEASED, documents=lambda: DOCUMENTS, by_shard=on_workers)) == alone
    assert steps == [(number, SHARDS) for number in range(1, SHARDS + 1)]  # a public number, whatever the documents
    assert alone.values["max_words"] > 3


def test_without_texts_or_documents_the_figures_are_those_of_one_process() -> None:
    on_workers = ShardedDocuments(ThreadRunner(), 2, SHARDS, lambda number: [], lambda done, of: None)
    for released in ((), RELEASED):
        alone = verbatim_overlap(EvaluationInput(released, documents=lambda: ()))
        assert verbatim_overlap(EvaluationInput(released, documents=lambda: (), by_shard=on_workers)) == alone


def test_a_worker_that_has_other_code_is_given_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(sharded_documents, "_tool", _other_tool)

    def reading(number: int) -> Sequence[str]:
        read.append(number)
        return shard(number)

    with refusal("WorkerDiffers", match="code"):
        list(ShardedDocuments(ThreadRunner(), 2, SHARDS, reading, lambda done, of: None)(partial(len)))  # type: ignore[arg-type]
    assert read == []


def _other_tool(make: Any, elsewhere: bool) -> Any:
    return WorkerEnvironment((), "cpu", code="0" * 64), list
