"""Reservations that ended are kept for the retention and then forgotten, a bounded number at a time (P13)."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store.database import Transaction
from orchestrator.store.overdue_reservations import delete_retired


async def retire_reservations(context: Context, limit: int) -> int:
    """Forget at most `limit` whose record was kept long enough, the earliest first; answers how many there were.

    Their ids answer `reservation_retired` from then on, for ever.
    """

    async def work(tx: Transaction) -> int:
        return await delete_retired(tx, limit)

    return await transact(context, work)
