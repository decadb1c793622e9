"""Runs over the real commands, with agents of a site in this process, a stub BMC, and a deploy system that is played here."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node_agent.media.placeholder import CONFIGURATION_BYTES
from node_agent.protocol import TaskBody
from node_agent.wire.deploy_enrolment import DeployResultReport
from node_agent.wire.deploy_medium import DeployMedium, MediumNetwork, read_medium
from orchestrator.nodes.commands.deploy_tasks import accept_deploy_result, advance_deploy_task
from orchestrator.nodes.deploy_systems.root_disks import RootDiskHint
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from orchestrator.operations.store.operations import Answer
from orchestrator.sites.commands.runs import advance_run, request_run, stop_run
from orchestrator.sites.queries import find_run, find_runs_to_advance
from orchestrator.sites.run_orders import RunOrder
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.stage import INSPECTED, MAC, OTHER_MAC, SMBIOS, TOPOLOGY
from tests.media.media_files import AT, common_medium
from tests.sites.rotations import Agent, Machine, Rotations, rotations

ADDRESSES = Addresses("https://api.example", "CA", "https://nodes.example", 3)
NETWORK = MediumNetwork.model_validate({"mac": MAC, "address": "192.0.2.7/24"})
_STARTED = """
update deploy_systems set used_at = clock_timestamp(), key_sha256 = sha256('k'), csr_pem = 'csr', serial = id::text, pem = 'pem',
    not_after = clock_timestamp() + interval '1 hour', authority_key_sha256 = sha256('a'), hello_at = clock_timestamp(),
    hello = '{}'
where node_id = %s and deploy_epoch = %s and ended_at is null returning serial
"""
_INSPECTED = """
insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at)
values (%s, %s, %s, cast(%s as jsonb), clock_timestamp())
on conflict (node_id) do update set report = excluded.report
"""
_CLAIM = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
select id, case when %s = 'allocation' then gen_random_uuid() end, %s, gen_random_uuid(),
       int8multirange(int8range(unit_base, unit_base + 8)), tstzrange(clock_timestamp() - interval '1 minute', null), true,
       clock_timestamp(), 1
from nodes where id = %s
"""
_RUN_OVER = "update deploy_runs set waits_until = clock_timestamp() where node_id = %s and ended_at is null"


Scene = Callable[["Run"], Coroutine[Any, Any, None]]


