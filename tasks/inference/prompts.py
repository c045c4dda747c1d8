"""Prompts, as token sequences around one private text.

A conversation of two turns: the system and user messages ask for a text of the described kind; the private reference
stands as the assistant's answer; the user asks for another. Everything before the reference is the same for every
row, so its keys and values are computed once; everything after it is public too. (The idea, a description and one
private reference per prompt, is InvisibleInk's, App. C; the wording is ours. On SmolLM2-135M the two turns gave real
held-out texts a better likelihood than one turn with an example, on three corpora of three.)

A reference is tokenised on its own: it cannot change how the public pieces are cut into tokens, and whatever it
contains is text, never a control token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models_db.errors import UsageError

SYSTEM = "You write realistic texts. Reply with the text alone."
ASK = "{description}\n\nWrite one."
ASK_AGAIN = "Write another."

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


def private_prompt(tokenizer: Any, description: str) -> PromptPieces:
    """The prompt of a private row.

    Raises:
        NoChatTemplate, BadDescription.
    """
    question = ASK.format(description=_checked(tokenizer, description))
    turns = [("user", question), ("assistant", _MARK), ("user", ASK_AGAIN)]
    before, mark, after = _render(tokenizer, turns).partition(_MARK)
    if not mark or _MARK in after:
        raise NoChatTemplate(_name(tokenizer), "its chat template does not repeat an earlier answer exactly once")
    return PromptPieces(_encode_public(tokenizer, before), _encode_public(tokenizer, after))


def public_prompt(tokenizer: Any, description: str) -> PromptPieces:
    """The prompt of a public row: the same request, without a reference; the suffix opens the answer.

    Raises:
        NoChatTemplate, BadDescription.
    """
    turns = [("user", ASK.format(description=_checked(tokenizer, description)))]
    asked = _render(tokenizer, turns, answer=False)
    whole = _render(tokenizer, turns)
    if not whole.startswith(asked) or whole == asked:
        raise NoChatTemplate(_name(tokenizer), "its chat template does not open an answer")
    return PromptPieces(_encode_public(tokenizer, asked), _encode_public(tokenizer, whole[len(asked) :]))


def reference_tokens(tokenizer: Any, text: str, max_reference_tokens: int) -> tuple[int, ...]:
    """The first `max_reference_tokens` tokens of a private text; empty if it cannot be tokenised.

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


def control_tokens(tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that structure a conversation and are never text."""
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    marked = {token for token, what in added.items() if what.special}
    return frozenset(marked | set(tokenizer.all_special_ids))


def _render(tokenizer: Any, turns: Sequence[tuple[str, str]], answer: bool = True) -> str:
    """The conversation as the model's template writes it; models without a system role get it in the first turn."""
    if not getattr(tokenizer, "chat_template", None):
        raise NoChatTemplate(_name(tokenizer), "it has no chat template")
    with_system = _try_template(tokenizer, [("system", SYSTEM), *turns], answer)
    role, content = turns[0]
    text = with_system or _try_template(tokenizer, [(role, f"{SYSTEM}\n\n{content}"), *turns[1:]], answer)
    if not text:
        raise NoChatTemplate(_name(tokenizer), "its chat template refuses a plain conversation")
    return text


def _try_template(tokenizer: Any, turns: Sequence[tuple[str, str]], answer: bool) -> str:
    """The rendered conversation, or nothing if the template raises or drops the system text."""
    messages = [{"role": role, "content": content} for role, content in turns]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer)
    except Exception:  # noqa: BLE001 - templates are programs and raise what they like; all text here is public
        return ""
    return text if SYSTEM in text else ""


def _encode_public(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokens of rendered template text, which already spells out every control token it wants."""
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _checked(tokenizer: Any, description: str) -> str:
    plain = description.strip()
    if not plain:
        raise BadDescription("is empty")
    if control_tokens(tokenizer) & set(_encode_public(tokenizer, plain)):
        raise BadDescription("contains a control token of the model")
    return plain


def _name(tokenizer: Any) -> str:
    return str(getattr(tokenizer, "name_or_path", "") or "unnamed")
