"""Verbs of the sandbox: reboot, stop and start of the guest's process, and rebuild with a fresh directory."""

from __future__ import annotations

from functools import partial

from node_agent.drivers.contract import DriverFailure, Phase, Progress, Verb
from node_agent.drivers.removal import StillThere
from node_agent.drivers.sandbox.faults import Faults
from node_agent.drivers.sandbox.launching import GuestProblem
from node_agent.drivers.sandbox.processes import alive
from node_agent.drivers.sandbox.provisioning import NO_DEVICES, Node, Provisioning, listening
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord
from node_agent.drivers.sandbox.release import SandboxRemoval
from node_agent.drivers.ssh import NotReady, check_ssh, read_host_key
from node_agent.protocol import Connection, FailureCode, VerbResult


class Restart:
    """Stops and starts of one guest that keeps its directory. Repeating either changes nothing."""

    def __init__(self, node: Node, directory: AllocationDirectory, removal: SandboxRemoval, faults: Faults) -> None:
        self._node = node
        self._directory = directory
        self._removal = removal
        self._faults = faults
        self._stopped = False
        self._connection: Connection | None = None

    def phases(self, verb: Verb) -> list[Phase]:
        """The phases of `reboot`, `stop` or `start`."""
        stop = Phase("guest_stopped", partial(self._stop, "stopped" if verb is Verb.STOP else "running"))
        return {Verb.STOP: [stop], Verb.START: self._starting(), Verb.REBOOT: [stop, *self._starting()]}[verb]

    def result(self) -> VerbResult:
        """How to log in, if the guest runs now."""
        if self._connection is None:
            return VerbResult(connection=None)
        return VerbResult(connection=self._connection, evidence=NO_DEVICES.evidence())

    def _starting(self) -> list[Phase]:
        return [Phase("boot", self._boot), Phase("ssh_ready", self._ssh_ready)]

    async def _stop(self, state: str, _progress: Progress) -> str:
        if self._stopped:
            return "stopped"
        await self._faults.slow("guest_stopped")
        try:
            self._save(state)
            await self._removal.end()
        except (StillThere, OSError) as error:
            raise DriverFailure(FailureCode.DRIVER_ERROR, f"the guest was not stopped: {error}") from error
        self._stopped, self._connection = True, None
        return "stopped"

    async def _boot(self, _progress: Progress) -> str:
        await self._faults.slow("boot")
        self._faults.fail("guest_definition", FailureCode.GUEST_DEFINITION_FAILED, "the guest could not be defined")
        try:
            record = self._save("running")
            port = await boot_again(self._node, self._directory, record)
        except (GuestProblem, OSError) as error:
            raise DriverFailure(FailureCode.GUEST_DEFINITION_FAILED, f"the guest did not start: {error}") from error
        host_key = read_host_key(self._directory.host_key_file.read_bytes())
        self._connection = Connection(host=self._node.host, port=port, user=record.login_user, host_key=host_key)
        return f"the guest listens on port {port}"

    async def _ssh_ready(self, _progress: Progress) -> str:
        assert self._connection is not None
        host, port, host_key = self._connection.host, self._connection.port, self._connection.host_key
        try:
            await check_ssh(host, port, host_key, self._node.limits.readiness_seconds)
        except NotReady as problem:
            raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, str(problem)) from problem
        return f"{host}:{port} {host_key}"

    def _save(self, state: str) -> GuestRecord:
        record = self._directory.load()
        if record is None or record.state not in ("running", "stopped"):
            raise DriverFailure(FailureCode.TASK_REFUSED, "the allocation is not up")
        changed = record.model_copy(update={"state": state})
        if changed != record:
            self._directory.save(changed)
        return changed


async def boot_again(node: Node, directory: AllocationDirectory, record: GuestRecord) -> int:
    """Start the guest on its old port unless it runs; its port. Raises GuestProblem, OSError."""
    state = directory.guest_state()
    if alive(directory) and state is not None and state.port is not None:
        return state.port
    directory.marker_file.unlink(missing_ok=True)
    boot = await node.launcher.launch(directory.path)
    try:
        port = await listening(boot, node.limits.readiness_seconds)
        host_key = read_host_key(directory.host_key_file.read_bytes())
        await check_ssh(node.host, port, host_key, node.limits.readiness_seconds)
    except (DriverFailure, NotReady, ValueError) as error:
        raise GuestProblem(str(error)) from error
    finally:
        node.launcher.forget(directory.path)
    return port


def rebuild_phases(removal: SandboxRemoval, provisioning: Provisioning) -> list[Phase]:
    """The phases of `rebuild`. The lease is taken anew: a restart of the agent clears that of an allocation with no files."""

    async def lease(_progress: Progress) -> str:
        await provisioning.take_lease()
        return "kept"

    return [removal.stop(), removal.wipe(), Phase("lease", lease), *provisioning.guest()]
