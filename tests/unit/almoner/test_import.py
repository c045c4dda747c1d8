"""What `import almoner` loads, counted in modules, and what its public names are."""

import json
import subprocess
import sys

import pytest

import almoner
from almoner.request import RequestFields
from models_db.values.requests import ReleaseRequest

PROBE = """
import json, sys
before = set(sys.modules)
import almoner
loaded = sorted(set(sys.modules) - before)
almoner.Home
print(json.dumps([loaded, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
HEAVY = {
    "IPython", "alembic", "datasets", "dp_accounting", "jinja2", "opendp", "pandas", "polars", "prefect", "pyarrow",
    "numpy", "pydp", "scipy", "sentence_transformers", "sklearn", "spacy", "torch", "transformers", "typer",
}  # fmt: skip


def test_the_import_loads_next_to_nothing_and_a_home_no_library_of_the_work() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    loaded, packages = json.loads(done.stdout)
    assert len(loaded) <= 15, loaded  # itself, and what importlib and typing need
    assert not set(packages) & HEAVY
    assert "models_db" in packages


def test_every_public_name_is_there_and_no_other() -> None:
    for name in almoner.__all__:
        assert getattr(almoner, name).__doc__, name
    assert dir(almoner) == sorted(almoner.__all__)
    with pytest.raises(AttributeError, match="no attribute 'approve'"):
        almoner.approve  # type: ignore[attr-defined]


def test_the_typed_fields_of_a_request_are_those_of_a_request_file() -> None:
    assert set(RequestFields.__annotations__) == set(ReleaseRequest.model_fields) - {"dataset"}
