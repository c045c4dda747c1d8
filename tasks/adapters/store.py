"""Store of this machine's adapters: `<models folder>/adapters/<digest>/`, each written once; prompts of an adapter.

adapter.safetensors   tensors, and the meta data in its header; its SHA-256 names the folder
adapter.json          the same meta data, for people
losses.jsonl          the course of the training; losses.svg shows it

Finding and describing adapters imports no torch. Every read of an adapter hashes its file first.

AdapterUnknown (UsageError), AdapterAmbiguous (UsageError), AdapterNameTaken (UsageError)
AdapterUnfit (UsageError)           made for another model
AdapterDamaged (EnvironmentProblem) its file does not have the digest of its name, or is no adapter
"""

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from models_db.errors import EnvironmentProblem, UsageError
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import model_to_json
from tasks.adapters.metadata import AdapterMeta, AdapterWording, KnownAdapter
from tasks.inference.catalogue.model_store import models_folder
from tasks.inference.prompt_rendering import PromptPieces, control_tokens, private_prompt
from tasks.inference.prompt_spec import control_token_written

if TYPE_CHECKING:
    from tasks.adapters.adapter import Adapter
    from tasks.inference.engine.language_model import LanguageModel


TENSORS: Final = "adapter.safetensors"
META: Final = "adapter.json"
LOSSES: Final = "losses.jsonl"
CURVE: Final = "losses.svg"

_KEY = "almoner"
_SHORTEST_PREFIX = 6


def adapters_folder() -> Path:
    """Return the folder of all adapters."""
    return models_folder() / "adapters"


def adapter_folder(digest: str) -> Path:
    """Return the folder of the adapter with this digest."""
    return adapters_folder() / digest


def list_adapters(damaged: Callable[["AdapterDamaged"], None] = lambda problem: None) -> list[KnownAdapter]:
    """Return every adapter of this machine, by name and then by digest.

    Args:
        damaged: called for each adapter that cannot be read, which is left out.
    """
    adapters = []
    for digest in _digests():
        try:
            adapters.append(KnownAdapter(digest, read_meta(digest)))
        except AdapterDamaged as problem:
            damaged(problem)
    return sorted(adapters, key=lambda adapter: (adapter.meta.name, adapter.digest))


def find_adapter(identifier: str) -> KnownAdapter:
    """Return the adapter with that digest, name, or prefix of a digest (six digits or more).

    Raises:
        AdapterUnknown, AdapterAmbiguous.
        AdapterDamaged: the adapter with that whole digest is damaged.
    """
    digests = _digests()
    if identifier in digests:
        return KnownAdapter(identifier, read_meta(identifier))
    adapters = list_adapters()
    matches = [adapter for adapter in adapters if adapter.meta.name == identifier]
    if not matches and re.fullmatch(f"[0-9a-f]{{{_SHORTEST_PREFIX},63}}", identifier):
        matches = [adapter for adapter in adapters if adapter.digest.startswith(identifier)]
    if not matches:
        raise AdapterUnknown(identifier, [adapter.meta.name for adapter in adapters])
    if len(matches) > 1:
        raise _adapter_ambiguous(identifier, [adapter.digest for adapter in matches])
    return matches[0]


def require_name_free(name: str) -> None:
    """Check that no adapter has that name yet.

    Raises:
        AdapterNameTaken.
    """
    for adapter in list_adapters():
        if adapter.meta.name == name:
            raise UsageError(
                f"An adapter {name!r} exists already.",
                "Choose another --name; adapters are never changed.",
                {"adapter": name, "digest": adapter.digest},
                code="AdapterNameTaken",
            )


def read_meta(digest: str) -> AdapterMeta:
    """Return the meta data of an adapter, from the header of its file.

    Raises:
        AdapterUnknown: no adapter has that digest.
        AdapterDamaged: the file has another digest.
    """
    return _meta_in(_verified(digest), digest)


def require_fit(adapter: KnownAdapter, model: str, model_digest: str | None = None, width: int | None = None) -> None:
    """Check that an adapter belongs to a model; None is not known yet.

    Raises:
        AdapterUnfit.
    """
    meta = adapter.meta
    if meta.model != model:
        raise _adapter_unfit(adapter, f"it was trained for the model {meta.model!r}, not for {model!r}")
    if model_digest is not None and meta.model_digest != model_digest:
        raise _adapter_unfit(adapter, f"it was trained for other weights of {model!r}")
    if width is not None and meta.width != width:
        raise _adapter_unfit(adapter, f"it takes hidden states of width {meta.width}; those of {model!r} have {width}")


