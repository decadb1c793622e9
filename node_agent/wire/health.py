"""How the hardware of a node is: the result of `diag.health_probe`.

A field or list that could not be read is absent, and `gaps` names the subject and the reason. Absent is unknown, and unknown is
never a fault. Counters are totals since the device or the kernel started, unless a field says otherwise.
"""

from __future__ import annotations

import json
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, Field

from node_agent.wire.fields import Truth, Whole, Wire
from node_agent.wire.topology import (
    DISKS_MAX,
    GAPS_MAX,
    GPUS_MAX,
    NICS_MAX,
    REASON_MAX,
    Gap,
    Index,
    Name,
    PciAddress,
    Text,
)

CONTROLLERS_MAX: Final = 32
PLUGINS_MAX: Final = 16
XIDS_MAX: Final = 8
EVIDENCE_MAX: Final = 1000
REPORT_BYTES_MAX: Final = 60 * 1024
"""Below the bound of a result: the envelope of the report comes on top."""

Celsius = Annotated[int, Field(strict=True, ge=-273, le=1000)]
Evidence = Annotated[str, Field(max_length=EVIDENCE_MAX, pattern=r"^[\x20-\x7e]*$")]
Verdict = Literal["healthy", "fault", "unknown"]
ThrottleReason = Literal[
    "idle", "application_clocks", "software_power_cap", "hardware_slowdown", "sync_boost", "software_thermal",
    "hardware_thermal", "power_brake", "display_clocks",
]  # fmt: skip
DiskSource = Literal["smartctl", "sysfs"]


class Named(Wire):
    """An entry that its name identifies within its list."""

    name: Name

    @property
    def subject(self) -> str:
        """What the entry is about."""
        return self.name


Item = TypeVar("Item", bound="Named | GpuHealth")


def named_once(items: list[Item]) -> list[Item]:
    """Two entries for one device would contradict each other."""
    if len({item.subject for item in items}) != len(items):
        raise ValueError("names one subject twice")
    return items


class MemoryController(Named):
    """One memory controller by EDAC: errors that were corrected and those that were not."""

    corrected: Whole | None = None
    uncorrected: Whole | None = None


class DiskHealth(Named):
    """A whole disk. `passed` is the verdict of SMART; `state` is that of the kernel (`live`, `running`, `dead`, `offline`)."""

    source: DiskSource
    passed: Truth | None = None
    state: Name | None = None
    critical_warning: Index | None = None
    percentage_used: Index | None = None
    media_errors: Whole | None = None
    reallocated_sectors: Whole | None = None
    pending_sectors: Whole | None = None
    temperature_celsius: Celsius | None = None


class Xid(Wire):
    """An error that NVIDIA's driver wrote into the kernel's log, and how often its buffer has it."""

    code: Index
    count: Index


class GpuHealth(Wire):
    """A GPU by NVML and the kernel's log. `nvlink_errors` is the sum of replay, recovery and CRC errors of all links."""

    address: PciAddress
    ecc_corrected: Whole | None = None
    ecc_uncorrected: Whole | None = None
    ecc_uncorrected_lifetime: Whole | None = None
    remapped_corrected: Whole | None = None
    remapped_uncorrected: Whole | None = None
    remap_pending: Truth | None = None
    remap_failed: Truth | None = None
    temperature_celsius: Celsius | None = None
    slowdown_celsius: Celsius | None = None
    throttle_reasons: Annotated[list[ThrottleReason], Field(max_length=9)] | None = None
    nvlinks: Index | None = None
    nvlinks_up: Index | None = None
    nvlink_errors: Whole | None = None
    xids: Annotated[list[Xid], Field(max_length=XIDS_MAX)] | None = None

    @property
    def subject(self) -> str:
        """What the entry is about."""
        return self.address


class NicHealth(Named):
    """A network port of the machine; `carrier` is absent for a port that is switched off."""

    address: PciAddress | None = None
    carrier: Truth | None = None
    carrier_losses: Whole | None = None
    receive_errors: Whole | None = None
    transmit_errors: Whole | None = None


class PluginResult(Named):
    """What a plugin found. `unknown` with a `failure`: it did not answer, or not as docs/reference/fleet/probes.md says.

    `address` names the GPU that is at fault; without one the whole node is.
    """

    verdict: Verdict
    evidence: Evidence = ""
    address: PciAddress | None = None
    failure: Annotated[str, Field(min_length=1, max_length=REASON_MAX, pattern=r"^[\x20-\x7e]*$")] | None = None


class HealthReport(Wire):
    """The whole node. `gaps` are bounded: the last one says that more were left out."""

    driver: Name
    memory: Annotated[list[MemoryController], Field(max_length=CONTROLLERS_MAX), AfterValidator(named_once)] | None = (
        None
    )
    disks: Annotated[list[DiskHealth], Field(max_length=DISKS_MAX), AfterValidator(named_once)] | None = None
    gpus: Annotated[list[GpuHealth], Field(max_length=GPUS_MAX), AfterValidator(named_once)] | None = None
    nics: Annotated[list[NicHealth], Field(max_length=NICS_MAX), AfterValidator(named_once)] | None = None
    plugins: Annotated[list[PluginResult], Field(max_length=PLUGINS_MAX), AfterValidator(named_once)] | None = None
    nvml_driver: Text | None = None
    gaps: Annotated[list[Gap], Field(max_length=GAPS_MAX)] = Field(default_factory=list)

    def canonical(self) -> bytes:
        """The JSON of the report: members sorted, absent fields left out, no white space."""
        content = self.model_dump(mode="json", exclude_none=True)
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
