"""The model's choice of keywords for each unit, from the released set and nothing else (URANIA, appendix G.3).

The model reads the set and one unit's summary, and its answer is held to a grammar of lines of the set. So a unit has
at most as many keywords as were allowed, all of them public, whatever the model makes of it: a set of at most k bins
(PRIVACY §5). A unit's choice is a function of its summary and of public things, bit for bit. The wording is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tasks.analysis.facets.constrained_completion import ask_device, complete_constrained
from tasks.common.progress import Progress
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.shapes import ContextTooLong
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import PromptPieces, private_prompt
from tasks.inference.structured_output.greedy_decoding import Grammar, lines_of
from tasks.values.insight import Facets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Points = NDArray[np.float32]

SYSTEM = "You label texts with keywords from a list. You answer with keywords of the list alone, one a line."
ASK = """The list of keywords:
{keywords}

Text: {{reference}}

Label this text with the keywords of the list that fit it best, at most {most}, the best first."""
OTHERWISE = "none of these"
"""What the model may say instead. The question does not offer it: a small model would nearly always take it."""

CONTRAST = 1.0
"""See `complete`: without it a small model takes what stands first in the list, whatever the text."""
MAX_TEXT_TOKENS = 128
"""What the model reads of a summary."""
MAX_NEW_TOKENS = 64
"""What it may answer, the end included; a keyword that would not be finished is not begun."""
MOST_SHOWN = 2000
"""Tokens of keywords that are shown at once. A longer list is shown in parts, each of which is asked about."""
MOST_CHARACTERS = 6000
"""Characters of them: a template of a prompt is not longer than 8,000 (`tasks.inference.prompts.templates`)."""
_FEWEST_SHOWN = 100
_PREFIXES = (256, 512, 1024)
"""Tokens that a shorter prompt is filled up to, so that its shapes are known before there are any keywords."""


@dataclass(frozen=True)
class ModelKeywordAssigner:
    """A `KeywordAssigner` (`tasks.analysis.keywords.assign`) by the model.

    Attributes:
        shown: tokens of keywords that are shown at once.
        prefixes: how many tokens may stand before a text, ascending.
    """

    engine: Engine
    shown: int
    prefixes: tuple[int, ...]
    progress: Progress = lambda done, of: None

    @classmethod
    def of(cls, engine: Engine, progress: Progress = lambda done, of: None, most: int = 99) -> "ModelKeywordAssigner":
        """The chooser; whatever does not fit the model or the device is refused here, before anything is spent.

        Args:
            most: keywords of a unit.

        Raises:
            RowsNotIsolated, NotEnoughMemory: the device cannot be asked for them.
            TokenizerNotSupported, NoEnd, TokenLimitTooSmall: the model cannot write lines of a list.
            NoChatTemplate, ContextTooLong: nor can it be asked for them.
        """
        Grammar.of(lines_of([], 1, OTHERWISE), engine.model, MAX_NEW_TOKENS)
        taken = len(_prompt(engine, [], 99).tokens) + MAX_TEXT_TOKENS + MAX_NEW_TOKENS
        room = engine.model.positions - taken
        if room < _FEWEST_SHOWN:
            raise ContextTooLong(taken + _FEWEST_SHOWN, engine.model.positions)
        shown, empty = min(room, MOST_SHOWN), _prompt(engine, [], most)
        longest = len(empty.prefix) + shown
        prefixes = (*(length for length in _PREFIXES if len(empty.prefix) < length < longest), longest)
        for prefix in prefixes:
            ask_device(engine, empty, MAX_TEXT_TOKENS, MAX_NEW_TOKENS, CONTRAST, prefix)
        return cls(engine, shown, prefixes, progress)

    def __call__(
        self,
        facets: Sequence[Facets],
        points: "Points",
        keywords: Sequence[str],
        keyword_points: "Points",
        most: int,
    ) -> list[tuple[int, ...]]:
        """As `KeywordAssigner` says, without points. A unit without a summary or an answer has no keyword."""
        if not facets:
            return []
        parts = [self._of_part(facets, part, keywords, most) for part in self._parts(keywords)]
        return [_in_turn([part[unit] for part in parts], most) for unit in range(len(facets))]

    def _of_part(
        self, facets: Sequence[Facets], part: Sequence[int], keywords: Sequence[str], most: int
    ) -> list[list[int]]:
        """For each unit the indices that it chose of a part of the set."""
        number = {keywords[index]: index for index in part}
        grammar = Grammar.of(lines_of(list(number), most, OTHERWISE), self.engine.model, MAX_NEW_TOKENS)
        prompt = _prompt(self.engine, list(number), most)
        texts = [unit.summary for unit in facets]
        prefix = next((length for length in self.prefixes if length >= len(prompt.prefix)), 0)
        answers = complete_constrained(
            self.engine, prompt, texts, grammar, MAX_TEXT_TOKENS, self.progress, CONTRAST, prefix
        )
        return [[number[line] for line in (answer or "").split("\n") if line in number] for answer in answers]

    def _parts(self, keywords: Sequence[str]) -> list[list[int]]:
        """The set in its public order, cut where it becomes too long to be shown at once."""
        parts: list[list[int]] = []
        tokens = characters = 0
        for index, keyword in enumerate(keywords):
            own = len(self.engine.model.tokenizer(f"{keyword}\n", add_special_tokens=False)["input_ids"])
            tokens, characters = tokens + own, characters + len(keyword) + 1
            if not parts or tokens > self.shown or characters > MOST_CHARACTERS:
                parts.append([])
                tokens, characters = own, len(keyword) + 1
            parts[-1].append(index)
        return parts


def _in_turn(chosen: Sequence[Sequence[int]], most: int) -> tuple[int, ...]:
    """The first of each part, then the second of each, each once and `most` at most."""
    ranked = chain.from_iterable(zip_longest(*chosen))
    return tuple(dict.fromkeys(index for index in ranked if index is not None))[:most]


def _prompt(engine: Engine, keywords: Sequence[str], most: int) -> PromptPieces:
    listed = "\n".join(keywords).replace("{", "{{").replace("}", "}}")
    asked = ASK.format(keywords=listed, most=most)
    return private_prompt(engine.model.tokenizer, PromptSpec("keywords", system=SYSTEM, private=asked))
