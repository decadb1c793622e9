"""Taking an allocation down and proving it: stop, wipe, drop leases, in this order, each only after the one before.

Every step can be repeated: a release that was interrupted anywhere runs again from its start. Leases are dropped
last, so that a slot is never free while something may still be there (P6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.leases import Leases, listed
from node_agent.drivers.sandbox.processes import StillRunning, alive, end_guest, end_orphans
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.drivers.sandbox.wipe import Wiped, wipe
from node_agent.drivers.threads import in_thread
from node_agent.protocol import ReleaseResult

log = structlog.get_logger("node_agent.sandbox")

PhaseReporter = Callable[[str, str], None]


class Removal:
    """One attempt to remove one allocation."""

    def __init__(self, allocation_id: UUID, directory: AllocationDirectory, leases: Leases) -> None:
        self._allocation_id = allocation_id
        self._directory = directory
        self._leases = leases
        self._evidence: dict[str, Any] = {}
        self._hard_stopped = False

    async def run(self, graceful_seconds: float, faults: Faults, report_phase: PhaseReporter) -> ReleaseResult:
        """Do all of it as far as it goes. What failed is in the evidence, and nothing after it is claimed."""
        self._evidence["was_there"] = self._directory.exists()
        wiped = leases_released = False
        try:
            await faults.slow("guest_stopped")
            await self._stop(graceful_seconds, faults)
            report_phase("guest_stopped", "killed" if self._hard_stopped else "stopped")
            await faults.slow("wiped")
            gone = await self._wipe(faults)
            wiped = True
            report_phase("wiped", f"{gone.files} files, {gone.bytes} bytes")
            dropped = self._drop_leases()
            leases_released = True
            report_phase("leases_released", f"of slots {listed(dropped)}" if dropped else "there were none")
        except (OSError, StillRunning) as error:
            log.error("release_not_proven", allocation_id=str(self._allocation_id), why=str(error))
            self._evidence["problem"] = str(error)
        return ReleaseResult(
            released=wiped and leases_released,
            hard_stopped=self._hard_stopped,
            wiped=wiped,
            leases_released=leases_released,
            evidence=self._evidence,
        )

    async def _stop(self, graceful_seconds: float, faults: Faults) -> None:
        record = self._directory.load()
        if record is not None and record.state != "releasing":
            # From here on no agent starts it again.
            self._directory.save(record.model_copy(update={"state": "releasing"}))
        unreachable = faults.on("ssh_unreachable")
        if (unreachable or faults.on("graceful_stop_hangs")) and self._directory.exists():
            (self._directory.path / "ignore_sigterm").touch()
        graceful_seconds = faults.seconds("ssh_unreachable", graceful_seconds)
        killed = await end_guest(self._directory, graceful_seconds)
        self._hard_stopped = bool(killed) and graceful_seconds > 0
        orphans = 0
        if self._evidence["was_there"]:
            # Also after an end by SIGTERM: a guest that crashes at that moment ends none of its processes.
            orphans = await end_orphans(self._allocation_id)
        if alive(self._directory):
            raise StillRunning("the guest runs again")
        self._evidence["guest"] = {"ran": killed is not None, "killed": bool(killed), "orphans_killed": orphans}

    async def _wipe(self, faults: Faults) -> Wiped:
        if faults.on("wipe_fails"):
            raise OSError("the directory could not be wiped (fault switch wipe_fails)")
        wiped = await in_thread(partial(wipe, self._directory.path))
        if self._directory.exists():
            raise OSError("the directory is there again")
        self._evidence["wipe"] = {"files": wiped.files, "bytes": wiped.bytes, "directory_gone": True}
        return wiped

    def _drop_leases(self) -> list[int]:
        dropped = sorted(self._leases.drop(self._allocation_id))
        left = [slot for slot, lease in self._leases.held().items() if lease.allocation_id == self._allocation_id]
        if left:
            raise OSError(f"leases of slots {listed(left)} are still there")
        self._evidence["leases"] = {"dropped": dropped, "left": left}
        return dropped
