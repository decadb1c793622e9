"""What will be hurt, when, how and for how long: a pure function of the seed, so that a campaign can be replayed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    """How something is hurt."""

    KILL = "kill"  # SIGKILL, later started again
    PAUSE = "pause"  # SIGSTOP, later SIGCONT
    STARVE = "starve"  # runs a tenth of the time
    RESTART = "restart"  # a server is stopped in order, later started again
    ROLL = "roll"  # every process of one sort is stopped in order and started again, one after another
    CLOCK = "clock"  # the wall clock of one process is an hour ahead or behind
    SLOW_FSYNC = "slow_fsync"  # each fsync takes longer
    FULL = "full"  # the disk of a server or an agent has no room
    EXPIRE = "expire"  # an agent's certificate has ended
    TERMINATE = "terminate"  # pg_terminate_backend of every session of one role
    EXHAUST = "exhaust"  # another user takes every connection of PostgreSQL
    LOCK = "lock"  # another session holds a lock on a table
    OPEN_TRANSACTION = "open_transaction"  # another session wrote, and neither commits nor rolls back
    WIPE = "wipe"  # NATS is killed and its store deleted
    CUT = "cut"  # a link passes nothing, later what was held back goes through
    ONE_WAY = "one_way"  # a link passes requests and no answers
    RESET = "reset"  # a link ends its connections and refuses new ones
    DELAY = "delay"  # a link is slow
    JITTER = "jitter"  # each chunk is late by another time
    LOSS = "loss"  # packets are lost and repeated
    TRICKLE = "trickle"  # bytes arrive one by one
    STALL = "stall"  # half of each message arrives, the other half when the fault is over
    HALF_CLOSE = "half_close"  # the server's side of each connection ends, the client's does not
    VANISH = "vanish"  # what today's connections send is never acknowledged again
    BREAK = "break"  # a node's driver fails by one of its documented switches
    # With three PostgreSQL and three NATS servers:
    PRIMARY_KILLED = "primary_killed"  # PostgreSQL of the primary dies, its Patroni stays
    PRIMARY_LOST = "primary_lost"  # both die, and are started again
    PRIMARY_FROZEN = "primary_frozen"  # both are stopped where they are until another one leads
    SWITCHOVER = "switchover"  # the primary hands over in order, and gets the lead back
    LAG = "lag"  # the standbys receive WAL late
    STANDBYS_LOST = "standbys_lost"  # both standbys die, then the primary is restarted, then the standbys are
    PARTITION = "partition"  # the other servers of NATS do not reach one
    # With machines; the first eleven of one BMC, as tests/campaign/machines/bmcs.py switches it:
    BMC_SILENT = "bmc_silent"  # takes commands and answers nothing
    BMC_BUSY = "bmc_busy"  # 503
    BMC_ERROR = "bmc_error"  # 500, also after the effect of a command
    BMC_REFUSES_PASSWORD = "bmc_refuses_password"  # 401, and a change of the password is late
    BMC_LIES = "bmc_lies"  # success without effect
    BMC_DELAYS = "bmc_delays"  # success, and the effect a second later
    BMC_QUEUES = "bmc_queues"  # no answer, and the effect a second later
    BOOT_FORGOTTEN = "boot_forgotten"  # success, and no boot override is set
    MEDIUM_EJECTED = "medium_ejected"  # a medium is out as soon as it is in
    POWER_FLAPS = "power_flaps"  # every other read says the opposite
    CERTIFICATE_CHANGED = "certificate_changed"  # another TLS certificate
    BMCS_KILLED = "bmcs_killed"  # the process of all BMCs is killed, later started again
    BMCS_FROZEN = "bmcs_frozen"  # it is stopped for less than a BMC may hold a command
    DEPLOY_KILLED = "deploy_killed"  # the deploy system of a machine dies in a step, and the machine hangs


@dataclass(frozen=True)
class Fault:
    """One injury. Times are seconds since the campaign began; `detail` says what of the target, by the kind."""

    at: float
    kind: FaultKind
    target: str
    seconds: float
    detail: str = ""

    @property
    def until(self) -> float:
        """When it is over."""
        return self.at + self.seconds

    def __str__(self) -> str:
        """One line for a person."""
        switch = f" ({self.detail})" if self.detail else ""
        return f"{self.at:6.1f} s  {self.kind} {self.target} for {self.seconds:.1f} s{switch}"


@dataclass(frozen=True)
class Targets:
    """What faults may hit, by name. The seed depends on the order, which the caller fixes. What is empty is not hurt."""

    processes: Sequence[str]
    servers: Sequence[str]
    links: Sequence[str] = ()
    nodes: Sequence[str] = ()
    agents: Sequence[str] = ()
    rolls: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The processes of each sort that are replaced one after another."""
    clocks: Sequence[str] = ()
    """Processes whose wall clock can be moved."""
    fsyncs: Sequence[str] = ()
    """Parts whose fsync can be slowed."""
    disks: Sequence[str] = ()
    """Parts whose disk can be full."""
    database: Sequence[str] = ()
    """The PostgreSQL whose sessions can be hurt; one or none."""
    stores: Sequence[str] = ()
    """Servers whose data may be lost."""
    cluster: Sequence[str] = ()
    """The PostgreSQL servers under Patroni, as one target; one or none."""
    members: Sequence[str] = ()
    """NATS servers of a cluster."""
    bmcs: Sequence[str] = ()
    """The process of the BMCs; one or none."""
    machines: Sequence[str] = ()
    """Machines of a rack."""


