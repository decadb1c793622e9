"""Verbs of a guest: reboot, stop and start on the same disk, and rebuild with a fresh one."""

from __future__ import annotations

from functools import partial

from node_agent.drivers.contract import DriverFailure, Phase, Progress, Verb
from node_agent.drivers.libvirt.node import Node
from node_agent.drivers.libvirt.provisioning import Boot, Provisioning
from node_agent.drivers.libvirt.records import GuestDirectory
from node_agent.drivers.libvirt.release import GuestRemoval
from node_agent.drivers.removal import StillThere
from node_agent.protocol import FailureCode, VerbResult


class Restart:
    """Stops and starts of one guest that keeps its disk. Repeating either changes nothing."""

    def __init__(self, node: Node, directory: GuestDirectory, removal: GuestRemoval) -> None:
        self._directory = directory
        self._removal = removal
        self._boot = Boot(node, directory)
        self._stopped = self._runs = False

    def phases(self, verb: Verb) -> list[Phase]:
        """The phases of `reboot`, `stop` or `start`."""
        stop = Phase("guest_stopped", partial(self._stop, "stopped" if verb is Verb.STOP else "running"))
        first, *others = self._boot.phases()
        starting = [Phase(first.name, self._start), *others]
        return {Verb.STOP: [stop], Verb.START: starting, Verb.REBOOT: [stop, *starting]}[verb]

    def result(self) -> VerbResult:
        """How to log in, if the guest runs now."""
        if not self._runs:
            return VerbResult(connection=None)
        return VerbResult(connection=self._boot.connection(), evidence=self._boot.devices.evidence())

    async def _stop(self, state: str, _progress: Progress) -> str:
        if not self._stopped:
            try:
                self._save(state)
                await self._removal.end()
            except (StillThere, OSError) as error:
                raise DriverFailure(FailureCode.DRIVER_ERROR, f"the guest was not stopped: {error}") from error
            self._stopped = True
        return "stopped"

    async def _start(self, progress: Progress) -> str:
        try:
            self._save("running")
        except OSError as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the record: {error}") from error
        self._runs = True
        return await self._boot.boot(progress)

    def _save(self, state: str) -> None:
        record = self._directory.load()
        if record is None or record.state not in ("running", "stopped"):
            raise DriverFailure(FailureCode.TASK_REFUSED, "the allocation is not up")
        if record.state != state:
            self._directory.save(record.model_copy(update={"state": state}))


def rebuild_phases(removal: GuestRemoval, provisioning: Provisioning) -> list[Phase]:
    """The phases of `rebuild`. The lease is taken anew: a restart of the agent clears that of an allocation with no files.

    A host whose GPUs the new guest would not get, and a pool without room for its disk, are found before the old one is ended.
    """
    stop = removal.stop()

    async def stopped(progress: Progress) -> str:
        await provisioning.require_gpus(may_run=True)
        await provisioning.require_room()
        return await stop.run(progress)

    async def lease(_progress: Progress) -> str:
        await provisioning.take_lease()
        return "kept"

    return [Phase(stop.name, stopped), removal.wipe(), Phase("lease", lease), *provisioning.guest()]
