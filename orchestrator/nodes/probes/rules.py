"""What of a health report is a fault, and which slots it concerns. Pure.

A field or list that was not reported is unknown, and unknown is never a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from berth.process.json_objects import JsonMapping
from node_agent.wire.health import DiskHealth, GpuHealth, HealthReport
from orchestrator.nodes.probes.thresholds import Thresholds

PROBE_SECONDS_MAX = 600.0
"""How long a node has for one probe."""
RETRY_SECONDS = 900.0
"""Pause after a probe that failed."""
REASON_LENGTH_MAX = 300
ACCEPTED_MAX = 512
_DEAD_STATES = frozenset({"dead", "offline", "transport-offline"})


class FaultCause(StrEnum):
    """What is beyond its threshold."""

    MEMORY_UNCORRECTED = "memory_uncorrected"
    MEMORY_CORRECTED = "memory_corrected"
    DISK_FAILED = "disk_failed"
    DISK_WARNING = "disk_warning"
    DISK_MEDIA_ERRORS = "disk_media_errors"
    DISK_PENDING_SECTORS = "disk_pending_sectors"
    DISK_WORN = "disk_worn"
    GPU_UNCORRECTED = "gpu_uncorrected"
    GPU_UNCORRECTED_LIFETIME = "gpu_uncorrected_lifetime"
    GPU_REMAPPED = "gpu_remapped"
    GPU_REMAP_PENDING = "gpu_remap_pending"
    GPU_REMAP_FAILED = "gpu_remap_failed"
    GPU_HOT = "gpu_hot"
    GPU_THROTTLED = "gpu_throttled"
    GPU_XID = "gpu_xid"
    NVLINK_ERRORS = "nvlink_errors"
    NIC_ERRORS = "nic_errors"
    NIC_CARRIER_LOST = "nic_carrier_lost"
    PLUGIN = "plugin"


@dataclass(frozen=True, slots=True)
class Fault:
    """One value beyond its threshold. `slots`: those that it takes out of service; none if no slot has this GPU.

    `count` is the value of a counter, which a return of the slot accepts.
    """

    cause: FaultCause
    subject: str
    found: str
    limit: str
    slots: tuple[int, ...]
    count: int | None = None

    @property
    def counter(self) -> str:
        """The name under which an accepted count is kept."""
        return f"{self.cause}:{self.subject}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What the control plane knows of the node: slot i is the GPU at `addresses[i]`."""

    slot_count: int
    addresses: tuple[str, ...]

    @property
    def every_slot(self) -> tuple[int, ...]:
        """The slots of a fault of the whole node."""
        return tuple(range(self.slot_count))

    def slots_of(self, address: str) -> tuple[int, ...]:
        """The slot of a GPU; none if the node is not known to have it."""
        return tuple(slot for slot, known in enumerate(self.addresses[: self.slot_count]) if known == address)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A counter of a report. `per_probe`: its increase since the report before counts."""

    cause: FaultCause
    subject: str
    value: int | None
    limit: int | None
    slots: tuple[int, ...]
    per_probe: bool = False

    @property
    def name(self) -> str:
        return f"{self.cause}:{self.subject}"


def judge(
    report: HealthReport,
    previous: HealthReport | None,
    accepted: Mapping[str, int],
    limits: Thresholds,
    machine: Machine,
) -> list[Fault]:
    """The faults of a report. A counter is a fault by what exceeds its accepted count, or the report before."""
    before = {} if previous is None else {one.name: one.value for one in _counters(previous, limits, machine)}
    faults = [fault for one in _counters(report, limits, machine) if (fault := _exceeds(one, before, accepted))]
    faults += _of_gpus(report.gpus or (), limits, machine)
    faults += _of_disks(report.disks or (), limits, machine)
    for plugin in report.plugins or ():
        if plugin.verdict == "fault":
            slots = machine.every_slot if plugin.address is None else machine.slots_of(plugin.address)
            faults.append(Fault(FaultCause.PLUGIN, plugin.name, plugin.evidence or "fault", "healthy", slots))
    return sorted(faults, key=lambda fault: (fault.cause, fault.subject))


def still_accepted(
    report: HealthReport, accepted: Mapping[str, int], limits: Thresholds, machine: Machine
) -> dict[str, int]:
    """The accepted counts after this report: a counter that began again at zero is accepted no further than it is now."""
    now = {one.name: one.value for one in _counters(report, limits, machine)}
    kept = {
        name: count if (value := now.get(name)) is None else min(count, value)
        for name, count in accepted.items()
        if now.get(name) != 0
    }
    return dict(list(kept.items())[:ACCEPTED_MAX])


def faulty_slots(faults: Sequence[Fault]) -> list[int]:
    """The slots that these faults take out of service."""
    return sorted({slot for fault in faults for slot in fault.slots})


def fresh_faults(faults: Sequence[Fault], before: Sequence[JsonMapping]) -> list[Fault]:
    """Those of the faults that the report before had not, or with another finding."""
    known = {(fault.get("cause"), fault.get("subject"), fault.get("found")) for fault in before}
    return [fault for fault in faults if (fault.cause.value, fault.subject, fault.found) not in known]


def reason_for(slot: int, faults: Sequence[Fault]) -> str:
    """One sentence for an operator: the first fault of the slot, and how many there are besides."""
    own = [fault for fault in faults if slot in fault.slots]
    more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
    first = own[0]
    return f"{first.cause} of {first.subject}: {first.found} (threshold {first.limit})"[:REASON_LENGTH_MAX] + more


def _exceeds(one: _Reading, before: Mapping[str, int | None], accepted: Mapping[str, int]) -> Fault | None:
    if one.value is None or one.limit is None:
        return None
    if one.per_probe:
        earlier = before.get(one.name)
        if earlier is None:
            return None  # nothing to compare with
        # A counter that began again at zero has increased by what it is now.
        increase = one.value - earlier if one.value >= earlier else one.value
        found = f"{increase} more than the report before"
        return Fault(one.cause, one.subject, found, str(one.limit), one.slots) if increase > one.limit else None
    base = accepted.get(one.name, 0)
    if one.value - base <= one.limit:
        return None
    found = f"{one.value}, {base} accepted" if base else str(one.value)
    return Fault(one.cause, one.subject, found, str(one.limit), one.slots, one.value)


def _counters(report: HealthReport, limits: Thresholds, machine: Machine) -> Iterator[_Reading]:
    every = machine.every_slot
    for memory in report.memory or ():
        yield _Reading(
            FaultCause.MEMORY_UNCORRECTED, memory.name, memory.uncorrected, limits.memory_uncorrected_max, every
        )
        limit = limits.memory_corrected_per_probe_max
        yield _Reading(FaultCause.MEMORY_CORRECTED, memory.name, memory.corrected, limit, every, per_probe=True)
    for disk in report.disks or ():
        yield _Reading(FaultCause.DISK_MEDIA_ERRORS, disk.name, disk.media_errors, limits.disk_media_errors_max, every)
        yield _Reading(
            FaultCause.DISK_PENDING_SECTORS, disk.name, disk.pending_sectors, limits.disk_pending_sectors_max, every
        )
    for gpu in report.gpus or ():
        yield from _counters_of_gpu(gpu, limits, machine.slots_of(gpu.address))
    for nic in report.nics or ():
        known = [errors for errors in (nic.receive_errors, nic.transmit_errors) if errors is not None]
        errors = sum(known) if known else None
        yield _Reading(FaultCause.NIC_ERRORS, nic.name, errors, limits.nic_errors_per_probe_max, every, per_probe=True)
        limit = limits.nic_carrier_losses_per_probe_max
        yield _Reading(FaultCause.NIC_CARRIER_LOST, nic.name, nic.carrier_losses, limit, every, per_probe=True)


def _counters_of_gpu(gpu: GpuHealth, limits: Thresholds, slots: tuple[int, ...]) -> Iterator[_Reading]:
    address = gpu.address
    yield _Reading(FaultCause.GPU_UNCORRECTED, address, gpu.ecc_uncorrected, limits.gpu_uncorrected_max, slots)
    lifetime = limits.gpu_uncorrected_lifetime_max
    yield _Reading(FaultCause.GPU_UNCORRECTED_LIFETIME, address, gpu.ecc_uncorrected_lifetime, lifetime, slots)
    yield _Reading(
        FaultCause.GPU_REMAPPED, address, gpu.remapped_uncorrected, limits.gpu_remapped_uncorrected_max, slots
    )
    errors = limits.nvlink_errors_per_probe_max
    yield _Reading(FaultCause.NVLINK_ERRORS, address, gpu.nvlink_errors, errors, slots, per_probe=True)
    counts = {xid.code: xid.count for xid in gpu.xids or ()}
    for code in sorted(set(limits.gpu_xids)) if gpu.xids is not None else ():
        yield _Reading(FaultCause.GPU_XID, f"{address} XID {code}", counts.get(code, 0), 0, slots)


def _of_gpus(gpus: Sequence[GpuHealth], limits: Thresholds, machine: Machine) -> Iterator[Fault]:
    for gpu in gpus:
        slots = machine.slots_of(gpu.address)
        if gpu.remap_pending and limits.gpu_remap_pending:
            yield Fault(FaultCause.GPU_REMAP_PENDING, gpu.address, "a reset is needed", "none", slots)
        if gpu.remap_failed and limits.gpu_remap_failed:
            yield Fault(FaultCause.GPU_REMAP_FAILED, gpu.address, "a row could not be remapped", "none", slots)
        margin = limits.gpu_slowdown_margin_celsius
        if gpu.temperature_celsius is not None and gpu.slowdown_celsius is not None and margin is not None:
            limit = gpu.slowdown_celsius - margin
            if gpu.temperature_celsius >= limit:
                yield Fault(FaultCause.GPU_HOT, gpu.address, f"{gpu.temperature_celsius} C", f"below {limit} C", slots)
        if throttled := [reason for reason in gpu.throttle_reasons or () if reason in limits.gpu_throttle_reasons]:
            yield Fault(FaultCause.GPU_THROTTLED, gpu.address, ", ".join(throttled), "none", slots)


def _of_disks(disks: Sequence[DiskHealth], limits: Thresholds, machine: Machine) -> Iterator[Fault]:
    every, worn = machine.every_slot, limits.disk_percentage_used_max
    for disk in disks:
        if disk.passed is False:
            yield Fault(FaultCause.DISK_FAILED, disk.name, "SMART: failed", "passed", every)
        elif disk.state in _DEAD_STATES:
            yield Fault(FaultCause.DISK_FAILED, disk.name, f"state {disk.state}", "live", every)
        if disk.critical_warning and limits.disk_critical_warning:
            yield Fault(FaultCause.DISK_WARNING, disk.name, f"critical warning {disk.critical_warning:#x}", "0", every)
        if disk.percentage_used is not None and worn is not None and disk.percentage_used > worn:
            yield Fault(FaultCause.DISK_WORN, disk.name, f"{disk.percentage_used} % used", f"{worn} %", every)
