"""The audit by true and phantom disclosures: it finds broken twins of the shipped draw, and nothing where nothing is.

Each unit writes words of its own, and a text is drawn from one unit by the shipped path from logits to a token: the
unit pushes its next word as far as it can. That is the worst case of a model that copies what it reads.

The broken twins: logits that nobody clips; a draw without noise, which takes the largest score. The null control is a
release of people of neither side, who share phrases with everybody, so that disclosures happen by chance.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.accounting.zcdp import rho_of
from tasks.corpus.partition import PartitionScheme, SomeBlocks
from tasks.evaluation.core.subject import EvaluationInput, HoldOut
from tasks.evaluation.lexical.disclosures import disclosures
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism, calibrate
from tasks.mechanisms.tokens.utility_scores import Candidates, clip_rows, draw_tokens, sum_rows, utilities
from tests.unit.tasks.evaluation.subjects import Text

pytestmark = pytest.mark.statistical

UNITS, WORDS, VOCABULARY, TEXTS = 160, 12, 256, 24
CLAIM, DELTA = 1.0, "0.00001"
PUSH = 20.0
Pick = Callable[[IntegerTableMechanism, Tensor], list[int]]
Words = Sequence[int]


def drawn(mechanism: IntegerTableMechanism, scores: Tensor) -> list[int]:
    everything = torch.arange(VOCABULARY).expand_as(scores)
    return draw_tokens(
        mechanism, Candidates(everything, torch.ones_like(everything, dtype=torch.bool)), scores, OS_RANDOM
    )


def without_noise(mechanism: IntegerTableMechanism, scores: Tensor) -> list[int]:
    largest: list[int] = scores.argmax(1).tolist()
    return largest


def release(units: Sequence[Words], draw: IntegerTableMechanism, pick: Pick) -> list[str]:
    """A text for each unit: all places at once, since a row's push depends on its own next word alone."""
    public = torch.zeros(len(units) * WORDS, VOCABULARY)
    rows = public.clone()
    rows[torch.arange(len(rows)), torch.tensor([word for own in units for word in own])] = PUSH
    generation = torch.arange(len(rows))
    summed = sum_rows(clip_rows(draw, rows, public, generation, "logit"), generation, len(rows))
    tokens = pick(draw, utilities(draw, public, summed))
    return [text_of(tokens[start : start + WORDS]) for start in range(0, len(tokens), WORDS)]


def text_of(words: Words) -> str:
    return " ".join(f"w{word}" for word in words)


def audit(seed: int, write: Callable[[Sequence[Words]], list[str]]) -> Any:
    """The audit of one release of the units that a key has put into the first of two blocks."""
    source = random.Random(seed)
    written = {f"unit {number}": source.choices(range(VOCABULARY), k=WORDS) for number in range(UNITS)}
    scheme = PartitionScheme(source.randbytes(32), 2)

    def side(block: int) -> list[Words]:
        part = SomeBlocks.of(scheme, [block])
        return [words for unit, words in written.items() if part.reads(unit)]

    def opened(block: int) -> Iterator[str]:
        return map(text_of, side(block))

    released = write(side(0))
    hold_out = HoldOut(partial(opened, 0), partial(opened, 1), 0.5, CLAIM, float(DELTA))
    subject = EvaluationInput([Text(text) for text in released], documents=lambda: (), hold_out=hold_out)
    return disclosures(subject)


HONEST = calibrate(rho_of("1", DELTA), WORDS, 1, "1")


def without_clipping(honest: IntegerTableMechanism) -> IntegerTableMechanism:
    """The draw with room for unclipped rows, at whose honest top they saturate, so that no word is copied."""
    steps = round(PUSH * 2**honest.grid_exponent)
    return replace(honest, clip_steps=steps, head_room=steps)


def test_the_shipped_draw_is_not_told_from_chance() -> None:
    found = audit(1, lambda read: release(read[:TEXTS], HONEST, drawn))
    assert (found.values["true"], found.values["phantom"]) == (0, 0)
    assert float(found.values["epsilon_at_least"]) == 0


@pytest.mark.parametrize("twin", ["no clipping", "no noise"])
def test_a_broken_twin_is_caught(twin: str) -> None:
    broken, pick = (without_clipping(HONEST), drawn) if twin == "no clipping" else (HONEST, without_noise)
    found = audit(2, lambda read: release(read[:TEXTS], broken, pick))
    assert found.values["true"] >= 20
    assert found.values["phantom"] == 0
    assert float(found.values["epsilon_at_least"]) > CLAIM
    assert "CONTRADICTS" in found.line


def test_what_people_share_by_chance_is_not_taken_for_a_leak() -> None:
    """The null control, of 200 keys: disclosures are many, true in about half, and the bound is rarely above 0."""
    phrases = [random.Random(number).choices(range(VOCABULARY), k=4) for number in range(150)]

    def phrased(source: random.Random) -> Words:
        return [word for phrase in source.sample(phrases, 3) for word in phrase]

    def write(seed: int) -> list[str]:
        return [text_of(phrased(random.Random(f"{seed} {number}"))) for number in range(TEXTS)]

    found = [control(seed, phrased, write(seed)) for seed in range(200)]
    named = [(each.values["true"], each.values["phantom"]) for each in found]
    true, phantom = (sum(side) for side in zip(*named, strict=True))
    assert phantom > 500
    assert 0.45 < true / (true + phantom) < 0.55
    above = sum(float(each.values["epsilon_at_least"]) > 0 for each in found)
    assert above <= 20  # of 200 at 5 %: more than 20 have probability 0.001
    assert not any("CONTRADICTS" in each.line for each in found)


def control(seed: int, phrased: Callable[[random.Random], Words], released: Sequence[str]) -> Any:
    source = random.Random(f"units {seed}")
    written = {f"unit {number}": text_of(phrased(source)) for number in range(60)}
    parts = [SomeBlocks.of(PartitionScheme(source.randbytes(32), 2), [block]) for block in (0, 1)]
    read, held_out = ([text for unit, text in written.items() if part.reads(unit)] for part in parts)
    subject = EvaluationInput(
        [Text(text) for text in released],
        documents=lambda: (),
        hold_out=HoldOut(lambda: read, lambda: held_out, 0.5, CLAIM, float(DELTA)),
    )
    return disclosures(subject)
