"""Triton's kernels are interpreted on the CPU in every test that has tests/conftest.py.

Triton decides it when it is imported, which transformers does where it is installed; so this module is imported first.
Tests that are marked `gpu` compile: `benchmarks/gpu.sh` runs them without tests/conftest.py.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
