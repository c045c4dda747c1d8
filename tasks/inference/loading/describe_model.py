"""Description of a model from its settings: the shape of its network, its chat template, this machine's precisions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.inference.catalogue.devices import choose_devices
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.precision import PRECISIONS
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.loading.loading import read_tokenizer, require_supported, weights_problem
from tasks.inference.loading.network_shape import shape_of
from tasks.inference.loading.resource_requirements import group_of_machine, machine_of
from tasks.inference.network.capabilities import missing_everywhere
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import NoChatTemplate, private_prompt, public_prompt

SHORTEST = PromptSpec("a", system="a", public="a", private="{reference} a")
"""A prompt of nearly no words: its tokens are those of the chat template."""
WORDS = 4
"""Tokens of the words of `SHORTEST`, and one for what an end of a word may merge with."""


@dataclass(frozen=True)
class ChatTemplate:
    """Chat template of a model: the least tokens that it adds, or why it cannot be used."""

    problem: str = ""
    tokens: int = 0


def describe_model(name: str, folder: Path, template: ChatTemplate | None = None) -> ModelCheck:
    """Return the check of the model whose settings are in `folder`; no weights are needed, and of those there
    only the names and shapes are read.

    Args:
        template: where it is known already; then no tokenizer is read.

    Raises:
        UnreadableModel: there is no configuration that transformers understands.
    """
    missing = {precision: reason for precision in PRECISIONS if (reason := missing_everywhere(precision))}
    try:
        network = require_supported(name, folder)
    except UnsupportedModel as refusal:
        return ModelCheck(name=name, problem=refusal.reason, missing=missing)
    if template is None:
        try:
            template = _template(read_tokenizer(name, folder))
        except Exception as error:  # noqa: BLE001 - transformers and tokenizers each raise their own; nothing is private
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            return ModelCheck(name=name, problem=f"its tokenizer cannot be read ({reason})", missing=missing)
    if problem := weights_problem(folder):
        return ModelCheck(name=name, problem=problem, missing=missing)
    return ModelCheck(
        name=name,
        template_problem=template.problem,
        conversation_tokens=template.tokens,
        missing=missing,
        shape=shape_of(network),
        machine=machine_of(choose_devices()),
        group=group_of_machine(),
    )


def _template(tokenizer: Any) -> ChatTemplate:
    try:
        pairs = (public_prompt(tokenizer, SHORTEST), private_prompt(tokenizer, SHORTEST))
    except NoChatTemplate as refusal:
        return ChatTemplate(refusal.reason)
    except Exception as error:  # noqa: BLE001 - as above
        return ChatTemplate(f"its chat template cannot be rendered ({type(error).__name__})")
    return ChatTemplate(tokens=max(0, min(len(pieces.tokens) for pieces in pairs) - WORDS))
