"""An agent at a control plane of an earlier version, and an agent that stepped back and has the journal of a newer version."""

from __future__ import annotations

import uuid

from node_agent.journal import Journal
from node_agent.journal_records import Accepted
from node_agent.metrics import AgentMetrics
from node_agent.protocol import FailureCode, TaskType, sign_task
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.agent_faults import code


def test_a_failure_that_an_earlier_control_plane_refuses_is_sent_again_as_a_driver_error(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.refused_codes = frozenset({FailureCode.DISK_POOL_SHORT})
        parameters = tenant.provision([0], faults={"disk_pool": "0.1"})
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, parameters, uuid.uuid4()))
        report = await plane.result_of(task)
        assert report.failure is not None
        assert report.failure.code is FailureCode.DRIVER_ERROR
        assert report.failure.detail.startswith("disk_pool_short: ")

    play(scenario)


def test_a_task_that_a_newer_agent_had_accepted_is_refused_after_a_step_back(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        plane.epoch = 1
        agent.state_dir.mkdir(mode=0o700)
        allocation = uuid.uuid4()
        newer = plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation, needs=["painting"])
        older = plane.body(TaskType.VM_PROVISION, tenant.provision([1]), uuid.uuid4())
        journal = Journal(agent.state_dir / "journal", AgentMetrics())
        for body in (newer, older):
            journal.append(Accepted(envelope=sign_task(body, plane.signing_key)))
        await journal.sync()
        journal.close()

        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token())
        report = await plane.result_of(newer.task_id)
        assert code(report) is FailureCode.TASK_REFUSED
        assert report.failure is not None
        assert "it needs painting" in report.failure.detail
        assert (await plane.result_of(older.task_id)).outcome == "completed"
        assert not agent.guest_directory(allocation).exists()
        freed = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([1]), older.allocation_id))
        assert (await plane.result_of(freed)).outcome == "completed"

    play(scenario, started=False)
