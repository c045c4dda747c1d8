"""What tokens spell, for the two families of tokenizers that are read as bytes; any other is refused."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tasks.inference.structured_output.automaton import Automaton, TokenTexts
from tasks.inference.structured_output.json_schema import grammar_schema
from tests.refusals import refusal
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.systems.record_schemas import FILM


def sentencepiece_like(decoder: Any = None) -> Any:
    """BPE with byte fallback and a visible space, as in Llama 2, Mistral and Gemma."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *'abcdeT{}[]",:\u2581', "Th", "The"]
    inner = Tokenizer(
        models.BPE(
            vocab={piece: number for number, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    inner.normalizer = normalizers.Replace(" ", "\u2581")
    inner.decoder = decoder or decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_a_byte_level_tokenizer_spells_every_byte() -> None:
    tokenizer = tiny_tokenizer()
    texts = TokenTexts.of(tokenizer, len(tokenizer) + 5)
    assert texts.texts == {bytes([byte]) for byte in range(256)}
    assert texts.lengths.tolist() == [0, 0] + [1] * 256 + [0] * 5


def test_a_byte_fallback_tokenizer_spells_spaces_bytes_and_words() -> None:
    tokenizer = sentencepiece_like()
    texts = TokenTexts.of(tokenizer, len(tokenizer))
    spelt = {word: texts.text(token) for word, token in tokenizer.get_vocab().items()}
    assert spelt["\u2581"] == b" "
    assert spelt["<0x0A>"] == b"\n"
    assert spelt["The"] == b"The"
    assert spelt["</s>"] == b""


@pytest.mark.parametrize("decoder", [decoders.WordPiece(), decoders.Metaspace(), decoders.BPEDecoder()])
def test_other_decoders_are_refused(decoder: Any) -> None:
    with refusal("TokenizerNotSupported", match="its decoder is"):
        TokenTexts.of(sentencepiece_like(decoder), 300)


def test_a_tokenizer_without_a_decoder_is_refused() -> None:
    with refusal("TokenizerNotSupported", match="missing"):
        TokenTexts.of(object(), 300)


def test_a_tokenizer_that_decodes_to_something_else_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    with refusal("TokenizerNotSupported", match="do not spell"):
        TokenTexts.of(tokenizer, 300)


def test_a_byte_level_vocabulary_with_a_foreign_letter_is_refused() -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={word: n for n, word in enumerate([*letters, "\u7531"])}, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    with refusal("TokenizerNotSupported", match="a token contains"):
        TokenTexts.of(PreTrainedTokenizerFast(tokenizer_object=inner), 300)


def test_the_tree_of_prefixes_leads_every_token_where_its_bytes_lead() -> None:
    words = ["a", "ab", "ab", "abc", "b", "a\0", "", "\0", '{"', '{"title', '{"titles', " ", "title"]
    spelt = [word.encode() for word in words]
    letters = np.zeros((len(spelt), 10), dtype=np.uint8)
    for row, text in enumerate(spelt):
        letters[row, : len(text)] = list(text)
    texts = TokenTexts(letters, np.array([len(text) for text in spelt]))
    automaton = Automaton.of(grammar_schema(FILM))
    for before in (b"", b"{", b'{"cast":["', b'{"cast":["ab'):
        state = automaton.after(automaton.start, before)
        expected = [automaton.after(state, text) if text else 0 for text in spelt]
        assert texts.states_after(automaton, state).tolist() == expected
