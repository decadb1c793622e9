"""The firmware's boot entry of the deployed disk, as UEFI 2.10 §3.1.3 has it: written, put first, read back."""

from __future__ import annotations

import re
import struct
from typing import Final

from node_agent.deploy_system.effects import uefi_variables
from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.partitions import Partition

DESCRIPTION: Final = "Berth"
LOADER: Final = "\\EFI\\BOOT\\BOOTX64.EFI"
"""What the specification has every medium carry (UEFI 2.10 §3.5.1.1)."""
_ACTIVE: Final = 1
_BOOT: Final = re.compile(rf"^Boot([0-9A-F]{{4}})-{uefi_variables.GLOBAL}$")


def set_boot_entry(host: Host, esp: Partition) -> str:
    """Make the partition's loader the first boot entry, in place of an earlier one of ours; its name, like `Boot0003`.

    Raises OSError if the firmware does not keep entry or order.
    """
    content = load_option(esp)
    taken = {int(found[1], 16) for name in _names(host) if (found := _BOOT.match(name))}
    ours = [number for number in sorted(taken) if _is_ours(uefi_variables.read(host, f"Boot{number:04X}"))]
    number = ours[0] if ours else next(number for number in range(0x10000) if number not in taken)
    uefi_variables.write(host, f"Boot{number:04X}", content)
    order = uefi_variables.read(host, "BootOrder") or b""
    known = [entry for (entry,) in struct.iter_unpack("<H", order[: len(order) // 2 * 2])]
    first = [number, *(entry for entry in known if entry != number)]
    uefi_variables.write(host, "BootOrder", struct.pack(f"<{len(first)}H", *first))
    return f"Boot{number:04X}"


def load_option(esp: Partition) -> bytes:
    """EFI_LOAD_OPTION: the partition by signature, so that it is found on whatever port the disk is."""
    kind = 2 if esp.is_gpt else 1
    drive = struct.pack("<BBHIQQ16sBB", 4, 1, 42, esp.number, esp.start, esp.sectors, esp.signature, kind, kind)
    loader = (LOADER + "\0").encode("utf-16-le")
    path = drive + struct.pack("<BBH", 4, 4, 4 + len(loader)) + loader + b"\x7f\xff\x04\x00"
    return struct.pack("<IH", _ACTIVE, len(path)) + _description() + path


def _description() -> bytes:
    return (DESCRIPTION + "\0").encode("utf-16-le")


def _is_ours(value: bytes | None) -> bool:
    return value is not None and value[6:].startswith(_description())


def _names(host: Host) -> list[str]:
    return [path.name for path in host.efi_variables.iterdir()]
