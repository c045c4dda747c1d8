"""What the engine cannot read is refused when it is pulled and when a request is priced, before anybody pays."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
from typer.testing import CliRunner

from cli.app import app
from flows.audit import health
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.devices import CPU, can_pack, keeps_bfloat16, missing_everywhere
from tasks.inference.catalogue.model_check import ContextTooLong, ModelCheck, Precision
from tasks.inference.catalogue.model_store import UnreadableModel
from tasks.inference.catalogue.registry import (
    REGISTRY,
    ModelKindMismatch,
    ModelNotPulled,
    ModelSpec,
    UnsupportedModel,
    list_models,
)
from tasks.inference.engine.linear_layers import Int8Linear, PackedLinear
from tasks.inference.loading import check_model, load_model
from tasks.inference.loading.add_model import add_model
from tasks.inference.loading.adopt import wrap_network
from tasks.inference.loading.check_model import require_usable
from tasks.inference.loading.download import check_named, pull
from tasks.inference.loading.row_wise_modules import shape_of
from tasks.inference.loading.weights import SharedProduct
from tasks.inference.prompt_rendering import NoChatTemplate
from tasks.pricing.model_facts import model_facts
from tests.refusals import refusal
from tests.unit.tasks.inference.families import UNKNOWN, config_of
from tests.unit.tasks.inference.fixtures import COMMIT, NAME, tiny_network

NAMED = (NAME, "first", "second", "third")
"""Models that the requests of a home name."""
MIXTRAL = ("mixtral", {"num_local_experts": 3})


@pytest.fixture
def snapshot(snapshot: Path) -> Path:
    """The model, pulled."""
    model_store.model_digest(NAME, snapshot, model_store.hub_record("org/tiny", COMMIT))
    return snapshot


def test_a_request_for_an_unsupported_model_has_no_price(snapshot: Path) -> None:
    assert model_facts(NAME).revision == COMMIT
    config_of(*MIXTRAL).save_pretrained(snapshot)
    with pytest.raises(UnsupportedModel, match="sends rows to experts") as told:
        model_facts(NAME)
    assert (told.value.exit_code, told.value.facts["model"]) == (2, NAME)
    with refusal("ModelChanged"):
        load_model.load(NAME, "cpu")
    model_store.hub_record("org/tiny", COMMIT).unlink()
    with pytest.raises(UnsupportedModel, match="sends rows to experts"):
        load_model.load(NAME, "cpu")


def test_what_was_found_is_written_down_until_something_changes(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    look = load_model.describe_model

    def counted(name: str, folder: Path) -> ModelCheck:
        looked.append(name)
        return look(name, folder)

    monkeypatch.setattr(load_model, "describe_model", counted)
    require_usable(NAME)
    require_usable(NAME)
    assert len(looked) == 1
    monkeypatch.setattr(check_model, "CODE", check_model.CODE + 1)
    require_usable(NAME)
    assert len(looked) == 2
    monkeypatch.setattr(check_model, "version", lambda name: "another")
    require_usable(NAME)
    assert len(looked) == 3
    config_of(*MIXTRAL).save_pretrained(snapshot)
    for _ in range(2):
        with pytest.raises(UnsupportedModel, match="experts"):
            require_usable(NAME)
    assert len(looked) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"check": 3}', '{"folder": 7, "check": {}}'])
def test_a_damaged_note_is_not_believed(snapshot: Path, damage: str) -> None:
    require_usable(NAME)
    config_of(*MIXTRAL).save_pretrained(snapshot)
    (note,) = (model_store.models_folder() / ".checks").glob("*.json")
    note.write_text(damage)
    with pytest.raises(UnsupportedModel, match="experts"):
        require_usable(NAME)
    assert "experts" in json.loads(note.read_text())["check"]["problem"]


def test_a_model_that_is_not_here_or_has_no_configuration(snapshot: Path) -> None:
    with pytest.raises(ModelNotPulled):
        require_usable(f"org/other@{COMMIT}")
    (snapshot / "config.json").write_text("{")
    with pytest.raises(UnreadableModel):
        require_usable(NAME)


def test_a_price_needs_no_torch_once_a_model_was_looked_at(snapshot: Path, tmp_path: Path) -> None:
    require_usable(NAME)
    code = (
        "import sys\nfrom tasks.inference.loading.check_model import require_usable\n"
        f"require_usable({NAME!r})\nprint({{'torch', 'transformers'}} & set(sys.modules))"
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
    model_store.hub_record("org/tiny", COMMIT).unlink()
    assert pull(NAME).installed


def test_a_gated_repository_says_what_to_do(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    refused: Any = GatedRepoError("401", response=httpx.Response(401, request=httpx.Request("GET", "https://h")))  # type: ignore[arg-type]
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot, refused))
    with refusal("RepositoryGated") as told:
        pull(NAME)
    assert "HF_TOKEN" in told.value.advice
    assert "licence" in told.value.advice
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot, OSError("no route")))
    with refusal("DownloadFailed"):
        pull(NAME)


def model_info_of(size: int) -> Any:
    """In place of the hub's answer about a repository: weights of that size, and a copy for other programs."""
    files = [
        SimpleNamespace(rfilename=name, size=size)
        for name in ("model-1.safetensors", "model-2.safetensors", "consolidated.safetensors", "model.bin")
    ]
    return lambda *_, **__: SimpleNamespace(siblings=files)


