"""Which GPUs are reset together, when they may be, and which report proves a reset. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from node_agent.wire.gpu_reset import UNTOUCHED, GpuResetReport
from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Gpu, Topology

REQUEST_SECONDS_MAX: Final = 900.0
"""How long a request waits for the worker and the node before its task is issued."""
RESET_SECONDS_MAX: Final = 300.0
"""How long a node has for one reset."""
WINDOW_MARGIN_SECONDS: Final = 60.0
"""Between the deadline of a reset and the end of the maintenance window that keeps a slot out of service."""
REASON_LENGTH_MAX: Final = 400
_NVIDIA: Final = "nvidia"


class GpuResetOutcome(StrEnum):
    """The outcome of a reset: `failed` did not prove that every GPU was reset."""

    RESET = "reset"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A slot of a locked node. `maintained_until`: the end of the active window that has it. `occupied`: a tenant has a right to
    it that begins before a reset would be over, or something of a tenant is on it."""

    slot_index: int
    unit: int
    quarantined: bool
    maintained_until: datetime | None
    occupied: bool


@dataclass(frozen=True, slots=True)
class Group:
    """The GPUs that are reset together: slots, and the PCI address of each. `serials`: as far as they are known, by address.

    `changed`: why another GPU than the approved one may be at one of these addresses now; then none may be reset.
    """

    slots: tuple[int, ...]
    gpus: tuple[str, ...]
    serials: Mapping[str, str]
    changed: str | None = None


def group_of(found: Topology, approved: Topology | None, slot_count: int, slot_index: int) -> Group | None:
    """The GPUs that a reset of this slot's GPU resets; None if the topology does not name one for each slot.

    NVIDIA's driver resets GPUs that NVLink connects only together. A GPU that NVML did not answer for counts as connected if
    another one is. Of a GPU that is passed through, the kernel resets the function alone.
    """
    layout = layout_of(approved or found)
    if layout is None or len(layout.addresses) != slot_count or not 0 <= slot_index < slot_count:
        return None
    now, then = ({gpu.address: gpu for gpu in one.gpus or ()} if one else {} for one in (found, approved))
    known = {address: [one[address] for one in (now, then) if address in one] for address in layout.addresses}
    wanted = layout.addresses[slot_index]
    connected = {address for address, seen in known.items() if any(gpu.nvlinks for gpu in seen)}
    if connected:
        connected |= {address for address, seen in known.items() if all(gpu.model is None for gpu in seen)}
    together = {address for address in connected if _by_driver(known[address])} if wanted in connected else set()
    chosen = [
        slot for slot, address in enumerate(layout.addresses) if address == wanted or
        (wanted in together and address in together)
    ]  # fmt: skip
    gpus = tuple(layout.addresses[slot] for slot in chosen)
    serials = {one: serial for one in gpus if (serial := _serial(known[one])) is not None}
    changed = next((why for one in gpus if (why := _changed(one, now, then)) is not None), None)
    return Group(tuple(chosen), gpus, serials, changed)


def _changed(address: str, now: Mapping[str, Gpu], then: Mapping[str, Gpu]) -> str | None:
    """Why another GPU than the approved one may be at this address. What one of the two does not name is no difference."""
    found, approved = now.get(address), then.get(address)
    if found is None:
        return f"the topology found last has no GPU at {address}"
    if approved is None:
        return None
    if None not in (found.serial, approved.serial) and found.serial != approved.serial:
        return f"the serial number at {address} is {found.serial}, and {approved.serial} was approved"
    if None not in (found.model, approved.model) and found.model != approved.model:
        return f"the model at {address} is {found.model}, and {approved.model} was approved"
    return None


def _by_driver(seen: Sequence[Gpu]) -> bool:
    """Whether NVIDIA's driver holds the GPU, by the newest topology that has it."""
    return bool(seen) and seen[0].driver == _NVIDIA


def _serial(seen: Sequence[Gpu]) -> str | None:
    """The serial number that was approved, otherwise the one found."""
    return next((gpu.serial for gpu in reversed(seen) if gpu.serial is not None), None)


def in_service(found: Sequence[SlotUse], slots: Sequence[int], now: datetime) -> dict[int, str]:
    """Those of the slots whose GPUs may not be reset, and why."""
    enough = now + timedelta(seconds=RESET_SECONDS_MAX + WINDOW_MARGIN_SECONDS)
    refused: dict[int, str] = {}
    for slot in found:
        if slot.slot_index not in slots:
            continue
        if slot.occupied:
            refused[slot.slot_index] = "a tenant holds it"
        elif not slot.quarantined and slot.maintained_until is None:
            refused[slot.slot_index] = "is in service"
        elif not slot.quarantined and slot.maintained_until is not None and slot.maintained_until < enough:
            refused[slot.slot_index] = "its maintenance window ends too soon"
    return refused


def judge(
    report: GpuResetReport, gpus: Sequence[str], serials: Mapping[str, str]
) -> tuple[GpuResetOutcome, str | None]:
    """Whether the report proves that each of these GPUs was reset, and otherwise why not: a code and what was found."""
    results = {one.address: one for one in report.gpus}
    doubts: list[str] = []
    for address in gpus:
        one = results.get(address)
        if one is None:
            doubts.append(f"gpu_reset_unverified: the report has nothing of {address}")
        elif one.outcome != "reset":
            doubts.append(f"{one.outcome}: {address}: {one.evidence}")
        elif one.serial is not None and serials.get(address, one.serial) != one.serial:
            doubts.append(f"gpu_reset_unverified: {address}: its serial number is {one.serial}, not {serials[address]}")
    # What kept others from being reset comes first.
    doubts.sort(key=lambda doubt: doubt.startswith("gpu_reset_left_out"))
    if not doubts:
        return GpuResetOutcome.RESET, None
    more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
    return GpuResetOutcome.FAILED, doubts[0][:REASON_LENGTH_MAX] + more


def touched(report: GpuResetReport) -> bool:
    """Whether the agent may have touched a GPU: only then is a failure evidence about the hardware."""
    return any(one.outcome not in UNTOUCHED for one in report.gpus)
