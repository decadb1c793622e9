"""What a BMC reports of its machine, as it is sent: bounded, and without control characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from node_agent.redfish.contract import SystemDescription
from node_agent.wire.sites import PARTS_MAX, BmcDisk, BmcFirmware, BmcInventory, BmcManager, BmcNic

TEXT_LENGTH_MAX: Final = 200
INVENTORY_BYTES_MAX: Final = 48 * 1024
_Part = TypeVar("_Part")


def inventory_of(found: SystemDescription) -> BmcInventory:
    """The description, with lists cut so that a report holds it; `cut` says so."""
    for most in (PARTS_MAX, PARTS_MAX // 2, PARTS_MAX // 4, PARTS_MAX // 8):
        made = _inventory(found, most)
        if len(made.model_dump_json()) <= INVENTORY_BYTES_MAX:
            break
    return made


def _inventory(found: SystemDescription, most: int) -> BmcInventory:
    manager = found.manager
    return BmcInventory(
        id=_text(found.id), manufacturer=_text(found.manufacturer), model=_text(found.model), serial=_text(found.serial),
        uuid=_text(found.uuid), bios_version=_text(found.bios_version), processors=_count(found.processors),
        processor_model=_text(found.processor_model), memory_bytes=_count(found.memory_bytes),
        nics=[BmcNic(id=_text(one.id), mac=_text(one.mac), link_up=one.link_up) for one in found.nics[:most]],
        disks=[
            BmcDisk(id=_text(one.id), model=_text(one.model), serial=_text(one.serial), bytes=_count(one.bytes),
                    protocol=_text(one.protocol))
            for one in found.disks[:most]
        ],
        firmware=[
            BmcFirmware(id=_text(one.id), name=_text(one.name), version=_text(one.version), updateable=one.updateable)
            for one in found.firmware[:most]
        ],
        manager=None if manager is None else BmcManager(
            id=_text(manager.id), model=_text(manager.model), firmware_version=_text(manager.firmware_version)
        ),
        quirks=[_text(one) for one in found.quirks[:most]],
        cut=any(_is_cut(part, most) for part in (found.nics, found.disks, found.firmware, found.quirks)),
    )  # fmt: skip


def _is_cut(parts: Sequence[object], most: int) -> bool:
    return len(parts) > most


def _text(value: str) -> str:
    """Printable text of a bounded length: a BMC's strings are not trusted."""
    return "".join(one if one.isprintable() else " " for one in value[:TEXT_LENGTH_MAX])


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < 2**53 else None
