"""Rendering of prompts as token sequences around one private text.

In two turns (the default), the system and user messages ask for a text of the described kind; the private reference
stands as the assistant's answer; the user asks for another. In one turn, the reference stands inside the user's
message (`prompt_spec`). Everything before the reference is the same for every row of a label, so its keys and values
are computed once; everything after it is public too. (The idea, a description and one private reference per prompt, is
InvisibleInk's, App. C; the wording is ours. On SmolLM2-135M the two turns gave real held-out texts a better likelihood
than one turn with an example, on three corpora of three.)

A chat template may ask for today's date, and may let a model think before it answers. A prompt must be the same on
resume, so the date is the request's (`PromptSpec.date`), and thinking is off where the template knows how.

A completion (`PromptSpec.form`) needs no chat template: description, examples and reference are one text, with a line
between them, and the model goes on with it. It begins with the tokens that the tokenizer puts before every text. The
public row is the beginning of the private ones, so both are about to write a text of the described kind.

A reference is tokenised on its own: it cannot change how the public pieces are cut into tokens, and whatever it
contains is text, never a control token.

The words of a prompt are approved with the request; tokenizer and chat template make tokens of them, and so do the
libraries that read both. The digest of the public tokens around every private text is part of the request
(`RenderedPrompt`), so what is approved is what the model reads.
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from models_db.errors import UsageError
from models_db.values.canonical_json import digest
from tasks.inference.prompt_spec import DEFAULT_WORDING, PromptSpec, control_token_written

SYSTEM = DEFAULT_WORDING.system

# A reference is cut to this many characters for each token it may have before it is tokenised: a public rule, so that
# one huge text cannot exhaust the machine. Ordinary text has three to six characters a token.
CHARACTERS_PER_TOKEN = 64

_TIME = re.compile(r"""strftime_now\s*\(\s*(['"])([^'"]*)\1\s*\)""")
"""Call of `strftime_now`, which transformers offers to chat templates for the time."""

# Where the reference goes while the chat template is rendered; private-use characters, so in no description.
_MARK = "\ue000reference\ue001"
_ANSWER = "\ue000answer\ue001"


class NoChatTemplate(UsageError):
    """The model has no chat template, or one that cannot carry our conversation."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be prompted: {reason}.",
            "Choose an instruction-tuned model, such as qwen2.5-coder-1.5b-instruct, or write "
            "`prompt.form: completion`, which mechanisms have that draw texts token by token (docs/requests.md).",
            {"model": name},
        )
        self.reason = reason


def _bad_description(reason: str) -> UsageError:
    return UsageError(
        f"The description of the texts {reason}.",
        "Describe the kind of text in one plain sentence.",
        code="BadDescription",
    )


WITHOUT_THINKING = {"enable_thinking": False, "thinking": False}
"""Template variables that disable thinking (Qwen3, SmolLM3; Granite, DeepSeek); other templates ignore both."""


@dataclass(frozen=True)
class PromptPieces:
    """The public tokens before and after the place of a reference."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole prompt without a reference."""
        return self.prefix + self.suffix

    @property
    def placeholder(self) -> "PromptPieces":
        """The shortest public prompt: a session needs one, even where its output is not used."""
        return PromptPieces((), self.suffix[-1:])

    def around(self, reference: Sequence[int]) -> tuple[int, ...]:
        """Return the whole prompt with a reference."""
        return (*self.prefix, *reference, *self.suffix)


def prompts_for(
    tokenizer: Any, prompt: PromptSpec | str, label: str | None = None
) -> tuple[PromptPieces, PromptPieces]:
    """Return the prompts of the public row and of the private rows of one label.

    Args:
        prompt: the wording; a description alone stands for the default one.
        label: the public label of these rows, where labels are declared.

    Raises:
        NoChatTemplate, BadDescription, ControlTokens.
    """
    return public_prompt(tokenizer, prompt, label), private_prompt(tokenizer, prompt, label)


def private_prompt(tokenizer: Any, prompt: PromptSpec | str, label: str | None = None) -> PromptPieces:
    """Return the prompt of a private row; arguments and errors as `prompts_for`."""
    spec = _spec(prompt)
    if spec.form == "completion":
        return PromptPieces(_beginning(tokenizer, spec, label), _encode_public(tokenizer, f"\n{spec.separator}\n"))
    system = _filled(tokenizer, spec, "system", label)
    turns, question = _examples(tokenizer, spec, label)
    if spec.private is not None:
        turns += [("user", _filled(tokenizer, spec, "private", label))]
    else:
        again = _filled(tokenizer, spec, "again", label)
        turns += [("user", question), ("assistant", _MARK), ("user", again)]
    before, mark, after = _open_answer(tokenizer, spec, system, turns).partition(_MARK)
    if not mark or _MARK in after:
        raise NoChatTemplate(
            tokenizer_name(tokenizer), "its chat template does not repeat an earlier message exactly once"
        )
    return PromptPieces(_encode_public(tokenizer, before), _encode_public(tokenizer, after))


def public_prompt(tokenizer: Any, prompt: PromptSpec | str, label: str | None = None) -> PromptPieces:
    """Return the prompt of a public row, without a reference; the suffix opens the answer. See `private_prompt`.

    Some templates (Mistral, Llama 2) have nothing that opens an answer: it follows the question. Then the suffix is
    empty, if a conversation with an answer shows that the answer stands there.
    """
    spec = _spec(prompt)
    if spec.form == "completion":
        return PromptPieces(_beginning(tokenizer, spec, label), ())
    system = _filled(tokenizer, spec, "system", label)
    turns, last = _examples(tokenizer, spec, label)
    turns.append(("user", last))
    question = _render(tokenizer, spec, system, turns, answer=False)
    whole = _open_answer(tokenizer, spec, system, turns)
    if whole == question and _answer_follows(tokenizer, spec, system, turns, question):
        return PromptPieces(_encode_public(tokenizer, question), ())
    if not whole.startswith(question) or whole == question:
        raise NoChatTemplate(tokenizer_name(tokenizer), "its chat template does not open an answer")
    return PromptPieces(_encode_public(tokenizer, question), _encode_public(tokenizer, whole[len(question) :]))


def _examples(tokenizer: Any, spec: PromptSpec, label: str | None) -> tuple[list[tuple[str, str]], str]:
    """Return the turns of a conversation that show the public examples, and the question that comes next."""
    _check_examples(tokenizer, spec)
    question = _filled(tokenizer, spec, "public", label)
    following = question if spec.private is not None else _filled(tokenizer, spec, "again", label)
    questions = [question, *[following] * len(spec.examples)]
    turns: list[tuple[str, str]] = []
    for asked, example in zip(questions, spec.examples, strict=False):
        turns += [("user", asked), ("assistant", example)]
    return turns, questions[-1]


def _check_examples(tokenizer: Any, spec: PromptSpec) -> None:
    for example in spec.examples:
        if _MARK in example or _has_control_tokens(tokenizer, example):
            raise control_token_written("examples")


def _beginning(tokenizer: Any, spec: PromptSpec, label: str | None) -> tuple[int, ...]:
    """Return the public tokens before a reference in a completion, with those that begin every text."""
    parts = [_filled(tokenizer, spec, "public", label), *spec.examples]
    _check_examples(tokenizer, spec)
    if _has_control_tokens(tokenizer, spec.separator):
        raise control_token_written("separator")
    text = f"\n{spec.separator}\n".join([*parts, ""])
    control, whole = control_tokens(tokenizer), tokenizer(text, verbose=False)["input_ids"]
    return (*takewhile(control.__contains__, whole), *_encode_public(tokenizer, text))


def _open_answer(tokenizer: Any, spec: PromptSpec, system: str, turns: Sequence[tuple[str, str]]) -> str:
    """Return the rendered conversation up to the first word of the answer.

    Some templates open an answer and leave it to the model whether thoughts or final words follow. Where a conversation
    that has an answer shows control tokens between the two, they open it as well.
    """
    whole = _render(tokenizer, spec, system, turns)
    try:
        answered = _render(tokenizer, spec, system, [*turns, ("assistant", _ANSWER)], answer=False)
    except NoChatTemplate:
        return whole
    before, mark, _ = answered.partition(_ANSWER)
    opening = before[len(whole) :] if mark and before.startswith(whole) else ""
    if not _has_control_tokens(tokenizer, opening) or whole == _render(tokenizer, spec, system, turns, answer=False):
        return whole
    return whole + opening


def _answer_follows(
    tokenizer: Any, spec: PromptSpec, system: str, turns: Sequence[tuple[str, str]], question: str
) -> bool:
    """Return whether an answer stands right behind the rendered question, with white space between them at most."""
    answered = _render(tokenizer, spec, system, [*turns, ("assistant", _MARK)], answer=False)
    before, mark, _ = answered.partition(_MARK)
    return bool(mark) and before.startswith(question) and not before[len(question) :].strip()


def reference_tokens(tokenizer: Any, text: str, max_reference_tokens: int) -> tuple[int, ...]:
    """Return the first `max_reference_tokens` tokens of a private text; empty if it cannot be tokenised.

    The rule by which texts are cut is on the card of every release; which ones it cut is private (`is_cut`).

    No control token comes out: their spelling inside the text is tokenised as plain characters, and should a
    tokenizer insist on one it is dropped. A failure is confined to the row (PRIVACY §3): an empty reference makes a
    null row, never an exception, and the tokenizer's remarks about length stay out of the logs.
    """
    try:
        kept = text[: max_reference_tokens * CHARACTERS_PER_TOKEN]
        ids = tokenizer(kept, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a Rust panic is no Exception, and whatever is raised may quote the text
        return ()
    control = control_tokens(tokenizer)
    return tuple([token for token in ids if token not in control][:max_reference_tokens])


def is_cut(tokenizer: Any, text: str, max_reference_tokens: int) -> bool:
    """Return whether `reference_tokens` cuts a text. Private if the text is.

    How many texts of a release were cut depends on every one of them: no release that claims anything tells it.
    """
    longer = reference_tokens(tokenizer, text, max_reference_tokens + 1)
    return len(longer) > max_reference_tokens or len(text) > max_reference_tokens * CHARACTERS_PER_TOKEN


def closing_token(tokenizer: Any) -> int | None:
    """Return the first control token behind an answer in the model's chat template; None if nothing closes it."""
    turns = [("user", "a"), ("assistant", _ANSWER)]
    try:
        answered = _render(tokenizer, PromptSpec("a"), "a", turns, answer=False)
    except NoChatTemplate:
        return None
    behind, control = answered.partition(_ANSWER)[2], control_tokens(tokenizer)
    return next((token for token in _encode_public(tokenizer, behind) if token in control), None)


def control_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the ids of the tokens that structure a conversation and are never text."""
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    marked = {token for token, what in added.items() if what.special}
    return frozenset(marked | set(tokenizer.all_special_ids))


def _render(
    tokenizer: Any, spec: PromptSpec, system: str, turns: Sequence[tuple[str, str]], answer: bool = True
) -> str:
    """Return the conversation in the model's template; without a system role, its text is in the first turn."""
    if not getattr(tokenizer, "chat_template", None):
        raise NoChatTemplate(tokenizer_name(tokenizer), "it has no chat template")
    role, content = turns[0]
    merged = [(role, f"{system}\n\n{content}"), *turns[1:]]
    for conversation in ([("system", system), *turns], merged):
        text = _try_template(tokenizer, spec, conversation, answer)
        if system in text:
            return text
    raise NoChatTemplate(tokenizer_name(tokenizer), "its chat template refuses a plain conversation")


def _try_template(tokenizer: Any, spec: PromptSpec, turns: Sequence[tuple[str, str]], answer: bool) -> str:
    """Return the rendered conversation, or nothing if the template raises."""
    messages = [{"role": role, "content": content} for role, content in turns]
    try:
        text: str = tokenizer.apply_chat_template(
            messages,
            chat_template=_dated(tokenizer_name(tokenizer), tokenizer.get_chat_template(), spec.day),
            tokenize=False,
            add_generation_prompt=answer,
            **WITHOUT_THINKING,
        )
    except NoChatTemplate:
        raise
    except Exception:  # noqa: BLE001 - templates are programs and raise what they like; all text here is public
        return ""
    return text


def _dated(name: str, template: str, day: datetime.date) -> str:
    """Return a chat template in which every question for the time has its answer.

    Raises:
        NoChatTemplate: the template asks in a form that it computes.
    """
    dated = _TIME.sub(lambda call: repr(day.strftime(call[2])), template)
    if re.search(r"strftime_now\s*\(", dated):
        raise NoChatTemplate(name, "its chat template computes the form of a date")
    return dated


def _encode_public(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokens of rendered template text, which already spells out every control token it wants."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _spec(prompt: PromptSpec | str) -> PromptSpec:
    return PromptSpec(prompt) if isinstance(prompt, str) else prompt


def _filled(tokenizer: Any, spec: PromptSpec, name: str, label: str | None) -> str:
    """Return a filled message with the mark in place of the reference, without control tokens."""
    _check_description(tokenizer, spec.description)
    message = spec.fill(name, label, reference=_MARK)
    pieces = message.split(_MARK)
    if len(pieces) != 1 + (name == "private") or any(_has_control_tokens(tokenizer, piece) for piece in pieces):
        raise control_token_written(name)
    return message


def _check_description(tokenizer: Any, description: str) -> None:
    plain = description.strip()
    if not plain:
        raise _bad_description("is empty")
    if _MARK in plain or _has_control_tokens(tokenizer, plain):
        raise _bad_description("contains a control token of the model")


def _has_control_tokens(tokenizer: Any, text: str) -> bool:
    return not control_tokens(tokenizer).isdisjoint(_encode_public(tokenizer, text))


def tokenizer_name(tokenizer: Any) -> str:
    """Return the name of a tokenizer for messages."""
    return str(getattr(tokenizer, "name_or_path", "") or "unnamed")


@dataclass(frozen=True)
class RenderedPrompt:
    """The rendered prompts of a request.

    Attributes:
        sha256: of the canonical JSON of the token ids: for each label or group in the request's order, or once where
            there are none, four lists: prefix and suffix of the public row, then of the private rows.
        tokens: of the longest one, without a reference.
    """

    sha256: str
    tokens: int

    @classmethod
    def of(cls, tokenizer: Any, spec: PromptSpec, shown: Sequence[str]) -> "RenderedPrompt":
        """Render the prompts of all labels or groups.

        Args:
            shown: the labels or groups as prompts name them.

        Raises:
            NoChatTemplate, BadDescription, ControlTokens.
        """
        pairs = [prompts_for(tokenizer, spec, label) for label in shown or (None,)]
        ids = [[list(part) for pieces in pair for part in (pieces.prefix, pieces.suffix)] for pair in pairs]
        return cls(digest(ids), max(len(pieces.tokens) for pair in pairs for pieces in pair))
