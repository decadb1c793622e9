"""Steps of the work on a machine: the deadline of each, and the check of it at every megabyte."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from node_agent.deploy_system.effects.contract import Host, Progress, WorkFailed
from node_agent.wire.deploy_tasks import DeployFailureCode

GIB: Final = 2**30


@dataclass(frozen=True)
class StepBounds:
    """How long a step may take: `seconds`, and `seconds_per_gib` for each GiB that it reads or writes."""

    seconds: float
    seconds_per_gib: float = 0.0


STEPS: Final = {
    "find_disks": StepBounds(60),
    "hardware": StepBounds(60),
    "neighbours": StepBounds(90),
    "write_image": StepBounds(600, 120),
    "read_back": StepBounds(300, 60),
    "partition": StepBounds(60),
    "config_drive": StepBounds(60),
    "data_disks": StepBounds(600, 5),
    "boot_entry": StepBounds(60),
    "plant_markers": StepBounds(120),
    "erase": StepBounds(3600, 60),
    "verify_wipe": StepBounds(600, 60),
    "overwrite": StepBounds(600, 60),
    "uefi_variables": StepBounds(120),
    "clear_tpm": StepBounds(120),
    "rescue": StepBounds(60),
    "attest": StepBounds(600),
}
"""A slow hard disk writes 1 GiB in 10 s; 60 s leave room for one that is failing, and an end for one that has failed."""

_NEXT: Final = {
    DeployFailureCode.DISK_MISSING: "inspect the machine again and compare its disks with those of the task",
    DeployFailureCode.DISK_UNKNOWN: "inspect the machine again; approve the disk, or remove it",
    DeployFailureCode.DISK_AMBIGUOUS: "replace the disk whose serial is missing or repeated",
    DeployFailureCode.STORAGE_WITHOUT_DRIVER: "remove the controller, or build a medium whose kernel has its driver",
    DeployFailureCode.IMAGE_DOWNLOAD_FAILED: "send the task again once the image's server answers",
    DeployFailureCode.IMAGE_CHECKSUM_MISMATCH: "compare the image's file with its catalogue entry; the disk is not bootable",
    DeployFailureCode.IMAGE_DOES_NOT_FIT: "choose a larger root disk or a smaller image",
    DeployFailureCode.IMAGE_UNUSABLE: "publish the image as raw or as raw compressed by zstd, with a partition table",
    DeployFailureCode.READ_BACK_MISMATCH: "replace the disk: it does not hold what was written",
    DeployFailureCode.BOOT_ENTRY_FAILED: "set the boot order through the BMC, or deploy without a boot entry",
    DeployFailureCode.WIPE_NOT_PROVEN: "keep the machine in quarantine and replace the disk",
    DeployFailureCode.UEFI_VARIABLES_REMAIN: "reset the firmware's variables through the BMC",
    DeployFailureCode.TPM_NOT_CLEARED: "clear the TPM in the firmware's setup",
    DeployFailureCode.RESCUE_UNAVAILABLE: "build a medium of this version",
    DeployFailureCode.DISK_ERROR: "read the disk's own error log and replace the disk",
}


class Step:
    """A step that has begun. `tick` ends it at its deadline, and when the loop asks for it."""

    def __init__(self, host: Host, name: str, volume_bytes: int) -> None:
        self._host = host
        self.name = name
        bounds = STEPS[name]
        self.seconds_max = bounds.seconds + bounds.seconds_per_gib * volume_bytes / GIB
        self._began = host.monotonic()

    @property
    def seconds(self) -> float:
        """Since the step began."""
        return self._host.monotonic() - self._began

    @property
    def seconds_left(self) -> float:
        """Until its deadline, at least 1: for programs, which need a time."""
        return max(1.0, self.seconds_max - self.seconds)

    def tick(self) -> None:
        """Raise Interrupted if the loop asked for it, WorkFailed at the deadline."""
        self._host.check_stop()
        if self.seconds > self.seconds_max:
            raise self.failed(
                DeployFailureCode.DISK_ERROR, f"the step took longer than its {self.seconds_max:.0f} seconds"
            )

    def failed(self, code: DeployFailureCode, detail: str) -> WorkFailed:
        """The failure of this step, with what to do about it."""
        return WorkFailed(code, self.name, detail, _NEXT.get(code, "read the deploy system's log"))


@contextmanager
def step(host: Host, progress: Progress, name: str, detail: str = "", volume_bytes: int = 0) -> Iterator[Step]:
    """Report the step's beginning and end. An OSError inside it becomes WorkFailed with `disk_error`."""
    host.check_stop()
    begun = Step(host, name, volume_bytes)
    progress(name, f"begins {detail}".strip()[:500])
    try:
        yield begun
    except OSError as error:
        raise begun.failed(DeployFailureCode.DISK_ERROR, f"{detail}: {error.strerror or error}"[:400]) from error
    progress(name, f"ended after {begun.seconds:.1f} s {detail}".strip()[:500])
