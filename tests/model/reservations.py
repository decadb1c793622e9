"""Hold, confirm, cancel, expire, release, turn over: (state, command, clock) -> (state, outcome).

The clock is the instant by which the database judged. A refused command changes nothing, with one exception: a hold past
deadline that a confirm, cancel or use refers to expires in that command.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.model.state import (
    LIVE_RESERVATIONS,
    NOOP,
    OK,
    Allocation,
    Claim,
    Outcome,
    Reservation,
    ReservationState,
    State,
)

HOLD_SECONDS_MAX = 3600


@dataclass(frozen=True, slots=True)
class Hold:
    """Held is what `rectangles` say: units and GPUs of each claim, all or nothing. `resources` are how they were named."""

    tenant: str
    holder: str
    rectangles: tuple[tuple[frozenset[int], int], ...]
    starts_at: datetime
    ends_at: datetime | None
    hold_until: datetime
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ByHolder:
    """Confirm or cancel of a reservation by a tenant that names the holder."""

    tenant: str
    reservation: str
    holder: str


@dataclass(frozen=True, slots=True)
class TurnOver:
    """One of the reservation's claims, named by its units, becomes an allocation's. `waits`: the units are still occupied."""

    by: ByHolder
    allocation: str
    units: frozenset[int]
    waits: bool = False


def hold(state: State, reservation: str, command: Hold, clock: datetime) -> tuple[State, Outcome]:
    """A new hold, called `reservation`, on all of its units for all of its window, or nothing."""
    objections = objections_to_hold(state, command, clock)
    if reservation in state.reservations:
        return state, Outcome("invalid_state", "the id was given out before")
    if objections:
        return state, objections[0]
    claims = tuple(Claim(units, command.starts_at, command.ends_at, gpus) for units, gpus in command.rectangles)
    made = Reservation(
        command.tenant, command.holder, "hold", command.starts_at, command.ends_at, command.hold_until, claims
    )
    gpus = sum(claim.gpus for claim in claims)
    return state.with_reservation(reservation, made).charged(command.tenant, gpus), OK


def objections_to_hold(state: State, command: Hold, clock: datetime) -> list[Outcome]:
    """Every reason to refuse it; the order of several reasons is not promised."""
    found = []
    if unknown := [name for name in command.resources if name not in state.resources]:
        found.append(Outcome("resource_not_found", f"{unknown}"))
    if gone := [name for name in command.resources if name in state.out_of_service]:
        found.append(Outcome("resource_out_of_service", f"{gone}"))
    if not clock < command.hold_until <= clock + timedelta(seconds=HOLD_SECONDS_MAX):
        found.append(Outcome("ttl_out_of_range", f"judged at {clock}, to be held until {command.hold_until}"))
    if command.ends_at is not None and not (clock < command.ends_at and command.starts_at < command.ends_at):
        found.append(Outcome("window_invalid", f"[{command.starts_at}, {command.ends_at}) at {clock}"))
    if command.ends_at is not None and command.hold_until > command.ends_at:
        found.append(Outcome("window_invalid", f"held until {command.hold_until}, after the window's end"))
    units: set[int] = set()
    for rectangle, _ in command.rectangles:
        if units & rectangle:
            found.append(Outcome("resource_busy", "two of its claims overlap"))
        units |= rectangle
        if owners := state.rights_to(rectangle, command.starts_at, command.ends_at):
            found.append(Outcome("resource_busy", f"{sorted(rectangle)} belong to {owners}"))
        if command.starts_at <= clock and (owners := state.occupants_of(rectangle)):
            found.append(Outcome("resource_busy", f"{owners} may still be on {sorted(rectangle)}"))
    if over := _over_quota(state, command.tenant, sum(gpus for _, gpus in command.rectangles)):
        found.append(over)
    return found


def confirm(state: State, command: ByHolder, clock: datetime) -> tuple[State, Outcome]:
    """From then on it has no deadline. Repeating it is harmless."""
    refusal = _refusal_of(state, command)
    if refusal is not None:
        return state, refusal
    found = state.reservations[command.reservation]
    if found.state == "confirmed":
        return state, NOOP
    if found.state != "hold":
        return state, Outcome("invalid_state", f"it is {found.state}")
    if clock >= found.hold_until:
        return _ended(state, command.reservation, "expired"), Outcome("invalid_state", "its deadline has passed")
    return state.with_reservation(command.reservation, replace(found, state="confirmed")), OK


def cancel(state: State, command: ByHolder, clock: datetime) -> tuple[State, Outcome]:
    """Its units are free at once. Nothing to do for what ended without having been used."""
    refusal = _refusal_of(state, command)
    if refusal is not None:
        return state, refusal
    found = state.reservations[command.reservation]
    if found.state in ("cancelled", "expired"):
        return state, NOOP
    if found.state not in LIVE_RESERVATIONS:
        return state, Outcome("invalid_state", f"it is {found.state}")
    if found.state == "hold" and clock >= found.hold_until:
        return _ended(state, command.reservation, "expired"), NOOP
    return _ended(state, command.reservation, "cancelled"), OK


def expire(state: State, reservation: str, clock: datetime) -> tuple[State, Outcome]:
    """A hold whose deadline has passed ends: late, never early. Anything else stays as it is."""
    found = state.reservations.get(reservation)
    if found is None:
        return state, Outcome("reservation_not_found")
    if found.state != "hold":
        return state, Outcome("noop", f"it is {found.state}")
    if clock < found.hold_until:
        return state, Outcome("noop", f"judged at {clock}, but it is held until {found.hold_until}")
    return _ended(state, reservation, "expired"), OK


def release(state: State, reservation: str, clock: datetime) -> tuple[State, Outcome]:
    """A confirmed window that is over and was not used ends."""
    found = state.reservations.get(reservation)
    if found is None:
        return state, Outcome("reservation_not_found")
    if found.state != "confirmed":
        return state, Outcome("noop", f"it is {found.state}")
    if found.ends_at is None or clock < found.ends_at:
        return state, Outcome("noop", f"judged at {clock}, but its window lasts until {found.ends_at}")
    return _ended(state, reservation, "released"), OK


def fail(state: State, reservation: str) -> tuple[State, Outcome]:
    """A confirmed one whose allocation could not be started ends `cancelled`, without a request."""
    found = state.reservations.get(reservation)
    if found is None:
        return state, Outcome("reservation_not_found")
    if found.state not in LIVE_RESERVATIONS:
        return state, Outcome("invalid_state", f"it is {found.state}")
    return _ended(state, reservation, "cancelled"), OK


def turn_over(state: State, command: TurnOver, clock: datetime) -> tuple[State, Outcome]:
    """The claim passes to an allocation with its window and its quota; with the last one the reservation is consumed."""
    refusal = _refusal_of(state, command.by)
    if refusal is not None:
        return state, refusal
    id_, found = command.by.reservation, state.reservations[command.by.reservation]
    if found.state not in LIVE_RESERVATIONS:
        return state, Outcome("invalid_state", f"it is {found.state}")
    if found.state == "hold" and clock >= found.hold_until:
        return _ended(state, id_, "expired"), Outcome("invalid_state", "its deadline has passed")
    mine = [claim for claim in found.claims if claim.units == command.units]
    if len(mine) != 1 or command.allocation in state.allocations:
        return state, Outcome("invalid_state", f"none of its claims has exactly the units {sorted(command.units)}")
    (claim,) = mine
    others = state.perhaps_on(claim.units)
    if command.waits and not others:
        return state, Outcome("invalid_state", f"{sorted(claim.units)} have no occupant")
    if not command.waits and (found.starts_at > clock or state.occupants_of(claim.units)):
        return state, Outcome("invalid_state", f"begins at {found.starts_at}; on its units: {others}")
    rest = tuple(other for other in found.claims if other is not claim)
    left = replace(found, claims=rest, state=found.state if rest else "consumed")
    made = Allocation(found.tenant, "requested", replace(claim, occupied=not command.waits))
    return state.with_reservation(id_, left).with_allocation(command.allocation, made), OK


def move(
    state: State, reservation: str, units: frozenset[int], to: frozenset[int], clock: datetime
) -> tuple[State, Outcome]:
    """One of its claims goes to as many other units that are free in all of its window."""
    found = state.reservations.get(reservation)
    if found is None or found.state not in LIVE_RESERVATIONS:
        return state, Outcome("invalid_state", f"it is {found.state if found else 'nothing'}")
    if len(units) != len(to) or not any(claim.units == units for claim in found.claims):
        return state, Outcome("invalid_state", f"none of its claims is {sorted(units)}")
    others = replace(found, claims=tuple(claim for claim in found.claims if claim.units != units))
    without = state.with_reservation(reservation, others)
    rivals = without.rights_to(to, found.starts_at, found.ends_at)
    if found.starts_at <= clock:
        rivals += without.occupants_of(to)
    if rivals:
        return state, Outcome("resource_busy", f"{sorted(to)} belong to {rivals}")
    claims = tuple(replace(claim, units=to) if claim.units == units else claim for claim in found.claims)
    return state.with_reservation(reservation, replace(found, claims=claims)), OK


def _refusal_of(state: State, command: ByHolder) -> Outcome | None:
    found = state.reservations.get(command.reservation)
    if found is None or found.tenant != command.tenant:
        return Outcome("reservation_not_found")
    if found.holder != command.holder:
        return Outcome("holder_mismatch", f"{command.holder!r} is not {found.holder!r}")
    return None


def _over_quota(state: State, tenant: str, gpus: int) -> Outcome | None:
    quota = state.quotas.get(tenant)
    if quota is None or quota.limit is None or gpus == 0 or quota.used + gpus <= quota.limit:
        return None
    return Outcome("quota_exceeded", f"{quota.used} + {gpus} of {quota.limit}")


def _ended(state: State, reservation: str, how: ReservationState) -> State:
    """What it still holds is free, and so is its part of the quota."""
    found = state.reservations[reservation]
    returned = sum(claim.gpus for claim in found.claims)
    closed = tuple(replace(claim, booked=False, occupied=False) for claim in found.claims)
    ended = replace(found, state=how, claims=closed)
    return state.with_reservation(reservation, ended).charged(found.tenant, -returned)