def test_a_hub_model_that_the_disk_cannot_hold_is_not_fetched(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(snapshot)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.setattr(huggingface_hub, "model_info", model_info_of(10**15))
    with refusal("ModelDiskFull") as told:
        pull(NAME)
    assert told.value.facts["needed"] == 2 * 10**15
    assert all("*.safetensors" not in files for files in hub.asked)
    here = {"model-1.safetensors", "model-2.safetensors"}
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda repo, file, **_: file if file in here else None
    )
    assert pull(NAME).installed  # nothing is missing


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_disk_that_the_hub_s_client_fills_is_named(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, wrapped: bool
) -> None:
    full: Exception = OSError(errno.ENOSPC, "No space left on device")
    if wrapped:
        full = RuntimeError("Data processing error: File reconstruction error: IO Error: disk (os error 28)")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot, full))
    with refusal("ModelDiskFull"):
        pull(NAME)


def test_the_size_of_a_hub_model_is_said(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(snapshot))
    monkeypatch.setattr(huggingface_hub, "model_info", model_info_of(3 * 2**19))
    reports: list[tuple[str, int, int]] = []
    pull(NAME, lambda *report: reports.append(report))
    assert (f"downloading {NAME} (3 MiB)", 3, 3) in reports
    last = {what: done == total for what, done, total in reports}
    assert all(last.values())


def test_the_shape_is_that_of_the_network(snapshot: Path) -> None:
    shape = require_usable(NAME).shape
    network = tiny_network()
    assert shape is not None
    assert shape.parameters == sum(each.numel() for each in network.parameters())
    assert (shape.layers, shape.key_value_heads, shape.head_size) == (3, 2, 16)
    assert shape.context == 512
    assert shape.column_bytes("float32") == 2 * 4 * 3 * 2 * 16  # keys and values of every layer


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_memory_of_weights_is_what_loading_takes(precision: Precision, tied: bool) -> None:
    if missing_everywhere(precision):
        return  # this processor cannot: `test_capabilities.py` covers the refusal
    network = tiny_network(tie_word_embeddings=tied, hidden_size=128, intermediate_size=512)
    shape = shape_of(network)
    tokenizer = SimpleNamespace(eos_token_id=2)
    with_bits: Any = {"name": "t", "revision": "1", "digest": "d", "device": CPU, "precision": precision}
    model = wrap_network(network, tokenizer, **with_bits)
    weights = bytes_of([model.head_weight, model.packed_head, model.decoder])
    layout = {"packed": can_pack(CPU), "widened": not keeps_bfloat16(CPU)}
    assert shape.weight_bytes(precision, **layout) == pytest.approx(weights, rel=0.06)  # int8 scales, norms, tables


