"""Cancels again what was cancelled in the lost interval of a restore: its end was acknowledged."""

from __future__ import annotations

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.reservations.states import ReservationState
from orchestrator.reservations.store.reservations import ReservationEnd, end_reservation, lock_reservation
from orchestrator.restores.store import DONE, NOOP, Replay, conclude_replay
from orchestrator.tenants.principals import Actor, ActorKind

POLICY = Actor(ActorKind.ADMIN, "policy:cancelled_before_restore")
_NOT_ENDED = frozenset({ReservationState.HOLD, ReservationState.CONFIRMED})


async def replay_cancel(context: Context, replay: Replay) -> bool:
    """Cancel the reservation unless it has ended, evaluated after its locks; return whether. A repetition changes nothing.

    A hold past its deadline is left to the sweeper that expires it.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_reservation(tx, replay.subject_id, None)
        ends = subject is not None and subject.state in _NOT_ENDED and not subject.overdue
        if not await conclude_replay(tx, replay, DONE if ends else NOOP) or subject is None or not ends:
            return False
        end = ReservationEnd(ReservationState.CANCELLED, context.limits.reservation_retention_seconds)
        await audit.record(tx, POLICY, "reservation.cancel", f"reservations/{subject.id}", {}, None)
        await end_reservation(tx, subject, end, POLICY)
        return True

    return await transact(context, work)
