"""The contract between the agent and a driver. `tests/drivers` checks every driver against each sentence of it.

The executor judges tasks, fences and order, journals, and reports. A driver has effects on one kind of node. It keeps no
journal: what it holds it finds again from its records and from what exists.

Plans
    A driver returns a `Plan` for each order: phases in a fixed order. `performing.perform` runs them one after another.
    - A phase that ran to its end and runs again at once changes nothing.
    - A phase may be cancelled at any await. No thread or process of it acts after the cancellation was delivered.
    - A phase that cannot reach its end raises `DriverFailure` with a stable code; a full disk is such a failure. It may
      leave things behind.
    - After SIGKILL at any instruction the next process calls `start`, `resume`, and then `cleanup` for an interrupted
      provision, or performs the plan of an interrupted release or verb again from its first phase. Both succeed.

Provision
    The plan ends with the allocation usable and proven so: a guest that answers with the host key made for this start,
    and a sign of life that a tenant cannot forge. A console is neither. Remains of the same allocation are removed first:
    the newer fence wins. Of two orders that name one slot at most one succeeds; the other fails with `lease_conflict` and
    changes nothing of the first. `cleanup` follows a failure.

Release, cleanup
    Both need no free space, succeed for an allocation that never existed, and begin from the start each time. A slot stays
    leased until every device is proven wiped (`node_agent.wiping.devices.DeviceWipe`, in `evidence["devices"]`). What shows
    that a device is wiped stays until the phase after the wipe has begun: by then the executor has journaled the proof.
    `cleanup` is a release without grace.

Verbs
    `driver.verbs` names the verbs that the driver has. A verb keeps claim and leases; only `rebuild` discards the disk.
    A verb that is cancelled or fails may leave the guest stopped; a release then follows, or another verb repairs it.

Restart
    Keeps disk, leases and record, and starts nothing that the verb `stop` has stopped or that a plan works on.

Inventory
    `Inventory.held` names every allocation that anything is left of: guest, process, file, device, lease, definition.
    An allocation that is not in it has nothing on this node. A driver that cannot look raises OSError.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from node_agent.protocol import (
    FailureCode,
    ProvisionParameters,
    ProvisionResult,
    ReleaseParameters,
    ReleaseResult,
    VerbResult,
)
from node_agent.wire.first_boot import FirstBoot
from node_agent.wire.guests import RestartPolicy
from node_agent.wire.networks import SpannedNetwork
from node_agent.wire.topology import Topology

Result = TypeVar("Result")


class DriverFailure(Exception):
    """The task failed for a reason that has a stable code. `detail` says what was found and what to do."""

    def __init__(self, code: FailureCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


Progress = Callable[[float, str], None]
"""Called with the share of a phase that is done, 0 to 1, and a detail for people. Never blocks, never raises."""


@dataclass(frozen=True)
class Phase:
    """One step of a plan. `run` returns a detail for people when the phase has reached its end; see the module's text."""

    name: str
    run: Callable[[Progress], Awaitable[str]]


@dataclass(frozen=True)
class Plan(Generic[Result]):
    """The phases of one order. `scope` is held while any phase runs.

    `result` is valid after the last phase; that of a release after each: it then claims what is proven so far.
    """

    phases: Sequence[Phase]
    result: Callable[[], Result]
    scope: Callable[[], AbstractContextManager[None]] = nullcontext


class Verb(StrEnum):
    """Changes of a running allocation that keep its claim."""

    REBOOT = "reboot"
    STOP = "stop"
    START = "start"
    REBUILD = "rebuild"


@dataclass(frozen=True)
class ProvisionOrder:
    """One allocation to bring up, and the fence it is brought up under."""

    allocation_id: UUID
    fence: int
    parameters: ProvisionParameters


@dataclass(frozen=True)
class ReleaseOrder:
    """One allocation to take down."""

    allocation_id: UUID
    fence: int
    parameters: ReleaseParameters


@dataclass(frozen=True)
class VerbOrder:
    """One verb on an allocation. `parameters` are those of `rebuild`; the other verbs have none.

    The guest has `graceful_seconds` to stop before it is killed.
    """

    allocation_id: UUID
    fence: int
    verb: Verb
    parameters: ProvisionParameters | None = None
    graceful_seconds: float = 10.0
    faults: Mapping[str, str] = field(default_factory=dict)


class GuestState(StrEnum):
    """What a driver finds of one allocation. `down` should run and does not; `unknown` has no readable record."""

    PROVISIONING = "provisioning"
    RUNNING = "running"
    STOPPED = "stopped"
    DOWN = "down"
    RELEASING = "releasing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Held:
    """An allocation that has remains on the node. `slots` is empty and `fence` None if no record names them."""

    allocation_id: UUID
    slots: Sequence[int]
    fence: int | None
    state: GuestState = GuestState.UNKNOWN
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    first_boot: FirstBoot | None = None
    """None: the driver does not hear of it."""


