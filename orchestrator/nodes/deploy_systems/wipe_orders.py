"""What a wipe of an inspected machine erases: every disk by serial and size, foreign UEFI variables, and its TPM. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from node_agent.wire.deploy_tasks import DiskIdentity, MetalInspectReport, MetalWipeParameters
from node_agent.wire.topology import Disk
from orchestrator.nodes.deploy_systems.refusals import NotWipeable
from orchestrator.nodes.deploy_systems.run_rules import RunKind, wipe_seconds
from orchestrator.nodes.deploy_systems.run_store import RunWork

_ANY_EPOCH = 1
"""The deploy epoch is known when the deploy system is permitted."""


def wipe_of(report: MetalInspectReport, *, is_baseline: bool = True) -> RunWork:
    """The work of a run that wipes the machine of this inspection. Raises `NotWipeable`.

    `is_baseline`: the inspection was before the tenancy. UEFI variables are compared with no other: a later one lists what the
    tenant has left.
    """
    if report.storage_without_driver:
        controllers = ", ".join(report.storage_without_driver)
        raise NotWipeable(
            f"no driver has taken {controllers}, and disks behind it cannot be seen: remove it, or build a medium with its"
            " driver, and inspect the machine again",
            reason="storage_without_driver",
        )  # fmt: skip
    disks = _identities(report.topology.disks)
    parameters = MetalWipeParameters(
        deploy_epoch=_ANY_EPOCH, disks=disks, uefi_variables=report.uefi_variables if is_baseline else None,
        clear_tpm=report.topology.tpm is not None,
    )  # fmt: skip
    content = parameters.model_dump(mode="json", exclude_none=True, exclude={"deploy_epoch", "then"})
    return RunWork(RunKind.WIPE, content, wipe_seconds(disk.size_bytes for disk in disks))


def _identities(disks: Sequence[Disk] | None) -> list[DiskIdentity]:
    """Each disk by serial and size. Raises `NotWipeable`."""
    if not disks:
        raise NotWipeable(
            "the newest inspection lists no disk: compare its gaps, repair the machine and inspect it again",
            reason="no_disks",
        )
    found: dict[str, DiskIdentity] = {}
    for disk in disks:
        try:
            identity = DiskIdentity.model_validate({"serial": disk.serial, "size_bytes": disk.size_bytes})
        except ValidationError as error:
            raise NotWipeable(
                f"the disk {disk.name} has no usable serial or size: replace it and inspect the machine again",
                reason="disk_without_serial",
            ) from error
        if identity.serial in found:
            raise NotWipeable(
                f"two disks have the serial {identity.serial}: replace one of them and inspect the machine again",
                reason="disk_ambiguous",
            )
        found[identity.serial] = identity
    return list(found.values())
