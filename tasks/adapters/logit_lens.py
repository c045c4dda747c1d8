"""Logit lens: words for a mean hidden state, without training, by the model's own head.

A hidden state at the end of a reading prompt represents the next token, which the head predicts. The head's output for
a whole mean is how most titles begin; its output for the DIFFERENCE from the public mean is specific to the titles of
this group. So it can name words that no public example has. (Reading inner states
through the head is known as the logit lens: nostalgebraist 2020, "interpreting GPT: the logit lens". Here it is
post-processing of a noisy mean.)
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import control_tokens

_LENGTH_POWER: Final = 0.5
"""Power of a row's length that divides its score. Without it rare tokens, which have long rows, would always win; with
power 1, vague words would."""

_PRIOR_SHARE: Final = 0.15
"""Weight of the output for the public mean: it excludes words that begin no title."""

_LEAST_WORDS: Final = 500
"""Least number of whole words; a vocabulary with fewer is used completely."""


@dataclass(frozen=True, eq=False)
class Lens:
    """Rows of a model's head and embeddings for words; all float32 on the CPU.

    Attributes:
        tokens: int64 [W], the vocabulary's words.
        rows: [W, D], their rows of the head, minus the mean row.
        embeddings: [W, D], their input embeddings.
    """

    tokens: Tensor
    rows: Tensor
    embeddings: Tensor

    def words(self, directions: Tensor, mean: Tensor, count: int) -> Tensor:
        """Return the likeliest words of each direction, likeliest first.

        Args:
            directions: float32 [B, D], differences from `mean`.
            mean: float32 [D], the public mean of hidden states.

        Returns:
            int64 [B, count], places in `tokens`.
        """
        scores = (directions + _PRIOR_SHARE * mean) @ self.rows.T
        lengths = self.rows.norm(dim=1).clamp_min(1e-6) ** _LENGTH_POWER
        places: Tensor = (scores / lengths).topk(count, dim=1).indices
        return places


def lens_of(model: LanguageModel) -> Lens:
    """Return the lens of a language model: lowercase words, or all text where its vocabulary has few."""
    tokens = torch.tensor(word_tokens(model.tokenizer, model.vocabulary))
    rows = model.head_weight.detach().float().cpu()[tokens]
    table = model.decoder.get_input_embeddings().weight.detach()
    embeddings = table[tokens.to(table.device)].float().cpu()
    return Lens(tokens, rows - rows.mean(0), embeddings)


def word_tokens(tokenizer: Any, vocabulary: int) -> list[int]:
    """Return ids of tokens that are whole words: they begin one (the marks of byte-level BPE and of SentencePiece), and
    have three letters or more, none of them a capital. In a vocabulary with few of those, every token of letters."""
    control = control_tokens(tokenizer)
    texts = [(number, tokenizer.convert_ids_to_tokens(number)) for number in range(min(vocabulary, len(tokenizer)))]
    text_tokens = [(number, token) for number, token in texts if number not in control and isinstance(token, str)]
    words = [
        number for number, token in text_tokens if re.fullmatch("[Ġ▁][^\\W\\d_]{3,}", token) and token[1:].islower()
    ]
    if len(words) >= _LEAST_WORDS:
        return words
    return [number for number, _ in text_tokens if any(sign.isalpha() for sign in tokenizer.decode([number]))]
