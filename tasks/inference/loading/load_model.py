"""Loading of a model by its name, and its description from its settings. No code of a model is run.

Only local files are read, as safetensors. A description needs no weights: the shape of the network, its chat template,
this machine's precisions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import huggingface_hub
import safetensors
import torch
import transformers
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
)

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import choose_devices, missing_everywhere, use_threads
from tasks.inference.catalogue.model_check import PRECISIONS, ModelCheck, Precision
from tasks.inference.catalogue.model_store import UnreadableModel, silence_libraries
from tasks.inference.catalogue.registry import (
    Kind,
    LocalModel,
    Model,
    ModelNotPulled,
    ModelSpec,
    UnsupportedModel,
    find,
    model_folder_missing,
)
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.engine.memory import group_of_machine, layer_devices, machine_of, require_memory
from tasks.inference.loading.adopt import LONGEST_EXAMPLE, PUBLIC_TEXT, stop_tokens, wrap_network, writable_tokens
from tasks.inference.loading.row_wise_modules import (
    require_possible_numbers,
    require_rowwise,
    require_sizes,
    shape_of,
)
from tasks.inference.loading.weights import restore_constants, type_to_read
from tasks.inference.prompt_rendering import NoChatTemplate, private_prompt, public_prompt, reference_tokens
from tasks.inference.prompt_spec import PromptSpec

TEXT_PARTS: Final = ("gemma3", "mistral3")
"""Models of text and images, of which the part that reads and writes text is read, without the rest."""
_TEXT_NAMES: Final = {
    r"^(model\.language_model|language_model\.model)\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}
"""Names of that part's weights in the checkpoint of the whole, and in the network of the part."""

WITHOUT_SDPA: Final = ("gemma2", "vaultgemma")
"""Types whose attention transformers computes in its own way alone: they cap logits."""
_UNUSED: Final = re.compile(
    r"(^|\.)(rotary_emb\.inv_freq|position_ids)$|^(model\.)?(vision_tower|vision_model|multi_modal_projector)\."
)
"""Names of numbers that a network computes by itself, and of the parts of `TEXT_PARTS` that read images."""
LONGEST_NAME: Final = 60
"""Characters of a name in a model's files that a refusal shows."""

_LOADING: Final = Lock()
"""Held while a model is read: transformers sets global state, and two threads that load would mix it up."""


def load(name: str, device: str = "auto", precision: Precision = "float32") -> LanguageModel:
    """Load a pulled model for the engine. Its digest is that of its files, in every precision.

    Args:
        name: a name of the registry, or `org/name@<commit>`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; or `cuda:A-B`, over which the layers are spread (`layer_layout`).
        precision: in what the layers compute. Files of bfloat16 are read as they are stored, where that is exact.

    Raises:
        UnknownModel, NoRevision, UnknownDevice: the request is wrong.
        UnsupportedModel, PrecisionTooCoarse, MoreDevicesThanLayers, LayersNotSpread: the model cannot do the work.
        ModelNotPulled, NoSafetensors, ModelChanged, UnreadableModel, DeviceMissing, PrecisionMissing, ModelTooLarge:
            this machine cannot.
    """
    model, devices = find(name), choose_devices(device)
    use_threads()
    folder, record = located(model)
    with _LOADING, model_store.open_model(name, folder, record) as (digest, folder):
        described = require_supported(name, folder)
        shape = shape_of(described)
        with require_memory(name, shape, devices, precision):
            with model_store.describe_failures(name):
                dtype = type_to_read(described.config, folder)
            network, tokenizer = read_network(name, folder, AutoModelForCausalLM, dtype)
            restore_constants(network)
            loaded = wrap_network(
                network,
                tokenizer,
                name=name,
                revision=model.revision,
                digest=digest,
                device=devices[0],
                precision=precision,
                example=reference_tokens(tokenizer, PUBLIC_TEXT, LONGEST_EXAMPLE),
                layer_devices=layer_devices(shape, devices, precision) if len(devices) > 1 else (),
            )
    return loaded


def require_pulled(name: str, kind: Kind) -> None:
    """Check that a model is on this machine, without reading it.

    Raises:
        UnknownModel, NoRevision, ModelKindMismatch, ModelNotPulled.
    """
    located(find(name, kind))


