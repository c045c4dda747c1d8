"""Conversion of 4-bit GGUF to safetensors of bfloat16, which load in a second."""

import json
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from tasks.inference.catalogue.model_store import describe_failures
from tasks.inference.catalogue.silence_libraries import silence_libraries

# What transformers notes of the conversion itself: its version, and whether it ran offline and on local files.
_CIRCUMSTANCES = ("transformers_version", "is_local", "local_files_only")


def unpack_gguf(gguf: Path, folder: Path, end_tokens: tuple[int, ...] = ()) -> Path:
    """Write the model and tokenizer inside `gguf` into `folder`, in transformers' layout; return the folder.

    All weights are bfloat16: each tensor of the file is rounded, to the nearest and ties to even, as soon as it is
    dequantised.

    Args:
        end_tokens: all ids that end a text, where the file, which can name one, does not name all.

    The same GGUF file gives the same bytes on every machine, because the digest of a model covers all of these files:
    nothing that lies beside it is read.

    Raises:
        UnreadableModel.
    """
    # Local imports: every `models check` and `models pull` imports this module, and few have a GGUF file to convert.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # This one progress bar writes to standard error whatever transformers' own switch says.
    with (
        describe_failures(gguf.name),
        TemporaryDirectory(prefix="almoner-gguf-") as alone,
        silence_libraries(),
        redirect_stderr(StringIO()),
    ):
        (Path(alone) / gguf.name).symlink_to(gguf.resolve())
        tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file=gguf.name)
        network = AutoModelForCausalLM.from_pretrained(alone, gguf_file=gguf.name, dtype=torch.bfloat16)
        # The weights are plain numbers now; left in place, either would mark the files as quantised.
        network.hf_quantizer = None
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        if end_tokens:
            network.generation_config.eos_token_id = list(end_tokens)
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        _drop_circumstances(folder / name)
    return folder


def _drop_circumstances(settings: Path) -> None:
    if settings.is_file():
        kept = {key: value for key, value in json.loads(settings.read_text()).items() if key not in _CIRCUMSTANCES}
        settings.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
