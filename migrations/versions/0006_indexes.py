"""Two indexes, so that what guards ask of one dataset does not grow with its blocks or with the other datasets.

History must not move: this file imports no project code and is never edited once released.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # Every HOLD on a block sums up the open envelopes of its root, and without an index it looked through all blocks.
    only = sa.text("kind = 'scope'")
    op.create_index("ix_account_scope", "account", ["parent_id"], sqlite_where=only, postgresql_where=only)
    # Every ARM asks which datasets share the account, and without an index it looked through all datasets.
    op.create_index("ix_dataset_account_id", "dataset", ["account_id"])
