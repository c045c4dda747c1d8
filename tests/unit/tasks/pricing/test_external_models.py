"""Who may use a model behind an API, what is said of it, and what it would cost."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from models_db.values.amounts import Amount
from tasks.decoding.public_sampling import text_backend
from tasks.decoding.run_context import NoEngine
from tasks.evaluate import not_measured
from tasks.evaluation.registry import METRICS
from tasks.inference.backends.chat_completions import HttpBackend
from tasks.inference.backends.endpoints import Endpoint, EndpointUnknown
from tasks.inference.backends.text_backend import Sampling
from tasks.pricing.external_models import FACT, Cost, require_public_prompts, with_external_fact
from tasks.pricing.model_facts import model_facts
from tasks.release.approved_request import ApprovedRequest
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import PlanInputs
from tests.refusals import refusal
from tests.support_backend import Counted, CountedParameters, ModelServer
from tests.unit.tasks.publishing.builders import a_request
from tests.unit.tasks.systems.workshop import NoCorpus, Workshop

OFFICE = Endpoint(name="office", url="https://llm.example.org/v1", model="qwen3-32b", licence="MIT")
NAMED = "external:office"


def plan(samples: int = 1000, tokens: int = 100) -> Any:
    parameters = CountedParameters(samples=samples, max_new_tokens=tokens)
    return Counted().plan(PlanInputs(Amount(10**12), parameters, 1, None, True))


def test_an_endpoint_is_a_model_with_its_configurations_digest() -> None:
    found = model_facts(NAMED, {"office": OFFICE})
    assert (found.name, found.revision, found.digest, found.licence, found.endpoint) == (
        NAMED, "qwen3-32b at llm.example.org", OFFICE.digest, "MIT", OFFICE,
    )  # fmt: skip
    with pytest.raises(EndpointUnknown):
        model_facts(NAMED)


def test_only_who_says_so_may_use_it() -> None:
    require_public_prompts(Counted(), NAMED)
    for system in (Counted(shows_private_text=True), SYSTEMS["invisible_ink"], SYSTEMS["public_only"]):
        with refusal("ExternalModelRefused"):
            require_public_prompts(system, NAMED)
        require_public_prompts(system, "smollm2-135m-instruct")


def test_it_stands_among_the_public_parameters() -> None:
    made = with_external_fact(plan(), NAMED, OFFICE.revision)
    assert made.facts[FACT] == "external model: sees only DP outputs (qwen3-32b at llm.example.org)"
    assert with_external_fact(plan(), "tiny", "1") == plan()


def test_whoever_verifies_a_release_refuses_one_that_private_text_would_have_left() -> None:
    model = {"name": NAMED, "revision": OFFICE.revision, "sha256": OFFICE.digest, "licence": "MIT"}
    with refusal("ExternalModelRefused"):
        ApprovedRequest.model_validate(a_request(model=model)).require_planned()
    ApprovedRequest.model_validate(a_request()).require_planned()


def test_a_cost_follows_from_the_plan() -> None:
    priced = OFFICE.model_copy(update={"price_in": Decimal("0.25"), "price_out": Decimal(2), "currency": "EUR"})
    cost = Cost.of(plan(), "x" * 41, priced)
    assert (cost.requests, cost.tokens_in, cost.tokens_out) == (1000, 51_000, 100_000)
    assert cost.money == "0.22 EUR"  # 0.01275 + 0.2, rounded up
    assert cost.seconds is None
    assert Cost.of(plan(), "x", OFFICE).money is None


def test_a_plan_says_how_many_prompts_there_are_where_it_is_not_one_for_each_text() -> None:
    assert Cost.of(replace(plan(), prompts=7000), "", OFFICE).requests == 7000


def test_the_time_is_that_of_the_tighter_limit() -> None:
    def seconds(**limits: int) -> int | None:
        return Cost.of(plan(), "", OFFICE.model_copy(update=limits)).seconds

    assert seconds(per_minute=60) == 1000
    assert seconds(tokens_per_minute=140_000) == 60
    assert seconds(per_minute=60, tokens_per_minute=1400) == 6000


def test_whoever_reaches_for_the_engine_is_told_by_name() -> None:
    engine = cast(Any, NoEngine(NAMED))
    for reach in (lambda: engine.model, lambda: engine.session, lambda: engine.memory):
        with refusal("EngineMissing", match=NAMED):
            reach()


def test_the_bench_writes_with_whom_it_was_given(tmp_path: Path) -> None:
    with ModelServer() as server:
        outside = HttpBackend.of(server.endpoint(), tmp_path, lambda what, done, total: None)
        context = replace(Workshop(NoCorpus()).context(), outside=outside, engine=cast(Any, NoEngine(NAMED)))
        assert text_backend(context) is outside
        assert len(text_backend(context).write(["a note"], Sampling(4, Decimal(1)))) == 1
        assert server.prompts == ["a note"]


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if "model" in metric.needs])
def test_without_a_model_every_figure_that_it_would_give_is_null(name: str) -> None:
    found = not_measured(METRICS[name])
    assert "no language model" in found.line
    assert set(found.values.values()) <= {None, 0}
    assert None in found.values.values()
