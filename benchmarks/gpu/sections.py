"""All sections of the kit, in the order in which they run: what decides most comes first. Imports no torch."""

from typing import Final

from benchmarks.gpu.section import Section

_ENGINE: Final = ("torch", "transformers", "numpy", "safetensors", "pydantic", "mpmath", "psutil", "scipy")

SECTIONS: Final = (
    Section(
        "environment", "Environment", 60, "environment:measure", ("torch",),
        "Versions, the device, its bandwidth, its products and their errors, and what a launch costs.",
    ),
    Section(
        "sweep", "Every number of rows to 64", 90, "isolation:sweep", _ENGINE,
        "Whether a row's logits keep every bit at each number of rows from 1 to 64, in five orders.",
    ),
    Section(
        "isolation", "Row isolation by shape", 210, "isolation:shapes", _ENGINE,
        "Whether rows are isolated in every precision, at the widths of three models and 8, 64 and 256 rows.",
    ),
    Section(
        "conformance", "Families of networks", 120, "conformance_tests:families", _ENGINE,
        "Whether the engine computes what transformers computes, for every family, and keeps rows apart.",
    ),
    Section(
        "tests", "Tests that need an accelerator", 130, "conformance_tests:gpu_tests",
        (*_ENGINE, "opendp", "pytest", "hypothesis"),
        "The tests that are marked `gpu`, which no other machine runs.",
    ),
    Section(
        "kernels", "Fixed-order kernels", 60, "kernels.comparison:measure", (*_ENGINE, "triton"),
        "Products and attention of fixed order beside cuBLAS and torch, by tile, and a small model decoded with them.",
    ),
    Section(
        "speed_8b", "Speed, Llama 8B", 330, "speed:llama_8b", _ENGINE,
        "Tokens a second beside a plain loop, plain `generate` and vLLM, for 7 to 63 references.",
    ),
    Section(
        "speed_1b", "Speed, Llama 1B", 170, "speed:llama_1b", _ENGINE,
        "The same for a small model, where launches weigh most.",
    ),
    Section(
        "split", "Where a step spends its time", 110, "step_profile:measure", _ENGINE,
        "Layers, heads, draw and host, and the kernels that are launched in a step.",
    ),
    Section(
        "speed_smollm2", "Speed, SmolLM2-135M", 70, "speed:smollm2", _ENGINE,
        "The same for the model that everything else is tested with; random weights where its own are not there.",
    ),
    Section(
        "adapter", "Training of an adapter", 70, "training_and_embedding:adapter", _ENGINE,
        "Steps of an adapter's training through a frozen model, and whether its loss is the CPU's.",
    ),
    Section(
        "embedding", "Embedding and k-means", 70, "training_and_embedding:embedding",
        (*_ENGINE, "opendp", "sentence-transformers"),
        "Texts embedded in a second, whether places of a pass are alike, and private k-means of their points.",
    ),
)  # fmt: skip


def find(name: str) -> Section:
    """Return the section of that name.

    Raises:
        KeyError: there is none.
    """
    return {section.name: section for section in SECTIONS}[name]
