"""From a name to a model in memory. Only local files are read, as safetensors, and no code of a model is run."""

from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from models_db.errors import EnvironmentProblem
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import choose_device, use_threads
from tasks.inference.catalogue.precision import Precision
from tasks.inference.catalogue.registry import HubModel, Kind, ModelNotPulled, ModelSpec, UnsupportedModel, find
from tasks.inference.catalogue.silence_libraries import silence_libraries
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.probe_inputs import LONGEST_EXAMPLE, PUBLIC_TEXT
from tasks.inference.loading.row_wise_modules import require_possible_numbers, require_rowwise, require_sizes
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.prompts.render import NoChatTemplate, reference_tokens


class UnreadableModel(EnvironmentProblem):
    """transformers cannot read the files, or would have to run code that comes with them."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be read: {reason}",
            "Delete its folder and pull it again, or choose another model.",
            {"model": name},
        )


def load(name: str, device: str = "auto", precision: Precision = "float32") -> LanguageModel:
    """A pulled model, ready for the engine. Its digest is that of the weights file, whatever the precision.

    Args:
        name: a name of the registry, or `org/name@<commit>`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: in what the layers compute; the files are read in float32.

    Raises:
        UnknownModel, NoRevision, UnknownDevice: the request is wrong.
        UnsupportedModel, NoChatTemplate, PrecisionTooCoarse: the model cannot do the work.
        ModelNotPulled, NoSafetensors, WeightsChanged, UnreadableModel, DeviceMissing, PrecisionMissing: this
            machine cannot.
    """
    model, where = find(name), choose_device(device)
    use_threads()
    folder, record = located(model)
    digest = model_store.weights_digest(name, folder, record)
    require_supported(name, folder)
    network, tokenizer = _read(name, folder)
    return wrap_network(
        network,
        tokenizer,
        name=name,
        revision=model.revision,
        digest=digest,
        device=where,
        precision=precision,
        example=reference_tokens(tokenizer, PUBLIC_TEXT, LONGEST_EXAMPLE),
    )


def require_pulled(name: str, kind: Kind) -> None:
    """Check that a model is on this machine, without reading it.

    Raises:
        UnknownModel, NoRevision, WrongKind, ModelNotPulled.
    """
    located(find(name, kind))


def located(model: ModelSpec | HubModel) -> tuple[Path, Path]:
    """The model's folder and the record of its digest.

    Raises:
        ModelNotPulled.
    """
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


def require_supported(name: str, folder: Path) -> None:
    """Check that the engine can read a model, from its config.json alone: no weights are needed and none are read.

    Raises:
        UnreadableModel: there is no configuration that transformers understands.
        UnsupportedModel: the network it describes is none of ours.
    """
    safely = {"local_files_only": True, "trust_remote_code": False}
    with silence_libraries():
        try:
            config = AutoConfig.from_pretrained(folder, **safely)
        except Exception as error:  # as below
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


def _first_line(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return first_line or type(error).__name__


def read_network(name: str, folder: Path, kind: Any) -> tuple[Any, Any]:
    """A network of one of transformers' kinds, in float32, and its tokenizer.

    Raises:
        UnreadableModel.
    """
    safely = {"local_files_only": True, "trust_remote_code": False}
    try:
        with silence_libraries():
            tokenizer = AutoTokenizer.from_pretrained(folder, **safely)
            network = kind.from_pretrained(
                folder, dtype=torch.float32, use_safetensors=True, attn_implementation="sdpa", **safely
            )
    except Exception as error:
        # transformers, tokenizers and safetensors each raise their own; model files hold nothing private.
        raise UnreadableModel(name, _first_line(error)) from error
    return network, tokenizer


def _read(name: str, folder: Path) -> tuple[Any, Any]:
    network, tokenizer = read_network(name, folder, AutoModelForCausalLM)
    if not tokenizer.chat_template:
        raise NoChatTemplate(name, "it has no chat template")
    return network, tokenizer
