"""Hold requests before any lock: the bounds of their times, and the target that their names or SKU resolve to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.catalogue.shapes import Shape
from orchestrator.operations.execution import Limits
from orchestrator.operations.store.operations import Operation
from orchestrator.placement.admission import AdmittedUnits, Wanted, admit, admit_units
from orchestrator.problems import Invalid, Problem, SlotOverflow
from orchestrator.reservations.refusals import TtlOutOfRange
from orchestrator.reservations.resource_names import RESOURCES_MAX, parse_resources, place_of
from orchestrator.reservations.states import MOMENT_MAX
from orchestrator.reservations.store.holding import AdmittedGpus, Hold, HoldBounds, HoldTarget

REPRESENTABLE_SECONDS_MAX = int((MOMENT_MAX - MOMENT_MAX.replace(year=1970)).total_seconds())


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """`count` times `gpus` of a SKU, each on one node. `image` is checked if an allocation starts at `starts_at`."""

    sku: str
    gpus: int
    region: str
    count: int
    image: str | None = None
    starts_allocation: bool = False
    has_user_data: bool = False


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """A hold, and its target: resource names, or GPUs of a SKU."""

    hold: Hold
    wanted: tuple[str, ...] | GpuRequest

    @property
    def operation(self) -> Operation:
        """The hold's operation."""
        return self.hold.operation

    @property
    def places(self) -> frozenset[str]:
        """The nodes and registered resources that it names; none if Berth chooses."""
        return frozenset() if isinstance(self.wanted, GpuRequest) else frozenset(map(place_of, self.wanted))


def require_bounds(hold: Hold, limits: Limits) -> None:
    """Raise `SlotOverflow` for times that cannot be represented, and `TtlOutOfRange`."""
    retention = timedelta(seconds=limits.reservation_retention_seconds)
    last = max((moment for moment in (hold.starts_at, hold.ends_at) if moment is not None), default=None)
    if hold.ttl_seconds > REPRESENTABLE_SECONDS_MAX or (last is not None and MOMENT_MAX - last < retention):
        raise SlotOverflow(f"a deadline or retirement would be after {MOMENT_MAX:%Y-%m-%d}; send earlier times")
    if not 1 <= hold.ttl_seconds <= limits.hold_seconds_max:
        raise TtlOutOfRange(
            f"ttl_seconds must be from 1 to {limits.hold_seconds_max:g}; send a value in that range",
            ttl_seconds_max=limits.hold_seconds_max,
        )


async def resolve(catalogue: CatalogueCache, wanted: tuple[str, ...] | GpuRequest) -> HoldTarget:
    """Parsed names, or the SKU as the catalogue offers it; before it refuses, the catalogue is read anew."""
    if not isinstance(wanted, GpuRequest):
        return parse_resources(wanted)
    request = Wanted(wanted.sku, wanted.gpus, wanted.region, wanted.image, wanted.has_user_data)
    admitting = admit if wanted.starts_allocation else admit_units
    try:
        units: AdmittedUnits = admitting(await catalogue.current(), request)
    except Problem:
        units = admitting(await catalogue.before_refusing(), request)
    if units.sku.shape == Shape.GPU_SLICE and wanted.gpus * wanted.count > RESOURCES_MAX:
        message = (
            f"{wanted.count} times {wanted.gpus} slots exceed the limit of {RESOURCES_MAX} slots per reservation;"
            " make several reservations"
        )
        raise Invalid(f"count: {message}", errors=[{"field": "count", "message": message}])
    return AdmittedGpus(units, wanted.count)


def bounds_of(limits: Limits) -> HoldBounds:
    """The bounds that the transaction evaluates."""
    return HoldBounds(
        limits.window_seconds_max,
        limits.reservation_retention_seconds,
        limits.reservations_max,
        limits.holds_max,
        limits.shard,
    )
