"""The states of an allocation and the only transitions between them (DESIGN §4; reference: Allocation lifecycle)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Shape(StrEnum):
    """What is rented: a whole node, or some of its GPUs."""

    BAREMETAL = "baremetal"
    GPU_SLICE = "gpu_slice"


class AllocationState(StrEnum):
    """Where an allocation stands."""

    REQUESTED = "requested"
    PROVISIONING = "provisioning"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    RELEASE_FAILED = "release_failed"
    FAILED = "failed"


FINAL_STATES = frozenset({AllocationState.RELEASED, AllocationState.FAILED})


class ActorKind(StrEnum):
    """Who causes a change."""

    TENANT = "tenant"
    ADMIN = "admin"
    BILLING = "billing"
    WORKER = "worker"
    NODE = "node"
    SYSTEM = "system"


_S = AllocationState
_ENDING = frozenset({ActorKind.TENANT, ActorKind.ADMIN})

TRANSITIONS: dict[tuple[AllocationState, AllocationState], frozenset[ActorKind]] = {
    (_S.REQUESTED, _S.PROVISIONING): frozenset({ActorKind.WORKER}),
    (_S.REQUESTED, _S.FAILED): frozenset({ActorKind.WORKER}),
    (_S.REQUESTED, _S.RELEASING): _ENDING,
    (_S.PROVISIONING, _S.RELEASING): _ENDING,
    (_S.PROVISIONING, _S.ACTIVE): frozenset({ActorKind.WORKER}),
    (_S.PROVISIONING, _S.FAILED): frozenset({ActorKind.WORKER}),
    (_S.ACTIVE, _S.RELEASING): _ENDING | {ActorKind.BILLING},
    (_S.RELEASING, _S.RELEASED): frozenset({ActorKind.WORKER, ActorKind.ADMIN, ActorKind.SYSTEM}),
    (_S.RELEASING, _S.RELEASE_FAILED): frozenset({ActorKind.WORKER}),
    (_S.RELEASE_FAILED, _S.RELEASING): _ENDING,
}


def allowed(from_state: AllocationState, to_state: AllocationState, actor: ActorKind) -> bool:
    """Whether `actor` may take an allocation from one state to the other."""
    return actor in TRANSITIONS.get((from_state, to_state), frozenset())


class TaskState(StrEnum):
    """Where a node task stands (DESIGN §9)."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


LIVE_TASK_STATES = frozenset({TaskState.QUEUED, TaskState.DISPATCHED})


class NodeState(StrEnum):
    """What an operator wants of a node. Whether it answers is told by `online`."""

    REGISTERED = "registered"
    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINING = "draining"
    RETIRED = "retired"


class SlotState(StrEnum):
    """What a slot is now, derived from claims and node; each slot is exactly one of these.

    A claim goes before everything: a held slot of an offline node is held.
    """

    FREE = "free"
    HELD = "held"
    ALLOCATED = "allocated"
    CLEANUP_BLOCKED = "cleanup_blocked"
    OUT_OF_SERVICE = "out_of_service"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who causes a change: the kind, and which one."""

    kind: ActorKind
    id: str


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller of the public API. `id` is its API key's, or that of its token's subject."""

    role: str
    id: UUID
    tenant_id: UUID | None

    @property
    def actor(self) -> Actor:
        """The principal as the cause of a change."""
        kind = ActorKind.ADMIN if self.role == "admin" else ActorKind.TENANT
        return Actor(kind, str(self.id))

    @property
    def scope(self) -> UUID:
        """Where this principal's operation keys live: its tenant, or for an admin itself (DESIGN §6)."""
        return self.tenant_id if self.tenant_id is not None else self.id