def load_adapter(adapter: KnownAdapter, model: "LanguageModel") -> "Adapter":
    """Load the adapter for the model that will use it.

    Raises:
        AdapterUnknown, AdapterDamaged, AdapterUnfit.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    from tasks.adapters.adapter import from_tensors, lens_of, shapes_of

    require_fit(adapter, model.name, model.digest, model.width)
    data = _verified(adapter.digest)
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError) as problem:
        raise AdapterDamaged(adapter.digest, f"its tensors cannot be read ({type(problem).__name__})") from None
    if {name: tuple(value.shape) for name, value in tensors.items()} != shapes_of(adapter.meta):
        raise AdapterDamaged(adapter.digest, "its tensors do not have the shapes of its header")
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise AdapterDamaged(adapter.digest, "some of its numbers are not finite")
    return from_tensors(adapter.meta, tensors, lens_of(model) if adapter.meta.words else None)


def save_adapter(meta: AdapterMeta, tensors: Mapping[str, Any], course: Mapping[str, str]) -> KnownAdapter:
    """Write an adapter; the folder appears complete or not at all.

    Args:
        tensors: `adapter.tensors_of`.
        course: the texts of LOSSES and CURVE.
    """
    from safetensors.torch import save

    meta_text = encode_canonical(model_to_json(meta)).decode()
    data = save(dict(tensors), {_KEY: meta_text})
    saved = KnownAdapter(hashlib.sha256(data).hexdigest(), meta)
    draft = adapters_folder() / f".new-{secrets.token_hex(8)}"
    draft.mkdir(parents=True)
    try:
        (draft / TENSORS).write_bytes(data)
        (draft / META).write_text(json.dumps({"digest": saved.digest, **json.loads(meta_text)}, indent=2) + "\n")
        for name, text in course.items():
            (draft / name).write_text(text)
        if not adapter_folder(saved.digest).exists():
            draft.rename(adapter_folder(saved.digest))
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return saved


def _digests() -> list[str]:
    folder = adapters_folder()
    if not folder.is_dir():
        return []
    return sorted(each.name for each in folder.iterdir() if re.fullmatch("[0-9a-f]{64}", each.name))


def _verified(digest: str) -> bytes:
    """Read an adapter's file and check that its digest is its name."""
    path = adapter_folder(digest) / TENSORS
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise AdapterUnknown(digest, []) from None
    except OSError as problem:
        raise AdapterDamaged(digest, f"its file cannot be read ({problem.strerror})") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise AdapterDamaged(digest, "it has another digest")
    return data


def _meta_in(data: bytes, digest: str) -> AdapterMeta:
    """Parse the meta data in a safetensors header, which is eight bytes of length and then JSON."""
    try:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return AdapterMeta.model_validate_json(header["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError) as problem:
        raise AdapterDamaged(digest, f"its header cannot be read ({type(problem).__name__})") from None


class AdapterUnknown(UsageError):
    """No adapter of that name or digest."""

    def __init__(self, identifier: str, adapters: list[str]) -> None:
        super().__init__(
            f"There is no adapter {identifier!r} on this machine.",
            f"It has: {', '.join(adapters) or 'none'}. Train one with `almoner adapter train`; see docs/adapters.md.",
            {"adapter": identifier},
        )


def _adapter_ambiguous(identifier: str, digests: list[str]) -> UsageError:
    return UsageError(
        f"{len(digests)} adapters have the name or the digest prefix {identifier!r}.",
        f"Name one by its digest: {', '.join(each[:16] for each in digests)}.",
        {"adapter": identifier, "digests": digests},
        code="AdapterAmbiguous",
    )


def _adapter_unfit(adapter: KnownAdapter, reason: str) -> UsageError:
    return UsageError(
        f"The adapter {adapter.meta.name!r} cannot be used: {reason}.",
        "Name the adapter's own model, or train an adapter for this one.",
        {"adapter": adapter.digest, "model": adapter.meta.model},
        code="AdapterUnfit",
    )


class AdapterDamaged(EnvironmentProblem):
    """An adapter file that cannot be read or has another digest."""

    def __init__(self, digest: str, reason: str) -> None:
        super().__init__(
            f"The adapter {digest[:16]} on this machine is damaged: {reason}.",
            f"Delete its folder in {adapters_folder()} and train it again, or copy it again.",
            {"adapter": digest},
        )


def reading_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """Return the prompt around a document, which the hidden state of the last token represents.

    The suffix opens the answer with the wording's first words. The state after "This text is about" predicts the
    next word, that is the subject; the state after an empty answer mostly predicts how answers begin (the idea of
    taking a text's meaning from the next word: Jiang et al. 2023, "Scaling Sentence Embeddings with Large Language
    Models"; docs/adapters.md has its effect here).

    Args:
        about: the public metadata of the group.

    Raises:
        `bad_template`, BadDescription, NoChatTemplate.
    """
    pieces = private_prompt(tokenizer, wording.reading_spec(), about)
    opening = tuple(tokenizer(wording.reading_opening, add_special_tokens=False)["input_ids"])
    if not control_tokens(tokenizer).isdisjoint(opening):
        raise control_token_written("private")
    return PromptPieces(pieces.prefix, pieces.suffix + opening)


def writing_pieces(tokenizer: Any, wording: AdapterWording, about: str | None) -> PromptPieces:
    """Return the prompt around the soft tokens of a summary. Arguments and errors as `reading_pieces`."""
    return private_prompt(tokenizer, wording.writing_spec(), about)
