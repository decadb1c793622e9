"""Chaining of the audit's rows (audit_advance.sql), and the positions of the streams that send the chain to other systems."""

from __future__ import annotations

from orchestrator.audit import stream_store
from orchestrator.audit.store import advance_chain
from orchestrator.audit.stream_store import Holder
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


async def lease_audit_stream(context: Context, holder: Holder) -> int | None:
    """Enable the stream if it is not, lease it, and return its position; None if another process has the lease."""

    async def work(tx: Transaction) -> int | None:
        await stream_store.begin(tx, holder.name)
        return await stream_store.lease(tx, holder)

    return await transact(context, work)


async def save_audit_position(context: Context, holder: Holder, before: int, position: int) -> bool:
    """The target has every row up to `position`; False if another process sends to it now, and nothing was saved."""

    async def work(tx: Transaction) -> bool:
        return await stream_store.save_position(tx, holder, before, position)

    return await transact(context, work)


async def note_audit_failure(context: Context, holder: Holder, why: str) -> None:
    """Record why the target takes nothing."""

    async def work(tx: Transaction) -> None:
        await stream_store.note_failure(tx, holder, why)

    await transact(context, work)


async def return_audit_stream(context: Context, holder: Holder) -> None:
    """Give the lease back, so that another process need not wait for its end."""

    async def work(tx: Transaction) -> None:
        await stream_store.return_lease(tx, holder)

    await transact(context, work)
