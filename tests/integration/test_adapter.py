"""`almoner adapter`: trained on a public file, interrupted, listed and shown; what cannot be is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.adapters.training import loop, train
from tasks.adapters.training.frozen_model import freeze
from tests.integration.story import Almoner
from tests.tiny_model import NAME, load_tiny, tiny_network

SIZES = "--soft-tokens 2 --words 1 --dimensions 4 --precision float32"
SMALL = f'--licence CC0-1.0 --model {NAME} {SIZES} --description "one word"'
LINES = [
    {"documents": [f"{'ab'[n % 2] * 9} {n} {k}" for k in range(3)], "summary": "ab"[n % 2] * 4, "about": f"thing {n}"}
    for n in range(6)
]


@pytest.fixture
def school(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home whose models folder is its own, with a tiny model to train through."""

    def frozen(name: str, device: str, dtype: torch.dtype) -> Any:
        return freeze(tiny_network(seed=7, spread=0.2)[0], torch.device("cpu"), dtype)

    monkeypatch.setenv("ALMONER_MODELS", str(almoner.folder / "models"))
    monkeypatch.setattr(train, "load", load_tiny)
    monkeypatch.setattr(train, "load_frozen", frozen)
    return almoner


def written(school: Almoner, lines: object = LINES) -> Path:
    text = "".join((json.dumps(line) if not isinstance(line, str) else line) + "\n" for line in lines)  # type: ignore[attr-defined]
    return school.write("train.jsonl", text)


def test_an_adapter_is_trained_listed_and_shown(school: Almoner) -> None:
    file = written(school)
    made = school.ask(f"adapter train {file} --name words {SMALL} --steps 4")
    assert (made["name"], made["soft_tokens"], made["dimensions"], made["width"]) == ("words", 2, 4, 32)
    assert made["training"] | {"sha256": ""} == {
        "file": "train.jsonl", "sha256": "", "licence": "CC0-1.0", "examples": 6, "documents": 18,
        "learned_groups": 5, "held_out_groups": 1,
    }  # fmt: skip
    assert made["wording"]["description"] == "one word"
    assert "{label}" in made["wording"]["private"]
    assert sorted(path.name for path in Path(made["folder"]).iterdir()) == [
        "adapter.json", "adapter.safetensors", "losses.jsonl", "losses.svg",
    ]  # fmt: skip
    assert school.ask("adapter list") == [made]
    assert school.ask("adapter show words") == school.ask(f"adapter show {made['digest'][:10]}") == made
    shown = school.type("adapter show words").out
    assert "4 of 32 dimensions, 2 soft tokens, 1 of them words" in shown
    assert "0.01 to 1 clip norms" in shown
    assert "words" in school.type("adapter list").out
    assert school.ask(f"adapter train {file} --name words {SMALL}", expected=2)["error"] == "AdapterNameTaken"


CONCERNS = ("tasks/adapters/training",)


@pytest.mark.slow
def test_training_goes_on_after_it_was_interrupted(school: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"adapter train {written(school)} --name {{}} {SMALL} --steps 40"
    whole = school.ask(line.format("whole"))
    step = loop.Course._step
    made: list[int] = []

    def watched(course: loop.Course) -> float:
        made.append(course._state.step)
        if made[-1] == 31 and len(made) == 32:
            raise KeyboardInterrupt
        return step(course)

    monkeypatch.setattr(loop.Course, "_step", watched)
    school.type(line.format("broken"), expected=130)
    assert school.ask("adapter list") == [whole]
    assert school.ask(line.format("broken") + " --seed 1", expected=2)["error"] == "TrainingDiffers"
    again = school.type(line.format("broken"))
    assert "Going on after step 20" in again.err
    assert made[32:] == list(range(20, 40))
    found = school.ask("adapter show broken")
    same = ("fit", "training", "clip_norm")
    assert {name: found[name] for name in same} == {name: whole[name] for name in same}
    assert found["digest"] != whole["digest"]  # its name is another


def test_an_interrupted_training_can_be_forgotten(school: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(course: loop.Course) -> float:
        raise KeyboardInterrupt

    line = f"adapter train {written(school)} --name words {SMALL} --steps 25"
    with monkeypatch.context() as patch:
        patch.setattr(loop.Course, "_rate", interrupted)
        school.type(line, expected=130)
    assert school.ask(f"{line} --seed 5 --anew")["seed"] == 5


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ("--name Words/../x", "InvalidPlainName"),
        ("--name ..", "InvalidPlainName"),
        ("--name wоrds", "InvalidPlainName"),
        ("--name words --soft-tokens 0", "FileInvalid"),
        ("--name words --dimensions 400", "TooFewDocuments"),
        ("--name words --centres 60", "TooFewDocuments"),
        ("--name words --description ' '", "BadDescription"),
    ],
)
def test_what_cannot_be_trained_is_refused(school: Almoner, option: str, error: str) -> None:
    file = written(school)
    assert school.ask(f"adapter train {file} {SMALL} {option}", expected=2)["error"] == error
    assert school.ask("adapter list") == []


def test_a_bad_file_is_named_with_its_line(school: Almoner) -> None:
    file = written(school, [*LINES[:2], '{"documents": ["a"], "summary": 3}'])
    found = school.ask(f"adapter train {file} --name words {SMALL}", expected=2)
    assert found["error"] == "TrainingLineInvalid"
    assert found["facts"] == {"file": "train.jsonl", "line": 3}
    gone = school.ask(f"adapter train {file}.gone --name words {SMALL}", expected=2)
    assert gone["error"] == "TrainingFileUnreadable"


def test_an_unknown_or_damaged_adapter_is_named(school: Almoner) -> None:
    assert school.ask("adapter show nobody", expected=2)["error"] == "AdapterUnknown"
    made = school.ask(f"adapter train {written(school)} --name words {SMALL} --steps 1")
    path = Path(made["folder"]) / "adapter.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\0\0")
    assert school.ask(f"adapter show {made['digest']}", expected=3)["error"] == "AdapterDamaged"
    assert school.ask("adapter show words", expected=2)["error"] == "AdapterUnknown"
    assert school.ask("adapter list") == []
    assert made["digest"][:12] in school.type("adapter list").err
