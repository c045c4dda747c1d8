"""A trained SentencePiece-like tokenizer with byte fallback: prompts, references, decoding and what tokens spell."""

import json
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from transformers import PreTrainedTokenizerFast

from tasks.inference.loading.adopt import PUBLIC_TEXT
from tasks.inference.prompt_rendering import private_prompt, public_prompt, reference_tokens
from tasks.inference.structured_output.automaton import TokenTexts
from tests.tiny_tokenizer import TEMPLATE

SPACE = "\u2581"
CONTROL = ["<unk>", "<s>", "</s>", "<|start|>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
KINDS = ("unigram", "bpe")
TEXTS = ("The director saw two tablets.", "Zoë 由 😀", "a  b\n\n\tc", " at noon ", "")


def trained(kind: str) -> Any:
    """A model trained on the public text, and given a piece for each byte."""
    inner = Tokenizer(models.Unigram() if kind == "unigram" else models.BPE(unk_token="<unk>"))
    inner.normalizer = normalizers.Replace(" ", SPACE)
    words = PUBLIC_TEXT.replace(" ", f"{SPACE} ").split()
    if kind == "unigram":
        inner.train_from_iterator(words, trainers.UnigramTrainer(vocab_size=300, show_progress=False))
        learnt = [inner.id_to_token(number) for number in range(inner.get_vocab_size())]
        pieces = [*CONTROL, *BYTES, *(piece for piece in learnt if piece not in CONTROL)]
        return models.Unigram([(piece, -float(len(piece) < 2) - 1.0) for piece in pieces], 0, byte_fallback=True)
    inner.train_from_iterator(words, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    vocabulary = {piece: number for number, piece in enumerate([*CONTROL, *BYTES])}
    for piece in sorted(inner.get_vocab()):
        vocabulary.setdefault(piece, len(vocabulary))
    return models.BPE(vocab=vocabulary, merges=merges_of(inner), unk_token="<unk>", byte_fallback=True)


def merges_of(inner: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(inner.to_str())["model"]["merges"]]


@cache
def tokenizer_of(kind: str) -> Any:
    inner = Tokenizer(trained(kind))
    inner.normalizer = normalizers.Replace(" ", SPACE)
    inner.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|end|>"]})
    made.chat_template = TEMPLATE
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_learnt_words_and_falls_back_to_bytes(kind: str) -> None:
    pieces = tokenizer_of(kind).tokenize("the 由")
    assert pieces[-3:] == ["<0xE7>", "<0x94>", "<0xB1>"]
    assert len(pieces) < 3 + len("the ")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_a_reference_is_its_text_and_no_control_token(kind: str, text: str) -> None:
    tokenizer = tokenizer_of(kind)
    tokens = reference_tokens(tokenizer, text, 200)
    assert not set(tokens) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(tokens) == text
    spelt = TokenTexts.of(tokenizer, len(tokenizer))
    assert b"".join(map(spelt.text, tokens)) == text.encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("control", CONTROL[1:])
def test_a_control_token_that_is_spelt_in_a_text_is_none(kind: str, control: str) -> None:
    """A Unigram model would take the word for the token, so it is left out; BPE spells it."""
    tokenizer = tokenizer_of(kind)
    tokens = reference_tokens(tokenizer, f"no {control} here", 200)
    assert not set(tokens) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(tokens) in (f"no {control} here", "no  here")


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_those_of_the_chat_template(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    public, private = public_prompt(tokenizer, "Notes of a clinic."), private_prompt(tokenizer, "Notes of a clinic.")
    assert "Notes of a clinic." in tokenizer.decode(public.tokens)
    assert tokenizer.decode(public.tokens).endswith("<|start|>assistant\n")
    reference = reference_tokens(tokenizer, "Zoë 由: two tablets.", 50)
    whole = tokenizer.decode(private.around(reference))
    assert whole == tokenizer.decode(private.prefix) + "Zoë 由: two tablets." + tokenizer.decode(private.suffix)


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_is_spelt_once_by_a_piece_of_its_own(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    spelt = TokenTexts.of(tokenizer, len(tokenizer) + 3)
    known = tokenizer.get_vocab()
    assert [spelt.text(known[piece]) for piece in BYTES] == [bytes([byte]) for byte in range(256)]
    assert all(spelt.text(known[piece]) == b"" for piece in CONTROL)
    learnt = [piece for piece in known if piece not in (*CONTROL, *BYTES)]
    assert all(spelt.text(known[piece]) == piece.replace(SPACE, " ").encode() for piece in learnt)
    assert any(len(piece) > 2 for piece in learnt)
