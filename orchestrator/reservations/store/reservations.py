"""SQL that locks a reservation and ends it, for commands of several statements (DESIGN §4, §5).

Lock order: nodes by id, resources by id, the reservation, its claims; quota last. A transaction with a `ReservationSubject`
holds all of these locks (`lock_reservation`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Transaction, TransactionConflict
from orchestrator.log.events import EventType
from orchestrator.problems import InvalidState
from orchestrator.reservations.states import LIVE_RESERVATION_STATES, RESERVATION_TRANSITIONS, ReservationState
from orchestrator.tenants.principals import Actor
from orchestrator.times import rfc3339


@dataclass(frozen=True, slots=True)
class ReservationSubject:
    """A locked reservation; `clock` is the database's time after the locks."""

    id: UUID
    tenant_id: UUID
    holder_id: str
    state: ReservationState
    row_version: int
    starts_at: datetime
    ends_at: datetime | None
    expires_at: datetime | None
    gpus_held: int
    sku: str | None
    template: JsonObject | None
    correlation_id: UUID
    clock: datetime

    @property
    def name(self) -> str:
        """Its name in events and the audit."""
        return f"reservations/{self.id}"

    @property
    def live(self) -> bool:
        """Whether it is a hold or confirmed."""
        return self.state in LIVE_RESERVATION_STATES

    @property
    def overdue(self) -> bool:
        """Whether it is a hold past its deadline."""
        return self.state is ReservationState.HOLD and self.expires_at is not None and self.expires_at <= self.clock

    @property
    def begun(self) -> bool:
        """Whether its window has begun."""
        return self.starts_at <= self.clock

    @property
    def over(self) -> bool:
        """Whether it is a confirmed window that has passed."""
        return self.state is ReservationState.CONFIRMED and self.ends_at is not None and self.ends_at <= self.clock


@dataclass(frozen=True, slots=True)
class ReservationEnd:
    """How a reservation ends.

    `retention_seconds`: how long it is kept then. `failure`: code and detail; the event is then `reservation.failed`.
    """

    to_state: ReservationState
    retention_seconds: float
    failure: tuple[str, str] | None = None


_EVENTS = {
    ReservationState.CANCELLED: EventType.RESERVATION_CANCELLED,
    ReservationState.EXPIRED: EventType.RESERVATION_EXPIRED,
    ReservationState.RELEASED: EventType.RESERVATION_RELEASED,
}
_LOCK = "select * from lock_reservation(:id, cast(:tenant_id as uuid))"
_END = """
select from end_reservation(:id, :from_state, :row_version, :to_state, :event_type, cast(:payload as jsonb), :judged_at,
                            cast(:retention_seconds as float8), null, null)
"""
_NOTE_FAILURE = "update reservations set failure_code = :code, failure_detail = :detail where id = :id"


async def lock_reservation(tx: Transaction, reservation_id: UUID, tenant_id: UUID | None) -> ReservationSubject | None:
    """Lock its nodes and resources, then the reservation. None if there is no such reservation (of that tenant, if given).

    Raises `TransactionConflict` if its claims moved meanwhile.
    """
    row = (await tx.execute(_LOCK, {"id": reservation_id, "tenant_id": tenant_id})).one_or_none()
    if row is None:
        return None
    values = dict(row._mapping)
    if values.pop("moved"):
        raise TransactionConflict("the reservation's claims moved meanwhile")
    return ReservationSubject(**{**values, "state": ReservationState(values["state"])})


async def end_reservation(tx: Transaction, subject: ReservationSubject, end: ReservationEnd, actor: Actor) -> None:
    """End a locked reservation by the subject's clock, with its event.

    Its open claims close, and the tenant's quota returns, which is locked here, so call this last.
    Raises `InvalidState` if there is no such transition, `TransactionConflict` if the row changed.
    """
    if (subject.state, end.to_state) not in RESERVATION_TRANSITIONS:
        raise InvalidState(f"the reservation is {subject.state}; it cannot become {end.to_state}", state=subject.state)
    deadline = {"deadline": rfc3339(subject.expires_at)} if end.to_state is ReservationState.EXPIRED else {}
    event, failure = _EVENTS[end.to_state], {}
    if end.failure is not None:
        event, failure = EventType.RESERVATION_FAILED, dict(zip(("code", "detail"), end.failure, strict=True))
        await tx.execute(_NOTE_FAILURE, {"id": subject.id, **failure})
    ended = await tx.execute(
        _END,
        {
            "id": subject.id,
            "from_state": subject.state.value,
            "row_version": subject.row_version,
            "to_state": end.to_state.value,
            "event_type": event.value,
            "payload": json.dumps({"actor_kind": actor.kind.value, **deadline, **failure}),
            "judged_at": subject.clock,
            "retention_seconds": end.retention_seconds,
        },
    )
    if ended.first() is None:
        raise TransactionConflict("the reservation changed although it was locked")
