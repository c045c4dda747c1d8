"""Any path through the masks is titles, and the sections under them; and no more is drawn than is paid for."""

import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tasks.inference.catalogue.model_store import model_folder
from tasks.inference.catalogue.registry import list_models
from tasks.inference.structured_output.form_tokens import FormNotWritable
from tasks.inference.structured_output.outline_constraint import OutlineConstraint
from tasks.inference.structured_output.outline_parameters import LEAD, Outline, OutlineParameters, sections_of
from tasks.inference.structured_output.schema_constraint import constraint_for
from tasks.inference.structured_output.token_bytes import EndTokenMissing, TokenizerNotSupported
from tests.support import require
from tests.unit.tasks.inference.structured_output.test_form_constraint import BYTES, PREFIXED, WORDY, tokens, word

CONCERNS = ("tasks/inference/structured_output",)

pytestmark = pytest.mark.dear

TWO = Outline(sections=2, tokens=8)
HEADED = f"{LEAD}\n1. abcd\n2. efgh\n\n# abcd\n"
"""What stands before the first draw of a section, where both titles have their 4 tokens."""


def constrain(outline: Outline = TWO, tokenizer: Any = BYTES, draws: int = 40, **changes: Any) -> OutlineConstraint:
    given: dict[str, Any] = {"vocabulary": len(tokenizer) + 3, "stop_tokens": (0, tokenizer.eos_token_id)}
    return OutlineConstraint(outline, tokenizer, draws=draws, **(given | changes))


@dataclass
class Writer:
    """A generation that draws every allowed token with equal chance, and may be interrupted.

    Attributes:
        made: draws that were really made, those that an interruption has lost among them.
        lost: interruptions; each may have cost a draw.
        numbers: the number that each draw has had, as a meter counts them.
        ended: whether an end token was drawn or forced.
    """

    outline: Outline
    tokenizer: Any
    draws: int
    chance: random.Random
    drawn: list[int] = field(default_factory=list)
    made: int = 0
    lost: int = 0
    numbers: list[int] = field(default_factory=list)
    ended: bool = False

    def write(self, interruptions: int = 0) -> "Writer":
        """To the end, as `loop.decode` does it."""
        constraint, number = constrain(self.outline, self.tokenizer, self.draws, lost=self.lost), 0
        while not constraint.is_used_up(3, self.drawn):
            allowed = constraint.allowed(3, self.drawn).nonzero()[:, 0].tolist()
            if len(allowed) > 1:
                self.made, number = self.made + 1, number + 1
                self.numbers.append(number - 1 + self.lost)
            if interruptions and self.chance.random() < 0.05:  # it dies before anything of this is written down
                interruptions -= 1
                self.lost += 1
                constraint = constrain(self.outline, self.tokenizer, self.draws, lost=self.lost)
                number = constraint.choices(self.drawn)
                continue
            token = self.chance.choice([token for token in allowed if self._is_whole(token)] or allowed)
            self.ended = token in (0, self.tokenizer.eos_token_id)
            if self.ended:
                break
            self.drawn.append(token)
        return self

    def _is_whole(self, token: int) -> bool:
        """Whether it is no broken character: next to one, a tokenizer with byte fallback decodes no line feed."""
        return self.tokenizer is not PREFIXED or "\ufffd" not in word(self.tokenizer, token)

    @property
    def text(self) -> str:
        return str(self.tokenizer.decode(self.drawn, skip_special_tokens=True)).strip()


outlines = st.builds(
    lambda sections, each, rest: Outline(sections=sections, tokens=sections * each + rest),
    st.integers(2, 5),
    st.integers(2, 6),
    st.integers(0, 1),
)


@pytest.mark.slow
@settings(max_examples=100)
@given(outlines, st.sampled_from([BYTES, WORDY, PREFIXED]), st.integers(8, 30), st.integers(0, 2**32))
def test_any_path_is_titles_and_the_sections_under_them(outline: Outline, tokenizer: Any, each: int, seed: int) -> None:
    draws = outline.tokens + each * outline.sections
    written = Writer(outline, tokenizer, draws, random.Random(seed)).write()
    assert written.made <= draws
    assert len(written.drawn) + 1 <= draws + outline.uncharged_tokens
    assert constrain(outline, tokenizer, draws).choices(written.drawn) in (written.made, written.made - 1)
    assert written.numbers == list(range(written.made))
    list_of_titles, _, body = written.text.partition("\n\n")
    titles = [line.partition(". ")[2] for line in list_of_titles.split("\n")[1:]]
    assert list_of_titles.startswith(f"{LEAD}\n1. ")
    assert len(titles) == outline.sections
    for title in titles:
        assert title.isprintable()
        assert title[0].isalnum()
    assert body.startswith(f"# {titles[0]}\n")
    assert [title for title, _ in sections_of(written.text)] == titles[: len(list(sections_of(written.text)))]
    assert written.ended or written.made == draws


