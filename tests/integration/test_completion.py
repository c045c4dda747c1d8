"""A release of a base model: one without a chat template, which goes on with a text."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers.utils import chat_template_utils

import flows.releases.execute
from models_db.values.requests import Prompt
from tasks.decoding.loop import Step
from tasks.decoding.sampling_rule import InvisibleInkRule
from tasks.inference.catalogue.model_check import ModelCheck, Precision
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.prompt_rendering import RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tests import tiny_model
from tests.integration.canary import leaks, text_of
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_guides import blocks
from tests.support import snapshot
from tests.tiny_tokenizer import TEMPLATE, tiny_tokenizer

REQUESTS = (Path(__file__).resolve().parents[2] / "docs" / "requests.md").read_text()
PROMPT: dict[str, Any] = {
    "description": "Short notes that a doctor writes.",
    "form": "completion",
    "examples": ["Cough since Monday, no fever. Tea and rest."],
}
OTHER_TEMPLATE = TEMPLATE.replace("<|start|>assistant", "<|start|>helper")


def load_with(template: str | None) -> Any:
    def load(name: str, device: str, precision: Precision = "float32") -> LanguageModel:
        return replace(tiny_model.tiny_model(precision, stops=False), tokenizer=tiny_tokenizer(template))

    return load


@pytest.fixture
def base(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> Almoner:
    """A home whose model has no chat template."""

    def check(name: str) -> ModelCheck:
        return ModelCheck(name=name, template_problem="it has no chat template")

    def render(name: str, spec: PromptSpec, shown: tuple[str, ...]) -> RenderedPrompt:
        return RenderedPrompt.of(tiny_tokenizer(None), spec, shown)

    monkeypatch.setattr("tasks.inference.loading.check_model.check_model", check)
    monkeypatch.setattr("tasks.pricing.model_facts.check_prompt", render)
    monkeypatch.setattr(flows.releases.execute, "load", load_with(None))
    almoner.ingested()
    return almoner


def test_a_release_of_a_base_model(base: Almoner) -> None:
    request = base.request_file(prompt=PROMPT)
    priced = base.ask(f"release request {request}")["price"]
    spec = PromptSpec.of(Prompt.model_validate(PROMPT))
    sha256 = RenderedPrompt.of(tiny_tokenizer(None), spec, ()).sha256
    assert priced["prompt_sha256"] == sha256
    assert priced["prompt"] == {
        "description": PROMPT["description"],
        "form": "completion",
        "public": "{description}",
        "example 1": PROMPT["examples"][0],
        "separator": "###",
    }
    review = base.type('approve 1 --gate spend --reason "a base model" --details').err
    for shown in ("prompt: form", "prompt: example 1", PROMPT["examples"][0], sha256[:20]):
        assert shown in review, review
    assert base.ask("run 1")["texts"] == 3
    base.go_on_to("published", after="produced")
    assert base.ask(f"verify-release {base.bundle}")["holds"] is True
    record = json.loads((base.bundle / "release.json").read_text())
    assert record["request"]["prompt_sha256"] == sha256
    card = (base.bundle / "README.md").read_text()
    for shown in ("The model went on with one text", PROMPT["examples"][0], sha256):
        assert shown in card
    kept = [base.home.keys, base.home.quarantine, base.home.scratch, base.folder / "out"]
    assert leaks("\n".join([*map(text_of, kept), repr(snapshot(base.database))])) == []


def test_plans_for_a_base_model_are_completions(base: Almoner) -> None:
    """A plan writes the form, and the examples of a file; its request has the plan's price."""
    planned, examples = base.folder / "planned.yaml", base.write("examples.yaml", PROMPT["examples"])
    line = f"plan clinic --epsilon 4 --tokens 8 --samples 2 --population 60 --model {tiny_model.NAME}"
    plain = base.ask(line)
    assert {one["request"]["prompt"]["form"] for one in plain["alternatives"]} == {"completion"}
    assert any("has no usable chat template" in note for note in plain["notes"])
    assert any("needs two public examples" in note for note in plain["notes"])
    chosen = base.ask(f"{line} --examples {examples} --choice 1 --write {planned}")
    assert not any("public examples" in note for note in chosen["notes"])
    assert yaml.safe_load(planned.read_text())["prompt"]["examples"] == PROMPT["examples"]
    price = base.ask(f"release request {planned} --dry-run")["price"]
    assert price["facts"] == chosen["alternatives"][0]["price"]["facts"]
    assert price["prompt"]["form"] == "completion"


