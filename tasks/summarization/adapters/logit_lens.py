"""Words that a mean hidden state is about, without any training: the model's own head, asked about the direction.

A hidden state at the end of a reading prompt is one of what comes next, and the head says what that is. The head's
answer to a whole mean is what most titles begin with; its answer to the DIFFERENCE from the public mean is what this
group's titles have and others' have not. So words can be named that no public example has. (Reading inner states
through the head is known as the logit lens: nostalgebraist 2020, "interpreting GPT: the logit lens". Here it is
post-processing of a noisy mean.)
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import control_tokens

_LENGTH_POWER: Final = 0.5
"""How far a row's length is taken out. Rare tokens have long rows and would win every time; with a whole power, vague
words would."""

_PRIOR_SHARE: Final = 0.15
"""How much the answer to the public mean counts: it keeps words away that begin no title at all."""

_LEAST_WORDS: Final = 500
"""A vocabulary with fewer whole words is taken as it is."""


@dataclass(frozen=True, eq=False)
class Lens:
    """What a model has for naming words; everything is float32 on the CPU.

    Attributes:
        tokens: int64 [W], the vocabulary's words.
        rows: [W, D], their rows of the head, without what all have in common.
        embeddings: [W, D], what the model reads for them.
    """

    tokens: Tensor
    rows: Tensor
    embeddings: Tensor

    def words(self, directions: Tensor, mean: Tensor, count: int) -> Tensor:
        """The likeliest words of each direction, likeliest first.

        Args:
            directions: float32 [B, D], differences from `mean`.
            mean: float32 [D], the public mean of hidden states.

        Returns:
            int64 [B, count], places in `tokens`.
        """
        scores = (directions + _PRIOR_SHARE * mean) @ self.rows.T
        lengths = self.rows.norm(dim=1).clamp_min(1e-6) ** _LENGTH_POWER
        found: Tensor = (scores / lengths).topk(count, dim=1).indices
        return found


def lens_of(model: LanguageModel) -> Lens:
    """The lens of a language model: words in small letters, or all text where its vocabulary has few."""
    tokens = torch.tensor(word_tokens(model.tokenizer, model.vocabulary))
    rows = model.head_weight.detach().float().cpu()[tokens]
    table = model.decoder.get_input_embeddings().weight.detach()
    embeddings = table[tokens.to(table.device)].float().cpu()
    return Lens(tokens, rows - rows.mean(0), embeddings)


def word_tokens(tokenizer: Any, vocabulary: int) -> list[int]:
    """Ids of tokens that are whole words: they begin one (the marks of byte-level BPE and of SentencePiece), and have
    three letters or more, none of them a capital. In a vocabulary with few of those, every token of letters."""
    control = control_tokens(tokenizer)
    spelt = [(number, tokenizer.convert_ids_to_tokens(number)) for number in range(min(vocabulary, len(tokenizer)))]
    plain = [(number, token) for number, token in spelt if number not in control and isinstance(token, str)]
    words = [number for number, token in plain if re.fullmatch("[Ġ▁][^\\W\\d_]{3,}", token) and token[1:].islower()]
    if len(words) >= _LEAST_WORDS:
        return words
    return [number for number, _ in plain if any(sign.isalpha() for sign in tokenizer.decode([number]))]
