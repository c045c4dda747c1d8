"""Adapters made up for tests: of the tiny model, untrained, with every tensor in place."""

from decimal import Decimal
from typing import Any

import torch

from tasks.adapters.adapter import Adapter, Decoder, Space, lens_of
from tasks.adapters.metadata import AdapterMeta, AdapterWording, Fit, TrainingSet
from tests.tiny_model import DIGEST, NAME, SPEC, tiny_model

WORDING = AdapterWording(
    description="a short summary",
    system="Summarise.",
    private="{reference}\n\nAbout: {label}\n\nWrite {description}.",
    reading_system="Read.",
    reading_private="{reference}\n\nWhat is it?",
    reading_opening="It is",
)


def meta(
    name: str = "planted", width: int = 32, dimensions: int = 6, centres: int = 1, tokens: int = 3, words: int = 0
) -> AdapterMeta:
    """The meta data of an adapter for the tiny model."""
    return AdapterMeta(
        name=name,
        model=NAME,
        model_revision=SPEC.revision,
        model_digest=DIGEST,
        width=width,
        dimensions=dimensions,
        centres=centres,
        soft_tokens=tokens,
        words=words,
        hidden_units=8,
        clip_norm=Decimal("2.5"),
        noise_least=Decimal("0.01"),
        noise_most=Decimal(1),
        max_reference_tokens=40,
        wording=WORDING,
        training=TrainingSet(
            file="train.jsonl", sha256="a" * 64, licence="CC0-1.0", examples=4, documents=9, learned_groups=3,
            held_out_groups=1,
        ),
        seed=1,
        fit=Fit(steps=5, best_step=4, first_loss=Decimal(5), best_loss=Decimal(4), clean_loss=Decimal("3.9"),
                blind_loss=Decimal("4.1")),
    )  # fmt: skip


def adapter(seed: int = 5, **sizes: Any) -> Adapter:
    """An adapter of random numbers."""
    known, generator = meta(**sizes), torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    basis = torch.linalg.qr(numbers(known.width, known.dimensions))[0].T.contiguous()
    vector = known.vector_width
    space = Space(
        numbers(known.width), basis, numbers(known.centres, known.dimensions), numbers(vector), numbers(vector).square()
    )
    decoder = Decoder(vector, known.hidden_units, known.soft_tokens, known.words, known.width)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(numbers(*parameter.shape) * 0.3)
    lens = lens_of(tiny_model()) if known.words else None
    return Adapter(known, space, decoder.eval().requires_grad_(False), lens)
