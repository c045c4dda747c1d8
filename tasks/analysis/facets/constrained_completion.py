"""What the model answers about each private text, held to a grammar, without a draw: facets and chosen keywords.

An answer is greedy, so it is a function of logits; and each text's logits are a function of that text and of public
things alone, bit for bit (PRIVACY §4.2 point 1). A session gives that for rows that enter at public times. An answer's
length is private here, and so would be the time at which the next text enters when one has ended. So texts go in
waves: all of a wave enter an empty session together, and nobody enters until all of them have ended. Who ends early
leaves, which moves others to other slots, and slots do not matter. All waves have passes of one shape, also the last
and smaller one. Who is in which wave therefore changes nothing but time.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tasks.inference.engine.engine import Engine
from tasks.inference.engine.memory import MemoryRanOut, NotEnoughMemory
from tasks.inference.engine.open_session import SessionOpening, SessionSize
from tasks.inference.engine.session import RowLogits, Session
from tasks.inference.engine.shapes import Sizes, generations_at_once
from tasks.inference.prompts.render import PromptPieces, reference_tokens
from tasks.inference.structured_output.greedy_decoding import Answer, Grammar

ROWS = {"cpu": 32, "cuda": 128}
"""Rows of every pass: fewer than where texts are drawn, because answers end at different times."""
MOST_PLACES = 1024
"""Texts of a wave; more at once are no faster."""

NO_TEXT = "(no text)"
"""Stands in a text's place where the model is asked what it would say about none."""

_FEW = 32  # tokens that are tried before the set of all allowed ones is asked for

Tokens = tuple[int, ...]


def complete_constrained(
    engine: Engine,
    prompt: PromptPieces,
    texts: Sequence[str],
    grammar: Grammar,
    max_text_tokens: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
    contrast: float = 0.0,
    prefix: int = 0,
) -> list[str | None]:
    """For each text the model's answer; None for one that cannot be read, or about which the model says nothing.

    Args:
        prompt: what stands around each text; public.
        max_text_tokens: what is read of a text.
        progress: told how many texts are done, and of how many.
        contrast: how much a token is preferred that the text makes likelier than NO_TEXT in its place would; 0 for
            the likeliest token. It doubles the work.
        prefix: to how many tokens the prompt is filled up before the text, at least; public.

    Returns:
        answers that the grammar admits, whole, of at most `grammar.max_new_tokens` tokens. A text without a token
        that the model knows, or with logits that are not finite at some step, has none, and stops nobody else.

    Raises:
        ContextTooLong: prompt, text and answer exceed the model's context.
        RowsNotIsolated: this device cannot keep rows apart; also where there is no text.
        NotEnoughMemory: not even one text fits.
    """
    asked = _Asked.of(engine, prompt, grammar, max_text_tokens, contrast, prefix)
    read = [reference_tokens(engine.model.tokenizer, text, max_text_tokens) for text in texts]
    found: list[str | None] = [None] * len(texts)
    done = sum(not tokens for tokens in read)
    for answers in _waves(asked, {number: tokens for number, tokens in enumerate(read) if tokens}):
        for number, answer in answers.items():
            found[number] = answer
        progress(done := done + len(answers), len(texts))
    return found


def ask_device(
    engine: Engine,
    prompt: PromptPieces,
    max_text_tokens: int,
    max_new_tokens: int,
    contrast: float = 0.0,
    prefix: int = 0,
) -> None:
    """Ask about all passes of `complete_constrained` before anything is paid; arguments as there.

    Raises:
        ContextTooLong, RowsNotIsolated, NotEnoughMemory: as `complete_constrained`.
    """
    _passes(engine, _sizes(prompt, max_text_tokens, max_new_tokens, contrast, prefix))


def _public(prompt: PromptPieces) -> PromptPieces:
    return PromptPieces((), prompt.suffix[-1:])  # a session wants one; nothing is asked of public rows


def _sizes(prompt: PromptPieces, max_text_tokens: int, max_new_tokens: int, contrast: float, prefix: int) -> Sizes:
    made = Sizes.of([_public(prompt)], [prompt], max_text_tokens, max_new_tokens, references=2 if contrast else 1)
    return replace(made, prefix=max(made.prefix, prefix))