@dataclass(frozen=True)
class Inventory:
    """What the node really holds, nothing left out: the basis of heartbeats and of the health probe."""

    held: Sequence[Held] = ()
    leased_slots: dict[int, UUID] = field(default_factory=dict)

    @property
    def allocations(self) -> list[UUID]:
        """Allocations whose records can be read."""
        return [held.allocation_id for held in self.held if held.state is not GuestState.UNKNOWN]

    @property
    def dead(self) -> list[UUID]:
        """Allocations that should run and do not."""
        return [held.allocation_id for held in self.held if held.state is GuestState.DOWN]


@dataclass(frozen=True)
class ConsoleText:
    """A part of a guest's console log: `data` begins at `offset`. A log may have lost its beginning (`offset` is then
    larger than asked for). A tenant writes what it likes there: it proves nothing."""

    offset: int
    data: bytes


class Driver(Protocol):
    """See the module's text for what each call guarantees."""

    name: str
    verbs: frozenset[Verb]

    async def start(self) -> None:
        """Make ready; no earlier process of this driver has effects any more once this returns. Raises CannotStart."""

    async def resume(self) -> list[UUID]:
        """Adopt what runs, start again what should run unless its policy is `never`. Returns the allocations that now run."""

    async def restart(self, allocation_id: UUID) -> bool:
        """Start a guest again that should run and does not; False if it should not, or a plan works on it.

        May be cancelled like a phase. Raises DriverFailure, OSError.
        """

    def provision(self, order: ProvisionOrder) -> Plan[ProvisionResult]:
        """The plan that brings the allocation up."""

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        """The plan that takes it down gracefully, then hard; wipes; drops its leases; proves each."""

    def verb(self, order: VerbOrder) -> Plan[VerbResult]:
        """The plan of a verb. Raises DriverFailure(TASK_REFUSED) if the driver lacks it or holds no such allocation."""

    async def cleanup(self, allocation_id: UUID) -> None:
        """Remove whatever is there of the allocation. Raises DriverFailure(CLEANUP_FAILED)."""

    async def inventory(self) -> Inventory:
        """Return everything that exists now. Raises OSError if the list would be incomplete."""

    async def tend_leases(self) -> list[int]:
        """Renew the leases of what is there and clear those of what is gone; the slots cleared. Never one in use."""

    async def topology(self) -> Topology:
        """What the node is made of, as found now. A part that cannot be read is absent; raises nothing for it."""

    async def console(self, allocation_id: UUID, offset: int, bytes_max: int) -> ConsoleText:
        """The guest's console log from `offset` on, at most `bytes_max`; a negative offset counts from the log's end.

        Raises LookupError if there is no such guest.
        """

    async def stop(self, grace_seconds: float) -> None:
        """End every guest; `resume` of the next agent starts them again. Needs no `start`, and closes too."""

    async def close(self) -> None:
        """Let go of what this process holds, without an effect on a guest: the next agent adopts them all."""


@runtime_checkable
class Answering(Protocol):
    """What a driver has besides if its guests can be asked from outside whether they answer."""

    async def answers(self, allocation_id: UUID) -> bool:
        """Whether the guest's SSH server greets within seconds. False too if there is no such guest; raises nothing."""


@runtime_checkable
class InteractiveConsole(Protocol):
    """What a driver has besides if a person can type into the console of its guests."""

    def attach(self, allocation_id: UUID) -> AbstractAsyncContextManager[int]:
        """A descriptor to read from and write to, for as long as it is held. It changes nothing of the guest.

        It may be made not to block. At the guest's end it reads as ended. Entering it raises LookupError if there is no such
        guest, OSError if its console cannot be opened.
        """


@runtime_checkable
class Spanning(Protocol):
    """What a driver has besides if tenant networks may span nodes."""

    def note_other_nodes(self, networks: Sequence[SpannedNetwork]) -> bool:
        """Networks span these guests of other nodes from the next `tend_leases` on; return whether that is a change.

        Neither blocks nor raises.
        """


@dataclass(frozen=True)
class DiskSpace:
    """Space of what holds the disks of guests. `promised_bytes`: what all disks may grow to."""

    size_bytes: int
    promised_bytes: int
    data_used: float | None
    """Share of the size, 0 to 1; None where it is not known."""
    metadata_used: float | None


@runtime_checkable
class Storing(Protocol):
    """What a driver has besides if disks of guests share something that can be full."""

    def disk_space(self) -> DiskSpace | None:
        """The space as the driver last saw it, or None. Neither blocks nor raises."""


def disk_space_of(driver: object) -> DiskSpace | None:
    """What a driver that is `Storing` says; None of any other."""
    return driver.disk_space() if isinstance(driver, Storing) else None


def phases_of(plan: Plan[Any]) -> Iterator[str]:
    """The names of a plan's phases, in order."""
    return (phase.name for phase in plan.phases)
