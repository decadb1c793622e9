"""Thresholds of health: beyond them a report has a fault. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from node_agent.wire.health import ThrottleReason

EVERY_MODEL: Final = "*"

Limit = Annotated[int, Field(strict=True, ge=0, le=2**53 - 1)]
Xid = Annotated[int, Field(strict=True, ge=1, le=65_535)]


class Thresholds(BaseModel):
    """The largest value of each that is no fault; null: it is not evaluated.

    `..._per_probe` limits the increase since the report before; the other counters count from the start of the driver or the
    machine, or from the last return of the slot.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory_uncorrected_max: Limit | None = 0
    memory_corrected_per_probe_max: Limit | None = 10_000
    disk_critical_warning: bool = True
    disk_media_errors_max: Limit | None = 10
    disk_pending_sectors_max: Limit | None = 10
    disk_percentage_used_max: Limit | None = None
    gpu_uncorrected_max: Limit | None = 0
    gpu_uncorrected_lifetime_max: Limit | None = None
    gpu_remapped_uncorrected_max: Limit | None = None
    gpu_remap_pending: bool = True
    gpu_remap_failed: bool = True
    gpu_slowdown_margin_celsius: Limit | None = 0
    gpu_throttle_reasons: tuple[ThrottleReason, ...] = ("hardware_thermal", "power_brake")
    gpu_xids: tuple[Xid, ...] = (48, 64, 74, 79, 95, 119, 120, 140)
    nvlink_errors_per_probe_max: Limit | None = 1_000
    nic_errors_per_probe_max: Limit | None = 10_000
    nic_carrier_losses_per_probe_max: Limit | None = 10


Overrides = Mapping[str, Thresholds]
"""By GPU model; `*` for every model."""


def thresholds_for(overrides: Overrides, gpu_model: str) -> Thresholds:
    """The thresholds of a GPU model: its own, then those of `*`, then the defaults."""
    found = Thresholds()
    for name in (EVERY_MODEL, gpu_model):
        if (given := overrides.get(name)) is not None:
            found = found.model_copy(update={field: getattr(given, field) for field in given.model_fields_set})
    return found
