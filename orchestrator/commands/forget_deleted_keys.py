"""Forget deleted keys whose deletion is older than the log: no precondition can be judged by a version as old as that (P13)."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store import transactions


async def forget_deleted_keys(context: Context, limit: int) -> int:
    """Forget about `limit` of them, the earliest first; answers how many there were."""
    return await transact(context, lambda tx: transactions.forget_deleted_keys(tx, limit))
