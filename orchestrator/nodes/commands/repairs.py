"""Repairs of GPUs and disks: opened and closed by operators, audited, and part of the history of the serial number."""

from __future__ import annotations

from uuid import UUID

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.hardware.documents import repair_document
from orchestrator.nodes.store import hardware
from orchestrator.operations.execution import Context, Done, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState, NotFound
from orchestrator.tenants.principals import Actor


async def open_repair(context: Context, operation: Operation, actor: Actor, *, serial: str, reason: str) -> Answer:
    """201 with the repair. Slots stay as they are.

    Refusals: `NotFound` for a serial number that no node has reported; `InvalidState` if it has an open repair.
    """

    async def effect(tx: Transaction) -> Done:
        await hardware.lock_serial(tx, serial)
        kind = await hardware.find_kind(tx, serial)
        if kind is None:
            raise NotFound(f"no hardware with the serial number {serial} is known")
        found = await hardware.read_open_repair(tx, serial)
        if found is not None:
            raise InvalidState(f"{serial} has the open repair {found.id}; close it first", state="open")
        repair = await hardware.open_repair(tx, serial, kind, reason, f"{actor.kind.value}:{actor.id}")
        said = {"serial": serial, "reason": reason}
        await audit.record(tx, actor, "repair.open", f"repairs/{repair.id}", said, operation.request_id)
        return Done(201, repair_document(repair), repair.id)

    return await run_once(context, operation, effect, None)


async def close_repair(context: Context, operation: Operation, actor: Actor, repair_id: UUID, *, result: str) -> Answer:
    """200 with the repair, closed. Refusals: `NotFound`, `InvalidState` if it is closed already."""

    async def effect(tx: Transaction) -> Done:
        known = await hardware.read_repair(tx, repair_id)
        if known is None:
            raise NotFound(f"there is no repair {repair_id}")
        await hardware.lock_serial(tx, known.serial)
        known = await hardware.read_repair(tx, repair_id)
        if known is None:
            raise NotFound(f"there is no repair {repair_id}")
        if known.closed_at is not None:
            raise InvalidState(f"the repair was closed by {known.closed_by}: {known.result}", state="closed")
        repair = await hardware.close_repair(tx, repair_id, result, f"{actor.kind.value}:{actor.id}")
        said = {"serial": repair.serial, "result": result}
        await audit.record(tx, actor, "repair.close", f"repairs/{repair_id}", said, operation.request_id)
        return Done(200, repair_document(repair), repair_id)

    return await run_once(context, operation, effect, None)


async def retire_hardware(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` entries of the history, and as many closed repairs, past their retention; return how many."""
    return await transact(context, lambda tx: hardware.delete_over(tx, retention_seconds, limit))