@dataclass
class Run:
    """A machine of the site, and the run on it."""

    stage: Rotations
    machine: Machine

    @property
    def node(self) -> uuid.UUID:
        return self.machine.node_id

    def row(self, statement: str, *values: Any) -> Any:
        return self.stage.fleet.connection.execute(statement, values).fetchone()

    async def request(
        self,
        network: MediumNetwork | None = NETWORK,
        smbios: uuid.UUID | None = SMBIOS,
        kind: RunKind = RunKind.INSPECT,
        root_disk: RootDiskHint | None = None,
    ) -> Answer:
        """An operator's request."""
        order = RunOrder(kind, network, smbios, (OTHER_MAC,), False, root_disk)
        return await request_run(self.stage.api, admin_operation(), ADMIN, self.node, order, ADDRESSES)

    async def stop(self) -> Answer:
        return await stop_run(self.stage.api, admin_operation(), ADMIN, self.node)

    async def shown(self) -> dict[str, Any]:
        return await find_run(self.stage.context.database, self.node)

    async def advance(self) -> Move | None:
        """What the worker does next; the sweeper selects the run exactly if there is something to do."""
        selected = self.node in await find_runs_to_advance(self.stage.worker, 100)
        move = await advance_run(self.stage.worker, self.node)
        assert selected is (move is not None)
        return move

    async def perform(self, agent: Agent | None = None) -> None:
        """The site's agent performs the open task of the machine."""
        found = self.row("select id from bmc_tasks where node_id = %s and ended_at is null", self.node)
        self.machine.task_id = found[0]
        agent = agent or self.stage.first
        answer = await self.stage.perform(agent, self.machine, await self.stage.take(agent, self.machine), _nothing)
        assert answer.applied

    def medium(self, agent: Agent | None = None) -> DeployMedium:
        """What the machine reads from its medium, which the agent serves."""
        image = self.machine.service.machine.image
        assert image is not None
        found = (agent or self.stage.first).media._publications.find("/" + image.split("/", 3)[3])
        assert found is not None
        return read_medium(found.read(AT, CONFIGURATION_BYTES))

    def boot(self) -> str:
        """The machine boots from its medium, enrols with its token and says hello; the serial of its certificate."""
        medium = self.medium()
        known = self.row("select token_hash from deploy_systems where node_id = %s and ended_at is null", self.node)
        assert bytes(known[0]) == hashlib.sha256(medium.token.encode()).digest()
        return str(self.row(_STARTED, self.node, medium.deploy_epoch)[0])

    async def report(
        self,
        serial: str,
        failure: dict[str, str] | None = None,
        result: dict[str, Any] = INSPECTED,
        power: str = "Off",
        sign: Callable[[DeployResultReport, TaskBody], DeployResultReport] = lambda report, _: report,
    ) -> None:
        """The deploy system performs its signed task, and powers the machine off, or leaves it `power`.

        `sign` gets the report of the task of this body, and returns what is sent.
        """
        epoch = (await self.shown())["deploy_epoch"]
        await advance_deploy_task(self.stage.worker, self.node)
        task, fence, envelope = self.row(
            "select id, fence, envelope from node_tasks where node_id = %s and deploy_epoch = %s", self.node, epoch
        )
        body: dict[str, Any] = {"fence": fence, "outcome": "completed", "result": result}
        if failure is not None:
            body = {"fence": fence, "outcome": "failed", "failure": failure}
        ordered = TaskBody.model_validate_json(base64.b64decode(envelope["payload"])) if envelope else None
        report = DeployResultReport.model_validate(body)
        report = report if ordered is None else sign(report, ordered)
        answer = await accept_deploy_result(self.stage.context, self.node, epoch, serial, task, report)
        assert answer.applied
        self.machine.service.machine.power = power
        await advance_deploy_task(self.stage.worker, self.node)

    async def sign(self) -> None:
        """The worker signs the task of the deploy system, or ends it."""
        await advance_deploy_task(self.stage.worker, self.node)

    def expire(self) -> None:
        """The deadline of the step passes."""
        self.stage.fleet.connection.execute(_RUN_OVER, (self.node,))

    def is_undone(self) -> bool:
        """Whether the machine is off without a medium, boots from no CD, nothing serves one, and no deploy system counts."""
        found = self.machine.service.machine
        served = [
            one for agent in (self.stage.first, self.stage.second) for one in agent.media._publications._published
        ]
        permitted = self.row("select count(*) from deploy_systems where node_id = %s and ended_at is null", self.node)
        return (found.power, found.image, served, permitted[0]) == ("Off", None, [], 0) and (
            found.override["enabled"] == "Disabled" or found.override["target"] != "Cd"
        )


async def _nothing() -> None:
    """A step of an agent that goes on."""


@asynccontextmanager
async def running(url: str, directory: Path) -> AsyncIterator[Run]:
    """A cordoned machine that is on, in a site whose agents serve a medium."""
    medium = directory / "deploy.iso"
    common_medium(medium)
    async with rotations(url, medium) as stage:
        yield await another(stage)


async def another(stage: Rotations) -> Run:
    """One more machine of the site."""
    machine = await stage.machine()
    stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (machine.node_id,))
    machine.service.machine.power = "On"
    return Run(stage, machine)


def inspect(run: Run, **changes: Any) -> None:
    """The machine was inspected: `changes` of its topology, and `storage_without_driver` of its report."""
    parts = {"storage_without_driver": changes.pop("storage_without_driver", [])}
    report = {**INSPECTED, **parts, "topology": {**TOPOLOGY, **changes}}
    run.stage.fleet.connection.execute(_INSPECTED, (run.node, SMBIOS, [MAC, OTHER_MAC], json.dumps(report)))


def claim(run: Run, kind: str) -> None:
    """A claim on the whole node that has begun."""
    run.stage.fleet.connection.execute(_CLAIM, (kind, kind, run.node))


async def to_work(run: Run, kind: RunKind = RunKind.INSPECT) -> str:
    """A run whose deploy system has said hello; the serial of its certificate."""
    await run.request(kind=kind)
    await run.perform()
    assert await run.advance() is Move.START
    await run.perform()
    serial = run.boot()
    assert await run.advance() is Move.WORK
    return serial


def play(url: str, directory: Path, scene: Scene) -> None:
    """Play a scene with a cordoned machine of a site."""

    async def whole() -> None:
        async with running(url, directory) as run:
            await scene(run)

    asyncio.run(whole())
