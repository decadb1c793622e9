"""Answers of operations are kept for the retention window and then forgotten, a bounded number at a time (P13)."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store.sweeping import delete_retired_operations


async def retire_operations(context: Context, limit: int) -> int:
    """Forget at most `limit` answers whose window is over, the earliest first; answers how many there were."""
    return await transact(context, lambda tx: delete_retired_operations(tx, limit))
