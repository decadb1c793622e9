"""What DMI says of the machine, its kernel, and its TPM."""

from __future__ import annotations

from node_agent.discovery.reading import Tree
from node_agent.wire.topology import Firmware, TrustedModule

_DMI = "sys/class/dmi/id"
_TPM = "sys/class/tpm/tpm0"


def firmware(tree: Tree) -> Firmware:
    """Vendor, product, serial and BIOS of the machine. The serial is readable by root alone."""
    return Firmware(
        vendor=tree.line(f"{_DMI}/sys_vendor"),
        product=tree.line(f"{_DMI}/product_name"),
        serial=tree.line(f"{_DMI}/product_serial"),
        bios_vendor=tree.line(f"{_DMI}/bios_vendor"),
        bios_version=tree.line(f"{_DMI}/bios_version"),
        bios_date=tree.line(f"{_DMI}/bios_date"),
        boot_mode=("uefi" if tree.has("sys/firmware/efi") else "bios") if tree.has("sys/firmware") else None,
        kernel=tree.line("proc/sys/kernel/osrelease"),
    )


def trusted_module(tree: Tree) -> TrustedModule | None:
    """The first TPM; None if there is none."""
    if not tree.has(_TPM):
        return None
    return TrustedModule(
        version=tree.number(f"{_TPM}/tpm_version_major"), description=tree.line(f"{_TPM}/device/description")
    )
