"""An allocation is real: only its tenant can log in, and a release removes it and proves that."""

from __future__ import annotations

import re
import uuid

import asyncssh
import pytest

from node_agent.protocol import ReleaseResult, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane

PHASES = ["lease", "image", "boot", "ssh_ready", "guest_marker"]


def test_a_tenant_logs_in_as_the_user_that_the_image_states(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, parameters = uuid.uuid4(), tenant.provision([0])
        parameters["image"] |= {"login_user": "debian", "cloud_init": False, "readiness": "ssh"}
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.VM_PROVISION, parameters, allocation)))
        connection = connection_of(report.result)
        assert connection.user == "debian"
        assert (await tenant.run(connection, "echo $LOGNAME")).strip() == "debian"
        with pytest.raises(asyncssh.PermissionDenied):
            await tenant.run(connection.model_copy(update={"user": "tenant"}), "true")
        assert agent.guest_directory(allocation).exists()

    play(scenario)


@pytest.mark.quick("slice.vm_provision-slice.vm_release")
@pytest.mark.parametrize(
    ("provisions", "releases"),
    [
        (TaskType.VM_PROVISION, TaskType.VM_RELEASE),
        (TaskType.PROVISION_USER, TaskType.DEPROVISION_USER),
    ],
)
def test_a_tenant_logs_in_and_a_release_leaves_nothing(play: Play, provisions: TaskType, releases: TaskType) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(provisions, tenant.provision([0, 1]), allocation))
        report = await plane.result_of(task)
        assert report.outcome == "completed", report
        connection = connection_of(report.result)

        assert await tenant.run(connection, "echo kept > file; cat file; pwd; echo $CUDA_VISIBLE_DEVICES") == (
            f"kept\n{agent.guest_directory(allocation)}/home\n0,1\n"
        )
        with pytest.raises(asyncssh.PermissionDenied):
            await tenant.run(connection, "true", key=asyncssh.generate_private_key("ssh-ed25519"))
        with pytest.raises(asyncssh.PermissionDenied):
            await tenant.run(connection.model_copy(update={"user": "root"}), "true")
        assert plane.progress[task] == PHASES
        assert plane.details[task][0].startswith("slots 0, 1 under fence ")
        assert (agent.guest_directory(allocation) / "image.img").read_bytes() == tenant.image.read_bytes()
        assert agent.leased_slots() == {"slot-0.json", "slot-1.json"}
        await plane.until(lambda: plane.heartbeats[-1].allocations == [allocation])

        task = await plane.hand_out(plane.body(releases, release([0, 1]), allocation))
        report = await plane.result_of(task)
        assert report.outcome == "completed", report
        result = ReleaseResult.model_validate(report.result)
        assert (result.released, result.hard_stopped, result.wiped, result.leases_released) == (True, False, True, True)
        assert result.evidence["leases"] == {"dropped": [0, 1], "left": []}
        assert result.evidence["wipe"]["bytes"] > 100_000
        assert not agent.guest_directory(allocation).exists()
        assert agent.leased_slots() == set()
        assert plane.progress[task] == ["guest_stopped", "wiped", "leases_released"]
        stopped, wiped, dropped = plane.details[task]
        assert (stopped, dropped) == ("stopped", "of slots 0, 1")
        assert re.fullmatch(r"\d+ files, \d{6,} bytes", wiped)
        with pytest.raises(ConnectionRefusedError):
            await tenant.run(connection, "true")

    play(scenario)


def test_the_noop_driver_answers_at_once_and_has_no_guest(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation))
        report = await plane.result_of(task)
        assert report.outcome == "completed"
        assert report.result is not None
        assert report.result["image_sha256"] == tenant.image_sha256
        await plane.until(lambda: plane.heartbeats[-1].allocations == [allocation])
        assert plane.heartbeats[-1].driver == "noop"
        removal = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([0]), allocation))
        assert ReleaseResult.model_validate((await plane.result_of(removal)).result).released
        assert not agent.sandbox.exists()
        assert plane.progress[task] == []

    play(scenario, BERTH_AGENT_DRIVER="noop")
