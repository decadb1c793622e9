"""Chaining: rows of the audit get their sequence and hash after the transactions that wrote them (audit_advance.sql)."""

from __future__ import annotations

from orchestrator.audit.store import advance_chain
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact

BATCH_MAX = 1_000
BATCHES_MAX = 20


async def chain_audit(context: Context) -> bool:
    """Chain the waiting rows, bounded; return True if some are left. Any process may do so: a lock lets one at a time."""

    async def work(tx: Transaction) -> int:
        return await advance_chain(tx, BATCH_MAX)

    for _ in range(BATCHES_MAX):
        if await transact(context, work) < BATCH_MAX:
            return False
    return True