def located(model: Model) -> tuple[Path, Path]:
    """Return the model's folder and the record of its digest.

    Raises:
        ModelNotPulled, ModelFolderMissing.
    """
    if isinstance(model, LocalModel):
        if not model.folder.is_dir():
            raise model_folder_missing(model.name, model.folder)
        return model.folder, model.record
    if isinstance(model, ModelSpec):
        folder = model_store.model_folder(model.name, model.revision)
        if not folder.is_dir():
            raise ModelNotPulled(model.name)
        return folder, model_store.record_in(folder)
    try:
        snapshot = huggingface_hub.snapshot_download(model.repo, revision=model.revision, local_files_only=True)
    except LocalEntryNotFoundError as error:
        raise ModelNotPulled(model.name) from error
    return Path(snapshot), model_store.hub_record(model.repo, model.revision)


def require_supported(name: str, folder: Path) -> Any:
    """Return a model's network without weights (on the meta device), if the engine can read it: config.json decides.

    Raises:
        UnreadableModel: there is no configuration that transformers understands.
        UnsupportedModel: the network it describes is none of ours, or one that transformers does not know.
    """
    safely = {"local_files_only": True, "trust_remote_code": False}
    with silence_libraries():
        try:
            config = text_config(AutoConfig.from_pretrained(folder, **safely))
        except Exception as error:  # as below
            if reason := _unknown_architecture(folder):
                raise UnsupportedModel(name, reason) from error
            raise UnreadableModel(name, _first_line(error)) from error
        require_possible_numbers(name, config)
        try:
            with torch.device("meta"):
                network = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        except Exception as error:
            reason = f"transformers makes no language model of its config.json ({_first_line(error)})"
            raise UnsupportedModel(name, reason) from error
    require_rowwise(name, network)
    require_sizes(name, config)
    return network


def _unknown_architecture(folder: Path) -> str:
    """Return why transformers has no network of the kind that config.json names; empty if it names none, or a known."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return ""
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str) or not kind or kind in CONFIG_MAPPING:
        return ""
    architectures = config.get("architectures")
    classes = [each for each in architectures if isinstance(each, str)] if isinstance(architectures, list) else []
    named = f"its architecture {_quote(kind)}" + (f" ({_quote(classes[0])})" if classes else "")
    if config.get("auto_map"):
        return f"{named} is defined by code that comes with it, and no code of a model is run"
    return f"{named} is unknown to transformers {transformers.__version__}"


def _quote(text: str) -> str:
    """Return a name from a model's file, as text of one short line."""
    return ascii(text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}...")


def text_config(config: Any) -> Any:
    """Return the configuration of a model's text part, where the engine reads that part alone; else `config`."""
    return config.text_config if config.model_type in TEXT_PARTS else config


