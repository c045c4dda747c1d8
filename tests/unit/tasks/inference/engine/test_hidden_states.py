"""The last hidden state of whole prompts, without a session: the same bits, any number of groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.hidden_states import last_hidden
from tasks.inference.engine.session import RowHidden
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces
from tests.refusals import refusal
from tests.unit.tasks.inference.engine.test_engine import OTHER_PRIVATE, REFERENCES
from tests.unit.tasks.inference.engine.test_hidden import alone
from tests.unit.tasks.inference.fixtures import Twins
from tests.unit.tasks.inference.rows_at_work import MOST, PRIVATE, PUBLIC, text

pytestmark = pytest.mark.dear

PIECES = [PRIVATE, OTHER_PRIVATE, PRIVATE, OTHER_PRIVATE]


def sizes(references: int = 3, new: int = 1) -> Sizes:
    return Sizes.of([PUBLIC], [PRIVATE, OTHER_PRIVATE], MOST, new, references)


def read(engine: Engine, groups: Sequence[Sequence[Sequence[int]]] = REFERENCES, **changes: int) -> list[RowHidden]:
    return list(last_hidden(engine, PIECES[: len(groups)], groups, sizes(**changes)))


def test_every_row_as_if_alone(tiny: Twins) -> None:
    found = read(Engine(tiny.model))
    assert [len(group.values) for group in found] == [3, 6, 0, 1]
    for number, (group, pieces, references) in enumerate(zip(found, PIECES, REFERENCES, strict=True)):
        assert group.valid.all()
        assert group.generation.tolist() == [number] * len(references)
        assert group.values.shape == (len(references), 64)
        for values, reference in zip(group.values, references, strict=True):
            expected = alone(tiny.network, pieces.around(reference[:MOST]))
            torch.testing.assert_close(values, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("new", [1, 30])
@pytest.mark.parametrize("references", [1, 3, 1000])
def test_the_bits_of_a_session(tiny: Twins, new: int, references: int) -> None:
    """However many groups are read together, and whatever may be drawn after them."""
    session = Engine(tiny.model).session(sizes(new=new), places=4)
    for number, (pieces, batch) in enumerate(zip(PIECES, REFERENCES, strict=True)):
        session.enter(number, PUBLIC, pieces, batch)
    found = read(Engine(tiny.model), references=references, new=new)
    assert torch.equal(torch.cat([group.values for group in found]), session.private_hidden().values)


def test_more_groups_than_are_read_at_one_time_one_after_the_other(tiny: Twins) -> None:
    asked: list[int] = []

    class Lazy(Sequence[Any]):
        def __getitem__(self, number: Any) -> Any:
            asked.append(number)
            return [text(3 + number % 9, number)] * (number % 3)

        def __len__(self) -> int:
            return 20

    groups = last_hidden(Engine(tiny.model), [PRIVATE] * 20, Lazy(), sizes(references=16))
    assert asked == []
    found = [next(groups)]
    assert asked == [0, 1, 2, 3]
    found += groups
    assert asked == list(range(20))
    assert [len(group.values) for group in found] == [number % 3 for number in range(20)]
    assert [set(group.generation.tolist()) for group in found[1:3]] == [{1}, {2}]
    torch.testing.assert_close(found[19].values[0], alone(tiny.network, PRIVATE.around(text(4, 19))), atol=1e-4, rtol=0)


def test_soft_tokens_around_a_reference(tiny: Twins) -> None:
    ids = torch.tensor([21, 250, 22])
    model = tiny.model.with_soft_tokens(tiny.model.embed(ids))
    real, virtual = (PromptPieces((1, *some), (30, 31)) for some in (ids.tolist(), (300, 301, 302)))
    both = [
        next(last_hidden(Engine(network), [pieces], REFERENCES[:1], sizes()))
        for network, pieces in ((tiny.model, real), (model, virtual))
    ]
    assert torch.equal(both[0].values, both[1].values)


@pytest.mark.parametrize("null", [[], [300], [-1], [5, 10**9]])
def test_what_is_no_text_makes_a_null_row(tiny: Twins, null: list[int]) -> None:
    first, second = read(Engine(tiny.model), [[text(9, 1), null], [null]])
    assert (first.valid.tolist(), second.valid.tolist()) == ([True, False], [False])
    assert not first.values[1].any()
    assert not second.values.any()
    assert first.values[0].any()


def test_they_can_be_trained_on(tiny: Twins) -> None:
    for group in read(Engine(tiny.model), [REFERENCES[0], []]):
        linear = torch.nn.Linear(64, 2)
        linear(group.values).sum().backward()
        assert linear.weight.grad is not None


@pytest.mark.parametrize("fails", [{1}, {4, 5}, {2, 9}], ids=str)
def test_where_memory_runs_out_fewer_groups_are_read_at_a_time(tiny: Twins, fails: set[int]) -> None:
    expected, began = read(Engine(tiny.model)), False
    passes, failed = 0, 0

    def decoder(**inputs: Any) -> Any:
        nonlocal passes, failed
        passes += began
        if passes in fails:
            failed += 1
            raise MemoryError
        return tiny.model.decoder(**inputs)

    engine = Engine(replace(tiny.model, decoder=decoder))
    read(engine)  # now every shape is checked
    began = True
    found = read(engine)
    assert failed == len(fails)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine.values, theirs.values)
        assert mine.generation.tolist() == theirs.generation.tolist()


def test_where_not_even_one_group_can_be_read(tiny: Twins) -> None:
    def decoder(**inputs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    engine = Engine(replace(tiny.model, decoder=decoder))
    engine.isolation.before_pass = lambda *shape: None  # type: ignore[method-assign]
    with refusal("NotEnoughMemory"):
        read(engine)


def test_other_failures_are_not_taken_for_a_lack_of_memory(tiny: Twins) -> None:
    def decoder(**inputs: Any) -> Any:
        raise RuntimeError("a kernel failed")

    engine = Engine(replace(tiny.model, decoder=decoder))
    engine.isolation.before_pass = lambda *shape: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a kernel failed"):
        read(engine)


def test_calls_that_make_no_sense_fail_before_anything_is_read(tiny: Twins) -> None:
    engine = Engine(tiny.model)
    with pytest.raises(ValueError, match="a prompt each"):
        last_hidden(engine, [PRIVATE], [[], []], sizes())
    with pytest.raises(ValueError, match="longer than the public sizes"):
        last_hidden(engine, [PromptPieces((1,) * 9, (1,))], [[]], sizes())
    with pytest.raises(ValueError, match="not among the 300"):
        last_hidden(engine, [PromptPieces((1, 300), (1,))], [[]], sizes())
    with pytest.raises(ContextTooLong):
        last_hidden(engine, [PRIVATE], [[]], Sizes.of([PUBLIC], [PRIVATE], 510, 1, 3))
