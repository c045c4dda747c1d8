"""Sections `adapter` and `embedding`: what else a run does on a device."""

import math
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.gpu import networks
from benchmarks.gpu.decoding_plan import token_ids
from benchmarks.gpu.networks import LLAMA_1B, SMOLLM2, memory_returned, synchronise
from benchmarks.gpu.section import Bench
from tasks.adapters.adapter import fit_space
from tasks.adapters.training.data import TrainingSettings
from tasks.adapters.training.frozen_model import FrozenNetwork, Line, freeze
from tasks.adapters.training.loop import Course, Lesson, Lessons
from tasks.inference.prompt_rendering import PromptPieces

LOSS_TOLERANCE: Final = 1e-3
"""Nats of a token in float32, after the same steps on the device and on the CPU."""
RHO: Final = 500_000_000_000
"""Of the clustering, in units of 1e-12."""
_GROUPS, _DOCUMENTS = 12, 24
_BERT: Final[Mapping[str, Any]] = {
    "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12,
    "max_position_embeddings": 512,
}  # fmt: skip
"""all-MiniLM-L6-v2's shape."""


def adapter(bench: Bench) -> None:
    """The loss of a short training on the device and on the CPU; then the time of a real one."""
    bench.row("losses of a tiny model", lambda: _same_losses(bench))
    for name in (SMOLLM2,) if bench.small else (SMOLLM2, LLAMA_1B):
        bench.row(f"training through {name}, bfloat16", lambda name=name: _training(bench, name))


def _same_losses(bench: Bench) -> Mapping[str, Any]:
    found = []
    for device in ("cpu", bench.device):
        # Weights are drawn on the CPU for both: another device has another generator.
        network = freeze(
            networks.random_network(SMOLLM2, "cpu", torch.float32, small=True), torch.device(device), torch.float32
        )
        course = _course(network, TrainingSettings(**_settings(bench, tiny=True), precision="float32"))
        course.begin()
        course.advance()
        found.append(course.fit().best_loss)
    difference = float(abs(found[0] - found[1]))
    return {"passed": difference <= LOSS_TOLERANCE, "loss": float(found[0]), "difference": difference}


def _training(bench: Bench, name: str) -> Mapping[str, Any]:
    networks.reset_peak(bench.device)
    with memory_returned():
        plain = networks.random_network(name, bench.device, torch.bfloat16, small=bench.small)
        settings = TrainingSettings(**_settings(bench, tiny=bench.small))
        course = _course(freeze(plain, torch.device(bench.device), torch.bfloat16), settings)
        course.begin()
        course.advance()  # not counted
        synchronise(bench.device)
        began = time.perf_counter()
        course.advance()
        synchronise(bench.device)
        seconds = time.perf_counter() - began
        loss = float(course.fit().best_loss)
    return {
        "passed": math.isfinite(loss),
        "ms of a step, its part of the check included": seconds / settings.check_every * 1000,
        "examples a step": settings.batch,
        "loss": loss,
        "peak GiB": networks.peak_memory(bench.device) or "not on a CPU",
    }


def _settings(bench: Bench, *, tiny: bool) -> dict[str, Any]:
    sizes = {"soft_tokens": 16, "words": 0, "dimensions": 32, "hidden_units": 64, "batch": 8, "check_every": 10}
    if tiny:
        sizes |= {"soft_tokens": 3, "dimensions": 4, "hidden_units": 8, "batch": 4, "check_every": 4}
    return sizes | {"steps": 100, "patience": 100}


def _course(network: FrozenNetwork, settings: TrainingSettings) -> Course:
    """A training on made-up documents: their states are random, and their summaries token ids."""
    vocabulary, width = network.embeddings.shape
    numbers, chance = token_ids(vocabulary), torch.Generator().manual_seed(2)
    states = tuple(torch.randn(_DOCUMENTS, width, generator=chance) for _ in range(_GROUPS))

    def line(tokens: int) -> Line:
        return Line(
            PromptPieces(tuple(islice(numbers, 30)), tuple(islice(numbers, 10))), tuple(islice(numbers, tokens))
        )

    lessons = [Lesson(number, line(40 + number)) for number in range(_GROUPS)]
    space, clip_norm = fit_space(states[:-2], settings.dimensions, settings.centres, settings.seed)
    return Course(
        settings, Lessons(states, tuple(lessons[:-2]), tuple(lessons[-2:]), 2), space, clip_norm, network, None
    )


