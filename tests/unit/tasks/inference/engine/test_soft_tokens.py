"""Token ids beyond the vocabulary that stand for given vectors at the input."""

from functools import cache

import pytest
import torch
from torch import Tensor

from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.session import Session
from tasks.inference.engine.shapes import Sizes
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import PromptPieces
from tests.unit.tasks.inference.catalogue.test_precision_isolation import lowered
from tests.unit.tasks.inference.fixtures import REAL, Twins
from tests.unit.tasks.inference.processors import expect_refusal
from tests.unit.tasks.inference.rows_at_work import PRIVATE, PUBLIC, text

CONCERNS = ("tasks/inference",)

pytestmark = pytest.mark.dear

REAL_IDS = (21, 250, 22)
SOFT_IDS = (300, 301, 302)


@cache
def soft(precision: Precision) -> LanguageModel:
    """The tiny model, whose first tokens beyond the vocabulary are three of its own."""
    model = lowered(precision)
    return model.with_soft_tokens(embeddings(model, REAL_IDS))


def embeddings(model: LanguageModel, tokens: tuple[int, ...]) -> Tensor:
    """float32 [S, D]."""
    return model.embed(torch.tensor(tokens, device=model.device)).detach().float()


def session(model: LanguageModel, public: PromptPieces, private: PromptPieces = PRIVATE) -> Session:
    """Two generations of two rows; the second has no soft token."""
    opened = Engine(model).session(Sizes.of([public, PUBLIC], [private, PRIVATE], 40, 5, 2), places=2)
    opened.enter(0, public, private, [text(12, 1), text(33, 2)])
    opened.enter(1, PUBLIC, PRIVATE, [text(40, 3), text(5, 4)])
    return opened


