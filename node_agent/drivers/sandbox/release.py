"""Taking a sandbox's allocation down: its processes end, its directory is emptied and removed."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.drivers.leases import Leases
from node_agent.drivers.removal import Removal, StillThere
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.processes import alive, end_guest, end_orphans
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.drivers.threads import in_thread
from node_agent.drivers.wipe import wipe_content
from node_agent.wiping.devices import DeviceWipe, WipeLevel


class SandboxRemoval(Removal):
    """One attempt to remove one allocation of the sandbox, or a part of it."""

    def __init__(
        self, allocation_id: UUID, directory: AllocationDirectory, leases: Leases, grace_seconds: float, faults: Faults
    ) -> None:
        super().__init__(allocation_id, leases, grace_seconds, directory.exists())
        self._directory = directory
        self._faults = faults

    async def _stop(self) -> str:
        await self._faults.slow("guest_stopped")
        self._directory.mark_releasing()
        ran = await self.end()
        self._evidence.setdefault("guest", ran)
        return "killed" if self._hard_stopped else "stopped"

    async def end(self) -> JsonObject:
        """End the guest and what it left. Raises OSError, StillThere."""
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
            raise StillThere("the guest runs again")
        return {"ran": killed is not None, "killed": bool(killed), "orphans_killed": orphans}

    async def _wipe(self) -> str:
        await self._faults.slow("wiped")
        if self._faults.on("wipe_fails"):
            raise OSError("the directory could not be wiped (fault switch wipe_fails)")
        gone = await in_thread(partial(wipe_content, self._directory.path))
        if not self._wiped:
            found = {"files": gone.files, "bytes": gone.bytes, "directory_empty": True}
            self._evidence["wipe"] = found
            proof = DeviceWipe(
                device=self._directory.device, kind="disk", method="removed", level=WipeLevel.NONE, proven=True,
                checked=found,
            )  # fmt: skip
            self._evidence["devices"] = [proof.model_dump(mode="json")] if self._was_there else []
        self._wiped = True
        return f"{gone.files} files, {gone.bytes} bytes"

    async def _remove(self) -> None:
        self._directory.remove_empty()
