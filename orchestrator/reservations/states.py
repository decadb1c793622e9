"""States of reservations and resources, the allowed transitions, and reservation ids (DESIGN §4). Pure.

A reservation is a hold or a confirmed window on named units (reference: AllocDB semantics; Floyd allocations). Where one
source calls a repetition an invalid state and the other one safe, it is safe.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

POSITION_BITS = 64
POSITION_MAX = 2**63 - 1
"""The maximum of PostgreSQL's bigint."""


MOMENT_MAX = datetime.max.replace(tzinfo=UTC)
"""The latest time that every part of Berth can represent: the end of the year 9999."""


class ReservationState(StrEnum):
    """The state of a reservation."""

    HOLD = "hold"
    CONFIRMED = "confirmed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    CONSUMED = "consumed"
    RELEASED = "released"


LIVE_RESERVATION_STATES = frozenset({ReservationState.HOLD, ReservationState.CONFIRMED})

_S = ReservationState
RESERVATION_TRANSITIONS = frozenset(
    {
        (_S.HOLD, _S.CONFIRMED),
        (_S.HOLD, _S.CANCELLED),
        (_S.HOLD, _S.EXPIRED),
        (_S.HOLD, _S.CONSUMED),
        (_S.CONFIRMED, _S.CONSUMED),
        (_S.CONFIRMED, _S.CANCELLED),
        (_S.CONFIRMED, _S.RELEASED),
    }
)


class ResourceState(StrEnum):
    """The state of a resource, derived from its claims and its service."""

    AVAILABLE = "available"
    RESERVED = "reserved"
    CONFIRMED = "confirmed"
    CLEANUP_BLOCKED = "cleanup_blocked"
    OUT_OF_SERVICE = "out_of_service"


def reservation_id(shard: int, position: int) -> UUID:
    """The 128-bit id of a position: `(shard << 64) | position`."""
    return UUID(int=(shard << POSITION_BITS) | position)


def position_of(id_: UUID, shard: int) -> int | None:
    """The position in this shard that an id encodes; None for another shard's id, or one that was never assigned."""
    position = id_.int & ((1 << POSITION_BITS) - 1)
    return position if id_.int >> POSITION_BITS == shard and 0 < position <= POSITION_MAX else None
