"""What follows from a topology, and what a later one differs in. Pure.

A field or list that was not found is unknown, and unknown is never a difference: only positive evidence takes a slot out of
service.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Gpu, Topology
from orchestrator.catalogue.shapes import SLOTS_MAX

DISCOVERY_SECONDS_MAX = 300.0
"""How long a node has for one discovery."""
RETRY_SECONDS = 900.0
"""Pause after a discovery that failed."""
MEMORY_SHARE_MIN = 15 / 16
"""The kernel reserves a part of the memory, which changes with its version; a missing module is more than this."""


class DriftCause(StrEnum):
    """What differs from the approved topology."""

    GPU_MISSING = "gpu_missing"
    GPU_MOVED = "gpu_moved"
    GPU_LOST = "gpu_lost"
    GPU_CHANGED = "gpu_changed"
    GPU_REPLACED = "gpu_replaced"
    GPU_ADDED = "gpu_added"
    MIG_CHANGED = "mig_changed"
    NVLINK_DOWN = "nvlink_down"
    PORT_MISSING = "port_missing"
    PORT_DOWN = "port_down"
    MEMORY_MISSING = "memory_missing"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. `subject`: a PCI address, a port or `memory`; `slots`: those that it takes out of service."""

    cause: DriftCause
    subject: str
    approved: str | None
    found: str | None
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What an operator declared of a node."""

    gpu_model: str
    slot_count: int
    half_slots: int


def misfit(topology: Topology, slot_count: int) -> str | None:
    """Why this topology cannot be approved for a node with so many slots, or None; 0: its slots follow from it."""
    layout = layout_of(topology)
    if layout is None:
        return "its GPUs could not be read"
    if slot_count == 0 and not 1 <= len(layout.addresses) <= SLOTS_MAX:
        return f"it has {len(layout.addresses)} GPUs, and a node has 1 to {SLOTS_MAX} slots"
    if slot_count not in (0, len(layout.addresses)):
        return f"it has {len(layout.addresses)} GPUs, and the node has {slot_count} slots"
    lost = [gpu.address for gpu in topology.gpus or () if gpu.lost]
    return f"the GPU at {lost[0]} is lost" if lost else None


def equals_profile(topology: Topology, profile: Profile) -> bool:
    """Whether the topology is what was declared: count, model and halves, as far as halves exist. The model must be known.

    Without a declared count it never is: an operator approves it.
    """
    if not profile.slot_count:
        return False
    layout = layout_of(topology)
    if layout is None or layout.gpu_model is None or misfit(topology, profile.slot_count) is not None:
        return False
    declared = _words(profile.gpu_model)
    return layout.half_slots in (None, profile.half_slots) and bool(declared) and declared <= _words(layout.gpu_model)


def differences(approved: Topology, found: Topology) -> list[Difference]:
    """What differs, of what was known then and is known now."""
    layout = layout_of(approved)
    slot_of = {address: slot for slot, address in enumerate(layout.addresses)} if layout else {}
    return [
        *_of_gpus(approved.gpus, found, slot_of),
        *_of_ports(approved, found, tuple(range(len(slot_of)))),
        *_of_memory(approved.memory_bytes, found.memory_bytes, tuple(range(len(slot_of)))),
    ]


def drifted_slots(found: Sequence[Difference]) -> list[int]:
    """The slots that these differences take out of service."""
    return sorted({slot for difference in found for slot in difference.slots})


def _of_gpus(approved: Sequence[Gpu] | None, found: Topology, slot_of: dict[str, int]) -> Iterator[Difference]:
    if approved is None or found.gpus is None:
        return
    at = {gpu.address: gpu for gpu in found.gpus}
    unread = [gap.subject for gap in found.gaps]
    for gpu in approved:
        slots, now = (slot_of[gpu.address],), at.get(gpu.address)
        elsewhere = [other.address for other in found.gpus if other.address != gpu.address and _is_same(gpu, other)]
        if elsewhere:
            yield Difference(DriftCause.GPU_MOVED, gpu.address, gpu.address, elsewhere[0], slots)
        elif now is not None:
            yield from _of_gpu(gpu, now, slots)
        elif not any(gpu.address in subject or subject == "gaps" for subject in unread):
            yield Difference(DriftCause.GPU_MISSING, gpu.address, gpu.model or gpu.pci_id, None, slots)
    for address in sorted(at.keys() - {gpu.address for gpu in approved}):
        yield Difference(DriftCause.GPU_ADDED, address, None, at[address].model or at[address].pci_id, ())


def _of_gpu(gpu: Gpu, now: Gpu, slots: tuple[int, ...]) -> Iterator[Difference]:
    def different(cause: DriftCause, before: object, after: object) -> Iterator[Difference]:
        if before is not None and after is not None and before != after:
            yield Difference(cause, gpu.address, str(before), str(after), slots)

    if now.lost:
        yield Difference(DriftCause.GPU_LOST, gpu.address, "answers", "lost", slots)
    changed = [
        *different(DriftCause.GPU_CHANGED, gpu.pci_id, now.pci_id),
        *different(DriftCause.GPU_CHANGED, gpu.model, now.model),
    ]
    yield from changed[:1]
    if not changed and _is_same(gpu, now) is False:
        yield from different(DriftCause.GPU_REPLACED, gpu.serial or gpu.uuid, now.serial or now.uuid)
    yield from different(DriftCause.MIG_CHANGED, gpu.mig_enabled, now.mig_enabled)
    if gpu.nvlinks_up is not None and now.nvlinks_up is not None and now.nvlinks_up < gpu.nvlinks_up:
        yield Difference(DriftCause.NVLINK_DOWN, gpu.address, str(gpu.nvlinks_up), str(now.nvlinks_up), slots)


def _of_ports(approved: Topology, found: Topology, every: tuple[int, ...]) -> Iterator[Difference]:
    if approved.nics is None or found.nics is None:
        return
    on_bus = {device.address for device in found.pci_devices or ()}
    for nic in approved.nics:
        if not nic.link_up:
            continue  # a port without a cable is not in use
        here = [now for now in found.nics if (now.address == nic.address if nic.address else now.name == nic.name)]
        there = next((now for now in here if now.name == nic.name), here[0] if here else None)
        if there is not None and there.link_up is False:
            yield Difference(DriftCause.PORT_DOWN, nic.name, "up", "down", every)
        elif there is None and nic.address not in on_bus:  # a port on the bus is another driver's
            yield Difference(DriftCause.PORT_MISSING, nic.name, nic.address or nic.mac, None, every)


def _of_memory(approved: int | None, found: int | None, every: tuple[int, ...]) -> Iterator[Difference]:
    if approved is not None and found is not None and found < approved * MEMORY_SHARE_MIN:
        yield Difference(DriftCause.MEMORY_MISSING, "memory", str(approved), str(found), every)


def _is_same(gpu: Gpu, other: Gpu) -> bool | None:
    """Whether both are one GPU, by serial, otherwise by UUID; None if neither is known of both."""
    for one, two in ((gpu.serial, other.serial), (gpu.uuid, other.uuid)):
        if one is not None and two is not None:
            return one == two
    return None


def _words(text: str) -> set[str]:
    """`H100-80GB` is contained in `NVIDIA H100 80GB HBM3`."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))
