"""What is loaded with OpenDP, and what may still be loaded afterwards."""

import subprocess
import sys

import pytest

CONCERNS = ("tasks/mechanisms/core", "tasks/pricing")

LOADED = "import sys, tasks.pricing.quote; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def test_a_price_needs_no_opendp_and_no_scikit_learn() -> None:
    told = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert {"opendp", "polars", "sklearn", "pandas", "torch", "pydp", "sentence_transformers", "spacy"} & set(
        told.stdout.split()
    ) == set()


@pytest.mark.slow
def test_scikit_learn_and_polars_are_still_to_be_had() -> None:
    code = (
        "from tasks.mechanisms.core.opendp import load_opendp; load_opendp().atom_domain;"
        " import polars, sklearn.linear_model, sklearn.decomposition"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
