"""Any path through the masks is the form with its slots filled; and no more is chosen than is paid for."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from models_db.errors import UsageError
from tasks.inference.catalogue.model_store import model_folder
from tasks.inference.catalogue.registry import list_models
from tasks.inference.structured_output.form import Form, FormParameters
from tasks.inference.structured_output.form_constraint import FORBIDDEN, FormConstraint
from tasks.inference.structured_output.grammar_constraint import GrammarConstraint, constraint_for
from tasks.inference.structured_output.json_schema import RecordParameters
from tasks.planning.shared_parameters import PrecisionParameters
from tests.refusals import refusal
from tests.support import require
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.systems.record_schemas import FILM

CONCERNS = ("tasks/inference/structured_output",)

pytestmark = pytest.mark.dear

PRODUCT = "The product is a {type}. Customers praise its {strength} and {strength}, but some complain about {weakness}."
BYTES = tiny_tokenizer()


def wordy() -> Any:
    """A byte-level tokenizer with words that carry their spaces, odd tokens, and single letters for all else."""
    words = [" a", " and", " lid", " noise", ".", "lid", "s", " [type", "{x}", "it. ", ". ", " ", "  ", "\u00e9", " <"]
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    spelt = [bytewise.pre_tokenize_str(word)[0][0] for word in words]
    order = dict.fromkeys(["<|start|>", "<|end|>", *spelt, *sorted(pre_tokenizers.ByteLevel.alphabet())])
    vocabulary = {token: number for number, token in enumerate(order)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|start|>", eos_token="<|end|>")


def prefixed() -> Any:
    """As Llama 2 has it: byte fallback, a visible space, and one before every text."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdilnost.,\u2581"]
    pieces += ["\u2581a", "\u2581i", "\u2581b", "is", "\u2581is"]
    merges = [("\u2581", "a"), ("\u2581", "b"), ("i", "s"), ("\u2581", "is"), ("\u2581", "i")]
    inner = Tokenizer(models.BPE({p: n for n, p in enumerate(pieces)}, merges, unk_token="<unk>", byte_fallback=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


WORDY, PREFIXED = wordy(), prefixed()


def constrain(form: str, tokenizer: Any = BYTES, slot_tokens: int = 6, **changes: Any) -> FormConstraint:
    given: dict[str, Any] = {
        "vocabulary": len(tokenizer) + 3,  # a model may have more logits than its tokenizer has tokens
        "stop_tokens": (0, tokenizer.eos_token_id),
        "max_new_tokens": 10_000,
    }
    return FormConstraint(Form.read(form), tokenizer, slot_tokens=slot_tokens, **(given | changes))


@dataclass
class Writer:
    """A generation that draws every allowed token with equal chance, and may be interrupted.

    Attributes:
        made: draws that were really made, those that an interruption has lost among them.
        lost: interruptions; each may have cost a draw.
        highest: the highest number that a draw has had, as a meter counts them.
    """

    form: str
    tokenizer: Any
    slot_tokens: int
    chance: random.Random
    drawn: list[int] = field(default_factory=list)
    made: int = 0
    lost: int = 0
    highest: int = -1

    def write(self, interruptions: int = 0) -> "Writer":
        """To the end."""
        constraint, number = constrain(self.form, self.tokenizer, self.slot_tokens, lost=self.lost), 0
        while True:
            allowed = constraint.allowed(3, self.drawn).nonzero()[:, 0].tolist()
            if len(allowed) > 1:
                self.made, self.highest, number = self.made + 1, max(self.highest, number + self.lost), number + 1
            if interruptions and self.chance.random() < 0.1:  # it dies before anything of this is written down
                interruptions -= 1
                self.lost += 1
                constraint = constrain(self.form, self.tokenizer, self.slot_tokens, lost=self.lost)
                number = constraint.choices(self.drawn)
                continue
            token = self.chance.choice(allowed)
            if token == self.tokenizer.eos_token_id:
                return self
            assert token != 0
            self.drawn.append(token)

    @property
    def text(self) -> str:
        """As the decoding loop reads it."""
        return str(self.tokenizer.decode(self.drawn, skip_special_tokens=True)).strip()

    def contents(self) -> list[str]:
        """What stands in the slots of a text that follows the form, and nothing else."""
        form, constraint = Form.read(self.form), constrain(self.form, self.tokenizer, self.slot_tokens)
        places = [constraint._place(self.drawn[:length]) for length in range(1, len(self.drawn) + 1)]
        tokens = {place.slot: list(place.contents) for place in places if place.contents}
        assert list(tokens) == list(range(len(form.slots)))
        found = [b"".join(map(constraint._texts.text, tokens[slot])).decode() for slot in tokens]
        for slot, literal in enumerate(form.literals[:-1]):
            if literal.endswith(" ") or not (slot or literal):
                found[slot] = found[slot].removeprefix(" ")
        assert form.filled(found).strip() == self.text
        return found


forms = st.lists(
    st.sampled_from(
        ["a", " and ", ". ", "The lid is ", ", but\n", "s ", "{{x}} ", " [b] ", "\u00e9", "(", ")", "no. "]
    ),
    min_size=2,
    max_size=6,
).map(lambda literals: "{slot}".join(literals))


@pytest.mark.slow
@settings(max_examples=150)
@given(
    form=forms,
    tokenizer=st.sampled_from([BYTES, WORDY, PREFIXED]),
    slot_tokens=st.integers(1, 7),
    seed=st.integers(0, 2**32),
)
def test_any_path_is_the_form_with_its_slots_filled(form: str, tokenizer: Any, slot_tokens: int, seed: int) -> None:
    try:
        read = Form.read(form)
        constraint = constrain(form, tokenizer, slot_tokens)
    except UsageError as refused:
        if refused.code not in ("FormInvalid", "FormNotWritable"):
            raise
        assume(False)
    written = Writer(form, tokenizer, slot_tokens, random.Random(seed)).write()
    for content in written.contents():
        assert content[0].isalnum()
        assert content.isprintable()
        assert not FORBIDDEN & set(content)
        assert "  " not in content
        assert content == content.strip(" ")
    assert len(written.drawn) + 1 <= constraint.longest
    assert written.made <= constraint.choices(written.drawn) <= read.draws(slot_tokens)


@settings(max_examples=150)
@given(
    slots=st.integers(1, 5),
    slot_tokens=st.integers(1, 5),
    interruptions=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_interrupted_texts_choose_no_more_than_is_paid(
    slots: int, slot_tokens: int, interruptions: int, seed: int
) -> None:
    form = "A" + " and {x}" * slots + "."
    written = Writer(form, WORDY, slot_tokens, random.Random(seed)).write(interruptions)
    assert written.made <= slots * slot_tokens
    assert written.highest < slots * slot_tokens
    assert constrain(form, WORDY, slot_tokens, lost=written.lost).choices(written.drawn) >= written.made - written.lost


@settings(max_examples=100)
@given(slots=st.integers(1, 5), slot_tokens=st.integers(1, 5), data=st.data(), seed=st.integers(0, 2**32))
def test_slots_are_kept_short_enough_for_what_is_left(slots: int, slot_tokens: int, data: Any, seed: int) -> None:
    spare = slots * (slot_tokens - min(2, slot_tokens))
    written = Writer("A" + " and {x}" * slots + ".", WORDY, slot_tokens, random.Random(seed))
    written.lost = data.draw(st.integers(0, spare))
    assert len(written.write().contents()) == slots
    assert written.made <= slots * slot_tokens - written.lost


def test_words_carry_their_spaces_and_what_ends_a_slot_is_never_in_it() -> None:
    texts = {Writer("It is a{x} lid.", WORDY, 3, random.Random(seed)).write().text for seed in range(20)}
    assert len(texts) > 10
    constraint = constrain("A {x} and {y}.", WORDY, 2)
    start = constraint.allowed(0, tokens(WORDY, "A"))
    assert {word(WORDY, token) for token in start.nonzero()[:, 0].tolist()} == {" a", " lid", " noise", " "}
    lone = constraint.allowed(0, [*tokens(WORDY, "A"), token_of(WORDY, " ")])
    assert lone[token_of(WORDY, "s")]
    assert not lone[token_of(WORDY, " and")]
    last = constraint.allowed(0, [*tokens(WORDY, "A"), token_of(WORDY, " lid")])
    assert last[token_of(WORDY, " and")]  # here it ends the slot
    assert last[token_of(WORDY, "\u00e9")]
    for text in (" ", "  ", "it. ", " <", "{x}", " [type", "\n", ">"):
        assert not last[token_of(WORDY, text)], text


def tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def token_of(tokenizer: Any, text: str) -> int:
    return next(token for token in range(len(tokenizer)) if word(tokenizer, token) == text)


def word(tokenizer: Any, token: int) -> str:
    return str(tokenizer.decode([token]))


def test_a_literal_is_forced_token_by_token_and_so_is_the_end() -> None:
    constraint, drawn = constrain("Ab {x} c.", slot_tokens=2), []
    for expected in "Ab ":
        assert [word(BYTES, t) for t in constraint.allowed(0, drawn).nonzero()[:, 0].tolist()] == [expected]
        drawn += tokens(BYTES, expected)
    first = constraint.allowed(0, drawn)
    assert {word(BYTES, t) for t in first.nonzero()[:, 0].tolist()} == {
        chr(letter) for letter in range(128) if chr(letter).isalnum()
    }
    drawn += tokens(BYTES, "xy")
    for expected in " c.":
        assert [word(BYTES, t) for t in constraint.allowed(0, drawn).nonzero()[:, 0].tolist()] == [expected]
        drawn += tokens(BYTES, expected)
    assert constraint.allowed(0, drawn).nonzero()[:, 0].tolist() == [BYTES.eos_token_id]
    assert constraint.longest == len("Ab ") + 2 + len(" c.") + 1
    assert constraint.choices(drawn) == 2


def test_rows_are_first_read_behind_the_literal() -> None:
    constraint = constrain("Ab {x} c.", slot_tokens=2)
    behind = [constraint.before_choice(tokens(BYTES, "Ab xy c."[:end])) for end in range(9)]
    assert behind == [3, 3, 3, 3, 4, 8, 8, 8, 8]


def test_a_slot_at_the_end_ends_with_the_text() -> None:
    constraint = constrain("I like {x}", slot_tokens=3)
    drawn = tokens(BYTES, "I like ")
    assert not constraint.allowed(0, drawn)[BYTES.eos_token_id]
    assert constraint.allowed(0, drawn + tokens(BYTES, "a"))[BYTES.eos_token_id]
    assert not constraint.allowed(0, drawn + tokens(BYTES, "a"))[0]  # one end is enough
    assert constraint.allowed(0, drawn + tokens(BYTES, "abc")).nonzero()[:, 0].tolist() == [BYTES.eos_token_id]


def test_control_tokens_and_places_without_a_token_are_never_allowed() -> None:
    inside = constrain("I like {x}.").allowed(0, tokens(BYTES, "I like a"))
    assert not inside[:2].any()
    assert not inside[len(BYTES) :].any()
    assert inside[tokens(BYTES, "x")].all()


def test_a_text_that_its_tokenizer_begins_with_a_space_may_begin_with_a_slot() -> None:
    texts = [Writer("{x} is a {y}.", PREFIXED, 3, random.Random(seed)).write() for seed in range(10)]
    assert all(written.contents() for written in texts)
    first = {PREFIXED.convert_ids_to_tokens(written.drawn[0]) for written in texts}
    assert all(piece[0] == "\u2581" or piece == "<0x20>" for piece in first)


def test_masks_that_are_given_away_are_no_ones_cache() -> None:
    constraint = constrain("I like {x}.")
    for drawn in ([], tokens(BYTES, "I like "), tokens(BYTES, "I like a")):
        mask = constraint.allowed(0, drawn)
        kept = mask.clone()
        mask.fill_(True)
        assert torch.equal(constraint.allowed(0, drawn), kept)


@pytest.mark.parametrize("drawn", ["X", "I like [", "I like abcdefg", "I like a.b", "I like \n"])
def test_tokens_that_no_mask_admitted_are_an_error(drawn: str) -> None:
    with pytest.raises(ValueError, match=r"do not follow|cannot stand"):
        constrain("I like {x}. Really.").allowed(0, tokens(BYTES, drawn))


def test_nothing_follows_the_end() -> None:
    with pytest.raises(ValueError, match="has ended"):
        constrain("I like {x}.").allowed(0, [*tokens(BYTES, "I like a."), BYTES.eos_token_id])


def test_a_limit_below_the_longest_text_is_refused() -> None:
    needed = constrain("I like {x}.", slot_tokens=4).longest
    assert constrain("I like {x}.", slot_tokens=4, max_new_tokens=needed).longest == needed == 13
    with refusal("FormTooLong") as refused:
        constrain("I like {x}.", slot_tokens=4, max_new_tokens=needed - 1)
    assert refused.value.facts == {"needed": needed, "max_new_tokens": needed - 1}


def test_models_that_cannot_write_a_form_are_refused_by_name() -> None:
    with refusal("EndTokenMissing"):
        constrain("I like {x}.", stop_tokens=())
    with refusal("TokenizerNotSupported"):
        FormConstraint(
            Form.read("I like {x}."), object(), slot_tokens=1, vocabulary=300, stop_tokens=(1,), max_new_tokens=99
        )
    with refusal("FormNotWritable", match="do not spell"):
        constrain("It ends <|end|> here, {x}.")
    with refusal("FormNotWritable", match="no token of it can stand"):
        constrain("!{x}!", vocabulary=10)  # digits and letters are behind


def test_what_a_tokenizer_tidies_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = BYTES.decode
    monkeypatch.setattr(BYTES, "decode", lambda *given, **named: plainly(*given, **named).replace(" !", "!"))
    assert constrain("I like {x}.").longest
    with refusal("FormNotWritable", match="not decoded"):
        constrain("I like {x} !")


def test_when_nothing_is_left_the_text_breaks_off() -> None:
    constraint = constrain("I like {x} and {y}.", slot_tokens=1, lost=2)
    assert constraint.allowed(0, tokens(BYTES, "I like ")).nonzero()[:, 0].tolist() == [BYTES.eos_token_id]


class Both(RecordParameters, FormParameters):
    """As the systems have them."""


def test_a_release_is_held_to_its_schema_or_its_form_or_to_nothing() -> None:
    model: Any = SimpleNamespace(tokenizer=BYTES, vocabulary=len(BYTES), stop_tokens=(BYTES.eos_token_id,))
    formed = Both.model_validate({"form": "I like {x}.", "slot_tokens": 2})
    made = constraint_for(formed, model, 20)
    assert isinstance(made, FormConstraint)
    assert made.longest == 11
    with refusal("FormTooLong"):
        constraint_for(formed, model, 10)
    assert isinstance(constraint_for(Both.model_validate({"schema": FILM}), model, 200), GrammarConstraint)
    assert constraint_for(Both.model_validate({"schema": FILM, "constrained": False}), model, 200) is None
    assert constraint_for(Both(), model, 20) is None
    assert constraint_for(RecordParameters(), model, 20) is None
    assert constraint_for(PrecisionParameters(), model, 20) is None
    with refusal("FormAndSchema"):
        constraint_for(Both.model_construct(form="I like {x}.", json_schema=FILM), model, 200)


@pytest.mark.slow
@pytest.mark.parametrize("slot_tokens", [1, 3, 6])
def test_the_real_tokenizer_writes_forms(slot_tokens: int) -> None:
    name = "smollm2-135m-instruct"
    listed = next(model for model in list_models() if model.name == name)
    require(listed.installed, f"the model is not pulled: almoner models pull {name}")
    tokenizer = AutoTokenizer.from_pretrained(model_folder(name, listed.revision))
    for seed in range(2):
        written = Writer(PRODUCT, tokenizer, slot_tokens, random.Random(seed)).write()
        assert len(written.contents()) == 4
        assert written.made <= 4 * slot_tokens
    assert slot_tokens != 6 or constrain(PRODUCT, tokenizer, 6).longest == 40  # as docs/forms.md says
    forced = tokens(tokenizer, "The product is a")
    assert written.drawn[: len(forced)] == forced
    begun = constrain("It has {n}.", tokenizer, slot_tokens).allowed(0, tokens(tokenizer, "It has"))
    assert begun[tokens(tokenizer, " five")].all()
    assert bool(begun[tokens(tokenizer, " 5")[0]]) is (slot_tokens > 1)  # a space, then the digit
