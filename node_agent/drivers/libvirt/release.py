"""Taking a guest down and proving it: power button, kill, definition and key forgotten, disk overwritten, directory removed."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from pathlib import Path

from berth.process.json_objects import JsonObject
from node_agent.drivers.libvirt.disk_pool.guest_disks import wipe_disk
from node_agent.drivers.libvirt.disk_pool.zeroing import Zeroed
from node_agent.drivers.libvirt.disks import Overwritten, overwrite
from node_agent.drivers.libvirt.hypervisor import kill_all, processes_of
from node_agent.drivers.libvirt.node import Node
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.drivers.removal import END_SECONDS_MAX, Removal, StillThere
from node_agent.drivers.threads import in_thread
from node_agent.drivers.wipe import wipe_content
from node_agent.wiping.devices import DeviceWipe, WipeLevel

LOOK_SECONDS = 0.1


class GuestRemoval(Removal):
    """One attempt to remove one guest, or a part of it."""

    def __init__(
        self, node: Node, directory: GuestDirectory, grace_seconds: float, must_prove: bool = False
    ) -> None:  # fmt: skip
        """`must_prove`: a guest that had been up keeps its directory and leases while nothing is known of its disk."""
        assert directory.allocation_id is not None
        was_there = directory.exists() or node.taken.has(directory.allocation_id)
        super().__init__(directory.allocation_id, node.leases, grace_seconds, was_there)
        self._node = node
        self._directory = directory
        self._must_prove = must_prove

    async def end(self) -> JsonObject:
        """End the guest; afterwards no process of it is there, and libvirt says so. Raises OSError, StillThere."""
        hypervisor, allocation_id = self._node.hypervisor, self._allocation_id
        ran = await hypervisor.is_active(allocation_id) or bool(processes_of(self._directory.path))
        if ran and self._grace_seconds > 0:
            await hypervisor.press_power_button(allocation_id)
            await self._ended(self._grace_seconds)
        killed = False
        deadline = time.monotonic() + END_SECONDS_MAX
        # In a loop: a start that an earlier agent began may end only now.
        while await hypervisor.is_active(allocation_id) or processes_of(self._directory.path):
            if time.monotonic() >= deadline:
                raise StillThere("the guest does not end")
            killed = True
            await hypervisor.destroy(allocation_id)
            kill_all(self._directory.path)
            await asyncio.sleep(LOOK_SECONDS)
        self._hard_stopped = self._hard_stopped or (killed and self._grace_seconds > 0)
        return {"ran": ran, "killed": killed}

    async def _ended(self, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while time.monotonic() < deadline and await self._node.hypervisor.is_active(self._allocation_id):
            await asyncio.sleep(LOOK_SECONDS)

    async def _stop(self) -> str:
        self._directory.mark_releasing()
        ended = await self.end()
        self._evidence.setdefault("guest", ended)
        await self._node.hypervisor.remove(self._allocation_id)
        if self._node.networks is not None:
            removed = await self._node.networks.take_out(self._allocation_id)
            self._evidence.setdefault("network", {"removed": removed})
        return "killed" if self._hard_stopped else "stopped"

    async def _wipe(self) -> str:
        if processes_of(self._directory.path):
            raise StillThere("the guest runs again")
        stop, directory = threading.Event(), self._directory
        # Read before anything changes: an earlier attempt, or a rebuild that was cut short, has left `disk.wiped`.
        was_wiped, was_empty, before = directory.is_wiped, not _files(directory.path), directory.device_before
        had_disk = directory.disk.exists()
        # The key first: from then on the disk is unreadable, whatever happens to its overwriting.
        key, seed, variables = [
            await in_thread(partial(overwrite, file, stop), stop)
            for file in (directory.key, directory.seed, directory.uefi_variables)
        ]
        # Marked in the thread: an agent that is stopped or killed meanwhile leaves the mark, or a disk that can be read back.
        disk = await in_thread(partial(overwrite, directory.disk, stop, directory.mark_wiped), stop)
        volume = await self._wipe_volume(stop)
        if volume is None and before is not None and not had_disk:
            # The volume of the new disk was named and not made: what there was is wiped.
            was_wiped, before = True, None
            directory.volume_file.unlink(missing_ok=True)
        # Of a disk that was not there, nothing is known.
        proven = was_wiped or volume is not None or (had_disk and disk.samples > 0)
        device = directory.device
        if not proven and self._must_prove and directory.was_up:
            raise OSError(f"nothing is known of the disk {device}: it was not there, or empty")
        if volume is not None and self._node.disk_pool is not None:
            device = self._node.disk_pool.full_name(self._allocation_id)
        for file in _files(directory.path) - {directory.wiped_disk}:
            file.unlink(missing_ok=True)
        gone = await in_thread(partial(wipe_content, directory.path, directory.wiped_disk))
        gpus = await self._give_back_gpus()
        if not self._wiped:
            proof = DeviceWipe(
                device=device, kind="disk", method="overwrite", level=WipeLevel.CLEAR, proven=proven,
                checked={
                    **_evidence_of(disk, volume), "key_overwritten_bytes": key.bytes, "seed_overwritten_bytes": seed.bytes,
                    "uefi_variables_overwritten_bytes": variables.bytes, "wiped_before": was_wiped, "directory_empty": True,
                },
            )  # fmt: skip
            # An empty directory says nothing of a disk: what an earlier attempt proved is in the journal.
            disks = [] if was_empty and volume is None else [proof, *_earlier(proof, before)]
            proofs = [*disks, *gpus] if self._was_there else []
            self._evidence["devices"] = [one.model_dump(mode="json") for one in proofs]
        self._wiped = True
        overwritten = disk.bytes if volume is None else volume.overwritten_bytes
        return f"{gone.files} files, {overwritten} bytes of the disk overwritten, {len(gpus)} GPUs reset"

    async def _wipe_volume(self, stop: threading.Event) -> Zeroed | None:
        """What was done to the volume of the disk; None if there was none. Raises OSError."""
        pool, directory = self._node.disk_pool, self._directory
        if pool is None:
            if (named := directory.volume) is not None:
                raise OSError(f"the disk is the volume {named}, and this agent has no BERTH_LIBVIRT_DISK_POOL")
            return None
        zeroed = await in_thread(partial(wipe_disk, pool, directory, stop), stop)
        if zeroed is not None and not self._was_there:
            # Of an agent that has lost its files, the volume is what was there.
            self._was_there = True
            self._evidence["was_there"] = True
        return zeroed

    async def _give_back_gpus(self) -> list[DeviceWipe]:
        """The proof of each reset. Raises OSError."""
        if self._node.gpus is not None:
            return await self._node.gpus.give_back(self._allocation_id)
        if self._node.taken.has(self._allocation_id):
            raise OSError("GPUs of the host are taken, and this agent has BERTH_LIBVIRT_GPUS=none")
        return []

    async def _forget(self) -> None:
        # While the slot is leased: afterwards the GPUs may be another guest's. The directory still names the allocation.
        self._node.taken.forget(self._allocation_id)

    async def _remove(self) -> None:
        self._directory.remove_empty()


def _evidence_of(disk: Overwritten, volume: Zeroed | None) -> JsonObject:
    return disk.as_evidence() if volume is None else {**volume.as_evidence(), "volume_removed": True}


def _earlier(proof: DeviceWipe, device: str | None) -> list[DeviceWipe]:
    """The proof of the disk that a rebuild has wiped, where the new one has another name."""
    if device in (None, proof.device):
        return []
    checked: JsonObject = {"wiped_before": True}
    return [proof.model_copy(update={"device": device, "proven": True, "checked": checked})]


def _files(directory: Path) -> set[Path]:
    return set(directory.iterdir()) if directory.exists() else set()
