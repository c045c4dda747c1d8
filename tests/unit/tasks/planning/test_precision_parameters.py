"""`parameters.precision`: approved with the request, recorded with it, handed to the loader; free of charge."""

from types import SimpleNamespace
from typing import Any

import pytest

import flows.releases.execute
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import model_to_json
from tasks.inference.catalogue.model_check import PRECISIONS, Precision, PrecisionMissing
from tasks.planning.shared_parameters import precision_of
from tasks.systems.private_decoding import PrivateDecodingParameters
from tests.refusals import refusal
from tests.unit.tasks.inference.processors import SATURATING, WHOLE, use_processor
from tests.unit.tasks.pricing.test_quote import parameters, priced


@pytest.mark.parametrize("mechanism", ["invisible_ink", "private_prediction", "private_icl", "few_shot_generation"])
def test_it_is_part_of_what_is_approved(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, WHOLE)
    full, fewer = priced(mechanism=mechanism), priced(mechanism=mechanism, parameters=parameters(precision="int8"))
    assert digest(full.body) != digest(fewer.body)
    assert fewer.body["parameters"] == full.body["parameters"] | {"precision": "int8"}  # type: ignore[operator]
    assert fewer.plan.facts["precision"] == "int8"
    assert fewer.plan.loss == full.plan.loss
    assert [part.event for part in fewer.plan.invocations] == [part.event for part in full.plan.invocations]
    assert fewer.body["model"] == full.body["model"]


def test_the_precision_is_written_out_whether_it_is_said_or_not() -> None:
    unsaid, said = priced(), priced(parameters=parameters(precision="float32"))
    assert encode_canonical(unsaid.body) == encode_canonical(said.body)
    assert model_to_json(unsaid.parameters)["precision"] == "float32"  # type: ignore[index,call-overload]
    assert "precision" not in unsaid.plan.facts


@pytest.mark.parametrize("precision", ["int4", "", 8, None])
def test_other_precisions_are_refused(precision: object) -> None:
    with refusal("FileInvalid", match="precision"):
        priced(parameters=parameters(precision=precision))


def test_what_no_device_here_computes_is_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    use_processor(monkeypatch, SATURATING)
    for precision in ("float32", "bfloat16"):
        assert priced(parameters=parameters(precision=precision)).parameters
    with pytest.raises(PrecisionMissing, match="not exact") as refused:
        priced(parameters=parameters(precision="int8"))
    assert refused.value.exit_code == 3
    assert "float32 or bfloat16" in refused.value.advice


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_run_loads_what_was_approved(precision: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    class Loaded(Exception):
        """The model was asked for."""

    def load(name: str, device: str, precision: Precision) -> None:
        asked.append((name, device, precision))
        raise Loaded

    monkeypatch.setattr(flows.releases.execute, "load", load)
    use_processor(monkeypatch, WHOLE)
    wanted: Any = priced(parameters=parameters(precision=precision))
    assert isinstance(wanted.parameters, PrivateDecodingParameters)
    with pytest.raises(Loaded):
        flows.releases.execute.prepare_context(SimpleNamespace(quote=wanted), "cpu", 1)  # type: ignore[arg-type]
    assert asked == [("tiny", "cpu", precision)]
    assert precision_of(wanted.parameters) == precision
