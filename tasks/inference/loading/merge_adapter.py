"""Merging of a LoRA adapter in PEFT's format into a model's weights: W + scale B A (Hu et al. 2021, arXiv 2106.09685).

One file of weights after the other is read and written, in its own type; sums are in float32. Whatever PEFT knows
beside plain LoRA (DoRA, biases, trained embeddings, ranks by layer) is refused by name: it would be left out.
"""

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from models_db.errors import UsageError
from tasks.common.files import open_user_file, require_user_file
from tasks.inference.catalogue.model_store import listing_digest

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_PLAIN: Final[Mapping[str, tuple[object, ...]]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "bias": ("none", None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "fan_in_fan_out": (False, None),
    "layer_replication": (None,),
    "trainable_token_indices": (None,),
    "lora_bias": (False, None),
}
"""Settings of an adapter, and the values with which it is W + scale B A and nothing else."""
_NAME: Final = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight")


def adapter_unfit(adapter: Path, reason: str) -> UsageError:
    """Return the error of an adapter that cannot be merged."""
    return UsageError(
        f"The adapter {adapter} cannot be merged: {reason}.",
        "Give a folder of PEFT's with plain LoRA weights as safetensors, trained for this model; or merge it with "
        "PEFT and add the merged model.",
        {"adapter": str(adapter)},
        code="AdapterUnfit",
    )


def merge_adapter(folder: Path, adapter: Path, target: Path) -> Path:
    """Write the model in `folder` with its LoRA `adapter` added into `target`; return `target`.

    Args:
        folder: a model's files and no others (`model_store.open_settings`).

    Raises:
        AdapterUnfit: it is no plain LoRA adapter, or not one of this model.
    """
    scale, pairs = _read_adapter(adapter)
    target.mkdir()
    for file in folder.rglob("*"):
        if file.is_file() and file.suffix != ".safetensors":
            copy = target / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    left = dict(pairs)
    for file in sorted(folder.glob("*.safetensors")):
        weights = load_file(file)
        for module in [module for module in left if f"{module}.weight" in weights]:
            weight = weights[f"{module}.weight"]
            weights[f"{module}.weight"] = _merged(adapter, module, weight, *left.pop(module), scale)
        save_file(weights, target / file.name, metadata={"format": "pt"})
    if left:
        raise adapter_unfit(adapter, f"the model has no weights {next(iter(left))}")
    return target


def adapter_digest(adapter: Path) -> str:
    """Return the SHA-256 of the `sha256sum` listing of an adapter's weights and settings.

    Raises:
        AdapterUnfit: it has not both.
    """
    try:
        return listing_digest(adapter, [adapter / WEIGHTS, adapter / CONFIG])
    except OSError as error:
        raise adapter_unfit(adapter, f"it cannot be read ({error.strerror})") from error


def _merged(adapter: Path, module: str, weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """Return [N, K] + scale [N, r] [r, K] in the weight's type."""
    if down.dim() != 2 or up.dim() != 2 or (up.shape[0], down.shape[1]) != tuple(weight.shape):
        raise adapter_unfit(adapter, f"its weights of {module} have another shape than the model's")
    merged = weight.float() + scale * (up.float() @ down.float())
    if not merged.isfinite().all():
        raise adapter_unfit(adapter, f"its weights of {module} are not finite")
    return merged.to(weight.dtype)


def _read_adapter(adapter: Path) -> tuple[float, dict[str, tuple[Tensor, Tensor]]]:
    """Return the scale and, for each module, A [r, K] and B [N, r]."""
    try:
        with open_user_file(adapter / CONFIG) as written:
            settings = json.load(written)
        require_user_file(adapter / WEIGHTS)
        scale = _scale(adapter, settings)
        with safe_open(adapter / WEIGHTS, "pt") as file:
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except UsageError:
        raise
    except Exception as error:  # json, safetensors and the system raise their own; nothing here is private
        first_line = str(error).partition("\n")[0] or type(error).__name__
        raise adapter_unfit(adapter, f"it cannot be read ({first_line})") from error
    pairs: dict[str, dict[str, Tensor]] = {}
    for name, tensor in parts.items():
        match = _NAME.fullmatch(name)
        if match is None:
            raise adapter_unfit(adapter, f"it has weights of another kind, {name}")
        pairs.setdefault(match["module"], {})[match["part"]] = tensor
    if not pairs or any(set(pair) != {"A", "B"} for pair in pairs.values()):
        raise adapter_unfit(adapter, "it has not both parts of each matrix")
    return scale, {module: (pair["A"], pair["B"]) for module, pair in pairs.items()}


def _scale(adapter: Path, settings: Mapping[str, Any]) -> float:
    """Return alpha / r, or alpha / sqrt(r) for rank-stabilised adapters.

    Raises:
        AdapterUnfit: a setting would have another effect than W + scale B A.
    """
    for name, plain in _PLAIN.items():
        if settings.get(name, plain[0]) not in plain:
            raise adapter_unfit(adapter, f"it has {name}: {settings[name]!r}")
    rank, alpha = settings["r"], settings["lora_alpha"]
    if type(rank) is not int or rank < 1 or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise adapter_unfit(adapter, f"its rank {rank!r} or its lora_alpha {alpha!r} is not a number")
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)
