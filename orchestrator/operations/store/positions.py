"""Where an operation is in the log: the version of its last event (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Reading

_POSITION = "select event_id, version, leader_id from operation_position(:scope, :key)"


@dataclass(frozen=True, slots=True)
class OperationPosition:
    """The version of an operation's last event, and the PostgreSQL that sequenced it; both None while it is unsequenced."""

    version: int | None
    leader_id: str | None


async def read_position(reading: Reading, scope: UUID, key: str) -> OperationPosition | None:
    """Return the position of a stored operation; None if nothing is stored under the key. The one statement of `reading`."""
    row = (await reading.execute(_POSITION, {"scope": scope, "key": key})).one()
    return None if row.event_id is None else OperationPosition(row.version, row.leader_id)
