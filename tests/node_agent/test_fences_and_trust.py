"""At a running agent: the newest fence wins, refusals are reported, forgeries are not even answered."""

from __future__ import annotations

import datetime as dt
import uuid

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from berth.local.servers import free_port
from node_agent.protocol import FailureCode, TaskType
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane


def test_a_release_with_a_newer_fence_interrupts_the_provision(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        slow = {"slow_phase_seconds": "60", "slow_phase": "guest_marker"}
        provision = await plane.hand_out(
            plane.body(TaskType.VM_PROVISION, tenant.provision([1], faults=slow), allocation)
        )
        await plane.until(lambda: "ssh_ready" in plane.progress[provision])
        removal = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([1]), allocation))
        failure = (await plane.result_of(provision)).failure
        assert failure is not None
        assert failure.code is FailureCode.INTERRUPTED
        assert (await plane.result_of(removal)).outcome == "completed"
        assert not agent.guest_directory(allocation).exists()
        assert agent.leased_slots() == set()

    play(scenario)


def test_an_older_fence_changes_nothing(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation, late = uuid.uuid4(), uuid.uuid4()
        old = plane.body(TaskType.VM_RELEASE, release([1]), allocation)
        old_provision = plane.body(TaskType.VM_PROVISION, tenant.provision([1]), late)
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([1]), allocation))
        connection = connection_of((await plane.result_of(task)).result)
        for body in (old, old_provision):
            failure = (await plane.result_of(await plane.hand_out(body))).failure
            assert failure is not None
            assert failure.code is FailureCode.TASK_REFUSED
            assert "older" in failure.detail
        assert await tenant.run(connection, "echo alive") == "alive\n"
        assert not agent.guest_directory(late).exists()

    play(scenario)


def test_two_allocations_cannot_lease_one_slot_even_if_the_control_plane_errs(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        first, second = uuid.uuid4(), uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0, 1]), first))
        connection = connection_of((await plane.result_of(task)).result)
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([1, 2]), second))
        failure = (await plane.result_of(task)).failure
        assert failure is not None
        assert failure.code is FailureCode.LEASE_CONFLICT
        assert str(first) in failure.detail
        assert agent.leased_slots() == {"slot-0.json", "slot-1.json"}, "none of the loser's is left"
        assert not agent.guest_directory(second).exists()
        assert await tenant.run(connection, "echo alive") == "alive\n"

    play(scenario)


def test_a_forged_task_is_counted_and_gets_no_report_and_blocks_no_other_task(play: Play) -> None:
    port = free_port()

    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        forger = Ed25519PrivateKey.generate()
        allocation = uuid.uuid4()
        forged = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation), key=forger)
        stranger = await plane.hand_out(
            plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation, node_id=uuid.uuid4())
        )
        expired = plane.body(TaskType.VM_RELEASE, release([0]), allocation, expires_at=plane.now() - dt.timedelta(1))
        failure = (await plane.result_of(await plane.hand_out(expired))).failure
        assert failure is not None
        assert failure.code is FailureCode.TASK_REFUSED
        probe = plane.body(TaskType.HEALTH_PROBE, {})
        report = await plane.result_of(await plane.hand_out(probe))
        assert report.result is not None
        assert report.result["driver"] == "sandbox"
        assert not plane.results[forged]
        assert not plane.results[stranger]
        assert set(plane.peers) == {f"spiffe://test.invalid/node/{plane.node_id}"}
        assert not agent.guest_directory(allocation).exists()
        async with httpx.AsyncClient() as client:
            metrics = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
            ok = (await client.get(f"http://127.0.0.1:{port}/ok")).json()
        assert 'berth_agent_envelopes_rejected_total{reason="bad_signature"} 1.0' in metrics
        assert 'berth_agent_envelopes_rejected_total{reason="wrong_node"} 1.0' in metrics
        assert 'berth_agent_tasks_total{outcome="refused",type="slice.vm_release"} 1.0' in metrics
        assert ok["ok"] is True

    play(scenario, BERTH_METRICS_PORT=str(port))


def test_the_servers_clock_decides_not_the_nodes(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        # The server's clock is a month ahead of this machine; so are its certificates' dates, except those that TLS checks.
        plane.certificate_age = dt.timedelta(days=30)
        plane.certificate_life = dt.timedelta(days=90)
        plane.clock_offset = dt.timedelta(days=30)
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        await plane.until(lambda: plane.waits > 0)
        report = await plane.result_of(await plane.hand_out(plane.body(TaskType.TOPOLOGY_DISCOVER, {})))
        assert report.outcome == "completed"
        past = plane.body(TaskType.TOPOLOGY_DISCOVER, {}, expires_at=plane.now() - dt.timedelta(days=1))
        report = await plane.result_of(await plane.hand_out(past))
        assert report.outcome == "failed", "by this machine's clock it has a month left"

    play(scenario, started=False)
