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
    CONSOLE_CLOSED = "console_closed"
    BMC_UNREACHABLE = "bmc_unreachable"
    BMC_CREDENTIALS_REFUSED = "bmc_credentials_refused"
    BMC_CERTIFICATE_CHANGED = "bmc_certificate_changed"
    BMC_HOST_KEY_CHANGED = "bmc_host_key_changed"
    BMC_CONSOLE_MISSING = "bmc_console_missing"
    BMC_CONSOLE_SHARED = "bmc_console_shared"
    BMC_CONSOLE_REFUSED = "bmc_console_refused"
    BMC_HOT_KEY_UNKNOWN = "bmc_hot_key_unknown"


AGENT_REASONS: Final = frozenset(
    {
        EndReason.GUEST_ENDED, EndReason.LOG_SENT, EndReason.NO_GUEST, EndReason.NO_CONSOLE, EndReason.SUPERSEDED,
        EndReason.DEADLINE, EndReason.FAILED, EndReason.CONSOLE_CLOSED, EndReason.BMC_UNREACHABLE,
        EndReason.BMC_CREDENTIALS_REFUSED, EndReason.BMC_CERTIFICATE_CHANGED, EndReason.BMC_HOST_KEY_CHANGED,
        EndReason.BMC_CONSOLE_MISSING, EndReason.BMC_CONSOLE_SHARED, EndReason.BMC_CONSOLE_REFUSED,
        EndReason.BMC_HOT_KEY_UNKNOWN,
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
class SiteMachine:
    """A machine whose console its site serves. `is_run_open`: something of the operator works on it, or begins to."""

    site_id: UUID
    is_pinned: bool
    is_run_open: bool


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
    machine: SiteMachine | None = None


GUESTS_OF_TENANTS: Final = ("running", "stopped")
"""States of a machine's system in which nothing of the operator runs on it: not a rescue system, which is the deploy system, and
not what a verb that failed has left."""


def refusal(target: Target | None, tenant_id: UUID | None, allocation_id: UUID) -> NotFound | InvalidState | None:
    """Why the tenant gets no session with this allocation whatever its agent can do, or None."""
    if target is None or target.tenant_id != tenant_id:
        return NotFound(f"there is no allocation {allocation_id}")
    if target.state != "active":
        return InvalidState(f"the allocation is {target.state}; only an active one has a console", state=target.state)
    if not target.online:
        return InvalidState("the node of this allocation is offline; retry when it is back", state="offline")
    return None if target.machine is None else _machine_refusal(target.machine, target.guest_state)


def _machine_refusal(machine: SiteMachine, guest_state: str | None) -> InvalidState | None:
    """Why a machine is not in its tenant's hands, or None."""
    if machine.is_run_open:
        return InvalidState(
            "a verb or a task works on the machine; its console is served again when that has ended", state="run_open"
        )
    if guest_state not in GUESTS_OF_TENANTS:
        return InvalidState(
            f"the guest's state is {guest_state}; a machine has a console while its own system runs, or is off: order"
            " reboot, start or stop", state=str(guest_state),
        )  # fmt: skip
    return None
