"""Taking a transformers network over: what is supported, and whether the engine computes what the network would."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from models_db.errors import AlmonerError, UsageError
from tasks.inference.catalogue.precision import Precision
from tasks.inference.catalogue.registry import UnsupportedModel
from tasks.inference.engine.memory import is_out_of_memory
from tasks.inference.engine.row_batch import RowBatch
from tasks.inference.loading.probe_inputs import largest_inputs, mean_divergence, probes
from tasks.inference.loading.row_wise_modules import context_of, fix_tables, require_rowwise, require_sizes
from tasks.inference.network import attention
from tasks.inference.network.capabilities import can_pack, check_available
from tasks.inference.network.language_model import LanguageModel
from tasks.inference.network.packed_linear import PackedLinear
from tasks.inference.network.replace_layers import quantise_layers

# Float32 sums in another order differ by about 1e-5 of the largest logit; a wrong mask or scale differs by far more.
_TOLERANCE = 1e-3

# Nats, in the mean over the probes' tokens. SmolLM2-135M: bfloat16 0.002, int8 0.03; noise gives several.
_MOST_DIVERGENCE = 0.25


class PrecisionTooCoarse(UsageError):
    """A model that says something else once its weights have fewer bits."""

    def __init__(self, name: str, precision: Precision, divergence: float) -> None:
        super().__init__(
            f"In {precision}, the distributions of {name!r} are {divergence:.2f} nats from those in float32; "
            f"at most {_MOST_DIVERGENCE} are taken.",
            "Request precision float32, or choose another model.",
            {"model": name, "precision": precision, "divergence": round(divergence, 4)},
        )


@torch.inference_mode()
def wrap_network(
    network: Any,
    tokenizer: Any,
    *,
    name: str,
    revision: str,
    digest: str,
    device: torch.device,
    precision: Precision = "float32",
    example: Sequence[int] = (),
) -> LanguageModel:
    """Make a transformers causal language model ours: its layers are replaced in place by those of `precision`.

    Two checks on fixed public tokens: the engine's arithmetic gives the network's own logits in float32, and the
    lowered layers still give about its distributions (`_MOST_DIVERGENCE`).

    Args:
        example: tokens of an ordinary public text, to balance int8 on and to judge fewer bits by.

    Raises:
        UnsupportedModel: a module that is not known to act on each row by itself (`row_wise_modules`), not float32, no
            plain linear head, or an architecture for which the engine's logits are not the network's own.
        PrecisionMissing: this device has no exact arithmetic of that precision.
        PrecisionTooCoarse: the model needs more bits.
    """
    _check_supported(name, network)
    check_available(precision, device)
    network.eval()
    prompts = probes(network.config.vocab_size)
    if example and precision != "float32":
        prompts.append(list(example))
    with _named(name):
        with largest_inputs(network.base_model) as ranges:
            own = [network(torch.tensor([prompt], device=network.device)).logits[0] for prompt in prompts]
        fix_tables(network)
        model = _take_over(network, tokenizer, name=name, revision=revision, digest=digest)
        if precision != "float32":
            _check_close(model, prompts, own)
        model = _lowered(model, network, precision, device, ranges)
        check = _check_close if precision == "float32" else _check_divergence
        check(model, prompts, own)
    return model


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which model it is that transformers or the engine cannot compute with; its files hold nothing private."""
    try:
        yield
    except AlmonerError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        first_line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UnsupportedModel(name, first_line) from error


def _take_over(network: Any, tokenizer: Any, *, name: str, revision: str, digest: str) -> LanguageModel:
    """The network where it is and as it is, except for its attention."""
    config, head = network.config, network.get_output_embeddings()
    heads = config.num_attention_heads
    network.set_attn_implementation(attention.NAME)
    return LanguageModel(
        name=name,
        revision=revision,
        digest=digest,
        decoder=network.base_model,
        head_weight=head.weight.detach(),
        head_bias=None if head.bias is None else head.bias.detach(),
        packed_head=None,
        tokenizer=tokenizer,
        device=network.device,
        stop_tokens=_stop_tokens(network, tokenizer),
        layers=config.num_hidden_layers,
        heads=heads,
        key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        positions=context_of(config),
    )


def _lowered(
    model: LanguageModel, network: Any, precision: Precision, device: torch.device, ranges: Mapping[nn.Module, Tensor]
) -> LanguageModel:
    """The model on `device`, its layers in `precision`, its head in float32."""
    packed = PackedLinear(network.get_output_embeddings()) if can_pack(device) else None
    quantise_layers(model.decoder, precision, device, ranges)
    return replace(
        model,
        head_weight=model.head_weight.to(device),
        head_bias=None if model.head_bias is None else model.head_bias.to(device),
        packed_head=packed,
        device=device,
        precision=precision,
    )


def _check_supported(name: str, network: Any) -> None:
    require_sizes(name, network.config)
    head = network.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise UnsupportedModel(name, "its head is not one linear layer")
    if head.weight.dtype != torch.float32:
        raise UnsupportedModel(name, "its weights are not float32")
    require_rowwise(name, network)


def _stop_tokens(network: Any, tokenizer: Any) -> tuple[int, ...]:
    tokens: set[int] = set()
    for holder in (getattr(network, "generation_config", None), network.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        tokens.update([ids] if isinstance(ids, int) else ids or [])
    return tuple(sorted(tokens))


def _padded_logits(model: LanguageModel, prompts: list[list[int]]) -> list[Tensor]:
    """The engine's logits after every token of the prompts, read side by side, the last token in a step of its own."""
    longest = max(map(len, prompts))
    batch = RowBatch(model, len(prompts), longest)
    before = batch.read_all([prompt[:-1] for prompt in prompts], longest - 1)
    last = batch.step(torch.tensor([prompt[-1] for prompt in prompts], device=model.device))
    logits = model.logits(torch.cat([before, last[:, None]], dim=1))
    return [row[longest - len(prompt) :] for row, prompt in zip(logits, prompts, strict=True)]


def _check_close(model: LanguageModel, prompts: list[list[int]], own: list[Tensor]) -> None:
    """Raise UnsupportedModel unless our logits are the network's own."""
    for ours, theirs in zip(_padded_logits(model, prompts), own, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        if not float((ours - theirs.to(ours.device)).abs().max()) <= _TOLERANCE * scale:
            raise UnsupportedModel(model.name, "its logits are more than hidden states times its head")


def _check_divergence(model: LanguageModel, prompts: list[list[int]], own: list[Tensor]) -> None:
    """Raise PrecisionTooCoarse unless our distributions are about the network's own."""
    divergence = mean_divergence(own, _padded_logits(model, prompts))
    if not divergence <= _MOST_DIVERGENCE:
        raise PrecisionTooCoarse(model.name, model.precision, divergence)