@settings(max_examples=100)
@given(outlines, st.integers(8, 20), st.integers(1, 6), st.integers(0, 2**32))
def test_interrupted_texts_draw_no_more_than_is_paid_and_no_number_twice(
    outline: Outline, each: int, interruptions: int, seed: int
) -> None:
    draws = outline.tokens + each * outline.sections
    written = Writer(outline, BYTES, draws, random.Random(seed)).write(interruptions)
    assert written.made <= draws
    assert written.numbers == sorted(set(written.numbers))
    assert not written.numbers or written.numbers[-1] < draws
    assert sum(number < outline.tokens for number in written.numbers) <= outline.tokens


def test_what_follows_does_not_depend_on_what_interruptions_cost() -> None:
    """A run that goes on reads its tokens as they were drawn."""
    for seed in range(20):
        written = Writer(TWO, BYTES, 40, random.Random(seed)).write()
        for lost in (1, 5, 30):
            assert constrain(lost=lost).choices(written.drawn) == constrain().choices(written.drawn)


def allowed(constraint: OutlineConstraint, drawn: str, number: int = 0) -> set[str]:
    mask = constraint.allowed(number, tokens(BYTES, drawn)).nonzero()[:, 0].tolist()
    return {"END" if token in (0, BYTES.eos_token_id) else word(BYTES, token) for token in mask}


def test_public_words_are_forced_token_by_token() -> None:
    constraint = constrain()
    for end in range(len(HEADED)):
        if HEADED[end] not in "abcdefgh" or end > HEADED.index("#"):
            assert allowed(constraint, HEADED[:end], number=end) == {HEADED[end]}


def test_rows_are_first_read_behind_the_public_words() -> None:
    forced = forced_places()
    for end in range(len(HEADED)):
        following = next(place for place in range(end, len(HEADED) + 1) if place not in forced)
        assert constrain().before_choice(tokens(BYTES, HEADED[:end])) == following


def forced_places() -> set[int]:
    """The places of public words in HEADED."""
    return {place for place in range(len(HEADED)) if len(allowed(constrain(), HEADED[:place])) == 1}


def test_a_title_begins_with_a_letter_and_ends_with_its_line() -> None:
    constraint = constrain()
    first = allowed(constraint, f"{LEAD}\n1. ")
    assert first == {chr(letter) for letter in range(128) if chr(letter).isalnum()}
    later = allowed(constraint, f"{LEAD}\n1. a")
    assert {"b", " ", ".", "\n"} <= later
    assert not {"[", "<", "\t", "END"} & later
    assert allowed(constraint, f"{LEAD}\n1. a\n") == {"2"}


def test_a_section_begins_with_a_word_and_ends_with_a_blank_line() -> None:
    constraint = constrain()
    assert not {" ", "\n", "END"} & allowed(constraint, HEADED)
    assert {"\n", " ", "["} <= allowed(constraint, HEADED + "x")
    assert "END" not in allowed(constraint, HEADED + "x")
    assert allowed(constraint, HEADED + "x\n\n") == {"#"}
    assert "x" in allowed(constraint, HEADED + "x\n")


def test_only_the_last_section_may_end_with_an_end_token_and_it_takes_what_is_left() -> None:
    last, constraint = HEADED + "x\n\n# efgh\n", constrain()
    assert "END" not in allowed(constraint, last)
    assert "END" in allowed(constraint, last + "y")
    assert "END" in allowed(constraint, last + "y\n\nz")
    assert not constraint.is_used_up(0, tokens(BYTES, last + 28 * "y"))  # 40 draws, less 8 of titles and 3 before
    assert constraint.is_used_up(0, tokens(BYTES, last + 29 * "y"))


