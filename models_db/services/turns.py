"""What each block has left: what a release that rotates over blocks looks at to take its turn."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.budgets import Amount, total
from models_db.services import envelopes
from models_db.tables import Account


def left_by_block(session: Session, account_id: int) -> list[Amount]:
    """What each block of a root account has left beside what open envelopes keep, by its number; never less than 0."""
    query = select(Account).where(Account.parent_id == account_id, Account.kind == "block").order_by(Account.block)
    kept = total([envelopes.room(scope) for scope in envelopes.scopes(session, account_id)])
    blocks = session.scalars(query.execution_options(populate_existing=True)).all()
    return [
        Amount(
            max(0, each.rho_cap - each.rho_held - each.rho_spent - kept.rho),
            max(0, each.delta_cap - each.delta_held - each.delta_spent - kept.delta),
        )
        for each in blocks
    ]
