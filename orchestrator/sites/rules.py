"""Which process holds the lease of a site, which passwords a BMC may have, and when a task about it is over. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from node_agent.protocol import TaskType
from node_agent.wire.sites import BmcTaskKind
from orchestrator.sites.states import BmcTaskOutcome
from orchestrator.tenants.principals import Actor, ActorKind

AGENTS_MAX: Final = 8
"""Agents of a site, revoked ones included."""
REQUEST_SECONDS_MAX: Final = 600.0
"""How long a requested task waits for an agent that holds the lease of the site."""
TASK_SECONDS_MAX: Final = 900.0
REACH_SECONDS_MAX: Final = 1_500.0
"""From power on: firmware, boot and first boot of a machine, until its SSH server answers."""
REPORT_GRACE_SECONDS: Final = 60.0
"""How long after a task's end its report is waited for."""
WAITS_FOR_LEASE: Final = "lease"
WAITS_FOR_AGENT: Final = "site_agent"

TYPES: Final = {
    BmcTaskKind.LOOK: TaskType.METAL_LOOK,
    BmcTaskKind.ROTATE: TaskType.METAL_ROTATE_CREDENTIALS,
    BmcTaskKind.RESEAL: TaskType.METAL_RESEAL,
    BmcTaskKind.POWER_ON: TaskType.METAL_POWER_ON,
    BmcTaskKind.POWER_OFF: TaskType.METAL_POWER_OFF,
    BmcTaskKind.POWER_RESET: TaskType.METAL_POWER_RESET,
    BmcTaskKind.START_DEPLOY: TaskType.METAL_START_DEPLOY_SYSTEM,
    BmcTaskKind.END_DEPLOY: TaskType.METAL_END_DEPLOY_SYSTEM,
    BmcTaskKind.EJECT: TaskType.METAL_EJECT_MEDIUM,
    BmcTaskKind.REACH: TaskType.METAL_REACH,
    BmcTaskKind.RESET_BMC: TaskType.METAL_RESET_BMC,
    BmcTaskKind.MOVE_PORTS: TaskType.METAL_MOVE_PORTS,
    BmcTaskKind.CHECK_PORTS: TaskType.METAL_MOVE_PORTS,
    BmcTaskKind.FIRMWARE: TaskType.METAL_FIRMWARE,
}
SEALING: Final = frozenset({BmcTaskKind.ROTATE, BmcTaskKind.RESEAL})
"""What seals passwords to the recipients of the site."""
DESCRIBING: Final = frozenset({BmcTaskKind.LOOK, BmcTaskKind.END_DEPLOY, BmcTaskKind.RESET_BMC, BmcTaskKind.FIRMWARE})
"""What reports the machine as its BMC describes it; agents of the version before do not at the end of a deploy system."""
POWERED: Final = {
    BmcTaskKind.POWER_ON: "On",
    BmcTaskKind.POWER_OFF: "Off",
    BmcTaskKind.POWER_RESET: "On",
    BmcTaskKind.START_DEPLOY: "On",
    BmcTaskKind.END_DEPLOY: "Off",
}
"""The power state with which a completed task of these kinds ends."""
DESCRIBED: Final = frozenset({BmcTaskKind.LOOK, BmcTaskKind.RESET_BMC})
"""Kinds that have completed only with a description."""
STOPPING: Final = frozenset({BmcTaskKind.POWER_OFF, BmcTaskKind.POWER_RESET, BmcTaskKind.START_DEPLOY})
"""What ends a system that runs on the machine, so that the machine must not be in use."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a site as stored; `agent` and `run` name the process that holds it, `until` when it ends."""

    fence: int
    agent: UUID | None
    run: UUID | None
    until: datetime | None

    def is_free(self, clock: datetime) -> bool:
        """Whether no process holds it at this time."""
        return self.until is None or self.until <= clock

    def is_of(self, agent: UUID, run: UUID) -> bool:
        """Whether this process took it last: a copy of the agent is another process."""
        return self.until is not None and (self.agent, self.run) == (agent, run)


def task_seconds_max(kind: BmcTaskKind) -> float:
    """How long an agent may take for a task of this kind."""
    return REACH_SECONDS_MAX if kind is BmcTaskKind.REACH else TASK_SECONDS_MAX


def may_hold(lease: Lease, agent: UUID, run: UUID, clock: datetime) -> bool:
    """Whether the process may hold the lease now: it does, or no other does."""
    return lease.is_of(agent, run) or lease.is_free(clock)


def next_generation(generation: int, pending: int | None) -> int:
    """The generation of the next password of a BMC."""
    return max(generation, pending or 0) + 1


def is_sealed_enough(recipients: Collection[UUID], site_id: UUID, sender: UUID, allowed: Collection[UUID]) -> bool:
    """Whether an agent sealed a password to itself, to the recovery key of the site, and to agents of the site alone."""
    return {site_id, sender} <= set(recipients) <= {site_id, *allowed}


def verdict_of_silence(issued: bool, dispatched: bool) -> tuple[BmcTaskOutcome, str]:
    """What a task is whose wait is over without a report, and why."""
    if dispatched:
        return BmcTaskOutcome.UNKNOWN, "no_report: it was handed out, and no agent of the site reported its end in time"
    when = "leased it" if issued else "held the lease of the site"
    return BmcTaskOutcome.FAILED, f"no_agent: no agent {when} in time; nothing was done"


def actor_of(agent_id: UUID) -> Actor:
    """An agent of a site as the cause of a change."""
    return Actor(ActorKind.SYSTEM, f"site_agent:{agent_id}")