@pytest.mark.parametrize(
    ("changes", "error", "advised"),
    [
        ({"prompt": {"description": "Notes."}}, "NoChatTemplate", "prompt.form: completion"),
        ({"prompt": PROMPT, "evaluation": ["judge"]}, "MetricNeedsConversation", "evaluation"),
        (
            {"prompt": PROMPT, "mechanism": "private_evolution", "parameters": {"samples": 3, "max_new_tokens": 12}},
            "FormUnsupported",
            "prompt.form",
        ),
    ],
)
def test_what_a_base_model_cannot_do_is_refused_when_it_is_priced(
    base: Almoner, changes: dict[str, Any], error: str, advised: str
) -> None:
    refusal = base.ask(f"release request {base.request_file(**changes)} --dry-run", expected=2)
    assert refusal["error"] == error
    assert advised in refusal["advice"]
    assert base.ask("release list") == []


def test_the_request_of_the_page_can_be_typed(base: Almoner) -> None:
    (written,) = [block for block in blocks(REQUESTS, "yaml") if "form: completion" in block]
    request = REQUEST | yaml.safe_load(written) | {"model": tiny_model.NAME}
    priced = base.ask(f"release request {base.write('request.yaml', request)} --dry-run")["price"]
    assert priced["prompt"]["form"] == "completion"
    assert "example 2" in priced["prompt"]


def test_a_prompt_that_is_rendered_otherwise_is_refused_before_anything_is_held(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are those that were approved; another template makes other tokens of them."""
    almoner.approved()
    monkeypatch.setattr(flows.releases.execute, "load", load_with(OTHER_TEMPLATE))
    refusal = almoner.ask("run 1", expected=1)
    assert refusal["error"] == "PlanChanged"
    assert "another rendered prompt" in refusal["message"]
    kinds = [link["kind"] for link in almoner.ask("audit log --dataset clinic")]
    assert not {"ledger.hold", "ledger.arm"} & set(kinds)
    assert almoner.ask("budget show clinic")["rho_spent"] == "0"


def test_a_price_that_renders_otherwise_is_another_request(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved()

    def render(name: str, spec: PromptSpec, shown: tuple[str, ...]) -> RenderedPrompt:
        return RenderedPrompt.of(tiny_tokenizer(OTHER_TEMPLATE), spec, shown)

    monkeypatch.setattr("tasks.pricing.model_facts.check_prompt", render)
    refusal = almoner.ask("run 1", expected=1)
    assert refusal["error"] == "PlanChanged"
    assert "another prompt_sha256" in refusal["message"]


def test_a_release_whose_prompt_names_a_day_is_verified(almoner: Almoner) -> None:
    almoner.published(prompt={"description": "Short notes.", "date": "2026-02-03"})
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    assert "2026-02-03" in (almoner.bundle / "README.md").read_text()


def test_a_run_that_goes_on_another_day_reads_the_same_prompt(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its template asks for today; the run refuses any other tokens than those that were approved."""
    dated = "{{ 'Today: ' + strftime_now('%d %b %Y') }}" + TEMPLATE

    def render(name: str, spec: PromptSpec, shown: tuple[str, ...]) -> RenderedPrompt:
        return RenderedPrompt.of(tiny_tokenizer(dated), spec, shown)

    def interrupt(self: InvisibleInkRule, step: Step) -> list[int]:
        if min(step.positions) == 5:
            raise KeyboardInterrupt
        return next_tokens(self, step)

    class AnotherDay(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "AnotherDay":
            return cls(2031, 5, 6)

    next_tokens = InvisibleInkRule.next_tokens
    monkeypatch.setattr("tasks.pricing.model_facts.check_prompt", render)
    monkeypatch.setattr(flows.releases.execute, "load", load_with(dated))
    almoner.ingested()
    sha256 = almoner.ask(f"release request {almoner.request_file()}")["price"]["prompt_sha256"]
    almoner.type('approve 1 --gate spend --reason "a first look"')
    with monkeypatch.context() as patch:
        patch.setattr(InvisibleInkRule, "next_tokens", interrupt)
        assert almoner.ask("run 1", expected=None)["error"] == "RunInterrupted"
    monkeypatch.setattr(chat_template_utils, "datetime", AnotherDay)
    today = tiny_tokenizer(dated).apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert today.startswith("Today: 06 May 2031")
    said = almoner.type("run 1")
    assert "Going on from attempt 1" in said.err
    assert render("", PromptSpec(REQUEST["prompt"]["description"]), ()).sha256 == sha256
