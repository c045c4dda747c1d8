"""Sentence completion: the last sentence of a text that its draws have used up is finished by the public model.

A text that the request's limit would cut inside a sentence goes on with tokens of the public row's softmax, at the
temperature of public tokens and among the request's top k: until the sentence has ended (`ends_sentence` of the decoded
text), an end token or the separator has been drawn, or there are N such tokens. They are no draws of the system's rule.

Why they cost nothing. Fix one batch and its text, and let x be the tokens of all texts drawn so
far, with everything else that was released. Three things are decided here, each a function of x and of public values:

* whether the system's own tokens are used up: a count of tokens in x against the limit of the request, less K where the
  text went on after K interruptions (docs/decisions/0023);
* whether the sentence has ended: a function of the text to which the tokens of x decode;
* the distribution of the next token: a softmax of the public row's logits, which are computed in passes without a
  private row, from the public prompt and tokens of x.

So for two neighbouring datasets and the same x each step is the same random function of x: post-processing (Dwork and
Roth 2014, proposition 2.1), with fresh public randomness. It stands behind the last step that reads the batch's rows:
the loop drops them before the first such token, and asks no rule for the text any more. The draws that are charged are
therefore those of the same request without it, T at most, and so is the loss. When a place becomes free for the next
text is a function of x, too, as without it.

Nothing of this holds if a private row, the number of rows, or time decides any of the three: the audit in
tests/statistical/test_sentence_completion_audit.py catches such twins.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from torch import Tensor

from tasks.accounting.rounding import Exact
from tasks.mechanisms.core.rng import RandomSource
from tasks.mechanisms.tokens import utility_scores
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism, public_sampler
from tasks.text.output_cleaning import ends_sentence
from tasks.values.results import GeneratedText


@dataclass(frozen=True)
class SentenceCompletion:
    """How cut sentences are finished; the same for every generation of a release.

    Attributes:
        most: N, tokens of a text that finish its last sentence, at most.
        draw: the exact softmax of public logits at the temperature of public tokens (`integer_table.public_sampler`).
        top_k: candidates of the draw, as in the request; 0 for the whole vocabulary.
    """

    most: int
    draw: IntegerTableMechanism
    top_k: int
    rng: RandomSource
    FACT: ClassVar[str] = "completion_tokens"
    _counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int), init=False, repr=False)

    def count(self, number: int) -> int:
        """Return how many tokens finish the last sentence of a generation so far: a function of the text's tokens."""
        return self._counts[number]

    def facts(self, number: int) -> Mapping[str, float]:
        """Return the count by its name."""
        return {self.FACT: float(self._counts[number])}

    def resume(self, number: int, count: float) -> None:
        """Go on with a text of which so many tokens were no charged draws."""
        self._counts[number] = int(count)

    def next_tokens(self, numbers: Sequence[int], public: Tensor) -> list[int]:
        """Return one token for each generation of `numbers`, from its public logits: float32 [L, V]."""
        for number in numbers:
            self._counts[number] += 1
        return utility_scores.draw_public_tokens(self.draw, public, self.top_k, self.rng)

    def is_done(self, number: int, text: str) -> bool:
        """Return whether nothing is left to finish of a text, decoded from its released tokens."""
        return self._counts[number] >= self.most or ends_sentence(text)


def sentence_completion(
    most: int, temperature: Exact, top_k: int, rng: RandomSource
) -> Callable[[], SentenceCompletion] | None:
    """Makes what finishes cut sentences with `most` public tokens at that temperature; None where there are none."""
    if not most:
        return None
    return partial(SentenceCompletion, most, public_sampler(temperature), top_k, rng)


def completion_figures(texts: Sequence[GeneratedText]) -> dict[str, str]:
    """Return how many tokens finish the last sentence of a text on average, where some may: a released figure."""
    counts = [text.facts[SentenceCompletion.FACT] for text in texts if SentenceCompletion.FACT in text.facts]
    return {"completion_tokens_per_text": f"{sum(counts) / len(counts):.2f}"} if counts else {}
