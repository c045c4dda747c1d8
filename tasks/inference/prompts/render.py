"""Rendering of prompts as token sequences around one private text.

In two turns (the default), the system and user messages ask for a text of the described kind; the private reference
stands as the assistant's answer; the user asks for another. In one turn, the reference stands inside the user's
message (`prompt_spec`). Everything before the reference is the same for every row of a label, so its keys and values
are computed once; everything after it is public too. (The idea, a description and one private reference per prompt, is
InvisibleInk's, App. C; the wording is ours. On SmolLM2-135M the two turns gave real held-out texts a better likelihood
than one turn with an example, on three corpora of three.)

A reference is tokenised on its own: it cannot change how the public pieces are cut into tokens, and whatever it
contains is text, never a control token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models_db.errors import UsageError
from tasks.inference.prompts.presets import DEFAULT
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.templates import ControlTokens

SYSTEM = DEFAULT.system

# A reference is cut to this many characters for each token it may have before it is tokenised: a public rule, so that
# one huge text cannot exhaust the machine. Ordinary text has three to six characters a token.
CHARACTERS_PER_TOKEN = 64

# Where the reference goes while the chat template is rendered; private-use characters, so in no description.
_MARK = "\ue000reference\ue001"


class NoChatTemplate(UsageError):
    """The model has no chat template, or one that cannot carry our conversation."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be prompted: {reason}.",
            "Choose an instruction-tuned model, such as smollm2-135m-instruct.",
            {"model": name},
        )


class BadDescription(UsageError):
    """A description that is empty or contains control tokens."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The description of the texts {reason}.", "Describe the kind of text in one plain sentence.")


@dataclass(frozen=True)
class PromptPieces:
    """The public tokens before and after the place of a reference."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        """The whole prompt without a reference."""
        return self.prefix + self.suffix

    def around(self, reference: Sequence[int]) -> tuple[int, ...]:
        """The whole prompt with a reference."""
        return (*self.prefix, *reference, *self.suffix)


def prompts_for(
    tokenizer: Any, prompt: PromptSpec | str, label: str | None = None
) -> tuple[PromptPieces, PromptPieces]:
    """The prompts of the public row and of the private rows of one label.

    Args:
        prompt: the wording; a description alone stands for the default one.
        label: the public label of these rows, where labels are declared.

    Raises:
        NoChatTemplate, BadDescription, ControlTokens.
    """
    return public_prompt(tokenizer, prompt, label), private_prompt(tokenizer, prompt, label)


def private_prompt(tokenizer: Any, prompt: PromptSpec | str, label: str | None = None) -> PromptPieces:
    """The prompt of a private row; arguments and errors as `prompts_for`."""
    spec = _spec(prompt)
    system = _filled(tokenizer, spec, "system", label)
    if spec.private is not None:
        turns = [("user", _filled(tokenizer, spec, "private", label))]
    else:
        asked, again = (_filled(tokenizer, spec, name, label) for name in ("public", "again"))
        turns = [("user", asked), ("assistant", _MARK), ("user", again)]
    before, mark, after = _render(tokenizer, system, turns).partition(_MARK)
    if not mark or _MARK in after:
        raise NoChatTemplate(_name(tokenizer), "its chat template does not repeat an earlier message exactly once")
    return PromptPieces(_encode_public(tokenizer, before), _encode_public(tokenizer, after))


def public_prompt(tokenizer: Any, prompt: PromptSpec | str, label: str | None = None) -> PromptPieces:
    """The prompt of a public row, without a reference; the suffix opens the answer. Otherwise as `private_prompt`."""
    spec = _spec(prompt)
    system = _filled(tokenizer, spec, "system", label)
    turns = [("user", _filled(tokenizer, spec, "public", label))]
    asked = _render(tokenizer, system, turns, answer=False)
    whole = _render(tokenizer, system, turns)
    if not whole.startswith(asked) or whole == asked:
        raise NoChatTemplate(_name(tokenizer), "its chat template does not open an answer")
    return PromptPieces(_encode_public(tokenizer, asked), _encode_public(tokenizer, whole[len(asked) :]))


def reference_tokens(tokenizer: Any, text: str, max_reference_tokens: int) -> tuple[int, ...]:
    """The first `max_reference_tokens` tokens of a private text; empty if it cannot be tokenised.

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
    """Return whether `reference_tokens` leaves something of a text away. Private wherever the text is.

    How many texts of a release were cut depends on every one of them: no release that claims anything tells it.
    """
    longer = reference_tokens(tokenizer, text, max_reference_tokens + 1)
    return len(longer) > max_reference_tokens or len(text) > max_reference_tokens * CHARACTERS_PER_TOKEN


def control_tokens(tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that structure a conversation and are never text."""
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    marked = {token for token, what in added.items() if what.special}
    return frozenset(marked | set(tokenizer.all_special_ids))


def _render(tokenizer: Any, system: str, turns: Sequence[tuple[str, str]], answer: bool = True) -> str:
    """The conversation as the model's template writes it; models without a system role get it in the first turn."""
    if not getattr(tokenizer, "chat_template", None):
        raise NoChatTemplate(_name(tokenizer), "it has no chat template")
    role, content = turns[0]
    merged = [(role, f"{system}\n\n{content}"), *turns[1:]]
    for conversation in ([("system", system), *turns], merged):
        text = _try_template(tokenizer, conversation, answer)
        if system in text:
            return text
    raise NoChatTemplate(_name(tokenizer), "its chat template refuses a plain conversation")


def _try_template(tokenizer: Any, turns: Sequence[tuple[str, str]], answer: bool) -> str:
    """The rendered conversation, or nothing if the template raises."""
    messages = [{"role": role, "content": content} for role, content in turns]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer)
    except Exception:  # noqa: BLE001 - templates are programs and raise what they like; all text here is public
        return ""
    return text


def _encode_public(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokens of rendered template text, which already spells out every control token it wants."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _spec(prompt: PromptSpec | str) -> PromptSpec:
    return PromptSpec(prompt) if isinstance(prompt, str) else prompt


def _filled(tokenizer: Any, spec: PromptSpec, name: str, label: str | None) -> str:
    """One message, with the mark where the reference goes, and without any control token."""
    _check_description(tokenizer, spec.description)
    message = spec.fill(name, label, reference=_MARK)
    pieces = message.split(_MARK)
    if len(pieces) != 1 + (name == "private") or any(_has_control_tokens(tokenizer, piece) for piece in pieces):
        raise ControlTokens(name)
    return message


def _check_description(tokenizer: Any, description: str) -> None:
    plain = description.strip()
    if not plain:
        raise BadDescription("is empty")
    if _MARK in plain or _has_control_tokens(tokenizer, plain):
        raise BadDescription("contains a control token of the model")


def _has_control_tokens(tokenizer: Any, text: str) -> bool:
    return not control_tokens(tokenizer).isdisjoint(_encode_public(tokenizer, text))


def _name(tokenizer: Any) -> str:
    return str(getattr(tokenizer, "name_or_path", "") or "unnamed")
