"""The health of an active allocation: how a sight of its guest or the passing of time changes it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """Whether an active allocation serves its tenant."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It is without service, and may recover by itself: a restart, the return of its node."""
    LOST = "lost"
    """It is without service, and nothing in progress ends that."""


class OutageCause(StrEnum):
    """Why an allocation is degraded or lost."""

    GUEST_DOWN = "guest_down"
    GUEST_GONE = "guest_gone"
    NODE_SILENT = "node_silent"
    GUEST_UNREACHABLE = "guest_unreachable"
    """The guest runs and its SSH server does not answer: perhaps its tenant wants that, so nothing follows from it."""


class Sight(StrEnum):
    """What is known of a guest now."""

    ALIVE = "alive"
    """It runs, or is stopped because its tenant ordered that."""
    UNREACHABLE = "unreachable"
    """It runs and does not answer."""
    DOWN = "down"
    ENDED = "ended"
    """It is down and its agent does not start it again."""
    GONE = "gone"
    """A complete inventory, gathered after the allocation became active, does not name it."""
    SILENT = "silent"
    """Its node sends no heartbeats."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A health and its cause, which is None while healthy."""

    health: Health
    cause: OutageCause | None


HEALTHY = Condition(Health.HEALTHY, None)

_SEEN = {
    Sight.ALIVE: HEALTHY,
    Sight.UNREACHABLE: Condition(Health.DEGRADED, OutageCause.GUEST_UNREACHABLE),
    Sight.DOWN: Condition(Health.DEGRADED, OutageCause.GUEST_DOWN),
    Sight.ENDED: Condition(Health.LOST, OutageCause.GUEST_DOWN),
    Sight.GONE: Condition(Health.DEGRADED, OutageCause.GUEST_GONE),
    Sight.SILENT: Condition(Health.DEGRADED, OutageCause.NODE_SILENT),
}


def condition_after(now: Condition, sight: Sight) -> Condition | None:
    """The new condition, or None if nothing changes: an outage begins, becomes `lost`, or ends, each once.

    A lost allocation stays lost until its guest is seen to run; a degraded one keeps the cause that it was noticed for, but an
    unreachable guest that ends begins an outage. A guest that runs again and does not answer has recovered from its outage first.
    """
    seen = _SEEN[sight]
    if now.cause is OutageCause.GUEST_UNREACHABLE:
        return None if seen == now else seen
    if sight is Sight.UNREACHABLE and now.health is not Health.HEALTHY:
        return HEALTHY
    if seen.health is now.health or (now.health is Health.LOST and seen.health is Health.DEGRADED):
        return None
    return seen


def condition_after_deadline(now: Condition) -> Condition | None:
    """The condition of an allocation whose deadline has passed: lost with the same cause; None if it is lost already.

    One that is merely unreachable has no deadline.
    """
    return Condition(Health.LOST, now.cause) if now.health is Health.DEGRADED else None


@dataclass(frozen=True, slots=True)
class HealthDeadlines:
    """How long a degraded allocation may recover, and how long a lost one is kept. `release_seconds` 0: until its tenant acts."""

    lost_seconds: float
    release_seconds: float

    def seconds_of(self, condition: Condition) -> float | None:
        """Seconds until the deadline of this condition; None: it has none."""
        if condition.health is Health.DEGRADED:
            return None if condition.cause is OutageCause.GUEST_UNREACHABLE else self.lost_seconds
        return self.release_seconds or None if condition.health is Health.LOST else None
