"""System: a release that says how many units have each of some public words, one text a word."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from laboratory.word_histogram import WordHistogram
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from tasks.accounting.rounding import decimal_above
from tasks.decoding.run_context import RunContext
from tasks.systems.base import System
from tasks.values.plan import Plan, PlanInputs, invoked_once
from tasks.values.results import Generated, GeneratedText

Word = Annotated[str, Field(pattern="^[a-z]+$", max_length=40)]


class WordCountParameters(BaseModel):
    """Parameters of a request; all are public. `samples`, the number of texts, belongs to every synthetic corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: Annotated[tuple[Word, ...], Field(min_length=1, max_length=100)]
    samples: int

    @model_validator(mode="after")
    def _one_text_a_word(self) -> Self:
        if self.samples != len(self.words):
            raise ValueError(f"there is a text for each word, so samples is {len(self.words)}")
        return self


class WordCounts(System):
    """The system `laboratory.word_counts`."""

    name: str = "laboratory.word_counts"
    kinds: tuple[str, ...] = ("synthetic_corpus",)
    parameters: type[BaseModel] = WordCountParameters
    charges = True

    def plan(self, ask: PlanInputs) -> Plan:
        """Buy one histogram in one instalment, charged to every block.

        Raises:
            NoiseInvalid: the amount buys nothing.
        """
        words = _words(ask.parameters)
        histogram = WordHistogram.calibrated(ask.amount or Amount(), len(words))
        return Plan(
            invocations=invoked_once([histogram.event()]),
            blocks=tuple(range(ask.blocks)),
            samples=len(words),
            facts={"words": " / ".join(words), "noise sigma": str(decimal_above(histogram.histogram.scale, 2))},
            rows=0,
            steps=0,
            prompt_tokens=0,
            amount=ask.amount or Amount(),
        )

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        """Count the words in the texts of all units, once and after it was paid for, and write a text of each count."""
        words = _words(parameters)
        histogram = WordHistogram.calibrated(plan.amount, len(words))
        plan.require_invoking([histogram.event()])

        def counts() -> list[int]:
            found = [0] * len(words)
            for lot in context.lots(plan.blocks):
                for placed in lot.units:
                    own = set(placed.unit.text.lower().split())
                    found = [count + (word in own) for count, word in zip(found, words, strict=True)]
            return found

        def draw(private: list[int]) -> Json:
            return list(histogram.draw(private, context.rng))

        context.begin_steps(plan)
        released = context.release("counts", [0], counts, draw)
        texts = (f"{word}: {count}" for word, count in zip(words, released, strict=True))
        return Generated(tuple(GeneratedText(text, tokens=3, complete=True) for text in texts))


def _words(parameters: BaseModel) -> tuple[str, ...]:
    if not isinstance(parameters, WordCountParameters):
        raise TypeError(f"parameters of word_counts are needed, not {type(parameters).__name__}")
    return parameters.words


WORD_COUNTS = WordCounts()
