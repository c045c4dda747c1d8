"""What the ledger has charged for a release, as its bundle says."""

import json

import pytest

from models_db.values.canonical_json import digest
from tasks.common.files import FileUnfit, encode_json
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import CHECKPOINT
from tasks.release.signatures.publisher_statements import Checkpoint
from tests.unit.tasks.publishing.builders import HEAD, charge_of
from tests.unit.tasks.publishing.forging import failed, seal_as_it_is

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("changes", [
    {"rho": "0"}, {"rho": "0.000000000001"}, {"blocks": ()}, {"blocks": (0, 1, 2)}, {"blocks": (1,)},
])  # fmt: skip
def test_a_charge_below_what_the_events_cost_is_found(release, folder, key, changes):
    """The publisher's own key signs it: whoever ran at less than the plan could have it signed so."""
    charged = charge_of(release.record).model_copy(update=changes)
    (folder / CHECKPOINT).write_bytes(Checkpoint.signed(digest(release.files), HEAD, charged, key).to_bytes())
    seal_as_it_is(folder, key)
    assert failed(verify_release(folder, key.public_key)) == {"charge"}


@pytest.mark.parametrize("without", [(), ("charged",)], ids=["with a charge", "as it was"])
def test_a_checkpoint_of_the_format_before_is_refused_by_name(release, folder, key, without):
    now = (folder / CHECKPOINT).read_bytes()
    assert json.loads(now)["format"] == "almoner-checkpoint/2"
    before = {name: value for name, value in json.loads(now).items() if name not in without}
    before["format"] = "almoner-checkpoint/1"
    with pytest.raises(FileUnfit, match=r"'format'.*almoner-checkpoint/2"):
        Checkpoint.from_bytes(encode_json(before))
