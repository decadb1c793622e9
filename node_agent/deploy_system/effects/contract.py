"""Types between the deploy system's loop and its work on the machine: the host, progress, images, named failures.

The loop calls `networking.bring_up(host, network)` before its first request, then for each task, in a thread (they block),

    inspecting.inspect(host, parameters, progress) -> MetalInspectReport
    deploying.deploy(host, parameters, progress, open_image) -> MetalDeployReport
    wiping.wipe(host, parameters, progress) -> MetalWipeReport
    rescuing.rescue(host, parameters, progress) -> MetalRescueReport
    attesting.attest_machine(host, parameters, progress) -> AttestationReport

with the types of `node_agent.wire.deploy_tasks` and `node_agent.wire.attestations`,
and `real_host()` of `tools.py` as the host. They raise WorkFailed, or
Interrupted after `host.stopped.set()`; share nothing; keep nothing between boots; and run again from their start after an
interruption.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from node_agent.wire.deploy_tasks import DeployFailureCode, MetalWipeReport

SECTOR_BYTES: Final = 512


class WorkFailed(Exception):
    """A step that ended without its effect, or whose effect could not be proven. `code` is stable; nothing is retried here.

    `step` is the step of `steps.STEPS` that failed, `next_step` what an operator or the workflow does about it. `evidence`: of a
    wipe that failed between disks, its report so far.
    """

    evidence: MetalWipeReport | None = None

    def __init__(self, code: DeployFailureCode, step: str, detail: str, next_step: str) -> None:
        super().__init__(f"{code} in {step}: {detail}")
        self.code = code
        self.step = step
        self.detail = detail
        self.next_step = next_step


class Interrupted(Exception):
    """The loop asked the work to stop; the disks may be written in part, and the task runs again from its start."""


class Progress(Protocol):
    """Receives the name of each step as it begins and ends; must not block for long."""

    def __call__(self, step: str, detail: str, /) -> None:
        """`detail` is one line of printable text, at most 500 characters."""


class ImageStream(Protocol):
    """Opens the image: its bytes as they are served. Raises OSError when the connection breaks, is refused or is silent."""

    def __call__(self, url: str, /) -> AbstractContextManager[Iterator[bytes]]:
        """Chunks of any size. Leaving the context closes the connection."""


@dataclass(frozen=True)
class ToolRun:
    """How a program ended: its exit status, and the end of what it printed. The status proves nothing about a disk."""

    status: int
    output: str


class RunTool(Protocol):
    """Runs a program of the deploy system."""

    def __call__(self, command: Sequence[str], timeout_seconds: float, /) -> ToolRun:
        """Status 127 if the program is missing, 124 if it ran longer than the time; it is killed then."""


@dataclass(frozen=True)
class Host:
    """The machine. Tests give other directories instead of /sys and /dev, and other programs."""

    run: RunTool
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    scratch: Path = Path("/run")
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set by the loop to end the work at the next step or megabyte."""
    monotonic: Callable[[], float] = time.monotonic

    @property
    def efi_variables(self) -> Path:
        """Where the firmware's variables are; missing on a machine that booted by BIOS."""
        return self.sys / "firmware/efi/efivars"

    def check_stop(self) -> None:
        """Raise Interrupted if the loop asked for it."""
        if self.stopped.is_set():
            raise Interrupted
