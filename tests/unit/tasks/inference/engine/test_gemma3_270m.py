"""Gemma 3 270M with its real weights, where it was pulled: the logits of transformers, and rows kept apart.

It has no chat template, so prompts are tokens of a text, after the token that opens every text of Gemma.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import PUBLIC_TEXT, wrap_network
from tasks.inference.loading.load_model import read_network
from tasks.inference.prompt_rendering import PromptPieces
from tests.own_home import on_request
from tests.unit.tasks.inference.rows_at_work import by_row

CONCERNS = ("tasks/inference/engine", "tasks/inference/loading")

pytestmark = [pytest.mark.slow, pytest.mark.dear]

NAME = "gemma3-270m"
TOLERANCE = 1e-4
"""Of a logit, in float32, where logits are of the size of some units; in proportion where they are larger."""


class Gemma(NamedTuple):
    """The same weights twice: as transformers runs them, and as the engine does."""

    plain: Any
    engine: Engine

    @property
    def model(self) -> LanguageModel:
        return self.engine.model

    def said(self, rows: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
        """The engine's logits of every row, after its prompt and after each of three drawn tokens."""
        tokens = tokens_of(self.model)
        return by_row(self.engine, [rows], drawn=tokens[110:113], **prompts_of(tokens))


@pytest.fixture(scope="module")
def gemma() -> Gemma:
    with on_request(NAME) as folder:
        plain, _ = read_network(NAME, folder, AutoModelForCausalLM)
        network, tokenizer = read_network(NAME, folder, AutoModelForCausalLM)
    model = wrap_network(network, tokenizer, name=NAME, revision="1.0.0", digest="d", device=torch.device("cpu"))
    return Gemma(plain.eval(), Engine(model))


def tokens_of(model: LanguageModel) -> list[int]:
    """A real text, as Gemma reads it."""
    tokens = model.tokenizer(PUBLIC_TEXT).input_ids
    assert tokens[0] == model.tokenizer.bos_token_id == 2
    return [*tokens]


def prompts_of(tokens: Sequence[int]) -> dict[str, PromptPieces]:
    return {
        "public": PromptPieces((*tokens[:12],), (*tokens[12:20],)),
        "private": PromptPieces((*tokens[:9],), (*tokens[14:20],)),
    }


def rows_of(tokens: Sequence[int]) -> dict[str, list[int]]:
    return {"a": [*tokens[20:50]], "other": [*tokens[50:57]], "b": [*tokens[60:110]]}


@torch.inference_mode()
def test_logits_are_those_of_transformers(gemma: Gemma) -> None:
    tokens = tokens_of(gemma.model)
    rows, prompt, drawn = rows_of(tokens), prompts_of(tokens)["private"], tokens[110:113]
    ours = gemma.said(rows)
    for name, reference in rows.items():
        whole = [*prompt.around(reference), *drawn]
        theirs = gemma.plain(torch.tensor([whole])).logits[0, -len(drawn) - 1 :]
        scale = max(1.0, float(theirs.abs().max()) / 10)
        assert float((ours[name] - theirs).abs().max()) <= TOLERANCE * scale
        assert theirs.argmax(-1).equal(ours[name].argmax(-1))


def test_a_row_keeps_every_bit_beside_others(gemma: Gemma) -> None:
    tokens = tokens_of(gemma.model)
    rows = rows_of(tokens)
    before = gemma.said(rows)
    arrangements: list[dict[str, list[int]]] = [
        rows | {"other": [*tokens[100:107]]},
        {name: reference for name, reference in rows.items() if name != "other"},
        rows | {"other": [*tokens[30:90]]},
        dict(reversed(rows.items())),
        rows | {"other": []},
    ]
    for arrangement in arrangements:
        after = gemma.said(arrangement)
        assert all(torch.equal(before[name], after[name]) for name in ("a", "b"))
    assert not torch.equal(before["a"], gemma.said(rows | {"a": [*tokens[21:51]]})["a"])


def test_it_reads_text_and_stops_where_its_settings_say(gemma: Gemma) -> None:
    model = gemma.model
    assert (model.stop_tokens, model.vocabulary, model.window, model.positions) == ((1,), 262144, 512, 32768)
    for text in (PUBLIC_TEXT, "Thé café — 5 mg\n\n\ttwice ☃ a day"):
        assert model.tokenizer.decode(model.tokenizer(text, add_special_tokens=False).input_ids) == text
