"""The work of a deploy system on a machine whose disk is a file: read back as it is written, and noted as evidence.

The disk holds the markers of every tenant since the last wipe: a deployment writes an image beside them, and erases none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node_agent.deploy_system.effects.contract import Host, Interrupted, Progress
from node_agent.deploy_system.performing import Report
from node_agent.deploy_system.performing import Work as Function
from node_agent.drivers.ssh import new_host_key
from node_agent.protocol import TaskType
from node_agent.wire.deploy_tasks import (
    MetalDeployParameters,
    MetalDeployReport,
    MetalInspectReport,
    MetalRescueReport,
    MetalWipeParameters,
    MetalWipeReport,
)
from tests.campaign.machines.place import SERIAL, SIZE_BYTES, Place

STEP_SECONDS = 0.3
STEPS = 3


def refuse_when_off(place: Place, boot: int) -> None:
    """Raise Interrupted unless the machine is still on since this start: nothing writes to a disk without power."""
    bmc = place.read("bmc")
    if (bmc.get("power"), bmc.get("boot")) != ("On", boot):
        raise Interrupted


class Work:
    """The work of one start of a machine."""

    def __init__(self, place: Place, boot: int, step_seconds: float = STEP_SECONDS) -> None:
        self._place, self._boot, self._step_seconds = place, boot, step_seconds
        self.rescue_key = ""
        self.has_begun = False

    @property
    def by_type(self) -> Mapping[TaskType, Function]:
        """The function of each task."""
        return {
            TaskType.METAL_INSPECT: self._inspect, TaskType.METAL_WIPE: self._wipe, TaskType.METAL_DEPLOY: self._deploy,
            TaskType.METAL_RESCUE: self._rescue,
        }  # fmt: skip

    def _steps(self, host: Host, kind: str, epoch: int) -> None:
        """Take as long as a few steps; at each the machine may lose its power."""
        self.has_begun = True
        self._place.note("work_begun", kind=kind, boot=self._boot, epoch=epoch)
        for _ in range(STEPS):
            host.stopped.wait(self._step_seconds)
            host.check_stop()
            refuse_when_off(self._place, self._boot)

    def _done(self, kind: str, epoch: int, **details: Any) -> None:
        self._place.note("work_done", kind=kind, boot=self._boot, epoch=epoch, **details)

    def _inspect(self, host: Host, parameters: Any, progress: Progress) -> Report:
        self._steps(host, "inspect", parameters.deploy_epoch)
        self._done("inspect", parameters.deploy_epoch)
        disk = {"name": "nvme0n1", "serial": SERIAL, "size_bytes": SIZE_BYTES}
        topology = {
            "driver": "redfish", "processors": {"architecture": "x86_64"}, "disks": [disk],
            "nics": [{"name": "eth0", "mac": self._place.mac}],
        }  # fmt: skip
        return MetalInspectReport.model_validate({"smbios_uuid": str(self._place.smbios), "topology": topology})

    def _wipe(self, host: Host, parameters: MetalWipeParameters, progress: Progress) -> Report:
        self._steps(host, "wipe", parameters.deploy_epoch)
        before = self._place.read("disk").get("allocation")
        self._place.write("disk", {})
        found = self._place.read("disk")
        self._done("wipe", parameters.deploy_epoch, allocation=before)
        done = {"method": "format", "accepted": True}
        disks = [
            {
                **disk.model_dump(), "name": "nvme0n1", "attempts": [done], "method": "format", "read_bytes": 4096,
                "nonzero_bytes_found": bool(found), "markers_found": len(found.get("markers", [])),
            } for disk in parameters.disks
        ]  # fmt: skip
        return MetalWipeReport.model_validate({"disks": disks})

    def _deploy(self, host: Host, parameters: MetalDeployParameters, progress: Progress) -> Report:
        self._steps(host, "deploy", parameters.deploy_epoch)
        owner = parameters.config_drive.instance_id
        private, public = new_host_key()
        markers = self._place.read("disk").get("markers", [])
        self._place.write("disk", {"allocation": owner, "host_key": private.decode(), "markers": markers})
        self._done("deploy", parameters.deploy_epoch, allocation=owner, markers=markers)
        return MetalDeployReport(
            root_disk=parameters.root_disk, image_sha256=parameters.image.sha256, written_bytes=parameters.image_bytes,
            written_sha256="0" * 64, config_drive_sha256="0" * 64, host_key=public,
        )  # fmt: skip

    def _rescue(self, host: Host, parameters: Any, progress: Progress) -> Report:
        self._steps(host, "rescue", parameters.deploy_epoch)
        private, public = new_host_key()
        self.rescue_key = private.decode()
        self._done("rescue", parameters.deploy_epoch)
        return MetalRescueReport(host_key=public)
