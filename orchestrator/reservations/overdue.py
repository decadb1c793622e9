"""Expires overdue holds inline: when a rival finds no room, and when a confirm arrives late (P5).

For a rival each hold expires in a separate transaction, a bounded number, the earliest deadline first.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, Done, Limits, run_once, transact
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import InvalidState
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.overdue import expire_if_overdue, find_overdue_holds
from orchestrator.reservations.store.reservations import ReservationChange, advance_reservation_if, lock_reservation
from orchestrator.reservations.store.rows import why_missing
from orchestrator.tenants.principals import Actor, ActorKind

EXPIRED_MAX = 32
_RIVAL = Actor(ActorKind.SYSTEM, "rival")


async def expire_overdue_holds(context: Context, *, tenant_id: UUID | None = None, pool_id: int | None = None) -> int:
    """Expire at most 32 overdue holds, of a tenant or with units of a pool if given; return how many expired."""
    async with context.database.read_one() as reading:
        found = await find_overdue_holds(reading, EXPIRED_MAX, tenant_id=tenant_id, pool_id=pool_id)
    return sum([await _expire(context, reservation_id) for reservation_id in found])


async def _expire(context: Context, reservation_id: UUID) -> bool:
    async def work(tx: Transaction) -> bool:
        return await expire_if_overdue(tx, reservation_id, context.limits.reservation_retention_seconds, _RIVAL)

    return await transact(context, work)


async def refuse_late_confirm(context: Context, confirm: Confirm) -> Answer:
    """Expire the hold and store the refusal of its holder's confirm, in one transaction.

    The hold's claims end too, so their nodes are locked before the reservation.
    """
    actor = Actor(ActorKind.TENANT, str(confirm.tenant_id))

    async def effect(tx: Transaction) -> Done:
        return await expire_for_confirm(
            tx, confirm.operation, actor, confirm.tenant_id, confirm.reservation_id, context.limits
        )

    return await run_once(replace(context, gate=None), confirm.operation, effect, confirm.tenant_id)


async def expire_for_confirm(
    tx: Transaction, operation: Operation, actor: Actor, tenant_id: UUID, reservation_id: UUID, limits: Limits
) -> Done:
    """Expire a hold under its locks and refuse its late confirm; the caller commits both.

    Raises `ReservationNotFound` or `ReservationRetired` if the reservation is gone.
    """
    subject = await lock_reservation(tx, reservation_id, tenant_id)
    if subject is None:
        raise await why_missing(tx, reservation_id, limits.shard)
    state = subject.state
    if subject.overdue:
        state = ReservationState.EXPIRED
        change = ReservationChange(
            state,
            limits.reservation_retention_seconds,
            operation_key=operation.key,
            request_id=operation.request_id,
        )
        await advance_reservation_if(tx, subject, change, actor)
    # Another transaction may have ended it first. The deadline had passed all the same, so no confirm can have succeeded since.
    return Done.refusing(
        InvalidState(f"the hold's deadline has passed; the reservation is {state}", state=state), subject.id
    )
