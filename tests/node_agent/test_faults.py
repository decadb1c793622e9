"""Every documented fault switch makes its failure happen, with its stable code, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from node_agent.protocol import FailureCode, ResultReport, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.agent_faults import code

PROVISION_FAULTS = {
    "lease_conflict": FailureCode.LEASE_CONFLICT,
    "image_download": FailureCode.IMAGE_DOWNLOAD_FAILED,
    "image_fit": FailureCode.IMAGE_DOES_NOT_FIT,
    "image_checksum": FailureCode.IMAGE_CHECKSUM_MISMATCH,
    "vfio": FailureCode.VFIO_HOST_NOT_READY,
    "huge_pages": FailureCode.HUGE_PAGES_SHORT,
    "disk_pool": FailureCode.DISK_POOL_SHORT,
    "guest_size": FailureCode.GUEST_SIZE_UNAVAILABLE,
    "guest_definition": FailureCode.GUEST_DEFINITION_FAILED,
    "ssh_readiness": FailureCode.SSH_READINESS_TIMEOUT,
    "guest_marker": FailureCode.GUEST_MARKER_MISSING,
}


def test_each_way_to_fail_a_provision(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        async def fail(slot: int, switch: str) -> tuple[str, FailureCode]:
            parameters = tenant.provision([slot], faults={switch: "0.3"})
            task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, parameters, uuid.uuid4()))
            return switch, code(await plane.result_of(task))

        assert dict(await asyncio.gather(*(fail(*one) for one in enumerate(PROVISION_FAULTS)))) == PROVISION_FAULTS
        assert agent.leased_slots() == set()
        assert list((agent.sandbox / "allocations").iterdir()) == []

    play(scenario)


@pytest.mark.full
def test_images_that_are_not_what_they_should_be(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        async def provision(url: str, sha256: str) -> ResultReport:
            image = {"name": "test", "url": url, "sha256": sha256}
            parameters = tenant.provision([0], image=image)
            return await plane.result_of(
                await plane.hand_out(plane.body(TaskType.VM_PROVISION, parameters, uuid.uuid4()))
            )

        good = tenant.image.as_uri()
        assert code(await provision(good, "0" * 64)) is FailureCode.IMAGE_CHECKSUM_MISMATCH
        assert code(await provision(good + ".missing", tenant.image_sha256)) is FailureCode.IMAGE_DOWNLOAD_FAILED
        assert code(await provision("ftp://nowhere/x", tenant.image_sha256)) is FailureCode.IMAGE_DOWNLOAD_FAILED
        absent = f"http://127.0.0.1:{plane.public_port}/no/such/image"
        assert code(await provision(absent, tenant.image_sha256)) is FailureCode.IMAGE_DOWNLOAD_FAILED
        assert not list((agent.sandbox / "images").iterdir()), "nothing unproven is kept"
        assert (await provision(good, tenant.image_sha256)).outcome == "completed"

        cached = agent.sandbox / "images" / tenant.image_sha256
        cached.write_bytes(b"rotten")
        image = {"name": "test", "url": good, "sha256": tenant.image_sha256}
        allocation = uuid.uuid4()
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([1], image=image), allocation)
        assert (await plane.result_of(await plane.hand_out(body))).outcome == "completed"
        assert (agent.guest_directory(allocation) / "image.img").read_bytes() == tenant.image.read_bytes()

    play(scenario)


@pytest.mark.full
def test_each_way_a_release_can_be_troubled(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()

        async def released(graceful_seconds: float, **faults: str) -> ResultReport:
            body = plane.body(TaskType.VM_RELEASE, release([3], graceful_seconds, **faults), allocation)
            return await plane.result_of(await plane.hand_out(body))

        body = plane.body(TaskType.VM_PROVISION, tenant.provision([3]), allocation)
        assert (await plane.result_of(await plane.hand_out(body))).outcome == "completed"

        report = await released(5.0, wipe_fails="1")
        assert code(report) is FailureCode.CLEANUP_FAILED
        assert report.failure is not None
        assert report.failure.detail == (
            "not proven (hard stopped: no, wiped: no, leases released: no):"
            " the directory could not be wiped (fault switch wipe_fails)"
        )
        assert agent.guest_directory(allocation).exists()
        assert agent.leased_slots() == {"slot-3.json"}, "what is not wiped stays leased"

        report = await released(5.0)
        assert report.result is not None
        assert report.result["released"] is True

        report = await released(5.0)
        assert report.result is not None
        assert report.result["released"] is True
        assert report.result["evidence"]["was_there"] is False, "releasing what is not there is a success that says so"

    play(scenario)


@pytest.mark.full
def test_a_guest_that_hangs_is_killed(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        body = plane.body(TaskType.VM_PROVISION, tenant.provision([3]), allocation)
        assert (await plane.result_of(await plane.hand_out(body))).outcome == "completed"
        hanging = release([3], 0.2, graceful_stop_hangs="1")
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.VM_RELEASE, hanging, allocation)))
        assert report.result is not None
        assert (report.result["released"], report.result["hard_stopped"]) == (True, True)
        assert not agent.guest_directory(allocation).exists()

    play(scenario)
