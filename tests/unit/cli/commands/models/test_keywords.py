"""`almoner keywords build`: what it writes, what it says, and what it refuses."""

import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from tasks.analysis.keywords import build_tools
from tests.support import require
from tests.tiny_embedder import Letters


class Commas:
    """A tagger for tests: what stands between commas is a noun chunk, and nothing is an entity."""

    name = "commas 1"

    def __call__(self, texts):
        return [[] for _ in texts]

    def noun_chunks(self, texts):
        return [text.split(",") for text in texts]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_tools, "load_tagger", lambda progress: Commas())
    monkeypatch.setattr(build_tools, "load_embedder", lambda device: Letters())


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "public.jsonl"
    path.write_text('{"text": "pottery, chess club"}\n' * 3 + '{"text": "pottery"}\n')
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["keywords", "build", *map(str, arguments)])
    return result.exit_code, result.stdout


@pytest.mark.usefixtures("tools")
def test_a_set_is_built_and_written(corpus: Path, tmp_path: Path) -> None:
    to = tmp_path / "words.json"
    code, said = run(corpus, "--to", to, "--size", 5, "--json")
    assert code == 0
    written = json.loads(to.read_text())
    assert json.loads(said) == {**written, "path": str(to)}
    assert set(written["words"]) == {"pottery", "chess club"}
    digest = hashlib.sha256(corpus.read_bytes()).hexdigest()
    source = {"file": "public.jsonl", "sha256": digest, "texts": 4, "texts_read": 4, "declared": "public"}
    assert written["source"] == source
    assert written["made_with"] == {
        "size": 5, "tagger": "commas 1", "embedder": "letters 1", "model": None, "rounds": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("tools")
def test_a_person_is_told_that_the_corpus_must_be_public(corpus: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["keywords", "build", str(corpus), "--to", str(tmp_path / "words.json")])
    assert result.exit_code == 0
    assert "read as PUBLIC text" in result.stderr
    assert "chess club" in result.stdout


def test_a_file_that_is_there_is_not_overwritten_and_nothing_is_read(tmp_path: Path) -> None:
    to = tmp_path / "words.json"
    to.write_text("mine")
    code, said = run(tmp_path / "none.jsonl", "--to", to, "--json")
    assert (code, json.loads(said)["error"]) == (2, "FileUnwritable")
    assert to.read_text() == "mine"


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, said = run(tmp_path / "none.jsonl", "--to", tmp_path / "words.json", "--json")
    assert (code, json.loads(said)["error"]) == (2, "SourceMissing")
    assert not (tmp_path / "words.json").exists()


@pytest.mark.usefixtures("tools")
def test_an_unknown_model_is_named_before_anything_is_worked_out(corpus: Path, tmp_path: Path) -> None:
    code, said = run(corpus, "--to", tmp_path / "words.json", "--model", "nobody", "--json")
    assert (code, json.loads(said)["error"]) == (2, "UnknownModel")


@pytest.mark.slow
def test_the_real_tools_and_the_small_model_work_together(tmp_path: Path) -> None:
    from tasks.inference.catalogue.registry import list_models

    installed = {model.name for model in list_models() if model.installed}
    require({"smollm2-135m-instruct", "all-minilm-l6-v2"} <= installed, "the offline models are not pulled")
    corpus = tmp_path / "public.jsonl"
    texts = ["The solar system has eight planets.", "Cooking pasta with tomato sauce at home.", "Chess openings."]
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts * 4))
    to = tmp_path / "words.json"
    code, _ = run(corpus, "--to", to, "--size", 4, "--model", "smollm2-135m-instruct", "--rounds", 2, "--json")
    assert code == 0
    written = json.loads(to.read_text())
    assert written["made_with"]["model"].startswith("smollm2-135m-instruct")
    assert len(written["words"]) == 4
