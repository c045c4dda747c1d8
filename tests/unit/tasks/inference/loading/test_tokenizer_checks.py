"""A prompt is rendered once for each wording, by the tokenizer that is installed, when its request is priced."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from models_db.values.requests import Prompt, ReleaseRequest, parse_model
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.model_check import ContextTooLong
from tasks.inference.loading import check_model as module
from tasks.inference.loading import load_model
from tasks.inference.loading.check_model import check_prompt
from tasks.inference.prompt_rendering import NoChatTemplate, RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.planning.shared_parameters import COMPLETION_TOKENS
from tasks.pricing.model_facts import model_facts
from tasks.pricing.quote import Quote, quote
from tests.refusals import refusal
from tests.tiny_tokenizer import TEMPLATE, tiny_tokenizer
from tests.unit.tasks.inference.fixtures import COMMIT, NAME
from tests.unit.tasks.pricing.test_quote import WRITTEN, facts

SPEC = PromptSpec("Notes.")
COMPLETION = PromptSpec.of(Prompt(description="Notes.", form="completion"))


@pytest.fixture
def snapshot(snapshot: Path) -> Path:
    """The model, pulled."""
    model_store.model_digest(NAME, snapshot, model_store.hub_record("org/tiny", COMMIT))
    return snapshot


@pytest.fixture
def base(snapshot: Path) -> Path:
    """The same without a chat template."""
    (snapshot / "chat_template.jinja").unlink()
    return snapshot


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose tokenizer is read, in order."""
    folders: list[Path] = []
    read_tokenizer = load_model.read_tokenizer

    def counted(name: str, folder: Path) -> Any:
        folders.append(folder)
        return read_tokenizer(name, folder)

    monkeypatch.setattr(load_model, "read_tokenizer", counted)
    return folders


def priced(**changes: Any) -> Quote:
    written = parse_model(ReleaseRequest, WRITTEN | {"model": NAME} | changes, "The request")
    return quote(written, facts(), model_facts(NAME), "p" * 64, "c" * 64)


def test_a_wording_is_rendered_once(snapshot: Path, read: list[Path]) -> None:
    rendered = check_prompt(NAME, SPEC, ())
    assert rendered == check_prompt(NAME, SPEC, ()) == RenderedPrompt.of(tiny_tokenizer(), SPEC, ())
    assert len(read) == 1
    other = check_prompt(NAME, COMPLETION, ())
    assert (other, len(read)) == (RenderedPrompt.of(tiny_tokenizer(None), COMPLETION, ()), 2)
    assert (check_prompt(NAME, SPEC, ()), check_prompt(NAME, COMPLETION, ()), len(read)) == (rendered, other, 2)


def test_another_template_or_code_is_rendered_anew(
    snapshot: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = check_prompt(NAME, SPEC, ())
    (snapshot / "chat_template.jinja").write_text(f"Hello. {TEMPLATE}")
    after = check_prompt(NAME, SPEC, ())
    assert after.sha256 != before.sha256
    monkeypatch.setattr(module, "code_digest", lambda: "another")
    assert (check_prompt(NAME, SPEC, ()), len(read)) == (after, 3)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"folder": 3, "results": {}}', "results", "entry"])
def test_a_damaged_note_is_not_believed(snapshot: Path, read: list[Path], damage: str) -> None:
    rendered = check_prompt(NAME, SPEC, ())
    (note,) = (model_store.models_folder() / ".checks").glob("*.prompts.json")
    stored = json.loads(note.read_text())
    if damage in ("results", "entry"):
        damage = json.dumps({**stored, "results": 3 if damage == "results" else dict.fromkeys(stored["results"], "?")})
    note.write_text(damage)
    assert (check_prompt(NAME, SPEC, ()), len(read)) == (rendered, 2)


def test_the_oldest_wordings_are_forgotten(snapshot: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STORED", 2)
    for description in ("a", "b", "c", "b", "c", "a"):
        check_prompt(NAME, PromptSpec(description), ())
    assert len(read) == 4


def test_a_price_needs_no_torch_once_its_prompt_was_rendered(snapshot: Path) -> None:
    check_prompt(NAME, SPEC, ())
    code = (
        "import sys\nfrom tasks.inference.loading.check_model import check_prompt\n"
        "from tasks.inference.prompt_spec import PromptSpec\n"
        f"check_prompt({NAME!r}, PromptSpec('Notes.'), ())\nprint({{'torch', 'transformers'}} & set(sys.modules))"
    )
    root = Path(__file__).resolve().parents[5]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


FILM = {"type": "object", "required": ["year"], "properties": {"year": {"type": "integer"}}}


def records(limit: int, **changes: Any) -> dict[str, Any]:
    parameters = WRITTEN["parameters"] | {"schema": FILM, "max_new_tokens": limit} | changes
    return {"kind": "records", "evaluation": ["records"], "parameters": parameters}


def test_a_grammar_is_checked_once(snapshot: Path, read: list[Path]) -> None:
    priced(**records(48))
    before = len(read)
    priced(**records(48, samples=9))
    assert len(read) == before
    priced(**records(49))
    assert len(read) == before + 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        (records(5), "TokenLimitTooSmall"),
        ({"parameters": WRITTEN["parameters"] | {"form": "The film is {what}.", "max_new_tokens": 8}}, "FormTooLong"),
    ],
)
def test_what_cannot_be_written_in_so_many_tokens_has_no_price(
    snapshot: Path, changes: dict[str, Any], error: str
) -> None:
    for _ in range(2):
        with refusal(error):
            priced(**changes)


