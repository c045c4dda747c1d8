"""Sampling from public logits alone: for baselines, and for private systems after their last private step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from models_db.values.requests import ExactDecimal
from tasks.decoding.generate import open_decoder
from tasks.decoding.journal import ResumeState, RunJournal
from tasks.decoding.loop import Constraint, DecodingSpec, DrawMeter, GenerationJob
from tasks.decoding.run_context import RunContext
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.decoding.sentence_completion import sentence_completion
from tasks.inference.backends.text_backend import LocalBackend, Sampling, TextBackend
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces
from tasks.mechanisms.tokens.integer_table import public_sampler
from tasks.values.results import GeneratedText


@dataclass(frozen=True)
class PublicSampling:
    """Sampling of public texts: the exact softmax of the candidates at a temperature.

    Attributes:
        completion_tokens: tokens beyond `max_new_tokens` that may finish the last sentence of a text.
    """

    max_new_tokens: int
    temperature: ExactDecimal
    top_k: int
    completion_tokens: int = 0


def draw_public_texts(
    context: RunContext, prompts: Sequence[Sequence[int]], how: PublicSampling, constraint: Constraint | None
) -> list[GeneratedText]:
    """Return one text for each prompt, free of charge: private values in the prompts are already paid for.

    A text ends as the request's form of prompt says. Free draws are not journalled: an interrupted run repeats them.
    """
    draw = public_sampler(how.temperature)  # without rows it is a plain exact softmax
    meter = DrawMeter(how.max_new_tokens, how.max_new_tokens, lambda number: None)
    jobs = [GenerationJob(PromptPieces((), tuple(prompt))) for prompt in prompts]
    sizes = Sizes.of([job.public for job in jobs], [], 0, how.max_new_tokens + how.completion_tokens)
    rule = partial(InvisibleInkRule, draw, how.top_k, "logit", context.rng)
    unkept = replace(context, journal=RunJournal())
    completion = sentence_completion(how.completion_tokens, how.temperature, how.top_k, context.rng)
    drawing = DecodingSpec(sizes, rule, constraint, context.prompt.end, completion=completion)
    with open_decoder(unkept, drawing, len(jobs), ResumeState()) as draw_texts:
        return draw_texts(jobs, meter)


def text_backend(context: RunContext) -> TextBackend:
    """Return the writer of texts from public prompts: the external model, or the engine."""
    return context.outside or LocalBackend(context.engine.model, partial(_from_public_prompts, context))


def _from_public_prompts(context: RunContext, prompts: Sequence[Sequence[int]], how: Sampling) -> list[GeneratedText]:
    return draw_public_texts(context, prompts, PublicSampling(how.max_new_tokens, how.temperature, how.top_k), None)
