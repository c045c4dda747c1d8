"""A model that is too large for this machine: said in the price and at the spend gate, and its run spends nothing."""

import json
import re
from pathlib import Path

import pytest

from flows.workspace import file_system
from tasks.inference.catalogue import model_check
from tasks.inference.catalogue.registry import local_models
from tasks.inference.engine import memory
from tests.integration.story import Almoner
from tests.tiny_model import tiny_network

CONCERNS = ("flows/releases", "tasks/inference/loading")

SENTENCE = "The model does not fit into the memory of"


@pytest.fixture
def added(real_almoner: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home that `almoner init` has not made yet, and a tiny model that was added from a folder."""
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))
    folder = tmp_path / "tiny folder"
    for part in tiny_network(seed=7, spread=0.2):
        part.save_pretrained(folder)
    real_almoner.type(f"models add smallest '{folder}' --licence MIT")
    return real_almoner


def use_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kibibytes: int) -> None:
    """Let the machine have so much memory, all of it free."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {kibibytes} kB\nMemFree: 1 kB\nMemAvailable: {kibibytes} kB\n")
    monkeypatch.setattr(model_check, "MEMINFO", meminfo)


def test_price_and_review_warn_of_a_model_that_is_too_large(
    added: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added.ingested()
    request = added.request_file(model="smallest")
    assert SENTENCE not in str(added.ask(f"release request {request} --dry-run")["price"]["warnings"])
    added.type(f"release request {request}")
    assert SENTENCE not in added.type("release show 1").out
    use_memory(monkeypatch, tmp_path, 64)
    warned = added.ask(f"release request {request} --dry-run")["price"]["warnings"]
    (warning,) = [line for line in warned if line.startswith(SENTENCE)]
    assert warning.startswith(f"{SENTENCE} this machine")
    assert "it has 0.0 GiB" in warning
    assert "Another machine may have more" in warning
    assert SENTENCE in added.type(f"release request {request} --dry-run").out.replace("\n", " ")
    assert f"{SENTENCE} the machine of this home" in " ".join(added.type("release show 1").out.split())


def test_the_commands_on_models_say_that_it_is_too_large(
    added: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added.ingested()
    assert json.loads(added.type("models check smallest --json").out)["fits"] is True
    use_memory(monkeypatch, tmp_path, 64)
    checked = added.type("models check smallest", expected=1).out
    usable = r"usable( in float32 and bfloat16 only)?, but not on this machine: needs 0\.1 GiB in "
    assert re.search(usable, checked), "int8 is not exact on every processor"
    assert "NOT ENOUGH for the weights and one text" in checked
    listed = next(row for row in added.ask("models list") if row["name"] == "smallest")
    assert "but not on this machine" in listed["usable"]
    (finding,) = (each for each in added.ask("doctor")["findings"] if each["check"] == "model smallest")
    assert (finding["ok"], finding["warning"]) == (True, True)


@pytest.mark.slow
def test_a_model_that_is_too_large_at_load_costs_nothing(added: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold comes after loading, so the attempt ends, and the request can be run elsewhere or later."""
    added.ingested()
    added.type(f"release request {added.request_file(model='smallest')}")
    added.type('approve 1 --gate spend --reason "a first look"')
    with monkeypatch.context() as patch:
        patch.setattr(memory, "free_memory", lambda device: 1000)
        refusal = added.ask("run 1 --device cpu", expected=3)
    assert refusal["error"] == "ModelTooLarge"
    shown = added.ask("release show 1")
    assert (shown["state"], shown["rho_spent"]) == ("approved", "0")
    budget = added.ask("budget show clinic")
    assert (budget["rho_spent"], budget["rho_held"]) == ("0", "0")
    added.type("run 1 --device cpu")
    assert added.state() == "produced"


def test_doctor_fails_for_a_model_that_is_gone_only_where_a_request_names_it(added: Almoner, tmp_path: Path) -> None:
    """The folder of models is the machine's: another home's model may go with its folder."""
    added.ingested()
    folder = next(model.folder for model in local_models() if model.name == "smallest")
    away = folder.rename(folder.with_name("away"))
    (found,) = (each for each in added.ask("doctor")["findings"] if each["check"] == "model smallest")
    assert (found["ok"], found["warning"]) == (True, True)
    assert "is not there" in found["detail"]
    away.rename(folder)
    added.type(f"release request {added.request_file(model='smallest')}")
    assert added.ask("doctor")["ok"] is True
    folder.rename(away)
    (failed,) = (each for each in added.ask("doctor", expected=3)["findings"] if not each["ok"])
    assert failed["check"] == "model smallest"


def test_doctor_names_the_file_system_and_fails_where_a_ledger_is_on_one_of_a_network(
    added: Almoner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added.ingested()
    (found,) = (each for each in added.ask("doctor")["findings"] if each["check"] == "file system of the home")
    assert found["detail"] == file_system.file_system_of(added.home.root)
    table = tmp_path / "mounts"
    table.write_text(f"server:/a {added.home.root} nfs4 rw 0 0\n")
    monkeypatch.setattr(file_system, "MOUNTS", table)
    (failed,) = (each for each in added.ask("doctor", expected=3)["findings"] if not each["ok"])
    assert "nfs4" in failed["detail"]
