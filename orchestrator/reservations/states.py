"""The states of a reservation, the only transitions between them, and the arithmetic of its times (DESIGN §4).

A reservation is a hold or a confirmed window on named units (reference: AllocDB semantics; Floyd allocations). Where one
source calls a repetition an invalid state and the other safe to repeat, it is safe to repeat.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

POSITION_BITS = 64
POSITION_MAX = 2**63 - 1
"""Postgres's bigint; the other half of the 64 bits stays unused."""


MOMENT_MAX = datetime.max.replace(tzinfo=UTC)
"""The last moment that every part of Berth can write down: the end of the year 9999."""


class ReservationState(StrEnum):
    """Where a reservation stands."""

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


class Result(StrEnum):
    """How a write that succeeded is marked: it did something, or there was nothing left to do."""

    OK = "ok"
    NOOP = "noop"


class ResourceState(StrEnum):
    """What a resource is now, derived from its claims and its place in service."""

    AVAILABLE = "available"
    RESERVED = "reserved"
    CONFIRMED = "confirmed"
    CLEANUP_BLOCKED = "cleanup_blocked"
    OUT_OF_SERVICE = "out_of_service"


def reservation_id(shard: int, position: int) -> UUID:
    """The 128-bit id of a position: `(shard << 64) | position`."""
    return UUID(int=(shard << POSITION_BITS) | position)


def position_of(id_: UUID, shard: int) -> int | None:
    """The position that an id names in this shard; None if it is another shard's, or no id that was ever given out."""
    position = id_.int & ((1 << POSITION_BITS) - 1)
    return position if id_.int >> POSITION_BITS == shard and 0 < position <= POSITION_MAX else None