def bytes_of(holders: list[Any]) -> int:
    """The bytes of all tensors that these hold, shared ones once, small ones (tables, scales of channels) too."""
    seen: dict[int, int] = {}
    while holders:
        holder = holders.pop()
        if isinstance(holder, torch.Tensor):
            place = id(holder) if holder.is_mkldnn else holder.untyped_storage().data_ptr()
            seen[place] = holder.numel() * holder.element_size()
        elif isinstance(holder, torch.nn.Module | Int8Linear | SharedProduct | PackedLinear):
            holders += list(vars(holder).values())
        elif isinstance(holder, dict):
            holders += list(holder.values())
        elif isinstance(holder, list | tuple):
            holders += list(holder)
    return sum(seen.values())


def test_a_model_without_chat_template_is_usable_in_completion_form(snapshot: Path) -> None:
    (snapshot / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((snapshot / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (snapshot / "tokenizer_config.json").write_text(json.dumps(settings))
    check = model_facts(NAME).check
    assert check is not None
    assert (check.usable, check.template_problem) == (True, "it has no chat template")
    assert "with `prompt.form: completion` only (it has no chat template)" in check.verdict
    with pytest.raises(NoChatTemplate, match="it has no chat template") as told:
        check_model.require_conversation(check)
    assert "`prompt.form: completion`" in told.value.advice


def test_a_broken_tokenizer_is_said(snapshot: Path) -> None:
    (snapshot / "tokenizer.json").write_text("{")
    with pytest.raises(UnsupportedModel, match="its tokenizer cannot be read"):
        model_facts(NAME)


def test_lengths_beyond_the_context_have_no_price(snapshot: Path) -> None:
    check = require_usable(NAME)
    most = 512 - check.conversation_tokens
    assert check.conversation_tokens > 0
    check.require_context(most)
    with pytest.raises(ContextTooLong):
        check.require_context(most + 1)


@pytest.fixture
def typed(snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Types a command beside that model."""
    monkeypatch.setenv("ALMONER_HOME", str(tmp_path / "home"))

    def invoke(*line: str) -> Any:
        return CliRunner().invoke(app, ["models", *line])

    return invoke


def test_the_command_says_what_the_model_needs(typed: Any, snapshot: Path, tmp_path: Path) -> None:
    request = tmp_path / "request.yaml"
    request.write_text("parameters: {references: 3, max_reference_tokens: 64, max_new_tokens: 32}")
    done = typed("check", NAME, "--request", str(request), "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["usable"], found["verdict"]) == (0, True, require_usable(NAME).verdict)
    ratio = 2 if keeps_bfloat16(CPU) else 1
    assert found["requirements"]["generation"]["float32"] == found["requirements"]["generation"]["bfloat16"] * ratio
    assert found["requirements"]["generation"]["float32"] == 768 * (3 * (64 + 32) + 32)
    screen = typed("check", NAME).stdout
    assert f"{NAME}: usable" in screen
    assert "7 references of 256 tokens" in screen
    assert found["verdict"] in typed("list").stdout.replace("\n", " ")


def test_only_settings_are_fetched_for_a_check(typed: Any, snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(snapshot)

    def fetch(repo: str, *, revision: str, **options: Any) -> str:
        if options.get("local_files_only"):
            raise LocalEntryNotFoundError(repo)
        return hub(repo, revision=revision, **options)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    config_of(*MIXTRAL).save_pretrained(snapshot)
    done = typed("check", NAME, "--json")
    assert done.exit_code == 1
    assert "sends rows to experts" in json.loads(done.stdout)["verdict"]
    assert hub.asked
    assert all("*.safetensors" not in files for files in hub.asked)


def test_an_unknown_architecture_is_named_with_what_works(typed: Any, snapshot: Path) -> None:
    (snapshot / "config.json").write_text(json.dumps(UNKNOWN["an architecture that nobody knows"][0]))
    done = typed("check", NAME)
    words = " ".join(done.stdout.split())
    assert done.exit_code == 1
    assert "not usable: its architecture 'zorblax' ('ZorblaxForCausalLM') is unknown to transformers" in words
    assert "These families are read: Llama, Mistral" in words
    with pytest.raises(UnsupportedModel, match="zorblax"):
        model_facts(NAME)


def test_doctor_names_a_model_that_cannot_be_used(snapshot: Path) -> None:
    findings = {each.check: each for each in health.model_findings(NAMED)}
    assert findings[f"model {NAME}"].ok
    assert "not installed" in findings["model all-minilm-l6-v2"].detail
    config_of(*MIXTRAL).save_pretrained(snapshot)
    (unusable,) = (each for each in health.model_findings(NAMED) if not each.ok)
    assert "experts" in unusable.detail
    (of_others,) = (each for each in health.model_findings(()) if each.check == unusable.check)
    assert (of_others.ok, of_others.warning, of_others.detail) == (True, True, unusable.detail)


@pytest.fixture
def folders(snapshot: Path, tmp_path: Path) -> dict[str, Path]:
    """Three models that were added from folders, in order of name."""
    made = {name: tmp_path / f"folder of {name}" for name in ("first", "second", "third")}
    for name, folder in made.items():
        shutil.copytree(snapshot, folder)
        add_model(name, folder, "MIT")
    return made


DAMAGES = {
    "unreadable": ("{", "not usable: The model 'second' cannot be read: "),
    "unsupported": (json.dumps({"model_type": "zorblax"}), "not usable: its architecture 'zorblax' is unknown to "),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_model_is_named_and_hides_no_other(typed: Any, folders: dict[str, Path], damage: str) -> None:
    config, said = DAMAGES[damage]
    (folders["second"] / "config.json").write_text(config)
    listed = {row["name"]: row["usable"] for row in json.loads(typed("list", "--json").stdout)}
    assert said in listed["second"]
    assert all(listed[name].startswith("usable") for name in ("first", "third"))
    findings = {each.check: each for each in health.model_findings(NAMED)}
    assert [name for name in folders if not findings[f"model {name}"].ok] == ["second"]
    assert said in findings["model second"].detail


def test_a_folder_that_is_gone_is_not_usable(typed: Any, folders: dict[str, Path]) -> None:
    shutil.rmtree(folders["first"])
    listed = {row["name"]: row["usable"] for row in json.loads(typed("list", "--json").stdout)}
    assert listed["first"] == f"not usable: its folder {folders['first']} is not there"
    assert [each.ok for each in health.model_findings(NAMED) if each.check == "model first"] == [False]
    assert listed["all-minilm-l6-v2"] == "for metrics"
    assert listed["smollm2-135m-instruct"] == "not checked"


def test_a_folder_of_models_that_cannot_be_written_still_answers(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(model_store, "write_text", refuse)
    assert require_usable(NAME).usable


def test_an_embedder_from_the_hub_is_no_fault_of_the_home(snapshot: Path) -> None:
    (snapshot / "modules.json").write_text("[]")
    assert all(finding.ok for finding in health.model_findings(NAMED))
    with pytest.raises(ModelKindMismatch):
        check_model.check_model(NAME)


@pytest.mark.parametrize("spec", [spec for spec in REGISTRY if spec.kind == "causal_lm"], ids=lambda spec: spec.name)
def test_a_model_of_the_registry_is_checked_before_its_wheels_are_here(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pulled = None
    if spec.name in {each.name for each in list_models() if each.installed}:
        pulled = check_model.check_model(spec.name)
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path))
    before = check_named(spec.name)
    assert before.usable
    assert pulled in (None, before)  # the settings that come with almoner are those in the wheels
    assert not list(tmp_path.iterdir())
    with pytest.raises(ModelNotPulled):
        require_usable(spec.name)
