"""What the ledger has charged for a release, as its bundle says."""

import pytest

from models_db.values.canonical_json import digest
from tasks.publishing.verify import verify_release
from tasks.release.file_names import CHECKPOINT
from tasks.release.signatures.chain_checkpoint import Checkpoint
from tests.unit.tasks.publishing.builders import HEAD, charge_of
from tests.unit.tasks.publishing.forging import failed, seal_as_it_is


@pytest.mark.parametrize("changes", [
    {"rho": "0"}, {"rho": "0.000000000001"}, {"blocks": ()}, {"blocks": (0, 1, 2)}, {"blocks": (1,)},
])  # fmt: skip
def test_a_charge_below_what_the_events_cost_is_found(release, folder, key, changes):
    """The publisher's own key signs it: whoever ran at less than the plan could have it signed so."""
    charged = charge_of(release.record).model_copy(update=changes)
    (folder / CHECKPOINT).write_bytes(Checkpoint.signed(digest(release.files), HEAD, charged, key).to_bytes())
    seal_as_it_is(folder, key)
    assert failed(verify_release(folder, key.public_key)) == {"charge"}
