"""Decisions about maintenance windows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.maintenance.refusals import MaintenanceConflict, MaintenanceWindowInvalid
from orchestrator.maintenance.states import OwnerKind, Resolution

NODES_MAX: Final = 100
"""Nodes of one window: their rows are locked together."""
CONFLICTS_MAX: Final = 500
"""Conflicts that a plan or a refusal lists, and that a commit resolves."""
OVERDUE: Final = "overdue"
"""The state of a hold past its deadline, until a process expires it."""
DURATION_MAX: Final = timedelta(days=366)
HORIZON_MAX: Final = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Policies:
    """What commit does about allocations (`notify` or `refuse`) and reservations of a SKU (`move` or `refuse`)."""

    allocations: Resolution
    reservations: Resolution


@dataclass(frozen=True, slots=True)
class Conflict:
    """A claim on units of the window, within its time. `resources`: those of its units that the window names.

    `correlation_id`: of an allocation. `gpus` and `region`: as the reservation of a SKU asked for each claim.
    """

    owner_kind: OwnerKind
    owner_id: UUID
    claim_id: int
    tenant_id: UUID | None
    node_id: UUID
    resources: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime | None
    state: str
    sku: str | None
    correlation_id: UUID | None
    gpus: int | None
    region: str | None

    def resolution(self, policies: Policies) -> Resolution:
        """What commit does about it. A reservation that names its units, an overdue hold and another window refuse."""
        if self.owner_kind is OwnerKind.ALLOCATION:
            return policies.allocations
        if self.owner_kind is OwnerKind.RESERVATION and self.sku is not None and self.state != OVERDUE:
            return policies.reservations
        return Resolution.REFUSE

    def document(self, policies: Policies) -> JsonObject:
        """Its JSON."""
        return {
            "owner": f"{self.owner_kind}s/{self.owner_id}" if self.tenant_id else f"maintenance/{self.owner_id}",
            "tenant_id": self.tenant_id,
            "node_id": self.node_id,
            "resources": list(self.resources),
            "starts_at": self.starts_at,
            "ends_at": self.ends_at,
            "state": self.state,
            "resolution": self.resolution(policies).value,
        }


def require_window(starts_at: datetime, ends_at: datetime, now: datetime) -> None:
    """Raise `MaintenanceWindowInvalid` if the window is over, reversed, too long or too far away."""
    if starts_at >= ends_at:
        raise MaintenanceWindowInvalid("ends_at must be later than starts_at")
    if ends_at <= now:
        raise MaintenanceWindowInvalid("the window is over; choose a later ends_at")
    if ends_at - starts_at > DURATION_MAX:
        raise MaintenanceWindowInvalid(f"a window lasts at most {DURATION_MAX.days} days; commit several")
    if starts_at - now > HORIZON_MAX:
        raise MaintenanceWindowInvalid(f"a window starts within {HORIZON_MAX.days} days; commit it later")


def require_no_conflicts(conflicts: Sequence[Conflict], policies: Policies, movable: Collection[int]) -> None:
    """Raise `MaintenanceConflict` if one of the conflicts refuses the window; `movable`: claims that have a new place.

    More conflicts than `CONFLICTS_MAX` refuse it too: those beyond were not read, so that nothing would be done about them.
    """
    if len(conflicts) > CONFLICTS_MAX:
        raise MaintenanceConflict.more_than(
            CONFLICTS_MAX, [one.document(policies) for one in conflicts[:CONFLICTS_MAX]]
        )
    refusing = []
    for one in conflicts:
        resolution = one.resolution(policies)
        if resolution is Resolution.REFUSE or (resolution is Resolution.MOVE and one.claim_id not in movable):
            refusing.append({**one.document(policies), "resolution": Resolution.REFUSE.value})
    if refusing:
        raise MaintenanceConflict.of(refusing)
