"""Taking a transformers network over: what is supported, and whether the engine computes what the network would."""

from typing import Any

import torch
from torch import Tensor, nn

from models_db.errors import UsageError
from tasks.inference import attention
from tasks.inference.language_model import LanguageModel
from tasks.inference.packed_linear import PackedLinear, can_pack, pack_linear_layers
from tasks.inference.rows import RowBatch

# Float32 sums in another order differ by about 1e-5 of the largest logit; a wrong mask or scale differs by far more.
_TOLERANCE = 1e-3


class UnsupportedModel(UsageError):
    """An architecture whose rows the engine cannot lay out."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be used: {reason}.",
            "Choose a decoder with full attention in every layer, such as smollm2-135m-instruct.",
            {"model": name},
        )


@torch.inference_mode()
def adopt(
    network: Any, tokenizer: Any, *, name: str, revision: str, digest: str, device: torch.device
) -> LanguageModel:
    """Make a transformers causal language model ours; on a CPU its linear layers are packed in place.

    Raises:
        UnsupportedModel: not float32, no plain linear head, an attention window, or an architecture for which the
            engine's logits are not the network's own.
    """
    _check_supported(name, network.config, network.get_output_embeddings())
    network.eval()
    network.to(device)
    prompt = [(7 * index + 3) % network.config.vocab_size for index in range(12)]
    own = network(torch.tensor([prompt], device=device)).logits[0, -1]
    model = _take_over(network, tokenizer, name=name, revision=revision, digest=digest, device=device)
    try:
        ours = _padded_logits(model, prompt)
    except ValueError as error:
        raise UnsupportedModel(name, str(error)) from error
    if not _close(ours, own):
        raise UnsupportedModel(name, "its logits are more than hidden states times its head")
    return model


def _take_over(
    network: Any, tokenizer: Any, *, name: str, revision: str, digest: str, device: torch.device
) -> LanguageModel:
    config, head = network.config, network.get_output_embeddings()
    packed = None
    if can_pack(device):
        packed = PackedLinear(head)
        pack_linear_layers(network.base_model)
    heads = config.num_attention_heads
    network.set_attn_implementation(attention.NAME)
    return LanguageModel(
        name=name,
        revision=revision,
        digest=digest,
        decoder=network.base_model,
        head_weight=head.weight.detach(),
        head_bias=None if head.bias is None else head.bias.detach(),
        packed_head=packed,
        tokenizer=tokenizer,
        device=device,
        stop_tokens=_stop_tokens(network, tokenizer),
        layers=config.num_hidden_layers,
        heads=heads,
        key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        positions=config.max_position_embeddings,
    )


def _check_supported(name: str, config: Any, head: Any) -> None:
    if type(head) is not nn.Linear:
        raise UnsupportedModel(name, "its head is not one linear layer")
    if head.weight.dtype != torch.float32:
        raise UnsupportedModel(name, "its weights are not float32")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or getattr(config, "sliding_window", None):
        raise UnsupportedModel(name, "some of its layers do not attend to the whole context")


def _stop_tokens(network: Any, tokenizer: Any) -> tuple[int, ...]:
    found: set[int] = set()
    for holder in (getattr(network, "generation_config", None), network.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        found.update([ids] if isinstance(ids, int) else ids or [])
    return tuple(sorted(found))


def _padded_logits(model: LanguageModel, prompt: list[int]) -> Tensor:
    """The engine's logits after `prompt`, read as a padded row beside a longer one and finished by a step."""
    batch = RowBatch(model, rows=2, columns=len(prompt) + 4)
    batch.read([prompt + prompt[:3], prompt[:-1]], columns=len(prompt) + 3)
    return model.logits(batch.step(torch.tensor([prompt[-1]] * 2, device=model.device)))[1]


def _close(logits: Tensor, own: Tensor) -> bool:
    scale = max(1.0, float(own.abs().max()))
    return float((logits - own).abs().max()) <= _TOLERANCE * scale