def _first_line(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return first_line or type(error).__name__


def read_network(name: str, folder: Path, kind: Any, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Return a network of one of transformers' kinds, in `dtype`, and its tokenizer.

    Raises:
        UnreadableModel: also where weights are missing, which transformers would draw at random.
    """
    safely = {"local_files_only": True, "trust_remote_code": False}
    with model_store.describe_failures(name), silence_libraries():
        tokenizer = read_tokenizer(name, folder)
        options = _options_for(AutoConfig.from_pretrained(folder, **safely), folder)
        network, report = kind.from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **options,
            **safely,
        )
    if problem := _unlike(network, report):
        raise UnreadableModel(name, problem)
    return network, tokenizer


def weights_problem(folder: Path) -> str:
    """Return why the weights in `folder` are not those of its config.json, by their names and shapes; else empty.

    Nothing is said where weights are not all there yet.
    """
    safely = {"local_files_only": True, "trust_remote_code": False}
    try:
        with silence_libraries():
            config = AutoConfig.from_pretrained(folder, **safely)
            if not _weights_are_here(folder):
                return ""
            network, report = AutoModelForCausalLM.from_pretrained(
                folder,
                use_safetensors=True,
                output_loading_info=True,
                device_map="meta",
                **_options_for(config, folder),
                **safely,
            )
    except Exception as error:  # noqa: BLE001 - as in `read_network`
        return f"its weights cannot be read ({_first_line(error)})"
    return _unlike(network, report)


def _weights_are_here(folder: Path) -> bool:
    index = folder / model_store.INDEX
    if (folder / model_store.WEIGHTS).is_file() or not index.is_file():
        return (folder / model_store.WEIGHTS).is_file()
    return all((folder / file).is_file() for file in json.loads(index.read_bytes())["weight_map"].values())


def _unlike(network: Any, report: Mapping[str, Any]) -> str:
    """Return how the weights of the files differ from those of the network, as the end of a refusal; else empty."""
    if missing := sorted(report["missing_keys"]):
        return f"its files lack {len(missing)} of its weights, such as {_quote(missing[0])}"
    tied = set(network.all_tied_weights_keys)
    unused = sorted(name for name in report["unexpected_keys"] if name not in tied and not _UNUSED.search(name))
    if unused:
        return f"its files have {len(unused)} weights that its network does not use, such as {_quote(unused[0])}"
    return ""


def read_tokenizer(name: str, folder: Path) -> Any:
    """Return a model's tokenizer; errors of transformers and tokenizers pass, because they contain nothing private."""
    with silence_libraries():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    tokenizer.name_or_path = name
    return tokenizer


@dataclass(frozen=True)
class ModelTokens:
    """Tokens of a model that is not loaded, as a loaded one has them.

    Attributes:
        vocabulary: V, how many tokens have a logit.
        stop_tokens: every token id that ends a text, ascending.
    """

    tokenizer: Any
    vocabulary: int
    stop_tokens: tuple[int, ...]


def read_tokens(name: str, folder: Path) -> ModelTokens:
    """Return the tokens of the model in `folder`; errors pass as those of `read_tokenizer`."""
    safely = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = read_tokenizer(name, folder)
    with silence_libraries():
        config = text_config(AutoConfig.from_pretrained(folder, **safely))
        generation = GenerationConfig.from_model_config(config)
        if (folder / "generation_config.json").exists():
            generation = GenerationConfig.from_pretrained(folder, local_files_only=True)
    vocabulary = min(config.vocab_size, writable_tokens(tokenizer) or config.vocab_size)
    return ModelTokens(tokenizer, vocabulary, stop_tokens(vocabulary, tokenizer, generation, config))


def _options_for(config: Any, folder: Path) -> dict[str, Any]:
    """Return how transformers reads a checkpoint: its own attention, and the text part alone."""
    options: dict[str, Any] = {"attn_implementation": "eager" if config.model_type in WITHOUT_SDPA else "sdpa"}
    if config.model_type in TEXT_PARTS:
        part = text_config(config)
        part.tie_word_embeddings = not any(map(_has_head, folder.glob("*.safetensors")))
        options |= {"config": part, "key_mapping": _TEXT_NAMES}
    return options


def _has_head(file: Path) -> bool:
    with safetensors.safe_open(file, "pt") as weights:
        return any(name.endswith("lm_head.weight") for name in weights.keys())  # noqa: SIM118 - it is no mapping


SHORTEST_PROMPT = PromptSpec("a", system="a", public="a", private="{reference} a")
"""A prompt of nearly no words: its tokens are those of the chat template."""
SHORTEST_WORDS = 4
"""Tokens of the words of `SHORTEST`, and one for what an end of a word may merge with."""


@dataclass(frozen=True)
class ChatTemplate:
    """Chat template of a model: the least tokens that it adds, or why it cannot be used."""

    problem: str = ""
    tokens: int = 0


def describe_model(name: str, folder: Path, template: ChatTemplate | None = None) -> ModelCheck:
    """Return the check of the model whose settings are in `folder`; no weights are needed, and of those there
    only the names and shapes are read.

    Args:
        template: where it is known already; then no tokenizer is read.

    Raises:
        UnreadableModel: there is no configuration that transformers understands.
    """
    missing = {precision: reason for precision in PRECISIONS if (reason := missing_everywhere(precision))}
    try:
        network = require_supported(name, folder)
    except UnsupportedModel as refusal:
        return ModelCheck(name=name, problem=refusal.reason, missing=missing)
    if template is None:
        try:
            template = _described_template(read_tokenizer(name, folder))
        except Exception as error:  # noqa: BLE001 - transformers and tokenizers each raise their own; nothing is private
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            return ModelCheck(name=name, problem=f"its tokenizer cannot be read ({reason})", missing=missing)
    if problem := weights_problem(folder):
        return ModelCheck(name=name, problem=problem, missing=missing)
    return ModelCheck(
        name=name,
        template_problem=template.problem,
        conversation_tokens=template.tokens,
        missing=missing,
        shape=shape_of(network),
        machine=machine_of(choose_devices()),
        group=group_of_machine(),
    )


def _described_template(tokenizer: Any) -> ChatTemplate:
    try:
        pairs = (public_prompt(tokenizer, SHORTEST_PROMPT), private_prompt(tokenizer, SHORTEST_PROMPT))
    except NoChatTemplate as refusal:
        return ChatTemplate(refusal.reason)
    except Exception as error:  # noqa: BLE001 - as above
        return ChatTemplate(f"its chat template cannot be rendered ({type(error).__name__})")
    return ChatTemplate(tokens=max(0, min(len(pieces.tokens) for pieces in pairs) - SHORTEST_WORDS))
