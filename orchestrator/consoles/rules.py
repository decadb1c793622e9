"""Why a console session is refused, and why it ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal
from uuid import UUID

from orchestrator.problems import InvalidState, NotFound

Mode = Literal["attach", "log"]
GRACE_SECONDS: Final = 30.0
"""How long after its longest time a session is still left to its process, before the sweeper ends it."""
TASK_GRACE_SECONDS: Final = 5.0
"""The task of a session expires so much later than the process ends it, so that the process is first."""


class EndReason(StrEnum):
    """Why a session ended. Agents name some of them (`AGENT_REASONS`)."""

    TENANT_ENDED = "tenant_ended"
    GUEST_ENDED = "guest_ended"
    LOG_SENT = "log_sent"
    NO_GUEST = "no_guest"
    NO_CONSOLE = "no_console"
    SUPERSEDED = "superseded"
    AGENT_ABSENT = "agent_absent"
    AGENT_LOST = "agent_lost"
    IDLE = "idle"
    DEADLINE = "deadline"
    RELEASED = "released"
    UNAUTHENTICATED = "unauthenticated"
    SLOW_CLIENT = "slow_client"
    MESSAGE_REFUSED = "message_refused"
    STOPPING = "stopping"
    PROCESS_LOST = "process_lost"
    FAILED = "failed"


AGENT_REASONS: Final = frozenset(
    {
        EndReason.GUEST_ENDED, EndReason.LOG_SENT, EndReason.NO_GUEST, EndReason.NO_CONSOLE, EndReason.SUPERSEDED,
        EndReason.DEADLINE, EndReason.FAILED,
    }
)  # fmt: skip


def reason_of_agent(named: str) -> EndReason:
    """The reason that an agent names; `agent_lost` for one that it has no right to name."""
    try:
        reason = EndReason(named)
    except ValueError:
        return EndReason.AGENT_LOST
    return reason if reason in AGENT_REASONS else EndReason.AGENT_LOST


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes of one session each way, and output that the tenant was too slow for; never the content."""

    to_guest: int = 0
    to_tenant: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A locked allocation and its node, as a session is about to be opened."""

    tenant_id: UUID
    node_id: UUID
    state: str
    guest_state: str | None
    online: bool
    supported: bool
    agent_version: str | None


def refusal(target: Target | None, tenant_id: UUID | None, allocation_id: UUID) -> NotFound | InvalidState | None:
    """Why the tenant gets no session with this allocation whatever its agent can do, or None."""
    if target is None or target.tenant_id != tenant_id:
        return NotFound(f"there is no allocation {allocation_id}")
    if target.state != "active":
        return InvalidState(f"the allocation is {target.state}; only an active one has a console", state=target.state)
    if not target.online:
        return InvalidState("the node of this allocation is offline; retry when it is back", state="offline")
    return None
