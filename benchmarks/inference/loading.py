"""How much memory a model takes while it is loaded, beside what its loaded weights take.

    python -m benchmarks.inference.loading --layers 16 --width 2048 --precision bfloat16

    python -m benchmarks.inference.loading --family gemma3_text --layers 16 --width 2048 --words 131072

A network of Llama's (or Gemma 3's) shape and random bfloat16 weights in two files of safetensors is written into a
temporary folder, added as a model, and loaded by a process of its own, as `run` loads it. The peak is that process's
largest resident memory, less what it held before; pages of the files that are mapped count as well, as the system
counts them. The weights are what `NetworkShape.weight_bytes` says of this machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tasks.inference  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from tasks.inference.catalogue.devices import CPU, can_pack, cpu_capabilities
from tasks.inference.catalogue.model_check import PRECISIONS, Precision
from tasks.inference.loading.add_model import add_model
from tasks.inference.loading.load_model import load
from tasks.inference.loading.row_wise_modules import shape_of

NAME = "synthetic"
WORDS = 32_000
FAMILIES = {"llama": 1, "gemma3_text": 0}
"""Shapes of networks, and the number in a norm's weight that multiplies by one."""
TEMPLATE = "{% for message in messages %}{{ message.content }} w1 {% endfor %}"
INDEX = "model.safetensors.index.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=512, help="of a hidden state; a multiple of 256")
    parser.add_argument("--family", choices=FAMILIES, default="llama")
    parser.add_argument("--words", type=int, default=WORDS, help="size of the vocabulary")
    parser.add_argument("--precision", choices=PRECISIONS, default="bfloat16")
    parser.add_argument("--in", dest="place", type=Path, help="where the temporary folder is made")
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load:
        print(json.dumps(loaded(arguments.precision)))
    else:
        compare(arguments)


def compare(arguments: argparse.Namespace) -> None:
    """Write a model, load it elsewhere, print both sizes, and delete it."""
    with TemporaryDirectory(dir=arguments.place) as place:
        folder = Path(place) / "network"
        network = write_network(folder, arguments.layers, arguments.width, arguments.family, arguments.words)
        os.environ["ALMONER_MODELS"] = str(Path(place) / "models")
        add_model(NAME, folder, "none")
        command = [sys.executable, "-m", "benchmarks.inference.loading", "--load", "--precision", arguments.precision]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    shape, packed = shape_of(network), can_pack(CPU)
    weights = shape.weight_bytes(
        arguments.precision, packed=packed, widened=packed and not can_pack(CPU, torch.bfloat16)
    )
    print(f"{shape.parameters / 1e9:.2f} billion parameters, {shape.parameters * 2 / 2**30:.2f} GiB of files")
    print(f"{arguments.precision}: loaded weights {weights / 2**30:.2f} GiB, peak {found['peak'] / 2**30:.2f} GiB")
    print(f"peak / weights: {found['peak'] / weights:.2f}; {found['seconds']:.0f} s")
    print(f"instruction sets: {', '.join(cpu_capabilities().instructions)}")


def loaded(precision: Precision) -> dict[str, float]:
    """Load the model; the largest resident memory in bytes since then, and the seconds."""
    before, start = resident(), time.perf_counter()
    load(NAME, "cpu", precision)
    return {"peak": resident() - before, "seconds": time.perf_counter() - start}


def resident() -> int:
    """The largest resident memory of this program so far, in bytes; `ru_maxrss` would count its parent's as well."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def write_network(folder: Path, layers: int, width: int, family: str = "llama", words: int = WORDS) -> Any:
    """Write a network of that family's shape in two files; return it, without weights."""
    folder.mkdir()
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers}
    heads = {"num_attention_heads": width // 64, "num_key_value_heads": width // 256, "head_dim": 64}
    config = AutoConfig.for_model(
        family, vocab_size=words, tie_word_embeddings=True, dtype=torch.bfloat16, **sizes, **heads
    )
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    network.config.save_pretrained(folder)
    words_tokenizer(words).save_pretrained(folder)
    names = [name for name in network.state_dict() if name != "lm_head.weight"]
    index: dict[str, str] = {}
    for number, some in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        index |= dict.fromkeys(some, file)
        save_file(
            {name: random_weight(network.get_parameter(name), FAMILIES[family]) for name in some},
            folder / file,
            {"format": "pt"},
        )
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return network


def random_weight(parameter: torch.Tensor, of_norm: int) -> torch.Tensor:
    """Weights of an untrained network; norms multiply by one, which is stored as `of_norm`."""
    empty = torch.empty(parameter.shape, dtype=torch.bfloat16)
    return empty.fill_(of_norm) if parameter.dim() == 1 else empty.normal_(std=0.02)


def words_tokenizer(words: int) -> Any:
    """A tokenizer of as many words as the network reads, with a chat template."""
    inner = Tokenizer(models.WordLevel({f"w{number}": number for number in range(words)}, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="w2", unk_token="w0")
    made.chat_template = TEMPLATE
    return made


if __name__ == "__main__":
    main()
