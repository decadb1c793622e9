"""SQL that reads reservations as JSON, and the refusal for ids without a row (docs/reference/reservations.md)."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading
from orchestrator.problems import Problem
from orchestrator.reservations.refusals import ReservationNotFound, ReservationRetired
from orchestrator.reservations.states import ReservationState, position_of

_READ = """
select reservation_answer(r, cast(:result as text)) as body from reservations r
where r.id = :id and (cast(:tenant_id as uuid) is null or r.tenant_id = :tenant_id)
"""
# Each statement repeats the condition of its partial index, so that the planner uses that one; with
# `tenant_id = :tenant_id` it could choose the index by position, which contains all tenants.
_LIST_OF_TENANT = """
select r.position, reservation_answer(r, null) as body from reservations r
where (r.tenant_id, r.position) > (:tenant_id, :after) and r.tenant_id <= :tenant_id and r.position > 0
order by r.tenant_id, r.position limit :limit
"""
_LIST_OF_STATE = """
select r.position, reservation_answer(r, null) as body from reservations r
where (r.tenant_id, r.state, r.position) > (:tenant_id, :state, :after) and (r.tenant_id, r.state) <= (:tenant_id, :state)
  and r.row_version > 0
order by r.tenant_id, r.state, r.position limit :limit
"""
_WATERMARK = "select position from reservation_watermark"


async def read_reservation(
    reading: Reading, reservation_id: UUID, tenant_id: UUID | None, result: str | None = None
) -> JsonObject | None:
    """One reservation of the tenant, or of any tenant if `tenant_id` is None; None if there is none."""
    values = {"id": reservation_id, "tenant_id": tenant_id, "result": result}
    body: JsonObject | None = (await reading.execute(_READ, values)).scalar_one_or_none()
    return body


async def list_reservations(
    reading: Reading, tenant_id: UUID, *, state: ReservationState | None, after: int, limit: int
) -> list[tuple[int, JsonObject]]:
    """Up to `limit` reservations of the tenant after this position, oldest first, each with its position."""
    values = {"tenant_id": tenant_id, "after": after, "limit": limit}
    if state is None:
        found = await reading.execute(_LIST_OF_TENANT, values)
    else:
        found = await reading.execute(_LIST_OF_STATE, {**values, "state": state.value})
    return [(row.position, row.body) for row in found]


async def why_missing(reading: Reading, reservation_id: UUID, shard: int) -> Problem:
    """The refusal for an id without a row of the tenant: retired at or below the watermark, else unknown.

    It depends only on the id and the watermark, so that it discloses nothing about other tenants' reservations.
    """
    position = position_of(reservation_id, shard)
    if position is not None and position <= (await reading.execute(_WATERMARK)).scalar_one():
        return ReservationRetired(f"reservation {reservation_id} ended, and its record was deleted after the retention")
    return ReservationNotFound(f"there is no reservation {reservation_id}")
