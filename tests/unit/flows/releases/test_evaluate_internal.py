"""Labels by which a decided release is compared: those of almoner's rule, never of an extension's parameter."""

from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from flows.releases.evaluate_internal import label_parameters
from tasks.pricing.registry import SYSTEMS
from tasks.values.plan import UnknownSystem
from tests.support import substitute


class OwnParameters(BaseModel):
    label_rule: str


BODY = {"mechanism": "own.system", "kind": "synthetic_corpus", "parameters": {"label_rule": "mine"}}


def test_a_parameter_of_an_extension_is_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    own = SimpleNamespace(name="own.system", kinds=("synthetic_corpus",), parameters=OwnParameters)
    substitute(monkeypatch, SYSTEMS, "own.system", own)
    assert label_parameters(BODY) == {}
    ours = {**BODY, "mechanism": "invisible_ink"}
    assert label_parameters(ours) == {"label_rule": "mine"}


def test_a_system_that_is_not_installed_is_named() -> None:
    with pytest.raises(UnknownSystem):
        label_parameters(BODY)