LINK_KINDS = (
    FaultKind.CUT, FaultKind.ONE_WAY, FaultKind.RESET, FaultKind.DELAY, FaultKind.JITTER, FaultKind.LOSS,
    FaultKind.TRICKLE, FaultKind.STALL, FaultKind.HALF_CLOSE, FaultKind.VANISH,
)  # fmt: skip
CLUSTER_KINDS = (
    FaultKind.PRIMARY_KILLED, FaultKind.PRIMARY_LOST, FaultKind.PRIMARY_FROZEN, FaultKind.SWITCHOVER, FaultKind.LAG,
    FaultKind.STANDBYS_LOST,
)  # fmt: skip
BMC_KINDS = (
    FaultKind.BMC_SILENT, FaultKind.BMC_BUSY, FaultKind.BMC_ERROR, FaultKind.BMC_REFUSES_PASSWORD, FaultKind.BMC_LIES,
    FaultKind.BMC_DELAYS, FaultKind.BMC_QUEUES, FaultKind.BOOT_FORGOTTEN, FaultKind.MEDIUM_EJECTED, FaultKind.POWER_FLAPS,
    FaultKind.CERTIFICATE_CHANGED,
)  # fmt: skip
SECONDS: Mapping[FaultKind, tuple[float, float]] = {
    FaultKind.KILL: (0.0, 2.0),
    FaultKind.PAUSE: (0.5, 8.0),
    FaultKind.STARVE: (1.0, 6.0),
    FaultKind.RESTART: (0.0, 1.5),
    FaultKind.ROLL: (4.0, 8.0),
    FaultKind.CLOCK: (2.0, 8.0),
    FaultKind.SLOW_FSYNC: (1.0, 6.0),
    FaultKind.FULL: (1.0, 5.0),
    FaultKind.EXPIRE: (0.5, 2.0),
    FaultKind.TERMINATE: (0.0, 0.5),
    FaultKind.EXHAUST: (1.0, 5.0),
    FaultKind.LOCK: (0.5, 5.0),
    FaultKind.OPEN_TRANSACTION: (2.0, 10.0),
    FaultKind.WIPE: (0.0, 1.5),
    FaultKind.CUT: (0.3, 4.0),
    FaultKind.ONE_WAY: (0.3, 4.0),
    FaultKind.RESET: (0.0, 1.5),
    FaultKind.DELAY: (0.5, 5.0),
    FaultKind.JITTER: (1.0, 5.0),
    FaultKind.LOSS: (1.0, 5.0),
    FaultKind.TRICKLE: (0.5, 4.0),
    FaultKind.STALL: (0.5, 4.0),
    FaultKind.HALF_CLOSE: (0.2, 1.0),
    FaultKind.VANISH: (0.2, 1.0),
    FaultKind.BREAK: (1.0, 5.0),
    # As long as Patroni takes: the key of the lead runs out after 20 s.
    FaultKind.PRIMARY_KILLED: (5.0, 10.0),
    FaultKind.PRIMARY_LOST: (20.0, 25.0),
    FaultKind.PRIMARY_FROZEN: (25.0, 35.0),
    FaultKind.SWITCHOVER: (10.0, 15.0),
    FaultKind.LAG: (3.0, 8.0),
    FaultKind.STANDBYS_LOST: (8.0, 12.0),
    FaultKind.PARTITION: (3.0, 8.0),
    **dict.fromkeys(BMC_KINDS, (1.0, 8.0)),
    FaultKind.BMCS_KILLED: (0.0, 2.0),
    FaultKind.BMCS_FROZEN: (0.3, 1.2),
    FaultKind.DEPLOY_KILLED: (8.0, 16.0),
}
SWITCHES = (
    "lease_conflict", "image_download", "image_checksum", "vfio", "guest_definition", "guest_marker", "wipe_fails",
    "graceful_stop_hangs",
)  # fmt: skip
CLOCK_STEPS = ("+3600", "-3600")
ROLES = ("berth_public_api", "berth_node_api", "berth_worker", "berth_relay", "berth_webhooks", "berth_issuer")
"""Whose sessions are terminated (migrations/roles.py)."""
TABLES = ("allocations", "claims", "nodes", "reservations", "outbox", "node_tasks")
"""What another session locks."""
DETAILS: Mapping[FaultKind, Sequence[str]] = {
    FaultKind.BREAK: SWITCHES,
    FaultKind.CLOCK: CLOCK_STEPS,
    FaultKind.TERMINATE: ROLES,
    FaultKind.EXHAUST: ROLES,
    FaultKind.LOCK: TABLES,
}
"""Of each kind with details one is chosen."""
WEIGHTS: Mapping[FaultKind, int] = {
    FaultKind.KILL: 16,
    FaultKind.PAUSE: 14,
    FaultKind.STARVE: 5,
    FaultKind.RESTART: 4,
    FaultKind.ROLL: 3,
    FaultKind.CLOCK: 5,
    FaultKind.SLOW_FSYNC: 3,
    FaultKind.FULL: 4,
    FaultKind.EXPIRE: 3,
    FaultKind.TERMINATE: 4,
    FaultKind.EXHAUST: 3,
    FaultKind.LOCK: 4,
    FaultKind.OPEN_TRANSACTION: 2,
    FaultKind.WIPE: 1,
    FaultKind.CUT: 8,
    FaultKind.ONE_WAY: 6,
    FaultKind.RESET: 6,
    FaultKind.DELAY: 2,
    FaultKind.JITTER: 2,
    FaultKind.LOSS: 3,
    FaultKind.TRICKLE: 3,
    FaultKind.STALL: 4,
    FaultKind.HALF_CLOSE: 4,
    FaultKind.VANISH: 4,
    FaultKind.BREAK: 6,
    FaultKind.PRIMARY_KILLED: 8,
    FaultKind.PRIMARY_LOST: 8,
    FaultKind.PRIMARY_FROZEN: 8,
    FaultKind.SWITCHOVER: 8,
    FaultKind.LAG: 4,
    FaultKind.STANDBYS_LOST: 6,
    FaultKind.PARTITION: 6,
    **dict.fromkeys(BMC_KINDS, 3),
    FaultKind.BMCS_KILLED: 4,
    FaultKind.BMCS_FROZEN: 3,
    FaultKind.DEPLOY_KILLED: 4,
}
QUIET_SECONDS = 2.0
"""Nothing is hurt so shortly after a campaign began, and a target has as long to itself between two injuries."""


