"""The two prompts of an adapter as tokens: one around a document that is read, one around the soft tokens."""

from typing import Any

from tasks.inference.prompts.render import PromptPieces, control_tokens, private_prompt
from tasks.inference.prompts.templates import ControlTokens
from tasks.summarization.adapters.metadata import AdapterWording


def reading_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """The prompt of a row: its document stands between, and the hidden state of the last token stands for it.

    The suffix opens the answer with the wording's first words. The state after "This text is about" is one of what
    comes next, that is of the subject; the state after an empty answer is mostly one of how answers begin (the idea of
    asking for a text's meaning in the next word: Jiang et al. 2023, "Scaling Sentence Embeddings with Large Language
    Models"; how much it gives here is in docs/adapters.md).

    Args:
        about: the public metadata of the group.

    Raises:
        BadTemplate, BadDescription, NoChatTemplate.
    """
    pieces = private_prompt(tokenizer, wording.reading_spec(), about)
    opening = tuple(tokenizer(wording.reading_opening, add_special_tokens=False)["input_ids"])
    if not control_tokens(tokenizer).isdisjoint(opening):
        raise ControlTokens("private")
    return PromptPieces(pieces.prefix, pieces.suffix + opening)


def writing_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """The prompt of a summary: the soft tokens stand between. Arguments and errors as `reading_pieces`."""
    return private_prompt(tokenizer, wording.writing_spec(), about)
