"""Taking an allocation down and proving it: stop, wipe, drop leases, in this order, each only after the one before.

Every step can be repeated and none needs space on the disk: a release that was interrupted anywhere runs again from its
start. Leases are dropped last, so that a slot is never free while something may still be there (P6).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

import structlog

from node_agent.drivers.contract import DeviceWipe, DriverFailure, Phase, Plan, Progress, WipeLevel
from node_agent.drivers.performing import why_not_proven
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.leases import Leases, listed
from node_agent.drivers.sandbox.processes import StillRunning, alive, end_guest, end_orphans
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.drivers.sandbox.wipe import wipe
from node_agent.drivers.threads import in_thread
from node_agent.protocol import FailureCode, ReleaseResult

log = structlog.get_logger("node_agent.sandbox")


class Removal:
    """One attempt to remove one allocation, or a part of it."""

    def __init__(
        self, allocation_id: UUID, directory: AllocationDirectory, leases: Leases, grace_seconds: float, faults: Faults
    ) -> None:
        self._allocation_id = allocation_id
        self._directory = directory
        self._leases = leases
        self._grace_seconds = grace_seconds
        self._faults = faults
        self._was_there = directory.exists()
        self._evidence: dict[str, Any] = {"was_there": self._was_there, "devices": []}
        self._hard_stopped = self._wiped = self._leases_released = False

    def plan(self) -> Plan[ReleaseResult]:
        """All of it."""
        return Plan(
            (self.stop(), self.wipe(), Phase("leases_released", partial(self._proven, self._drop))), self.result
        )

    def stop(self) -> Phase:
        """End the guest and every process of the tenant; no agent starts it again."""
        return Phase("guest_stopped", partial(self._proven, self._stop))

    def wipe(self) -> Phase:
        """Remove the directory."""
        return Phase("wiped", partial(self._proven, self._wipe))

    def result(self) -> ReleaseResult:
        """What is proven so far; nothing after a failure is claimed."""
        return ReleaseResult(
            released=self._wiped and self._leases_released,
            hard_stopped=self._hard_stopped,
            wiped=self._wiped,
            leases_released=self._leases_released,
            evidence=self._evidence,
        )

    async def _proven(self, step: Callable[[], Awaitable[str]], _progress: Progress) -> str:
        try:
            return await step()
        except (OSError, StillRunning) as error:
            log.error("release_not_proven", allocation_id=str(self._allocation_id), why=str(error))
            self._evidence["problem"] = str(error)
            raise DriverFailure(FailureCode.CLEANUP_FAILED, why_not_proven(self.result())) from error

    async def _stop(self) -> str:
        await self._faults.slow("guest_stopped")
        self._directory.mark_releasing()
        ran = await self.end()
        self._evidence.setdefault("guest", ran)
        return "killed" if self._hard_stopped else "stopped"

    async def end(self) -> dict[str, Any]:
        """End the guest and what it left. Raises OSError, StillRunning."""
        unreachable = self._faults.on("ssh_unreachable")
        if (unreachable or self._faults.on("graceful_stop_hangs")) and self._directory.exists():
            (self._directory.path / "ignore_sigterm").touch()
        grace_seconds = self._faults.seconds("ssh_unreachable", self._grace_seconds)
        killed = await end_guest(self._directory, grace_seconds)
        self._hard_stopped = self._hard_stopped or (bool(killed) and grace_seconds > 0)
        orphans = 0
        if self._was_there:
            # Also after an end by SIGTERM: a guest that crashes at that moment ends none of its processes.
            orphans = await end_orphans(self._allocation_id)
        if alive(self._directory):
            raise StillRunning("the guest runs again")
        return {"ran": killed is not None, "killed": bool(killed), "orphans_killed": orphans}

    async def _wipe(self) -> str:
        await self._faults.slow("wiped")
        if self._faults.on("wipe_fails"):
            raise OSError("the directory could not be wiped (fault switch wipe_fails)")
        gone = await in_thread(partial(wipe, self._directory.path))
        if self._directory.exists():
            raise OSError("the directory is there again")
        if not self._wiped:
            found = {"files": gone.files, "bytes": gone.bytes, "directory_gone": True}
            self._evidence["wipe"] = found
            proof = DeviceWipe(
                device=self._directory.device, kind="disk", method="removed", level=WipeLevel.NONE, proven=True,
                checked=found,
            )  # fmt: skip
            self._evidence["devices"] = [proof.model_dump(mode="json")] if self._was_there else []
        self._wiped = True
        return f"{gone.files} files, {gone.bytes} bytes"

    async def _drop(self) -> str:
        dropped = sorted(self._leases.drop(self._allocation_id))
        left = [slot for slot, lease in self._leases.held().items() if lease.allocation_id == self._allocation_id]
        if left:
            raise OSError(f"leases of slots {listed(left)} are still there")
        self._evidence.setdefault("leases", {"dropped": dropped, "left": left})
        self._leases_released = True
        return f"of slots {listed(dropped)}" if dropped else "there were none"