def plan_faults(seed: int, seconds: float, targets: Targets, every_seconds: float = 2.5) -> list[Fault]:
    """Faults over `seconds`, one about every `every_seconds`, ended before the time is over. Two may overlap, but no
    target is hurt twice at once.
    """
    chance = random.Random(f"faults:{seed}")
    faults: list[Fault] = []
    busy_until: dict[str, float] = {}
    at = QUIET_SECONDS
    while (at := at + chance.uniform(0.4, 1.6) * every_seconds) < seconds:
        kind = _kind(chance, targets)
        pool = candidates(kind, targets)
        target = pool[chance.randrange(len(pool))]
        low, high = SECONDS[kind]
        length = chance.uniform(low, high)
        detail = chance.choice(DETAILS[kind]) if kind in DETAILS else ""
        parts = parts_of(target, targets)
        if all(busy_until.get(part, 0.0) <= at for part in parts) and at + length <= seconds:
            busy_until |= dict.fromkeys(parts, at + length + QUIET_SECONDS)
            faults.append(Fault(round(at, 3), kind, target, round(length, 3), detail))
    return faults


def parts_of(target: str, targets: Targets) -> Sequence[str]:
    """The names that a fault of this target occupies."""
    if not target.startswith(ROLL_PREFIX):
        return [target]
    return [target, *targets.rolls[target.removeprefix(ROLL_PREFIX)]]


ROLL_PREFIX = "every "
"""The target `every worker` is all workers."""


def _kind(chance: random.Random, targets: Targets) -> FaultKind:
    kinds = [kind for kind in FaultKind if candidates(kind, targets)]
    return chance.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]


def candidates(kind: FaultKind, targets: Targets) -> Sequence[str]:
    """What a fault of this kind may hit, in a fixed order."""
    if kind in LINK_KINDS:
        return targets.links
    if kind in CLUSTER_KINDS:
        return targets.cluster
    if kind in BMC_KINDS:
        return targets.machines
    everything = [*targets.processes, *targets.servers]
    pools: Mapping[FaultKind, Sequence[str]] = {
        FaultKind.KILL: everything,
        FaultKind.PAUSE: everything,
        FaultKind.STARVE: everything,
        FaultKind.RESTART: targets.servers,
        FaultKind.ROLL: [f"{ROLL_PREFIX}{sort}" for sort in targets.rolls],
        FaultKind.CLOCK: targets.clocks,
        FaultKind.SLOW_FSYNC: targets.fsyncs,
        FaultKind.FULL: targets.disks,
        FaultKind.EXPIRE: targets.agents,
        FaultKind.TERMINATE: targets.database,
        FaultKind.EXHAUST: targets.database,
        FaultKind.LOCK: targets.database,
        FaultKind.OPEN_TRANSACTION: targets.database,
        FaultKind.WIPE: targets.stores,
        FaultKind.BREAK: targets.nodes,
        FaultKind.PARTITION: targets.members,
        FaultKind.BMCS_KILLED: targets.bmcs,
        FaultKind.BMCS_FROZEN: targets.bmcs,
        FaultKind.DEPLOY_KILLED: targets.machines,
    }
    return pools[kind]
