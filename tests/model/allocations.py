"""The life of an allocation as far as claims and quotas go: (state, command) -> (state, outcome).

Actors and cleanup proof belong to the lifecycle's tests; the model decides only which claim begins,
which right ends, and when units are free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tests.model.state import NOOP, OK, Allocation, AllocationState, Claim, Outcome, State


@dataclass(frozen=True, slots=True)
class Create:
    """An allocation on units that placement chose."""

    tenant: str
    units: frozenset[int]
    gpus: int
    starts_at: datetime
    ends_at: datetime | None = None


STEPS: dict[AllocationState, frozenset[AllocationState]] = {
    "requested": frozenset({"active", "releasing", "failed"}),
    "active": frozenset({"releasing"}),
    "releasing": frozenset({"released", "release_failed", "releasing"}),
    "release_failed": frozenset({"releasing"}),
}
"""The transitions with an event. `releasing` again: the release was ordered anew."""


def create(state: State, allocation: str, command: Create) -> tuple[State, Outcome]:
    """Right and occupation begin together, on units without a right and without an occupant."""
    if allocation in state.allocations:
        return state, Outcome("invalid_state", "the id was given out before")
    if owners := state.rights_to(command.units, command.starts_at, command.ends_at):
        return state, Outcome("sku_unavailable", f"{sorted(command.units)} belong to {owners}")
    if owners := state.occupants_of(command.units):
        return state, Outcome("sku_unavailable", f"{owners} may still be on {sorted(command.units)}")
    quota = state.quotas.get(command.tenant)
    if quota is not None and quota.limit is not None and quota.used + command.gpus > quota.limit:
        return state, Outcome("quota_exceeded", f"{quota.used} + {command.gpus} of {quota.limit}")
    claim = Claim(command.units, command.starts_at, command.ends_at, command.gpus, occupied=True)
    made = Allocation(command.tenant, "requested", claim)
    settled = _only_occupant(state, claim.units)
    return settled.with_allocation(allocation, made).charged(command.tenant, command.gpus), OK


def start(state: State, allocation: str) -> tuple[State, Outcome]:
    """An allocation that waited for its units begins: the former occupant is proven gone."""
    found = state.allocations.get(allocation)
    if found is None:
        return state, Outcome("not_found")
    if found.state != "requested" or found.claim.occupied or not found.claim.booked:
        return state, Outcome("invalid_state", f"it is {found.state} and does not wait")
    if others := state.occupants_of(found.claim.units):
        return state, Outcome("invalid_state", f"{others} may still be on {sorted(found.claim.units)}")
    started = replace(found, claim=replace(found.claim, occupied=True))
    return _only_occupant(state, found.claim.units).with_allocation(allocation, started), OK


def advance(state: State, allocation: str, to: AllocationState) -> tuple[State, Outcome]:
    """The next step of its life. Active: it is on its units. Releasing, failed: the right ends, it may still be there.
    Released: proven gone. A final state returns the quota.
    """
    found = state.allocations.get(allocation)
    if found is None:
        return state, Outcome("not_found")
    if found.state == "failed" and to == "releasing" and found.claim.occupied is not False:
        return state, OK  # an operator begins its cleanup anew; it stays failed
    if to not in STEPS.get(found.state, ()):
        return state, Outcome("invalid_state", f"from {found.state} to {to}")
    claim = found.claim
    if to == "active":
        if not claim.occupied:
            return state, Outcome("invalid_state", "it still waits for its units")
    elif to == "released":
        claim = replace(claim, booked=False, occupied=False)
    else:
        # The cleanup of a failed one emits no event; an allocation that never occupied its units leaves nothing there.
        claim = replace(claim, booked=False, occupied=None if to == "failed" and claim.occupied else claim.occupied)
    state = state.with_allocation(allocation, replace(found, state=to, claim=claim))
    return (state.charged(found.tenant, -claim.gpus) if to in ("released", "failed") else state), OK


def change_end(state: State, allocation: str, ends_at: datetime | None, clock: datetime) -> tuple[State, Outcome]:
    """Its claim is closed, and a successor has the right from `clock` to the new end, if no other owner has a right to that time.

    The occupation goes over to the successor; what the allocation costs in quota stays.
    """
    found = state.allocations.get(allocation)
    if found is None:
        return state, Outcome("not_found")
    old = found.claim
    if old.ends_at == ends_at:
        return state, NOOP
    if found.state not in ("requested", "active"):
        return state, Outcome("invalid_state", f"it is {found.state}")
    if old.ends_at is not None and old.ends_at <= clock:
        return state, Outcome("invalid_state", f"it ended at {old.ends_at}")
    if ends_at is not None and ends_at <= clock:
        return state, Outcome("window_invalid", f"{ends_at} is past")
    later = old.ends_at is not None and (ends_at is None or old.ends_at < ends_at)
    if later and (owners := state.rights_to(old.units, old.ends_at or clock, ends_at)):
        return state, Outcome("resource_busy", f"{sorted(old.units)} belong to {owners}")
    successor = replace(old, starts_at=clock, ends_at=ends_at)
    closed = replace(old, booked=False, occupied=False)
    return state.with_allocation(allocation, replace(found, claim=successor, former=(*found.former, closed))), OK


def _only_occupant(state: State, units: frozenset[int]) -> State:
    """Earlier occupants of these units are proven gone: another allocation occupies them."""
    for owner, claim in list(state.open_claims()):
        if claim.occupied is None and not claim.booked and claim.units & units:
            id_ = owner.removeprefix("allocations/")
            other = state.allocations[id_]
            state = state.with_allocation(id_, replace(other, claim=replace(other.claim, occupied=False)))
    return state