def _passes(engine: Engine, sizes: Sizes) -> int:
    """Rows of every pass: as many as the device keeps apart."""
    model = engine.model
    sizes.check_fits(model)
    most = SessionSize(1, ROWS.get(model.device.type, ROWS["cpu"]))
    return SessionOpening(model, engine.isolation, sizes).find_size(most, lambda room: room).rows


@dataclass(frozen=True)
class _Asked:
    """What all texts are asked, and the public sizes of it.

    Attributes:
        passes: rows of every pass, as many as the device keeps apart.
    """

    engine: Engine
    public: PromptPieces
    private: PromptPieces
    sizes: Sizes
    grammar: Grammar
    contrast: float
    without: Tokens
    passes: int

    @classmethod
    def of(
        cls,
        engine: Engine,
        prompt: PromptPieces,
        grammar: Grammar,
        max_text_tokens: int,
        contrast: float = 0.0,
        prefix: int = 0,
    ) -> "_Asked":
        public = _public(prompt)
        sizes = _sizes(prompt, max_text_tokens, grammar.max_new_tokens, contrast, prefix)
        passes = _passes(engine, sizes)
        without = reference_tokens(engine.model.tokenizer, NO_TEXT, max_text_tokens)
        return cls(engine, public, prompt, sizes, grammar, contrast, without, passes)

    def rows(self, text: Tokens) -> list[Tokens]:
        """What is read for one text. What no text would make of the answer is a row beside it: alone, bit for bit."""
        return [text, self.without] if self.contrast else [text]

    def session(self, places: int) -> Session:
        """An empty session whose passes have the one shape."""
        return Session(self.engine.model, self.engine.isolation, self.sizes, places, self.passes)


def _waves(asked: _Asked, texts: Mapping[int, Tokens]) -> Iterator[dict[int, str | None]]:
    """The answers, wave after wave; smaller ones where memory did not suffice.

    A wave in which memory was short is asked again from its beginning: going on, it would read what it has said so far
    in passes of another shape.
    """
    places = min(MOST_PLACES, generations_at_once(asked.engine.model, asked.sizes, asked.engine.memory))
    left = list(texts)
    while left:
        now = {number: texts[number] for number in left[:places]}
        answers = _wave(asked, now, places)
        if answers is None and places == 1:
            raise NotEnoughMemory(str(asked.engine.model.device))
        if answers is None:
            places = max(1, places // 2)
            continue
        left = left[places:]
        yield answers


@torch.inference_mode()
def _wave(asked: _Asked, texts: Mapping[int, Tokens], places: int) -> dict[int, str | None] | None:
    """The answers to some texts at once; None if memory did not suffice."""
    session, grammar = asked.session(places), asked.grammar
    for number, tokens in texts.items():
        session.enter(number, asked.public, asked.private, asked.rows(tokens))
    under_way = {number: Answer(grammar.automaton.start) for number in texts}
    found: dict[int, str | None] = {}
    while under_way:
        try:
            said = session.private_logits()
        except MemoryRanOut:
            return None
        silent = _take(asked, [under_way[number] for number in session.numbers], said)
        for number, mute in zip(session.numbers, silent, strict=True):
            if mute or under_way[number].ended:
                found[number] = None if mute else grammar.text(under_way[number])
                del under_way[number]
                session.leave(number)
        session.advance([under_way[number].drawn[-1] for number in session.numbers])
    return found


def _take(asked: _Asked, answers: Sequence[Answer], said: RowLogits) -> list[bool]:
    """One token more for each answer; whether the model said nothing."""
    if not answers:
        return []
    values = said.values.view(len(answers), -1, said.values.shape[1])
    few = values[:, 0].topk(min(_FEW, values.shape[2]), dim=1).indices.tolist()
    silent: list[bool] = (~said.valid.view(len(answers), -1).all(1)).tolist()
    for answer, rows, tokens, mute in zip(answers, values.cpu().numpy(), few, silent, strict=True):
        if not mute:
            without = rows[1] if len(rows) > 1 else None
            asked.grammar.take(answer, asked.grammar.best(answer, rows[0], tokens, without, asked.contrast))
    return silent
