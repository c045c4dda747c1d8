"""Further texts claim what their parent paid, to the last unit, whatever their parameters would cost by now."""

from pathlib import Path
from typing import Any, cast

import pytest

from flows.releases import extend
from flows.releases.extend import ParentRelease, load_values
from flows.workspace.workspace import Workspace
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest
from tasks.mechanisms.core.uncharged import PostProcessing
from tests.refusals import refusal

VALUES: Json = {"vocabulary": ["kettle"]}
ASKED: dict[str, Any] = {
    "dataset": {"name": "clinic"},
    "kind": "synthetic_corpus",
    "mechanism": "keyphrase_seeding",
    "epsilon": "4",
    "delta": "0.0000001",
    "parameters": {"samples": 6, "references": 24},
}
PAID = [Amount(300, 20), Amount(700)]


def parent() -> ParentRelease:
    """Release 1, which paid for two mechanisms."""
    invocations = [{"instalments": [{"rho": str(part.rho), "delta": str(part.delta)}]} for part in PAID]
    request = ASKED | {"plan": {"blocks": [0], "invocations": invocations}}
    return ParentRelease(1, digest("artifact"), digest(VALUES), request)


def further_texts(covered: Amount) -> dict[str, Any]:
    """A request for more texts of it, that says what it has paid."""
    extends = {"release": 1, "artifact": digest("artifact"), "values": digest(VALUES)}
    event = PostProcessing(1, covered).event().to_json()
    plan = {"blocks": [0], "invocations": [{"event": event, "instalments": [{"rho": "0", "delta": "0"}]}]}
    return ASKED | {"parameters": ASKED["parameters"] | {"samples": 9, "extends": extends}, "plan": plan}


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A home that has the parent and its values."""
    monkeypatch.setattr(extend, "find_parent", lambda workspace, number: parent())
    monkeypatch.setattr(extend, "read_values", lambda home, found: VALUES)

    class Home:
        home = Path("nowhere")

    return cast(Workspace, Home())


def test_what_the_parent_has_paid_is_what_further_texts_rest_on(workspace: Workspace) -> None:
    assert load_values(workspace, further_texts(Amount(1000, 20))) == VALUES
    for other in (Amount(999, 20), Amount(1001, 20), Amount(1000), Amount()):
        with refusal("ParentDiffers") as differs:
            load_values(workspace, further_texts(other))
        assert differs.value.facts == {"request": 1, "part": "price"}
