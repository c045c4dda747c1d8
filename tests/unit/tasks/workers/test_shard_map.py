"""Items mapped by shard: the same results whoever computes them, and again where a worker is lost."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import pytest

from tasks.common.faults import TaskFailed
from tasks.common.progress import listening
from tasks.corpus.store import shard_of_text
from tasks.workers.backend_settings import PROCESSES, RAY, THREADS, WorkerBackend, open_runner
from tasks.workers.pool import Body, Channel, Runner, ShardMap, WorkerDied, WorkerPool, owners
from tests import bodies

SHARDS = 16
TEXTS = [f"text {number}" for number in range(100)]
SHARD_OF = [shard_of_text(bytes(32), text) % SHARDS for text in TEXTS]
DEADLY = TEXTS[5]


EVERY = [THREADS, PROCESSES, pytest.param(RAY, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def open_one() -> Iterator[Callable[[str], Runner]]:
    """Each kind of runner, opened once: starting a cluster takes seconds."""
    with ExitStack() as stack:

        @cache
        def open_kind(kind: str) -> Runner:
            runner = stack.enter_context(open_runner(WorkerBackend(kind), 3))
            assert runner is not None
            return runner

        yield open_kind


def mapped(runner: Runner, work: Sequence[Body], times: int = 1) -> list[list[str]]:
    """What a map says of the texts, so many times in turn, by these workers."""
    answers = []
    with runner.start(work) as pool:
        assert pool.receive_all() == ["ready"] * len(work)
        shards = ShardMap(pool, SHARDS)
        for _ in range(times):
            made: dict[int, str] = {}
            for places, texts in shards.map(SHARD_OF, 7, lambda items: [TEXTS[item] for item in items]):
                assert not made.keys() & set(places)
                made.update(zip(places, texts, strict=True))
            answers.append([made[place] for place in range(len(TEXTS))])
    return answers


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("kind", EVERY)
def test_results_are_the_same_whoever_computes_them(open_one: Callable[[str], Runner], kind: str, workers: int) -> None:
    work = [partial(bodies.shouting, None)] * workers
    assert mapped(open_one(kind), work, times=2) == [[text.upper() for text in TEXTS]] * 2


@pytest.mark.parametrize("kind", EVERY[1:])
def test_what_a_lost_worker_had_is_done_by_the_others(open_one: Callable[[str], Runner], kind: str) -> None:
    """The worker of the deadly text dies of it; the others do not, and do its shards, also in later maps."""
    work: list[Body] = [partial(bodies.shouting, None)] * 3
    work[SHARD_OF[5] % 3] = partial(bodies.shouting, DEADLY)
    told: list[str] = []
    with listening(lambda what, done, of: None, told.append):
        assert mapped(open_one(kind), work, times=2) == [[text.upper() for text in TEXTS]] * 2
    (line,) = told
    assert line.startswith("A worker died (")


def test_when_all_workers_are_lost_the_map_ends_by_name(open_one: Callable[[str], Runner]) -> None:
    with pytest.raises(WorkerDied):
        mapped(open_one(PROCESSES), [partial(bodies.shouting, DEADLY)] * 2)


def test_a_worker_that_fails_is_no_lost_one(open_one: Callable[[str], Runner]) -> None:
    """Its failure would come again wherever the item is done."""
    with pytest.raises(TaskFailed, match="ValueError") as problem:
        mapped(open_one(THREADS), [_failing, partial(bodies.shouting, None)])
    assert not any(text in problem.value.diagnostics() for text in TEXTS)


def _failing(line: Channel) -> None:
    raise ValueError(line.request("ready"))


@pytest.mark.parametrize("shard", [-1, SHARDS])
def test_an_item_of_no_shard_is_refused_and_not_left_out(shard: int) -> None:
    nobody: Any = None
    with pytest.raises(ValueError, match="none of 16 shards"):
        list(ShardMap(WorkerPool([nobody]), SHARDS).map([0, shard], 7, list))


def test_the_owner_of_a_shard_is_a_public_rule() -> None:
    assert owners(8, 3) == [0, 1, 2, 0, 1, 2, 0, 1]
    assert owners(2, 5) == [0, 1]


def test_the_shards_of_texts_are_even_and_follow_the_key() -> None:
    counted = Counter(shard_of_text(bytes(32), f"text {number}") for number in range(25_600))
    assert set(counted) == set(range(256))
    assert max(counted.values()) < 160  # 100 on average: six standard deviations more
    other = [shard_of_text(bytes(31) + b"x", text) % SHARDS for text in TEXTS]
    assert other != SHARD_OF
