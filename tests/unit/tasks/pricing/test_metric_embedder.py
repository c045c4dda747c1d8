"""The embedder of a request's metrics: named, refused when priced, and part of what is approved."""

import copy
from typing import Any

import pytest

from models_db.values.canonical_json import encode_canonical
from tasks.inference.catalogue import registry
from tasks.inference.catalogue.registry import ListedModel
from tasks.pricing import quote as pricing
from tasks.pricing.quote import written_request
from tasks.release.approved_request import ApprovedRequest
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts, priced

MINILM, MPNET = "all-minilm-l6-v2", "all-mpnet-base-v2"
NEEDS = ["length", "self_similarity"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name -> digest of the embedders on this machine: MiniLM alone, until a test adds one."""
    digests = {MINILM: "a" * 64}

    def listed() -> list[ListedModel]:
        return [ListedModel(name, "1.0", "", "MIT", "", True, digest) for name, digest in digests.items()]

    monkeypatch.setattr(registry, "list_models", listed)
    return digests


def test_a_request_without_such_metrics_names_none() -> None:
    assert "evaluation_embedder" not in priced(evaluation=["length"], evaluation_embedder=MPNET).body


def test_the_digest_is_part_of_the_request(installed: dict[str, str]) -> None:
    expected = {"name": MINILM, "revision": "1.0", "sha256": "a" * 64}
    assert priced(evaluation=NEEDS).body["evaluation_embedder"] == expected
    installed[MPNET] = "b" * 64
    body = priced(evaluation=NEEDS, evaluation_embedder=MPNET).body
    assert body["evaluation_embedder"] == {"name": MPNET, "revision": "1.0", "sha256": "b" * 64}
    installed[MPNET] = "c" * 64
    assert priced(evaluation=NEEDS, evaluation_embedder=MPNET).body != body


def test_the_canonical_request_leads_back_to_it(installed: dict[str, str]) -> None:
    installed[MPNET] = "b" * 64
    made = priced(evaluation=[*NEEDS, "dp_length"], evaluation_embedder=MPNET, evaluation_share="0.3")
    again = pricing.quote(written_request(copy.deepcopy(dict(made.body))), facts(), MODEL, "p" * 64, "c" * 64)
    assert again.request.evaluation_embedder == MPNET
    assert encode_canonical(again.body) == encode_canonical(made.body)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (MPNET, "ModelNotPulled"),
        ("no-such-model", "UnknownModel"),
        ("smollm2-135m-instruct", "ModelKindMismatch"),
        ("org/embedder", "NoRevision"),
        ("", "FileInvalid"),
    ],
)
@pytest.mark.parametrize("metric", ["self_similarity", "dp_coverage"])
def test_what_cannot_be_computed_with_is_refused_by_name(name: str, code: str, metric: str) -> None:
    with refusal(code) as refused:
        priced(evaluation=[metric], evaluation_embedder=name)
    message: Any = refused.value
    assert name in message.message


def test_a_record_must_state_the_embedder_of_its_metrics() -> None:
    stated = {"nonce": "n", "policy": "a" * 64, "code": "c" * 64}
    made = {**priced(evaluation=NEEDS).body, **stated}
    ApprovedRequest.model_validate(made).require_planned()
    without = {name: value for name, value in made.items() if name != "evaluation_embedder"}
    with refusal("PlanMismatch", match="embedder"):
        ApprovedRequest.model_validate(without).require_planned()
    with refusal("PlanMismatch", match="embedder"):
        ApprovedRequest.model_validate({**made, "evaluation": ["length"]}).require_planned()
