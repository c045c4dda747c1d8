"""Assignment of keywords to units by the model, from the released set alone (URANIA, appendix G.3).

The model reads the set and one unit's summary, and its answer is held to a grammar of lines of the set. So a unit has
at most the allowed number of keywords, all of them public, for any output of the model: a set of at most k bins
(PRIVACY §5). A unit's choice is a function of its summary and of public values, bit for bit. The wording is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

from tasks.analysis.facets.constrained_completion import ask_device, complete_constrained
from tasks.common.progress import Progress
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_rendering import PromptPieces, private_prompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint, lines_of
from tasks.values.results import Facets

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
"""Alternative answer of the grammar. The prompt does not offer it: a small model would nearly always take it."""

CONTRAST = 1.0
"""Weight of the contrast in `complete_constrained`; without it a small model takes the first keywords of the list."""

MAX_TEXT_TOKENS = 128
"""Tokens of a summary that the model reads."""

MAX_NEW_TOKENS = 64
"""Tokens of an answer, the end included; a keyword that would not be finished is not begun."""

MOST_SHOWN = 2000
"""Tokens of keywords that are shown at once. A longer list is shown in parts, one prompt each."""

MOST_CHARACTERS = 6000
"""Characters of keywords shown at once: a prompt template has at most 8,000 (`tasks.inference.prompt_spec`)."""

_FEWEST_SHOWN = 100

_PREFIXES = (256, 512, 1024)
"""Lengths to which shorter prompts are padded, so that shapes are known before there are any keywords."""


@dataclass(frozen=True)
class ModelKeywordAssigner:
    """A `KeywordAssigner` (`tasks.analysis.keywords.assign`) by the model.

    Attributes:
        shown: tokens of keywords that are shown at once.
        prefixes: allowed numbers of tokens before a text, ascending.
    """

    engine: Engine
    shown: int
    prefixes: tuple[int, ...]
    progress: Progress = lambda done, of: None

    @classmethod
    def of(cls, engine: Engine, progress: Progress = lambda done, of: None, most: int = 99) -> "ModelKeywordAssigner":
        """Build the assigner; anything that does not fit the model or the device is refused here, before spending.

        Args:
            most: keywords of a unit.

        Raises:
            RowsNotIsolated, NotEnoughMemory: the device cannot run the passes.
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: the model cannot write lines of a list.
            NoChatTemplate, ContextTooLong: the model cannot take the prompt.
        """
        GrammarConstraint(lines_of([], 1, OTHERWISE), engine.model, MAX_NEW_TOKENS)
        fixed_tokens = len(_prompt(engine, [], 99).tokens) + MAX_TEXT_TOKENS + MAX_NEW_TOKENS
        room = engine.model.longest - fixed_tokens
        if room < _FEWEST_SHOWN:
            raise ContextTooLong(fixed_tokens + _FEWEST_SHOWN, engine.model.longest)
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
        """Implement `KeywordAssigner`, without points. A unit without a summary or an answer has no keyword."""
        if not facets:
            return []
        parts = [self._of_part(facets, part, keywords, most) for part in self._parts(keywords)]
        return [_interleave([part[unit] for part in parts], most) for unit in range(len(facets))]

    def _of_part(
        self, facets: Sequence[Facets], part: Sequence[int], keywords: Sequence[str], most: int
    ) -> list[list[int]]:
        """Return for each unit the indices that it chose from a part of the set."""
        number = {keywords[index]: index for index in part}
        grammar = GrammarConstraint(lines_of(list(number), most, OTHERWISE), self.engine.model, MAX_NEW_TOKENS)
        prompt = _prompt(self.engine, list(number), most)
        texts = [unit.summary for unit in facets]
        prefix = next((length for length in self.prefixes if length >= len(prompt.prefix)), 0)
        answers = complete_constrained(
            self.engine, prompt, texts, grammar, MAX_TEXT_TOKENS, self.progress, CONTRAST, prefix
        )
        return [[number[line] for line in (answer or "").split("\n") if line in number] for answer in answers]

    def _parts(self, keywords: Sequence[str]) -> list[list[int]]:
        """Split the set in its public order into parts that can be shown at once."""
        parts: list[list[int]] = []
        tokens = characters = 0
        for index, keyword in enumerate(keywords):
            keyword_tokens = len(self.engine.model.tokenizer(f"{keyword}\n", add_special_tokens=False)["input_ids"])
            tokens, characters = tokens + keyword_tokens, characters + len(keyword) + 1
            if not parts or tokens > self.shown or characters > MOST_CHARACTERS:
                parts.append([])
                tokens, characters = keyword_tokens, len(keyword) + 1
            parts[-1].append(index)
        return parts


def _interleave(chosen: Sequence[Sequence[int]], most: int) -> tuple[int, ...]:
    """Return the first choice of each part, then the second of each, without repeats, at most `most`."""
    ranked = chain.from_iterable(zip_longest(*chosen))
    return tuple(dict.fromkeys(index for index in ranked if index is not None))[:most]


def _prompt(engine: Engine, keywords: Sequence[str], most: int) -> PromptPieces:
    keyword_lines = "\n".join(keywords).replace("{", "{{").replace("}", "}}")
    question = ASK.format(keywords=keyword_lines, most=most)
    return private_prompt(engine.model.tokenizer, PromptSpec("keywords", system=SYSTEM, private=question))
