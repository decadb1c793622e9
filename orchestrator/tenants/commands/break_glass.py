"""Write the event of a use of a break-glass key."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.audit import store as audit
from orchestrator.crash_points import CrashPoint, reach
from orchestrator.database.transactions import Database
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.store import api_keys


async def note_break_glass_use(
    database: Database, principal: Principal, *, source: str | None, interval_seconds: float
) -> float:
    """Write `key.break_glass_used` and an audit row, unless another use within the interval did; both or neither commit.

    Return the seconds until the next use is an event. Raises what `Database.transaction` raises: then nothing is written.
    """
    key_id: UUID = principal.id
    async with database.transaction() as tx:
        use = await api_keys.mark_break_glass_use(tx, key_id, interval_seconds)
        if use is not None:
            shown = {"name": use.name, "owner": use.owner, "prefix": use.prefix, "source": source}
            payload = {"key_id": str(key_id), "role": use.role, "used_at": use.used_at.isoformat(), **shown}
            event = Event(
                EventType.KEY_BREAK_GLASS_USED,
                subject=f"api-keys/{key_id}",
                correlation_id=uuid4(),
                tenant_id=None,
                payload=payload,
            )
            await append_event(tx, event)
            await audit.record(tx, principal.actor, "api_key.break_glass_use", f"api-keys/{key_id}", shown, None)
        seconds = await api_keys.seconds_to_next_use(tx, key_id, interval_seconds)
        reach(CrashPoint.NOTE_BREAK_GLASS_USE_BEFORE_COMMIT)
    reach(CrashPoint.NOTE_BREAK_GLASS_USE_AFTER_COMMIT)
    return seconds
