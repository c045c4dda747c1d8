"""What the sections about speed decode, on every side of the comparison."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from benchmarks.inference.decoding import Work
from tasks.decoding.loop import GenerationJob
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.shapes import Sizes
from tasks.inference.prompt_rendering import PromptPieces


@dataclass(frozen=True)
class Plan:
    """What a section decodes.

    Attributes:
        references: their numbers, the most telling first.
        reference_tokens, prompt: tokens of a reference and around it.
        tokens: new tokens of a text at most; a measurement ends after `seconds`, but not before a few steps.
        most: generations at once at most.
    """

    model: str
    references: tuple[int, ...]
    precision: Precision = "bfloat16"
    reference_tokens: int = 256
    prompt: int = 80
    tokens: int = 48
    seconds: float = 10.0
    most: int = 512

    def work(self, references: int, generations: int, vocabulary: int, tokens: int | None = None) -> Work:
        """Jobs of so many generations; references are of the full length down to three quarters of it."""
        numbers = token_ids(vocabulary)
        taken = partial(islice, numbers)
        public = PromptPieces(tuple(taken(self.prompt)), ())
        private = PromptPieces(tuple(taken(self.prompt // 2)), tuple(taken(self.prompt // 2)))
        jobs = tuple(
            GenerationJob(public, private, tuple(tuple(taken(self._length(row))) for row in range(references)))
            for _ in range(generations)
        )
        sizes = Sizes.of([public], [private], self.reference_tokens, tokens or self.tokens, references)
        return Work(jobs, sizes)

    def _length(self, row: int) -> int:
        return self.reference_tokens - row * 7 % max(1, self.reference_tokens // 4)


def token_ids(vocabulary: int) -> Iterator[int]:
    """Token ids, the same every time."""
    number = 12345
    while True:
        number = (number * 1103515245 + 12345) % 2**31
        yield number // 8 % (vocabulary - 10) + 8
