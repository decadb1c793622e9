"""Disks beside the root disk: kept as they are, or formatted as a whole with one file system, which is read back."""

from __future__ import annotations

import re

from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.disks import FoundDisk
from node_agent.deploy_system.effects.steps import Step
from node_agent.wire.deploy_tasks import DataDisk, DeployedDisk, DeployFailureCode


def prepare_data_disk(host: Host, disk: FoundDisk, wanted: DataDisk, preparing: Step) -> DeployedDisk:
    """Format the disk if the task asks for it; a kept disk is not opened. Raises WorkFailed with `disk_error`."""
    if wanted.action == "format":
        label = ["-L", wanted.label] if wanted.label else []
        force = "-f" if wanted.filesystem == "xfs" else "-F"
        made = host.run([f"mkfs.{wanted.filesystem}", "-q", force, *label, str(disk.path)], preparing.seconds_left)
        if made.status != 0:
            raise preparing.failed(DeployFailureCode.DISK_ERROR, f"{disk}: mkfs: {made.output[-200:]}")
        found = host.run(["blkid", "-p", "-o", "export", str(disk.path)], preparing.seconds_left).output
        has_label = wanted.label is None or re.search(rf"^LABEL={re.escape(wanted.label)}$", found, re.MULTILINE)
        if not has_label or not re.search(rf"^TYPE={wanted.filesystem}$", found, re.MULTILINE):
            raise preparing.failed(DeployFailureCode.DISK_ERROR, f"{disk}: no {wanted.filesystem} is found after mkfs")
    return DeployedDisk(serial=disk.serial, size_bytes=disk.size_bytes, action=wanted.action)
