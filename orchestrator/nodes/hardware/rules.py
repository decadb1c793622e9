"""Which pieces of hardware a topology names, and where. Pure.

A piece is known by its serial number. Boards with several GPUs and disks with several paths are one piece.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from node_agent.wire.layout import layout_of
from node_agent.wire.topology import Topology
from orchestrator.nodes.topology.rules import Difference, DriftCause

SERIAL: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{3,63}$"
_OTHERS = re.compile(r"[^A-Za-z0-9._:-]")
# What firmware and virtual devices say in place of a serial number; also any serial number of one character repeated.
_PLACEHOLDERS = frozenset({"none", "null", "unknown", "default", "not_specified", "not_available", "default_string"})
FAULTS_OF_DISCOVERY: Final = (DriftCause.GPU_LOST, DriftCause.NVLINK_DOWN)
"""Differences that are faults of a GPU; the others are changes of place, or of the node."""


class Kind(StrEnum):
    """What a piece of hardware is."""

    GPU = "gpu"
    DISK = "disk"


class Happened(StrEnum):
    """What happened to a piece of hardware."""

    SEEN = "seen"
    MOVED = "moved"
    MISSING = "missing"
    CONTESTED = "contested"
    FAULT_FOUND = "fault_found"
    FAULT_REPORTED = "fault_reported"
    QUARANTINED = "quarantined"
    RETURNED = "returned"
    REPAIR_OPENED = "repair_opened"
    REPAIR_CLOSED = "repair_closed"
    GPU_RESET = "gpu_reset"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of hardware that a node reports. `positions`: PCI addresses of a GPU, names of a disk."""

    serial: str
    kind: Kind
    model: str | None
    slots: tuple[int, ...]
    positions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The hardware of a node. A piece that is not in `parts` is missing if its kind is in `known`, and none of its positions
    in `unread`: there something has no readable serial number.
    """

    parts: tuple[Part, ...]
    known: tuple[Kind, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartFault:
    """A fault of what is at a position: a PCI address, or the name of a disk."""

    subject: str
    detail: str
    evidence: str


def serial_of(text: str | None) -> str | None:
    """A serial number as Berth spells it: other characters than letters, digits, `.`, `_`, `:` and `-` become `_`.

    None for an absent one, for fewer than four characters, and for what firmware says in its place.
    """
    spelt = _OTHERS.sub("_", (text or "").strip())
    if re.fullmatch(SERIAL, spelt) is None or len(set(spelt)) == 1 or spelt.lower() in _PLACEHOLDERS:
        return None
    return spelt


def parts_of(found: Topology, approved: Topology | None, slot_count: int) -> Parts:
    """The pieces of a topology. Slots follow from the approved one, otherwise from this one if it has as many GPUs as slots."""
    layout = layout_of(approved or found)
    fits = layout is not None and len(layout.addresses) == slot_count
    slot_of = {address: slot for slot, address in enumerate(layout.addresses)} if layout is not None and fits else {}
    left_out = {gap.subject for gap in found.gaps}
    lists = {Kind.GPU: found.gpus, Kind.DISK: found.disks}
    known = [kind for kind, items in lists.items() if items is not None and not left_out & {f"{kind}s", "gaps"}]
    unread = [position for serial, _, _, position in _pieces(found) if serial is None]
    # The address of a GPU whose reading failed is part of the gap's subject.
    unread += [gpu.address for gpu in (approved.gpus if approved else None) or () if _is_gap(gpu.address, left_out)]
    merged: dict[str, Part] = {}
    for serial, kind, model, position in _pieces(found):
        if serial is None or (serial in merged and merged[serial].kind is not kind):
            continue
        slots = (slot_of[position],) if kind is Kind.GPU and position in slot_of else ()
        before = merged.get(serial, Part(serial, kind, model, (), ()))
        places = tuple(sorted({*before.positions, position}))
        merged[serial] = Part(serial, kind, before.model, tuple(sorted({*before.slots, *slots})), places)
    return Parts(tuple(merged[serial] for serial in sorted(merged)), tuple(known), tuple(sorted(set(unread))))


def faults_of_differences(now: Sequence[Difference]) -> list[PartFault]:
    """The faults among the differences of a discovery."""
    return [
        PartFault(one.subject, one.cause.value, f"approved {one.approved}, found {one.found}")
        for one in now
        if one.cause in FAULTS_OF_DISCOVERY
    ]


def _pieces(found: Topology) -> Iterator[tuple[str | None, Kind, str | None, str]]:
    for gpu in found.gpus or ():
        yield serial_of(gpu.serial), Kind.GPU, gpu.model, gpu.address
    for disk in found.disks or ():
        yield serial_of(disk.serial), Kind.DISK, disk.model, disk.name


def _is_gap(address: str, subjects: set[str]) -> bool:
    return any(address in subject for subject in subjects)
