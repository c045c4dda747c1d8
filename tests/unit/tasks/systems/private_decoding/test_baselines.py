"""The two references: one reads nothing, the other is refused wherever it would matter."""

from dataclasses import replace
from typing import Any

import pytest

from models_db.values.amounts import Amount
from models_db.values.requests import Prompt, model_to_json
from tasks.corpus.store import Corpus
from tasks.decoding import loop, sentence_completion
from tasks.inference.prompt_spec import PromptSpec
from tasks.planning import shared_parameters
from tasks.systems.adapmixed import AdaPMixed
from tasks.systems.baselines import BaselineParameters, NonPrivate, PublicOnly
from tasks.systems.few_shot_generation import FewShotGeneration
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.systems.private_icl import PrivateIcl
from tasks.systems.private_prediction import PrivatePrediction
from tasks.systems.summaries import OneShotSummary, TokenLevelSummary
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import ask, ink
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop

pytestmark = pytest.mark.contract


def baseline(**changes: object) -> BaselineParameters:
    return BaselineParameters.model_validate({"samples": 3, "max_new_tokens": 8, "temperature": "1"} | changes)


def test_the_public_baseline_reads_no_private_text() -> None:
    workshop = Workshop(NoCorpus())
    system = PublicOnly()
    made = system.generate(system.plan(ask(baseline(), None)), baseline(), workshop.context())
    assert [text.tokens for text in made.texts] == [8, 8, 8]
    assert workshop.seen == [("arm", 0, 0)]
    assert made.released == {}


def test_texts_of_the_public_baseline_differ(corpus: Corpus) -> None:
    system = PublicOnly()
    made = system.generate(system.plan(ask(baseline(), None)), baseline(), Workshop(corpus).context())
    assert len({text.text for text in made.texts}) == 3


@pytest.mark.parametrize("system", [PublicOnly(), NonPrivate()])
def test_a_baseline_charges_nothing_and_is_recorded(system) -> None:
    plan = system.plan(ask(baseline(), None, governed=False))
    assert plan.loss == Amount()
    (invocation,) = plan.invocations
    assert invocation.event.mechanism == system.name
    assert invocation.instalments == (Amount(),)
    assert not system.charges


def test_the_non_private_baseline_is_refused_on_governed_data() -> None:
    with refusal("NotForGovernedData", match="on governed data it is refused") as refused:
        NonPrivate().plan(ask(baseline(), None, governed=True))
    assert "--public" in refused.value.advice


def test_the_non_private_baseline_puts_one_document_into_each_prompt(corpus: Corpus) -> None:
    workshop = Workshop(corpus)
    system = NonPrivate()
    made = system.generate(system.plan(ask(baseline(), None, governed=False)), baseline(), workshop.context())
    assert workshop.seen == [("arm", 0, 0), ("texts",)]
    assert len(made.texts) == 3
    public = PublicOnly().generate(PublicOnly().plan(ask(baseline(), None)), baseline(), Workshop(corpus).context())
    assert made.texts != public.texts


def test_the_non_private_baseline_makes_no_more_texts_than_there_are_documents(corpus: Corpus) -> None:
    documents = len(list(corpus.texts()))
    wanted = baseline(samples=documents + 5, max_new_tokens=1, max_reference_tokens=4)
    system = NonPrivate()
    made = system.generate(system.plan(ask(wanted, None, governed=False)), wanted, Workshop(corpus).context())
    assert len(made.texts) == documents


@pytest.mark.parametrize("system", [PublicOnly(), NonPrivate()], ids=lambda s: s.name)
def test_a_baseline_goes_on_with_a_completion_up_to_its_separator(
    system: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of a separator, which a model of random weights does not draw, three characters end a text."""
    monkeypatch.setattr(loop, "text_before", lambda separator, text: text[:3] if len(text) >= 3 else None)
    spec = PromptSpec.of(Prompt(description="Short notes.", form="completion"))
    context = replace(Workshop(corpus).context(), prompt=spec)
    monkeypatch.setattr(context.engine.model.tokenizer, "chat_template", None)
    made = system.generate(system.plan(ask(baseline(), None, governed=False)), baseline(), context)
    assert all(3 <= text.tokens < 8 and text.complete for text in made.texts)
    assert len(made.texts) == 3


@pytest.mark.parametrize("system", [PublicOnly(), NonPrivate()], ids=lambda s: s.name)
def test_a_baseline_completes_cut_sentences_too(system: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_completion, "ends_sentence", lambda text: False)
    monkeypatch.setattr(shared_parameters, "COMPLETION_TOKENS", 5)
    wanted = baseline()
    plan = system.plan(ask(wanted, None, governed=False))
    made = system.generate(plan, wanted, Workshop(corpus).context())
    assert [text.tokens for text in made.texts] == [plan.steps] * 3 == [13] * 3
    assert made.released["completion_tokens_per_text"] == "5.00"
    assert "cost nothing" in plan.facts["cut sentences"]
    assert baseline(clipping="logit").completion_tokens == 0


@pytest.mark.parametrize(
    "system",
    [
        InvisibleInk(),
        PrivatePrediction(),
        PrivateIcl(),
        FewShotGeneration(),
        AdaPMixed(),
        TokenLevelSummary(),
        OneShotSummary(),
    ],
    ids=lambda s: s.name,
)
def test_a_request_file_for_any_private_system_fits_a_baseline(system: Any) -> None:
    """Whatever such a file may set; each is checked as far as that goes, and what nobody has is a mistake."""
    fields = {field.alias or name for name, field in system.parameters.model_fields.items()}
    known = {field.alias or name for name, field in BaselineParameters.model_fields.items()}
    assert fields <= known
    written = ink(references=7).model_dump()
    assert baseline(**{name: written[name] for name in written if written[name] is not None}).samples == 3
    with pytest.raises(ValueError, match="clipping"):
        baseline(clipping="none")
    with pytest.raises(ValueError, match="seed"):
        baseline(seed=42)


def test_what_a_baseline_does_not_use_is_stored_only_where_it_is_said() -> None:
    stored = {"samples", "max_new_tokens", "temperature", "top_k", "max_reference_tokens", "references"}
    stored |= {"constrained", "groups_per_unit", "precision", "slot_tokens"}
    assert set(model_to_json(baseline())) == stored  # type: ignore[arg-type]
    assert set(model_to_json(baseline(instalment=4))) == stored | {"instalment"}  # type: ignore[arg-type]


@pytest.mark.parametrize("system", [PublicOnly(), NonPrivate()])
def test_wrong_asks_are_refused(system) -> None:
    with refusal("BlockWithoutSample"):
        system.plan(ask(baseline(samples=1), None, blocks=2, governed=False))
    with pytest.raises(TypeError, match=InvisibleInkParameters.__name__):
        system.plan(ask(ink(), None, governed=False))
