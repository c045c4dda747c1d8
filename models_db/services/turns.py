"""What each block has left: what a release that rotates over blocks looks at to take its turn."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.budgets import Amount, total
from models_db.services import envelopes
from models_db.tables import Account


def left_by_block(session: Session, account_id: int) -> list[Amount]:
    """What each block of a root account has left beside what open envelopes keep, by its number; never less than 0."""
    room = (
        Account.rho_cap - Account.rho_held - Account.rho_spent,
        Account.delta_cap - Account.delta_held - Account.delta_spent,
    )
    query = select(*room).where(Account.parent_id == account_id, Account.kind == "block").order_by(Account.block)
    kept = total([envelopes.room(scope) for scope in envelopes.scopes(session, account_id)])
    return [Amount(max(0, rho - kept.rho), max(0, delta - kept.delta)) for rho, delta in session.execute(query)]
