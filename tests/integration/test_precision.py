"""A release in fewer bits, from the request file to the bundle that others verify; or refused when it is priced."""

import json
from typing import Any

import pytest

import flows.releases.execute
from tasks.inference.catalogue.model_check import Precision, PrecisionMissing
from tests.integration.story import REQUEST, Almoner
from tests.unit.tasks.inference.processors import AVX2, SATURATING, WHOLE, is_available, use_processor

pytestmark = pytest.mark.contract

CONCERNS = ("flows/releases", "tasks/inference/catalogue")


def fields(precision: str) -> dict[str, Any]:
    """What a request file says else than others."""
    return {"parameters": REQUEST["parameters"] | {"precision": precision, "max_new_tokens": 6}}


@pytest.mark.slow_except("int8")
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_fewer_bits_are_approved_run_and_told(almoner: Almoner, precision: Precision) -> None:
    almoner.ingested()
    request = almoner.request_file(**fields(precision))
    if not is_available(precision):
        _is_refused(almoner, f"release request {request}", precision)
        return
    assert precision in almoner.type(f"release request {request} --dry-run --details").out
    almoner.type(f"release request {request}")
    screen = almoner.type('approve 1 --gate spend --reason "a first look"')
    assert precision in screen.err + screen.out
    almoner.go_on_to("published", after="approved")
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    record = json.loads((almoner.bundle / "release.json").read_text())
    assert record["request"]["parameters"]["precision"] == precision
    assert record["facts"]["precision"] == precision
    assert precision in (almoner.bundle / "README.md").read_text()


def _is_refused(almoner: Almoner, line: str, precision: str) -> None:
    """By name, with advice, and the ledger is as it was."""
    before = almoner.everything()
    assert almoner.ask(line, expected=3)["error"] == "PrecisionMissing"
    said = almoner.type(line, 3).err
    assert precision in said
    assert "float32" in said
    assert "Traceback" not in said
    assert almoner.everything() == before


def test_int8_is_refused_where_sums_are_not_exact(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is priced; and once approved elsewhere, before an attempt begins."""
    almoner.ingested()
    request = almoner.request_file(**fields("int8"))
    use_processor(monkeypatch, SATURATING)
    _is_refused(almoner, f"release request {request} --dry-run", "int8")
    _is_refused(almoner, f"release request {request}", "int8")
    with monkeypatch.context() as patch:
        use_processor(patch, WHOLE)
        almoner.type(f"release request {request}")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    _is_refused(almoner, "run 1", "int8")
    assert almoner.state() == "approved"
    assert almoner.ask("release show 1")["rho_spent"] == "0"


def test_bfloat16_is_priced_and_run_where_packed_bfloat16_is_missing(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.ingested()
    use_processor(monkeypatch, AVX2)
    almoner.type(f"release request {almoner.request_file(**fields('bfloat16'))}")
    almoner.go_on_to("produced")
    assert almoner.state() == "produced"


def test_a_precision_is_refused_before_the_run_of_another_device(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one device has it and the device of the run has not: nothing was reserved, and it may be run again."""

    def load(name: str, device: str, precision: Precision = "float32") -> None:
        raise PrecisionMissing(precision, device, "its sums of int8 products are not exact")

    use_processor(monkeypatch, WHOLE)
    almoner.ingested()
    almoner.type(f"release request {almoner.request_file(**fields('int8'))}")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    monkeypatch.setattr(flows.releases.execute, "load", load)
    assert almoner.ask("run 1", expected=3)["error"] == "PrecisionMissing"
    assert almoner.state() == "approved"
    assert almoner.ask("release show 1")["rho_spent"] == "0"


def test_an_unknown_precision_is_refused_before_anything_is_stored(almoner: Almoner) -> None:
    almoner.ingested()
    before = almoner.everything()
    refused = almoner.type(f"release request {almoner.request_file(**fields('int3'))}", 2)
    assert "precision" in refused.err
    assert almoner.everything() == before
