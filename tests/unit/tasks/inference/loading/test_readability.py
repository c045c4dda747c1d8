"""What the engine cannot read is refused when it is pulled and when a request is priced, before anybody pays."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError

from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.registry import ModelNotPulled, UnsupportedModel, list_models
from tasks.inference.loading import loading, readability
from tasks.inference.loading.download import DownloadFailed, RepositoryGated, pull
from tasks.inference.loading.loading import UnreadableModel
from tasks.inference.loading.readability import require_readable
from tasks.pricing.quote import model_facts
from tests.tiny_tokenizer import tiny_tokenizer
from tests.unit.tasks.inference.families import config_of
from tests.unit.tasks.inference.fixtures import tiny_network

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = f"org/tiny@{COMMIT}"
MIXTRAL = ("mixtral", {"num_local_experts": 3})


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model where Hugging Face's cache would keep it, pulled."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    model_store.weights_digest(NAME, folder, model_store.hub_record("org/tiny", COMMIT))
    return folder


def test_a_request_for_an_unsupported_model_has_no_price(snapshot: Path) -> None:
    assert model_facts(NAME).revision == COMMIT
    config_of(*MIXTRAL).save_pretrained(snapshot)
    with pytest.raises(UnsupportedModel, match="sends rows to experts") as refusal:
        model_facts(NAME)
    assert (refusal.value.exit_code, refusal.value.facts["model"]) == (2, NAME)
    with pytest.raises(UnsupportedModel, match="sends rows to experts"):
        loading.load(NAME, "cpu")


def test_what_was_found_is_written_down_until_something_changes(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    look = loading.require_supported

    def counted(name: str, folder: Path) -> None:
        looked.append(name)
        look(name, folder)

    monkeypatch.setattr(loading, "require_supported", counted)
    require_readable(NAME)
    require_readable(NAME)
    assert len(looked) == 1
    monkeypatch.setattr(readability, "CODE", readability.CODE + 1)
    require_readable(NAME)
    assert len(looked) == 2
    monkeypatch.setattr(readability, "version", lambda name: "another")
    require_readable(NAME)
    assert len(looked) == 3
    config_of(*MIXTRAL).save_pretrained(snapshot)
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="experts"):
            require_readable(NAME)
    assert len(looked) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"reason": 3}', '{"folder": 7, "reason": ""}'])
def test_a_damaged_note_is_not_believed(snapshot: Path, damage: str) -> None:
    require_readable(NAME)
    config_of(*MIXTRAL).save_pretrained(snapshot)
    (note,) = (model_store.models_folder() / ".readable").glob("*.json")
    note.write_text(damage)
    with pytest.raises(UnsupportedModel, match="experts"):
        require_readable(NAME)
    assert json.loads(note.read_text())["reason"]


def test_a_model_that_is_not_here_or_has_no_configuration(snapshot: Path) -> None:
    with pytest.raises(ModelNotPulled):
        require_readable(f"org/other@{COMMIT}")
    (snapshot / "config.json").write_text("{")
    with pytest.raises(UnreadableModel):
        require_readable(NAME)


def test_a_price_needs_no_torch_once_a_model_was_looked_at(snapshot: Path, tmp_path: Path) -> None:
    require_readable(NAME)
    code = (
        "import sys\nfrom tasks.inference.loading.readability import require_readable\n"
        f"require_readable({NAME!r})\nprint({{'torch', 'transformers'}} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[5]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class Hub:
    """Serves what it has of one repository, and notes what was asked for."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        self.folder, self.error = folder, error
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, repo: str, *, revision: str, **options: Any) -> str:
        if options.get("local_files_only"):
            return str(self.folder)
        self.asked.append(tuple(options["allow_patterns"]))
        if self.error:
            raise self.error
        return str(self.folder)


def test_weights_of_an_unsupported_model_are_not_fetched(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_store.hub_record("org/tiny", COMMIT).unlink()
    hub = Hub(snapshot)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    config_of(*MIXTRAL).save_pretrained(snapshot)
    with pytest.raises(UnsupportedModel, match="experts"):
        pull(NAME)
    assert all("*.safetensors" not in files for files in hub.asked)
    assert NAME not in [model.name for model in list_models()]
    tiny_network().save_pretrained(snapshot)
    assert pull(NAME).installed
    assert "*.safetensors" in hub.asked[-1]


def test_an_embedder_is_not_held_to_what_language_models_are(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot))
    (snapshot / "modules.json").write_text("[]")
    (snapshot / "config.json").write_text('{"model_type": "bert"}')
    assert pull(NAME).installed


def test_a_gated_repository_says_what_to_do(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    refused: Any = GatedRepoError("401", response=httpx.Response(401, request=httpx.Request("GET", "https://h")))  # type: ignore[arg-type]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot, refused))
    with pytest.raises(RepositoryGated) as refusal:
        pull(NAME)
    assert "HF_TOKEN" in refusal.value.advice
    assert "licence" in refusal.value.advice
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot, OSError("no route")))
    with pytest.raises(DownloadFailed):
        pull(NAME)
