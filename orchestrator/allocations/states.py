"""The states of an allocation and the allowed transitions between them (DESIGN §4). Pure."""

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
