"""Tokenised prompts of an adapter: one around a document that is read, one around the soft tokens."""

from typing import Any

from tasks.adapters.metadata import AdapterWording
from tasks.inference.prompt_rendering import PromptPieces, control_tokens, private_prompt
from tasks.inference.prompt_spec import control_token_written


def reading_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """Return the prompt around a document, which the hidden state of the last token represents.

    The suffix opens the answer with the wording's first words. The state after "This text is about" predicts the
    next word, that is the subject; the state after an empty answer mostly predicts how answers begin (the idea of
    taking a text's meaning from the next word: Jiang et al. 2023, "Scaling Sentence Embeddings with Large Language
    Models"; docs/adapters.md has its effect here).

    Args:
        about: the public metadata of the group.

    Raises:
        `bad_template`, BadDescription, NoChatTemplate.
    """
    pieces = private_prompt(tokenizer, wording.reading_spec(), about)
    opening = tuple(tokenizer(wording.reading_opening, add_special_tokens=False)["input_ids"])
    if not control_tokens(tokenizer).isdisjoint(opening):
        raise control_token_written("private")
    return PromptPieces(pieces.prefix, pieces.suffix + opening)


def writing_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """Return the prompt around the soft tokens of a summary. Arguments and errors as `reading_pieces`."""
    return private_prompt(tokenizer, wording.writing_spec(), about)
