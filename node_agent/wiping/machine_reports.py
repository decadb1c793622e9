"""From the report of a deploy system's wipe to what a wipe statement says; both sides make it, so that neither adds anything.

The evidence of the statement is the report as it is sent, whose members the receiver need not know.
"""

from __future__ import annotations

from typing import Final

from node_agent.wiping.devices import DeviceWipe, level_of
from node_agent.wiping.machine import FirmwareReading, MachineWipe, UefiComparison
from node_agent.wiping.statement import digest_of
from node_agent.wire.deploy_tasks import MetalWipeParameters, MetalWipeReport

UEFI: Final = "uefi_variables"
NOT_COMPARED: Final = "nothing was compared"
"""Subject of a gap about UEFI variables, and the end of its reason where none was compared."""


def device_name(serial: str) -> str:
    """What evidence and statements call a disk of a machine."""
    return f"disk {serial}"


def devices_of(report: MetalWipeReport) -> list[DeviceWipe]:
    """A proof for each disk of the report. `read_bytes` below `size_bytes` means that samples were read back."""
    return [
        DeviceWipe(
            device=device_name(disk.serial), kind="disk", serial=disk.serial, method=disk.method or "none",
            level=level_of(disk.method or ""), proven=disk.proven,
            checked={
                "size_bytes": disk.size_bytes, "read_bytes": disk.read_bytes, "markers_found": disk.markers_found,
                "attempts": [[attempt.method, attempt.accepted] for attempt in disk.attempts],
            },
        )
        for disk in report.disks
    ]  # fmt: skip


def machine_of(report: MetalWipeReport, parameters: MetalWipeParameters) -> MachineWipe:
    """What the statement says besides the disks."""
    compared = parameters.uefi_variables is not None and not any(
        gap.subject == UEFI and gap.reason.endswith(NOT_COMPARED) for gap in report.gaps
    )
    firmware = None
    if report.firmware is not None:
        # As received: a later version of this function knows more members, which a medium of this one has not signed.
        versions = [one.model_dump(mode="json", exclude_unset=True) for one in report.firmware]
        firmware = FirmwareReading(versions=len(versions), sha256=digest_of(versions))
    return MachineWipe(
        deploy_epoch=parameters.deploy_epoch, disks_found=len(report.disks),
        tpm="not_asked" if report.tpm is None or report.tpm == "refused" else report.tpm,
        uefi_variables=UefiComparison(
            removed=len(report.variables_removed), changed=len(report.variables_changed)
        ) if compared else None,
        firmware=firmware, gaps=sorted({gap.subject for gap in report.gaps}),
    )  # fmt: skip
