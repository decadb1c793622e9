"""The sweeper's commands: end requests past their deadline, delete approvals past their retention (P9, P13)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.approvals.changes import note_change
from orchestrator.approvals.states import ApprovalState
from orchestrator.approvals.store import delete_ended, end_approval, lock_overdue
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import EventType
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind


async def expire_approval(context: Context, approval_id: UUID) -> bool:
    """End a request past its deadline, evaluated after its lock; return whether it ended so."""

    async def work(tx: Transaction) -> bool:
        overdue = await lock_overdue(tx, approval_id)
        if overdue is None:
            return False
        ended = await end_approval(tx, approval_id, ApprovalState.EXPIRED, None)
        await note_change(tx, ended, EventType.APPROVAL_EXPIRED, Actor(ActorKind.WORKER, "sweeper"), None)
        return True

    return await transact(context, work)


async def retire_approvals(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` approvals past their retention, the earliest first; return how many."""

    async def work(tx: Transaction) -> int:
        return await delete_ended(tx, retention_seconds, limit)

    return await transact(context, work)
