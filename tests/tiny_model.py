"""A language model small enough for every test: random weights, and one token per byte."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.inference.catalogue import registry
from tasks.inference.catalogue.model_check import ModelCheck, Precision
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.prompt_rendering import RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.structured_output.form import has_grammar
from tasks.inference.structured_output.grammar_constraint import constraint_for
from tests.tiny_tokenizer import tiny_tokenizer

NAME = "tiny"
DIGEST = "d" * 64
SPEC = registry.ModelSpec(NAME, "causal_lm", "tiny==1", "tiny", DIGEST, "1", "Apache-2.0", "random weights")
LISTED = registry.ListedModel(NAME, SPEC.revision, "tests", SPEC.licence, SPEC.note, True, DIGEST)


def tiny_network(seed: int, spread: float) -> tuple[Any, Any]:
    """A Llama of random weights, and its tokenizer.

    Args:
        seed: of the weights.
        spread: their standard deviation. The larger, the surer of itself is the model.
    """
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        initializer_range=spread,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config).eval(), tokenizer


@cache
def tiny_model(precision: Precision = "float32", *, stops: bool = True) -> LanguageModel:
    """The model in `precision`; with `stops=False` no token ends a text, so that every planned draw is made."""
    network, tokenizer = tiny_network(seed=7, spread=0.2)
    device = torch.device("cpu")
    made = wrap_network(
        network, tokenizer, name=NAME, revision=SPEC.revision, digest=DIGEST, device=device, precision=precision
    )
    return made if stops else replace(made, stop_tokens=())


def install(patch: pytest.MonkeyPatch, *, stops: bool = False) -> None:
    """Let requests name the tiny model as one that is pulled; every planned draw is made, unless it `stops`."""
    import flows.releases.evaluate_internal  # here, because a worker that loads the model needs no flows
    import flows.releases.execute

    patch.setattr(registry, "REGISTRY", (*registry.REGISTRY, SPEC))
    patch.setattr(registry, "list_models", lambda: [LISTED])
    patch.setattr("tasks.inference.loading.check_model.check_model", check_tiny)  # it has no files
    patch.setattr("tasks.pricing.model_facts.check_prompt", check_tiny_prompt)
    patch.setattr("tasks.pricing.model_facts.check_grammar", check_tiny_grammar)
    for room in (flows.releases.execute, flows.releases.evaluate_internal):
        patch.setattr(room, "load", load_tiny_that_ends if stops else load_tiny)


def check_tiny(name: str) -> ModelCheck:
    """In place of `check_model.check_model`: it is usable, and nothing is known of its sizes."""
    return ModelCheck(name=name)


def check_tiny_prompt(name: str, spec: PromptSpec, shown: Sequence[str]) -> RenderedPrompt:
    """In place of `tokenizer_checks.check_prompt`."""
    return RenderedPrompt.of(tiny_tokenizer(), spec, shown)


def check_tiny_grammar(name: str, settings: BaseModel) -> None:
    """In place of `tokenizer_checks.check_grammar`."""
    if has_grammar(settings):
        limit: int = settings.max_new_tokens  # type: ignore[attr-defined]  # whatever has a grammar has a limit
        constraint_for(settings, tiny_model(), limit)


def load_tiny(name: str, device: str, precision: Precision = "float32") -> LanguageModel:
    """In place of `loading.load`; a module's own function, so that workers can be told of it."""
    return tiny_model(precision, stops=False)


def load_tiny_that_ends(name: str, device: str, precision: Precision = "float32") -> LanguageModel:
    """The same, with a token that ends a text: what is held to a grammar needs one."""
    return tiny_model(precision)