def said(opened: Session) -> list[Tensor]:
    """Everything a session says over some steps."""
    found = []
    for token in (40, 41, 42):
        found += [opened.public_hidden(), opened.public_logits(), opened.private_hidden().values]
        found += [opened.private_logits().values]
        opened.advance([token, token + 1])
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_soft_token_like_a_real_one_is_that_one_to_the_bit(precision: Precision) -> None:
    if expect_refusal(precision):
        return
    real = said(session(lowered(precision), PromptPieces((1, 20, *REAL_IDS), (23, 24))))
    virtual = said(session(soft(precision), PromptPieces((1, 20, *SOFT_IDS), (23, 24))))
    assert len(real) == len(virtual) == 12
    assert all(torch.equal(*pair) for pair in zip(real, virtual, strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_private_prompts_may_have_them_too(precision: Precision) -> None:
    if expect_refusal(precision):
        return
    real = said(session(lowered(precision), PUBLIC, PromptPieces((1, *REAL_IDS), (*REAL_IDS, 30))))
    virtual = said(session(soft(precision), PUBLIC, PromptPieces((1, *SOFT_IDS), (*SOFT_IDS, 30))))
    assert all(torch.equal(*pair) for pair in zip(real, virtual, strict=True))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_order_of_rows_of_the_table_counts(precision: Precision) -> None:
    if expect_refusal(precision):
        return
    one, other = (
        session(soft(precision), PromptPieces((1, 20, *ids), (23,))).public_hidden()
        for ids in (SOFT_IDS, SOFT_IDS[::-1])
    )
    assert not torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


def test_a_soft_token_is_any_vector(tiny: Twins) -> None:
    """transformers' own, for vectors that are no token's."""
    table = torch.sin(torch.arange(2 * 64, dtype=torch.float32)).view(2, 64)
    opened = session(tiny.model.with_soft_tokens(table), PromptPieces((1, 300), (301, 24)))
    with torch.inference_mode():
        inside = tiny.network.model.embed_tokens(torch.tensor([1, 24]))
        inputs = torch.stack([inside[0], table[0], table[1], inside[1]])[None]
        expected = tiny.network(inputs_embeds=inputs).logits[0, -1]
    torch.testing.assert_close(opened.public_logits()[0], expected, atol=1e-4, rtol=1e-4)


def test_they_are_never_written(tiny: Twins) -> None:
    model = tiny.model.with_soft_tokens(torch.ones(5, 64))
    assert model.vocabulary == tiny.model.vocabulary == 300
    assert session(model, PUBLIC).public_logits().shape == (2, 300)
    assert session(model, PUBLIC).private_logits().values.shape == (4, 300)


def test_a_private_text_cannot_spell_one(tiny: Twins) -> None:
    model = tiny.model.with_soft_tokens(torch.ones(5, 64))
    opened = Engine(model).session(Sizes.of([PUBLIC], [PRIVATE], 9, 1, 2), places=1)
    opened.enter(0, PUBLIC, PRIVATE, [[9, 300, 10], [9, 299, 10]])
    assert opened.private_logits().valid.tolist() == [False, True]


def test_the_model_itself_stays_as_it_was(tiny: Twins) -> None:
    expected = said(session(tiny.model, PUBLIC))
    model = tiny.model.with_soft_tokens(torch.ones(3, 64))
    assert tiny.model.soft_tokens is None
    assert (model.digest, model.decoder) == (tiny.model.digest, tiny.model.decoder)
    assert all(torch.equal(*pair) for pair in zip(said(session(tiny.model, PUBLIC)), expected, strict=True))
    assert all(torch.equal(*pair) for pair in zip(said(session(model, PUBLIC)), expected, strict=True))


def test_a_second_table_replaces_the_first_and_the_callers_may_change(tiny: Twins) -> None:
    table = torch.ones(2, 64)
    model = tiny.model.with_soft_tokens(torch.zeros(9, 64)).with_soft_tokens(table)
    table.zero_()
    assert model.soft_tokens is not None
    assert torch.equal(model.soft_tokens, torch.ones(2, 64))


@pytest.mark.parametrize("prompt", [(1, 302), (1, -1), (1, 10**9)])
def test_a_token_that_no_table_has_is_refused(tiny: Twins, prompt: tuple[int, ...]) -> None:
    """As in a worker process, whose model has no table."""
    model = tiny.model.with_soft_tokens(torch.ones(2, 64))
    for public, private in ((PromptPieces((1,), prompt), PRIVATE), (PUBLIC, PromptPieces(prompt, (30,)))):
        with pytest.raises(ValueError, match="not among the 302"):
            session(model, public, private)
    with pytest.raises(ValueError, match="not among the 300"):
        session(tiny.model, PromptPieces((1,), (300,)))


@pytest.mark.parametrize(
    "table", [torch.ones(64), torch.ones(0, 64), torch.ones(2, 63), torch.full((2, 64), torch.nan)], ids=repr
)
def test_what_is_no_table_is_refused(tiny: Twins, table: Tensor) -> None:
    with pytest.raises(ValueError, match="soft tokens"):
        tiny.model.with_soft_tokens(table)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_real_model_reads_its_own_embeddings_as_tokens(real: LanguageModel, precision: Precision) -> None:
    if expect_refusal(precision):
        return
    model = real if precision == "float32" else load(REAL, "cpu", precision)
    ids = tuple(model.tokenizer("knee hurts since Monday", add_special_tokens=False)["input_ids"])
    virtual = tuple(model.vocabulary + index for index in range(len(ids)))
    with_table = model.with_soft_tokens(embeddings(model, ids))
    found = []
    for network, tokens in ((model, ids), (with_table, virtual), (model, ids)):
        prompt = PromptPieces((1, 4093), tokens)
        opened = Engine(network).session(Sizes.of([prompt], [], 0, 2), places=1)
        opened.enter(0, prompt, None, [])
        found.append(opened.public_logits())
        opened.advance([28])
        found.append(opened.public_logits())
    assert [differing(*pair) for pair in zip(found[:2], found[4:], strict=True)] == [(0, 0.0)] * 2  # it repeats itself
    assert [differing(*pair) for pair in zip(found[:2], found[2:4], strict=True)] == [(0, 0.0)] * 2


def differing(one: Tensor, other: Tensor) -> tuple[int, float]:
    """The number of entries that are not the same bits, and their largest distance."""
    return int((one != other).sum()), float((one - other).abs().max())
