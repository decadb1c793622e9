"""Settled dead letters are forgotten after a while."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store import dead_letters


async def retire_dead_letters(context: Context, retention_seconds: float, limit: int) -> int:
    """Forget at most `limit` that were settled longer ago than `retention_seconds`; how many there were."""
    return await transact(context, lambda tx: dead_letters.delete_settled(tx, retention_seconds, limit))
