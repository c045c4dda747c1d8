"""Greedy completions about private texts, constrained by a grammar: facets and chosen keywords.

An answer is greedy, so it is a function of logits; and each text's logits are a function of that text and of public
things alone, bit for bit (PRIVACY §4.2 point 1). A session gives that for rows that enter at public times. An answer's
length is private here, and so would be the time at which the next text enters when one has ended. So texts go in
waves: all texts of a wave enter an empty session together, and none enters until all of them have ended. A text that
ends early leaves, which moves others to other slots, and slots do not matter. All waves have passes of one shape, also
the last and smaller one. The assignment of texts to waves therefore changes nothing but time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tasks.inference.engine.engine import Engine, SessionOpening, SessionSize
from tasks.inference.engine.memory import MemoryRanOut, not_enough_memory
from tasks.inference.engine.session import RowLogits, Session
from tasks.inference.engine.shapes import Sizes, generations_at_once
from tasks.inference.prompt_rendering import PromptPieces, reference_tokens
from tasks.inference.structured_output.grammar_constraint import Answer, GrammarConstraint

ROWS = {"cpu": 32, "cuda": 128}
"""Rows of every pass: fewer than where texts are drawn, because answers end at different times."""
MOST_PLACES = 1024
"""Texts of a wave; more at once are no faster."""

NO_TEXT = "(no text)"
"""Placeholder for a text in the contrast prompt, which has none."""

_FEW = 32  # tokens that are tried before the set of all allowed ones is computed

Tokens = tuple[int, ...]


def complete_constrained(
    engine: Engine,
    prompt: PromptPieces,
    texts: Sequence[str],
    grammar: GrammarConstraint,
    max_text_tokens: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
    contrast: float = 0.0,
    prefix: int = 0,
) -> list[str | None]:
    """Return the model's answer for each text; None for a text that cannot be read or gets no answer.

    Args:
        prompt: the tokens around each text; public.
        max_text_tokens: how many tokens of a text are read.
        progress: called with the number of finished texts and of all texts.
        contrast: weight of tokens that the text makes likelier than NO_TEXT in its place; 0 for the likeliest token.
            It doubles the work.
        prefix: least number of tokens to which the prompt is padded before the text; public.

    Returns:
        complete answers of the grammar, of at most `grammar.max_new_tokens` tokens. A text without a token that the
        model knows, or with logits that are not finite at some step, has no answer, and does not affect other texts.

    Raises:
        ContextTooLong: prompt, text and answer exceed the model's context.
        RowsNotIsolated: this device cannot keep rows apart; also where there is no text.
        NotEnoughMemory: not even one text fits.
    """
    question = _Question.of(engine, prompt, grammar, max_text_tokens, contrast, prefix)
    tokens_of_texts = [reference_tokens(engine.model.tokenizer, text, max_text_tokens) for text in texts]
    results: list[str | None] = [None] * len(texts)
    done = sum(not tokens for tokens in tokens_of_texts)
    for answers in _waves(question, {number: tokens for number, tokens in enumerate(tokens_of_texts) if tokens}):
        for number, answer in answers.items():
            results[number] = answer
        progress(done := done + len(answers), len(texts))
    return results


def ask_device(
    engine: Engine,
    prompt: PromptPieces,
    max_text_tokens: int,
    max_new_tokens: int,
    contrast: float = 0.0,
    prefix: int = 0,
) -> None:
    """Check, before payment, that the device can run all passes of `complete_constrained`; arguments as there.

    Raises:
        ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `complete_constrained`.
    """
    _passes(engine, _sizes(prompt, max_text_tokens, max_new_tokens, contrast, prefix))


def _sizes(prompt: PromptPieces, max_text_tokens: int, max_new_tokens: int, contrast: float, prefix: int) -> Sizes:
    sizes = Sizes.of([prompt.placeholder], [prompt], max_text_tokens, max_new_tokens, references=2 if contrast else 1)
    return replace(sizes, prefix=max(sizes.prefix, prefix))


def _passes(engine: Engine, sizes: Sizes) -> int:
    """Return the rows of every pass: as many as the device can isolate."""
    model = engine.model
    sizes.check_fits(model)
    most = SessionSize(1, ROWS.get(model.device.type, ROWS["cpu"]))
    return SessionOpening(model, engine.isolation, sizes).find_size(most, lambda room: room).rows


@dataclass(frozen=True)
class _Question:
    """The common question for all texts, with its public sizes.

    Attributes:
        passes: rows of every pass, as many as the device can isolate.
    """

    engine: Engine
    public: PromptPieces
    private: PromptPieces
    sizes: Sizes
    grammar: GrammarConstraint
    contrast: float
    without: Tokens
    passes: int

    @classmethod
    def of(
        cls,
        engine: Engine,
        prompt: PromptPieces,
        grammar: GrammarConstraint,
        max_text_tokens: int,
        contrast: float = 0.0,
        prefix: int = 0,
    ) -> "_Question":
        public = prompt.placeholder
        sizes = _sizes(prompt, max_text_tokens, grammar.max_new_tokens, contrast, prefix)
        passes = _passes(engine, sizes)
        without = reference_tokens(engine.model.tokenizer, NO_TEXT, max_text_tokens)
        return cls(engine, public, prompt, sizes, grammar, contrast, without, passes)

    def rows(self, text: Tokens) -> list[Tokens]:
        """Return the rows for one text; with a contrast, a second row of NO_TEXT, isolated bit for bit."""
        return [text, self.without] if self.contrast else [text]

    def session(self, places: int) -> Session:
        """Open an empty session whose passes all have one shape."""
        return Session(self.engine.model, self.engine.isolation, self.sizes, places, self.passes)


def _waves(question: _Question, texts: Mapping[int, Tokens]) -> Iterator[dict[int, str | None]]:
    """Yield the answers, wave after wave; waves get smaller where memory does not suffice.

    A wave that ran out of memory starts again: continuing, it would read its own answers so far in passes of another
    shape.
    """
    places = min(MOST_PLACES, generations_at_once(question.engine.model, question.sizes, question.engine.memory))
    remaining = list(texts)
    while remaining:
        wave = {number: texts[number] for number in remaining[:places]}
        answers = _wave(question, wave, places)
        if answers is None and places == 1:
            raise not_enough_memory(str(question.engine.model.device))
        if answers is None:
            places = max(1, places // 2)
            continue
        remaining = remaining[places:]
        yield answers


@torch.inference_mode()
def _wave(question: _Question, texts: Mapping[int, Tokens], places: int) -> dict[int, str | None] | None:
    """Return the answers to one wave of texts; None if memory did not suffice."""
    session, grammar = question.session(places), question.grammar
    for number, tokens in texts.items():
        session.enter(number, question.public, question.private, question.rows(tokens))
    under_way = {number: Answer(grammar, grammar.automaton.start) for number in texts}
    results: dict[int, str | None] = {}
    while under_way:
        try:
            logits = session.private_logits()
        except MemoryRanOut:
            return None
        invalid = _take(question, [under_way[number] for number in session.numbers], logits)
        for number, is_invalid in zip(session.numbers, invalid, strict=True):
            if is_invalid or under_way[number].ended:
                results[number] = None if is_invalid else under_way[number].text
                del under_way[number]
                session.leave(number)
        session.advance([under_way[number].drawn[-1] for number in session.numbers])
    return results


def _take(question: _Question, answers: Sequence[Answer], logits: RowLogits) -> list[bool]:
    """Add one token to each answer; return whether the model's logits were invalid, for each."""
    if not answers:
        return []
    values = logits.values.view(len(answers), -1, logits.values.shape[1])
    likeliest = values[:, 0].topk(min(_FEW, values.shape[2]), dim=1).indices.tolist()
    invalid: list[bool] = (~logits.valid.view(len(answers), -1).all(1)).tolist()
    for answer, rows, tokens, is_invalid in zip(answers, values.cpu().numpy(), likeliest, invalid, strict=True):
        if not is_invalid:
            without = rows[1] if len(rows) > 1 else None
            answer.take(answer.best(rows[0], tokens, without, question.contrast))
    return invalid
