"""The states of an allocation, the allowed transitions between them (DESIGN §4), and its guest while active. Pure."""

from __future__ import annotations

from enum import StrEnum

from orchestrator.tenants.principals import ActorKind


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


_S = AllocationState
_ENDING = frozenset({ActorKind.TENANT, ActorKind.ADMIN})
_ADOPTING = frozenset({ActorKind.WORKER, ActorKind.ADMIN})

TRANSITIONS: dict[tuple[AllocationState, AllocationState], frozenset[ActorKind]] = {
    # An operator adopts a machine that runs already: both transitions in one transaction.
    (_S.REQUESTED, _S.PROVISIONING): _ADOPTING,
    (_S.REQUESTED, _S.FAILED): frozenset({ActorKind.WORKER}),
    (_S.REQUESTED, _S.RELEASING): _ENDING,
    (_S.PROVISIONING, _S.RELEASING): _ENDING,
    (_S.PROVISIONING, _S.ACTIVE): _ADOPTING,
    (_S.PROVISIONING, _S.FAILED): frozenset({ActorKind.WORKER}),
    (_S.ACTIVE, _S.RELEASING): _ENDING | {ActorKind.BILLING},
    (_S.RELEASING, _S.RELEASED): frozenset({ActorKind.WORKER, ActorKind.ADMIN, ActorKind.SYSTEM}),
    (_S.RELEASING, _S.RELEASE_FAILED): frozenset({ActorKind.WORKER}),
    (_S.RELEASE_FAILED, _S.RELEASING): _ENDING,
}


def allowed(from_state: AllocationState, to_state: AllocationState, actor: ActorKind) -> bool:
    """Whether `actor` may make this transition."""
    return actor in TRANSITIONS.get((from_state, to_state), frozenset())


class GuestState(StrEnum):
    """The state of an active allocation's guest, by the result of its last task."""

    RUNNING = "running"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    """A verb failed after it may have begun: a verb or a release follows."""
    RESCUE = "rescue"
    """The machine runs the rescue system, from memory; its disks are as they were."""


class Verb(StrEnum):
    """A change of the guest; the task type is `allocation.<verb>`."""

    REBOOT = "reboot"
    STOP = "stop"
    START = "start"
    REBUILD = "rebuild"
    """A fresh disk: everything that the tenant wrote is gone."""
    RESCUE = "rescue"
    """Of a machine that its site deployed alone."""


class Symptom(StrEnum):
    """What a tenant sees of a fault."""

    UNREACHABLE = "unreachable"
    GPU_ERROR = "gpu_error"
    SLOW = "slow"
    NETWORK = "network"
    STORAGE = "storage"
    OTHER = "other"


class ReplacementOutcome(StrEnum):
    """How the replacement of a faulty allocation ended."""

    REPLACED = "replaced"
    """The replacement became active, and the old allocation was released."""
    FAILED = "failed"
    """The replacement failed or was released before it was active; the old allocation stays."""
    RELEASED = "released"
    """The old allocation ended first; the replacement stays."""
    OVERDUE = "overdue"
    """The deadline passed; both allocations stay."""


VERB_RESULTS = {
    Verb.REBOOT: GuestState.RUNNING,
    Verb.STOP: GuestState.STOPPED,
    Verb.START: GuestState.RUNNING,
    Verb.REBUILD: GuestState.RUNNING,
    Verb.RESCUE: GuestState.RESCUE,
}
"""The guest's state after each verb."""
