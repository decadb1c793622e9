"""`metal.wipe`: every disk of the machine, its UEFI variables and its TPM; fails closed."""

from __future__ import annotations

from node_agent.deploy_system.effects import uefi_variables
from node_agent.deploy_system.effects.contract import Host, Progress, WorkFailed
from node_agent.deploy_system.effects.disks import found_disks, require_drivers, require_same_disks
from node_agent.deploy_system.effects.erasing import erase
from node_agent.deploy_system.effects.firmware import read_firmware
from node_agent.deploy_system.effects.steps import step
from node_agent.deploy_system.effects.trusted_module import clear_tpm
from node_agent.discovery.reading import Gaps
from node_agent.wiping.machine_reports import NOT_COMPARED, UEFI
from node_agent.wire.deploy_tasks import (
    REPORT_BYTES_MAX,
    UEFI_VARIABLES_MAX,
    MetalDiskWipe,
    MetalWipeParameters,
    MetalWipeReport,
)


def wipe(host: Host, parameters: MetalWipeParameters, progress: Progress) -> MetalWipeReport:
    """Wipe the machine. Writes nothing before its disks are those of the task and every storage controller has a driver.

    Raises WorkFailed with a report of the disks that were wiped before; they stay so, and the task runs again from its
    start. UEFI variables that could not be removed are reported, and fail nothing.
    """
    began = host.monotonic()
    with step(host, progress, "find_disks") as finding:
        require_drivers(host, finding)
        disks = found_disks(host)
        require_same_disks(disks, parameters.disks, finding)
    named = [bytes.fromhex(marker) for marker in parameters.markers]
    wiped: list[MetalDiskWipe] = []
    try:
        for disk in disks:
            wiped.append(erase(host, progress, disk, named))
    except WorkFailed as failure:
        failure.evidence = MetalWipeReport(disks=wiped, seconds=round(host.monotonic() - began, 3))
        raise
    with step(host, progress, "find_disks", "again") as finding:  # none appeared while others were wiped
        require_drivers(host, finding)
        require_same_disks(found_disks(host), parameters.disks, finding)
    gaps = Gaps()
    compared = uefi_variables.Compared([], [], [], 0)
    if host.efi_variables.is_dir():
        if parameters.uefi_variables is None:
            gaps.add(UEFI, f"inspection listed none; {NOT_COMPARED}")
        else:
            with step(host, progress, "uefi_variables"):
                compared = uefi_variables.compare_and_remove(host, parameters.uefi_variables)
            if compared.nameless:
                gaps.add(UEFI, f"{compared.nameless} without a printable name, or unreadable, remain")
    elif parameters.uefi_variables is not None:
        gaps.add(UEFI, f"this start shows none, the inspection listed some; {NOT_COMPARED}")
    tpm = None
    if parameters.clear_tpm:
        with step(host, progress, "clear_tpm") as clearing:
            tpm = clear_tpm(host, clearing)
    for what, names in (
        ("removed", compared.removed),
        ("remaining", compared.remaining),
        ("changed", compared.changed),
    ):
        if len(names) > UEFI_VARIABLES_MAX:
            gaps.add(UEFI, f"{len(names)} were {what}, the first {UEFI_VARIABLES_MAX} are listed")
    with step(host, progress, "hardware"):
        firmware = read_firmware(host, gaps)
    report = MetalWipeReport(
        disks=wiped,
        variables_removed=compared.removed[:UEFI_VARIABLES_MAX],
        variables_remaining=compared.remaining[:UEFI_VARIABLES_MAX],
        variables_changed=compared.changed[:UEFI_VARIABLES_MAX],
        tpm=tpm,
        firmware=firmware,
        gaps=gaps.all(),
        seconds=round(host.monotonic() - began, 3),
    )
    return _fit(report)


def _fit(report: MetalWipeReport) -> MetalWipeReport:
    """The report within its bound: the proof of the wipe comes before the versions of firmware."""
    if len(report.canonical()) <= REPORT_BYTES_MAX:
        return report
    gaps = Gaps(report.gaps)
    gaps.add("firmware", "the report would be too large with it")
    return report.model_copy(update={"firmware": None, "gaps": gaps.all()})