def embedding(bench: Bench) -> None:
    """Texts a second, whether places of a pass are alike, and private k-means of the points, on the host."""
    from tasks.inference.embeddings.unit_embeddings import LENGTHS, PIECES, places_alike

    with memory_returned():
        embedder, weights = _embedder(bench)
        texts = [_text(number) for number in range(40 if bench.small else 4000)]
        for length in (16, 64) if bench.small else LENGTHS:
            if (places := PIECES // length) > 1 and length <= embedder.most:
                bench.row(
                    f"{places} places of {length} pieces",
                    lambda places=places, length=length: {"passed": places_alike(embedder, places, length)},
                )
        bench.row(f"texts, {weights}", lambda: _embedded(bench, embedder, texts))
    bench.row("private k-means, on the host", lambda: _clustered(2_000 if bench.small else 50_000))


def _embedder(bench: Bench) -> tuple[Any, str]:
    from tasks.inference.catalogue.registry import ModelNotPulled
    from tasks.inference.embeddings.encoder import TextEmbedder, load_embedder

    if not bench.small:
        try:
            return load_embedder(device=bench.device), "all-MiniLM-L6-v2"
        except ModelNotPulled:
            pass
    network = _random_bert(bench.folder, bench.device, small=bench.small)
    return TextEmbedder("random", "random", "0" * 64, network), "random weights of all-MiniLM-L6-v2's shape"


def _random_bert(folder: Path, device: str, *, small: bool) -> Any:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    from tests.tiny_tokenizer import tiny_tokenizer

    sizes = dict(_BERT) | ({"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 1} if small else {})
    tokenizer = tiny_tokenizer(None)
    tokenizer.pad_token = tokenizer.eos_token
    torch.manual_seed(4)
    plain = folder / "bert"
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(plain)
    tokenizer.save_pretrained(plain)
    parts = [Transformer(str(plain), max_seq_length=256), Pooling(sizes["hidden_size"], "mean")]
    return SentenceTransformer(modules=parts, device=device).eval()


def _embedded(bench: Bench, embedder: Any, texts: list[str]) -> Mapping[str, Any]:
    from tasks.inference.embeddings.unit_embeddings import points_of

    points_of(embedder, texts[:64])
    began = time.perf_counter()
    points = points_of(embedder, texts)
    seconds = time.perf_counter() - began
    lengths = np.linalg.norm(points, axis=1)
    return {
        "passed": bool(np.isfinite(points).all() and np.allclose(lengths, 1.0, atol=1e-3)),
        "texts": len(texts),
        "texts/s": len(texts) / seconds,
        "word pieces/s": sum(embedder.lengths(texts)) / seconds,
    }


def _text(number: int) -> str:
    words = ("river", "stone", "paper", "seven", "green", "north", "winter", "number", "water", "house")
    return " ".join(words[(place * place + number * 7 + place // 3) % 10] for place in range(5 + number * 13 % 36))


def _clustered(count: int) -> Mapping[str, Any]:
    from tasks.analysis.clustering.clusterers import clusterer_for
    from tasks.analysis.clustering.parameters import ClusterSettings
    from tasks.mechanisms.core.rng import OS_RANDOM

    chance = np.random.default_rng(6)
    points, public = (chance.normal(size=(rows, 384)).astype(np.float32) for rows in (count, 500))
    points, public = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (points, public))
    clusterer = clusterer_for(ClusterSettings(count=16), RHO)
    began = time.perf_counter()
    centres = clusterer.centres(clusterer.draw(points, public, OS_RANDOM), public)
    drawn = time.perf_counter() - began
    assigned = centres.assign(points)
    return {
        "passed": len(assigned) == count and 1 <= len(centres) <= 16,
        "points": count,
        "draw and centres s": drawn,
        "assignment s": time.perf_counter() - began - drawn,
    }