def test_records_that_are_drawn_freely_have_no_grammar(snapshot: Path, read: list[Path]) -> None:
    priced()
    before = len(read)
    priced(**records(5, constrained=False))
    assert len(read) == before


def test_the_price_has_the_digest_of_every_label(snapshot: Path) -> None:
    labels = ("fever", "cough")
    parameters = WRITTEN["parameters"] | {"labels": list(labels)}
    body = priced(kind="demonstrations", parameters=parameters).body
    spec = PromptSpec.of(Prompt(description="Short notes."), labels)
    assert body["prompt_sha256"] == RenderedPrompt.of(tiny_tokenizer(), spec, labels).sha256
    assert priced().body["prompt_sha256"] != body["prompt_sha256"]


def test_the_length_of_the_prompt_counts_against_the_context(snapshot: Path) -> None:
    sizes = {"max_new_tokens": 48, "max_reference_tokens": 256}
    tokens = RenderedPrompt.of(tiny_tokenizer(), PromptSpec("Short notes."), ()).tokens
    most = 512 - 48 - COMPLETION_TOKENS - tokens
    assert most > 0
    priced(parameters=WRITTEN["parameters"] | sizes | {"max_reference_tokens": most})
    with pytest.raises(ContextTooLong) as refused:
        priced(parameters=WRITTEN["parameters"] | sizes | {"max_reference_tokens": most + 1})
    assert refused.value.facts == {"needed": 513, "possible": 512}


def test_control_tokens_have_no_price(snapshot: Path) -> None:
    with refusal("ControlTokens"):
        priced(prompt={"description": "Notes.", "system": "Stop.<|end|>"})


def test_a_base_model_has_a_price_in_completion_form_alone(base: Path) -> None:
    body = priced(prompt={"description": "Notes.", "form": "completion"}).body
    assert body["prompt_sha256"] == RenderedPrompt.of(tiny_tokenizer(None), COMPLETION, ()).sha256
    with pytest.raises(NoChatTemplate, match="it has no chat template") as refused:
        priced()
    assert "`prompt.form: completion`" in refused.value.advice


def test_a_model_with_a_template_has_a_price_in_both_forms(snapshot: Path) -> None:
    priced(prompt={"description": "Notes.", "form": "completion"}, evaluation=["judge"])
    priced(prompt={"description": "Notes.", "form": "chat"}, evaluation=["judge"])


def test_a_metric_that_asks_in_a_conversation_has_no_price(base: Path) -> None:
    with refusal("MetricNeedsConversation", match="'judge'"):
        priced(prompt={"description": "Notes.", "form": "completion"}, evaluation=["length", "judge"])


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        ("keyphrase_seeding", {"samples": 4, "references": 7, "max_new_tokens": 48}),
        ("private_evolution", {"samples": 4, "max_new_tokens": 48}),
    ],
)
def test_mechanisms_that_ask_in_conversations_refuse_the_form(
    snapshot: Path, mechanism: str, parameters: dict[str, int]
) -> None:
    with refusal("FormUnsupported", match=mechanism):
        priced(mechanism=mechanism, parameters=parameters, prompt={"description": "Notes.", "form": "completion"})


def test_mechanisms_that_ask_in_conversations_of_their_own_refuse_examples(snapshot: Path) -> None:
    parameters = {"samples": 4, "max_new_tokens": 48}
    with refusal("ExamplesUnsupported", match="private_evolution"):
        priced(
            mechanism="private_evolution",
            parameters=parameters,
            prompt={"description": "Notes.", "examples": ["One."]},
        )


def test_a_mechanism_with_conversations_of_its_own_has_no_digest(snapshot: Path) -> None:
    body = priced(mechanism="private_evolution", parameters={"samples": 4, "max_new_tokens": 48}).body
    assert "prompt_sha256" not in body


def test_summaries_in_completion_form_have_no_preset(snapshot: Path) -> None:
    parameters = {name: value for name, value in WRITTEN["parameters"].items() if name != "samples"}
    body = priced(
        kind="summaries",
        parameters=parameters | {"groups": ["fever", "cough"]},
        prompt={"description": "Notes.", "form": "completion"},
    ).body
    stored = body["prompt"]
    assert isinstance(stored, dict)
    assert set(stored) == {"description", "form", "public", "separator"}
    spec = PromptSpec.of(Prompt(description="Notes.", form="completion"), ("fever", "cough"))
    assert body["prompt_sha256"] == RenderedPrompt.of(tiny_tokenizer(None), spec, ("fever", "cough")).sha256
