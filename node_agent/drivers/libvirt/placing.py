"""Where the guests of this host run: decided once at the agent's start, and recorded with each guest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

import structlog

from node_agent.drivers.libvirt.host_slots import HostSlots, SlotGpus, read_host_slots
from node_agent.drivers.libvirt.huge_pages import require_pages
from node_agent.drivers.libvirt.placement import GuestPlacement, Pinning, conflict, pin, why_unbound
from node_agent.drivers.libvirt.records import GuestRecord
from node_agent.drivers.libvirt.sizing import SlotShare, fit, size_of
from node_agent.wire.guests import GuestSize

log = structlog.get_logger("node_agent.libvirt")


@dataclass(frozen=True)
class PlacementSettings:
    """What an operator sets; see the settings of the same names. Bytes and KiB."""

    processors: int
    memory_bytes: int
    slots: int = 0
    reserved: tuple[int, ...] | None = None
    huge_page_kib: int = 0
    root: Path = Path("/")

    @property
    def share(self) -> SlotShare:
        """What a guest may have for each of its slots."""
        return SlotShare(self.processors, self.memory_bytes, self.huge_page_kib)


class SizedGuest(TypedDict):
    """The members of a guest's record that say how large it is, and where its processors and memory are."""

    processors: int
    memory_bytes: int
    placement: GuestPlacement | None


class PlacedGuest(SizedGuest):
    """And those that say which processors and pages it may use."""

    shared_processors: list[int]
    huge_page_kib: int


@dataclass
class Placing:
    """The division of one host's processors between its slots. `lock`: from counting free pages until a guest has them."""

    settings: PlacementSettings
    pinning: Pinning = field(default_factory=lambda: Pinning(None, "the host was not looked at"))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def look(self, known: SlotGpus) -> None:
        """Find out what each slot gets. `known`: the GPUs by slot."""
        host = read_host_slots(self.settings.root, self.settings.slots, known)
        self.pinning = pinning_of(self.settings, host)
        log.info("guests_pinned", pinned=self.pinning.blocks is not None, why=self.pinning.why or None)
        if self.pinning.why_unbound:
            log.warning("guests_memory_not_bound", why=self.pinning.why_unbound)

    def sized(self, slots: list[int], stated: GuestSize | None) -> SizedGuest:
        """How large a new guest is, and where. Raises SizeUnavailable."""
        size = size_of(stated, len(slots), self.settings.share)
        placement = self.pinning.place(slots, self.settings.memory_bytes)
        if placement is not None:
            placement = fit(placement, size, self.settings.share.memory_step_bytes)
        return {"processors": size.processors, "memory_bytes": size.memory_bytes, "placement": placement}

    def place(self, slots: list[int], others: Iterable[GuestRecord], stated: GuestSize | None = None) -> PlacedGuest:
        """Where a new guest runs, and how large it is. `others`: the guests that are there.

        Raises SizeUnavailable, and OSError if one of them has a processor of these slots.
        """
        sized = self.sized(slots, stated)
        placement = sized["placement"]
        if placement is None and self.pinning.blocks is not None:
            log.warning("guest_not_pinned", slots=slots, slots_with_processors=len(self.pinning.blocks))
        if placement is not None:
            held = {str(one.allocation_id): one.placement for one in others if one.placement is not None}
            if (why := conflict(placement, held)) is not None:
                raise OSError(f"{why}; release that allocation, or set back what was changed")
        shared = list(self.pinning.shared) if placement is None else []
        return {**sized, "shared_processors": shared, "huge_page_kib": self.settings.huge_page_kib}

    def require_memory(self, record: GuestRecord) -> None:
        """Raise HugePagesShort unless the host has the huge pages of this guest free."""
        if record.huge_page_kib:
            require_pages(self.settings.root, record.huge_page_kib, record.memory_bytes, record.placement)


def pinning_of(settings: PlacementSettings, host: HostSlots) -> Pinning:
    """What each slot of the host gets under these settings."""
    found = pin(host.cores, host.slot_nodes, settings.processors, settings.reserved)
    if found.is_bound and (why := why_unbound(host.slot_nodes, host.memory, settings.memory_bytes)):
        return replace(found, is_bound=False, why_unbound=why)
    return found
