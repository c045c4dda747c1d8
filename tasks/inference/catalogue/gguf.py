"""Conversion of 4-bit GGUF to float32 safetensors that load in a second."""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tasks.inference.catalogue.silence_libraries import silence_libraries


def unpack_gguf(gguf: Path, folder: Path) -> Path:
    """Write the model and tokenizer inside `gguf` into `folder`, in transformers' layout; return the folder."""
    # This one progress bar writes to standard error whatever transformers' own switch says.
    with silence_libraries(), redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        network = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        # The weights are plain numbers now; left in place, either would mark the files as quantised.
        network.hf_quantizer = None
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder
