"""States of allocations, tasks, nodes and slots, and the allowed transitions of allocations (DESIGN §4). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class Shape(StrEnum):
    """The shape of a SKU: a whole node, or some of its GPUs."""

    BAREMETAL = "baremetal"
    GPU_SLICE = "gpu_slice"


class AllocationState(StrEnum):
    """The state of an allocation."""

    REQUESTED = "requested"
    PROVISIONING = "provisioning"
    ACTIVE = "active"
    RELEASING = "releasing"
    RELEASED = "released"
    RELEASE_FAILED = "release_failed"
    FAILED = "failed"


FINAL_STATES = frozenset({AllocationState.RELEASED, AllocationState.FAILED})


class ActorKind(StrEnum):
    """The kind of actor that causes a change."""

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
    """Whether `actor` may make this transition."""
    return actor in TRANSITIONS.get((from_state, to_state), frozenset())


class TaskState(StrEnum):
    """The state of a node task (DESIGN §9)."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"


LIVE_TASK_STATES = frozenset({TaskState.QUEUED, TaskState.DISPATCHED})


class NodeState(StrEnum):
    """The state that operators give a node. Whether its agent responds is `online`, beside it."""

    REGISTERED = "registered"
    ACTIVE = "active"
    CORDONED = "cordoned"
    DRAINING = "draining"
    RETIRED = "retired"


class SlotState(StrEnum):
    """The state of a slot, derived from its claims and node.

    A claim takes precedence: a held slot of an offline node is held.
    """

    FREE = "free"
    HELD = "held"
    ALLOCATED = "allocated"
    CLEANUP_BLOCKED = "cleanup_blocked"
    OUT_OF_SERVICE = "out_of_service"


@dataclass(frozen=True, slots=True)
class Actor:
    """The cause of a change: its kind, and its id within the kind."""

    kind: ActorKind
    id: str


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller of the public API. `id` is that of its API key, or of its token's subject."""

    role: str
    id: UUID
    tenant_id: UUID | None

    @property
    def actor(self) -> Actor:
        """The principal as an actor."""
        kind = ActorKind.ADMIN if self.role == "admin" else ActorKind.TENANT
        return Actor(kind, str(self.id))

    @property
    def scope(self) -> UUID:
        """The scope of its idempotency keys: its tenant, or for an admin the principal itself (DESIGN §6)."""
        return self.tenant_id if self.tenant_id is not None else self.id