def test_a_section_ends_with_its_sentence_in_the_last_quarter_of_its_share() -> None:
    """32 draws are left to two sections: 16 each, of which the last 4 may end it."""
    assert "x" in allowed(constrain(), HEADED + "One two th.")
    assert allowed(constrain(), HEADED + "One two thr.") == {"\n"}  # two lines and a heading follow
    assert "x" in allowed(constrain(), HEADED + "One two three, ")
    assert allowed(constrain(), HEADED + "One two three, f") == {"\n"}
    last = HEADED + "One two thr.\n\n# efgh\n"
    assert "x" in allowed(constrain(), last + "One two three.")
    assert allowed(constrain(), last + "One two three fo.") == {"END"}
    assert not constrain().is_used_up(0, tokens(BYTES, last + "One two three fo."))


def test_short_titles_leave_their_draws_to_the_sections() -> None:
    """Both titles have one letter, so 36 draws are left: 18 for the first section."""
    constraint, headed = constrain(), f"{LEAD}\n1. a\n2. b\n\n# a\n"
    assert "x" in allowed(constraint, headed + 17 * "y")
    assert allowed(constraint, headed + 18 * "y") == {"\n"}


@pytest.mark.parametrize("drawn", ["X", f"{LEAD}\n1. [", f"{LEAD}\n1. a\n3", HEADED + "x\n\nx"])
def test_tokens_that_no_mask_admitted_are_an_error(drawn: str) -> None:
    with pytest.raises(ValueError, match=r"do not follow|cannot stand"):
        constrain().allowed(0, tokens(BYTES, drawn))


def test_masks_that_are_given_away_are_no_ones_cache() -> None:
    constraint = constrain()
    for drawn in ("", f"{LEAD}\n1. ", HEADED, HEADED + "x", HEADED + "x\n\n# efgh\nx"):
        mask = constraint.allowed(0, tokens(BYTES, drawn))
        kept = mask.clone()
        mask.fill_(True)
        assert torch.equal(constraint.allowed(0, tokens(BYTES, drawn)), kept)


def test_states_that_are_forgotten_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.inference.structured_output.outline_constraint.GENERATIONS", 2)
    constraint = constrain()
    for end in range(len(HEADED)):
        for number in range(4):
            assert allowed(constraint, HEADED[:end], number) == allowed(constrain(), HEADED[:end])
    assert len(constraint._states) == 2
    assert allowed(constraint, "", 3) == {LEAD[0]}  # a shorter text is a new one


def test_models_that_cannot_write_an_outline_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EndTokenMissing):
        constrain(stop_tokens=())
    with pytest.raises(TokenizerNotSupported):
        OutlineConstraint(TWO, object(), draws=40, vocabulary=300, stop_tokens=(1,))
    with pytest.raises(FormNotWritable, match="do not spell"):
        constrain(vocabulary=10)  # letters are behind
    plainly = BYTES.decode
    monkeypatch.setattr(BYTES, "decode", lambda *given, **named: plainly(*given, **named).replace("\n\n#", "\n#"))
    with pytest.raises(FormNotWritable, match="not decoded"):
        constrain()


def test_words_that_take_more_tokens_than_are_set_aside_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outline, "uncharged_tokens", property(lambda outline: 20))
    with pytest.raises(FormNotWritable, match="too short"):
        constrain()


def test_a_release_with_an_outline_is_held_to_it() -> None:
    model: Any = SimpleNamespace(tokenizer=BYTES, vocabulary=len(BYTES), stop_tokens=(BYTES.eos_token_id,))
    assert isinstance(constraint_for(OutlineParameters(outline=TWO), model, 40), OutlineConstraint)
    assert constraint_for(OutlineParameters(), model, 40) is None


@pytest.mark.slow
def test_the_real_tokenizer_writes_outlines() -> None:
    name = "smollm2-135m-instruct"
    listed = next(model for model in list_models() if model.name == name)
    require(listed.installed, f"the model is not pulled: almoner models pull {name}")
    tokenizer = AutoTokenizer.from_pretrained(model_folder(name, listed.revision))
    outline = Outline(sections=3, tokens=24)
    for seed in range(3):
        written = Writer(outline, tokenizer, 90, random.Random(seed)).write()
        assert len(written.drawn) < 90 + outline.uncharged_tokens
        assert len(list(sections_of(written.text))) >= 2
