"""Texts from public logits alone: what baselines draw, and what private systems draw after their last private step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from models_db.values.requests import ExactDecimal
from tasks.generation.decoding.generate import ready_to_draw
from tasks.generation.decoding.invisible_ink_rule import InvisibleInkRule
from tasks.generation.decoding.journal import Earlier
from tasks.generation.decoding.loop import Constraint, Drawing, DrawMeter, Job
from tasks.generation.decoding.run_context import Bench
from tasks.inference.backends.interface import Sampling, TextBackend
from tasks.inference.backends.local import LocalBackend
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompts.render import PromptPieces
from tasks.mechanisms.tokens import sampler as samplers
from tasks.mechanisms.tokens.sampler import public_draw
from tasks.values.generated import GeneratedText


@dataclass(frozen=True)
class Drawn:
    """How public texts are drawn: the exact softmax of the candidates at a temperature."""

    max_new_tokens: int
    temperature: ExactDecimal
    top_k: int
    sampler: samplers.Kind = samplers.DEFAULT


def draw_public_texts(
    bench: Bench, prompts: Sequence[Sequence[int]], how: Drawn, constraint: Constraint | None
) -> list[GeneratedText]:
    """One text for each prompt; nothing is paid for, whatever was put into the prompts has been.

    What costs nothing is not written down on the way: a run that was interrupted draws it anew.
    """
    draw = public_draw(how.temperature, how.sampler)  # without rows it is a plain exact softmax
    meter = DrawMeter(how.max_new_tokens, how.max_new_tokens, lambda number: None)
    jobs = [Job(PromptPieces((), tuple(prompt))) for prompt in prompts]
    sizes = Sizes.of([job.public for job in jobs], [], 0, how.max_new_tokens)
    rule = partial(InvisibleInkRule, draw, how.top_k, "logit", bench.rng)
    unkept = replace(bench, drawn=lambda armed, drawn: None)
    with ready_to_draw(unkept, Drawing(sizes, rule, constraint), len(jobs), Earlier()) as draw_texts:
        return draw_texts(jobs, meter)


def text_backend(bench: Bench) -> TextBackend:
    """Who writes texts from public prompts: the external model, or the engine."""
    return bench.outside or LocalBackend(bench.engine.model, partial(_from_public_prompts, bench))


def _from_public_prompts(bench: Bench, prompts: Sequence[Sequence[int]], how: Sampling) -> list[GeneratedText]:
    return draw_public_texts(bench, prompts, Drawn(how.max_new_tokens, how.temperature, how.top_k), None)
