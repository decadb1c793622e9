"""Machines that do not answer SSH keep no other task of the site from its slot, neither at the server nor in the agent."""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from pathlib import Path
from typing import Any

from node_agent.bmc_consoles.sessions import MachineSessions
from node_agent.journal import Journal
from node_agent.key_set import TaskKey
from node_agent.metrics import AgentMetrics
from node_agent.protocol import HandedOutTask, TaskType
from node_agent.site.admission import SiteTrust
from node_agent.site.effects import Order
from node_agent.site.lease import Lease
from node_agent.site.metrics import SiteMetrics
from node_agent.site.runner import Runner
from node_agent.wire.sites import BmcTaskAnswer, BmcTaskKind, BmcTaskReport, BmcTasks
from orchestrator.sites.commands.leases import lease_bmc_tasks
from tests.sites.renting.signing import SITE, Server
from tests.sites.rotations import rotations

SLOTS = 2


def test_tasks_that_wait_for_ssh_take_the_slots_of_none(database_url: str) -> None:
    async def scene() -> None:
        async with rotations(database_url) as stage:
            machines = [await stage.machine() for _ in range(4)]
            for machine in machines:
                await machine.request(BmcTaskKind.LOOK)
                order = await stage.take(stage.first, machine)
            reaching, others = machines[:2], machines[2:]
            stage.fleet.connection.execute(
                "update bmc_tasks set kind = 'reach' where id = any(%s)", ([one.task_id for one in reaching],)
            )
            agent, fence = stage.first, order.lease_fence
            expected: list[tuple[int, int | None, list[Any]]] = [
                (2, 1, [*reaching[:1], *others]), (1, 0, others[:1]), (0, 9, reaching), (2, None, reaching),
            ]  # fmt: skip
            for limit, reach_limit, wanted in expected:
                found = await lease_bmc_tasks(
                    stage.context, agent.id, agent.serial, agent.run_id, fence, [], limit, reach_limit
                )
                assert found is not None
                assert {one.task_id for one in found} == {one.task_id for one in wanted}

    asyncio.run(scene())


class Listener:
    """The node listener of a site, as far as one lease needs it; each request for tasks is answered by the next of `script`."""

    def __init__(self, server: Server, script: list[list[HandedOutTask]]) -> None:
        self.server, self.script = server, script
        self.asked: list[tuple[int, int]] = []
        self.reported: list[str] = []

    async def get(self, _: str, params: list[tuple[str, str]], *__: Any) -> BmcTasks:
        """The next tasks; without any more the lease has ended."""
        named = dict(params)
        self.asked.append((int(named["limit"]), int(named["reach_limit"])))
        tasks = self.script.pop(0) if self.script else []
        return BmcTasks(held=bool(tasks), tasks=tasks, server_time=self.server.now)

    async def post(self, path: str, *_: Any) -> BmcTaskAnswer:
        """A report."""
        self.reported.append(path)
        return BmcTaskAnswer(applied=True)


class Effects:
    """Of `metal.reach`: no machine answers. Everything else waits for `go`."""

    def __init__(self) -> None:
        self.begun: list[uuid.UUID] = []
        self.ended: list[uuid.UUID] = []

    async def carry_out(self, order: Order) -> BmcTaskReport:
        """Perform the task."""
        self.begun.append(order.body.task_id)
        if order.body.type is not TaskType.METAL_LOOK:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append(order.body.task_id)
        return BmcTaskReport(fence=order.body.fence, lease_fence=order.lease_fence, outcome="completed")


def test_an_agent_has_slots_for_others_while_machines_do_not_answer(tmp_path: Path) -> None:
    server = Server()
    nodes = [uuid.uuid4() for _ in range(4)]

    def handed(node: uuid.UUID, kind: TaskType, fence: int) -> HandedOutTask:
        return server.sign(server.body(node_id=node, type=kind, fence=fence))

    reaching = [handed(node, TaskType.METAL_REACH, 1) for node in nodes[:SLOTS]]
    other, busy = handed(nodes[2], TaskType.METAL_POWER_OFF, 1), handed(nodes[3], TaskType.METAL_POWER_OFF, 1)
    next_of_first = handed(nodes[0], TaskType.METAL_LOOK, 2)

    async def scene() -> None:
        listener, effects = Listener(server, [reaching, [next_of_first], [other], [busy]]), Effects()
        metrics, lease = AgentMetrics(), Lease(lambda: 0.0)
        lease.grant(5, 60.0, 0.0)
        site_metrics = SiteMetrics(metrics.registry)
        public = server.key.public_key()
        name = server.body().key_id
        text = base64.b64encode(public.public_bytes_raw()).decode()
        runner = Runner(
            SiteTrust(SITE, {name: public}, {name: TaskKey(key_id=name, public_key=text)}), uuid.uuid4(), lease,
            Journal(tmp_path / "journal", metrics), server.clock, effects, listener, site_metrics,  # type: ignore[arg-type]
            MachineSessions(lease, server.clock, metrics, site_metrics, ssl.create_default_context),
            tasks_max=SLOTS, wait_seconds=0.0,
        )  # fmt: skip
        await asyncio.wait_for(runner.serve(), 30)
        assert listener.asked[:2] == [(SLOTS, SLOTS), (SLOTS, 0)], (
            "no machine that is waited for takes a slot of others"
        )
        assert next_of_first.task_id in effects.begun, "the next task of a machine ends the wait for its SSH server"
        assert effects.ended[0] == reaching[0].task_id
        assert listener.asked[-1] == (0, 1), "both other slots are taken, and the one of the first machine is free"
        assert listener.reported == [f"/site/v1/tasks/{next_of_first.task_id}/result"]

    asyncio.run(scene())
