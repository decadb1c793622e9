"""An allocation on a machine behind a BMC: the commands of its workflow and the steps of its runs, each done by the test."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncssh
import pytest

from node_agent.drivers.ssh import new_host_key
from node_agent.wire.deploy_medium import MediumNetwork
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.outcomes import Begun, Concluded
from orchestrator.allocations.states import Verb
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.sites import tenancies
from tests.allocations.driving import TENANT, allocation_of, claim_of, operation, task_of
from tests.allocations.seeding import IMAGE, IMAGE_SHA256, Seeded, create_allocation, seed
from tests.deploy_system.stage import MAC
from tests.media.media_files import common_medium
from tests.sites.renting.machine_key import MachineKey
from tests.sites.rotations import rotations
from tests.sites.running import Run, inspect

GIB = 2**30
SMALL, LARGE = (
    {"name": "sda", "serial": "S1", "size_bytes": 2 * GIB},
    {"name": "sdb", "serial": "S2", "size_bytes": 8 * GIB},
)
LOCAL = MediumNetwork.model_validate({"mac": MAC, "address": "127.0.0.1/8", "gateway": "127.0.0.2"})
"""The machine is reached at the test's own SSH server."""


@dataclass
class Renting:
    """One tenant, one machine that was inspected, and the allocation on it."""

    url: str
    run: Run
    seeded: Seeded
    allocation: uuid.UUID = field(default_factory=uuid.uuid4)
    host_key: str = ""

    def create(self) -> None:
        """The tenant's create."""
        self.allocation = create_allocation(self.url, self.seeded, shape="baremetal")

    def set_state(self, state: str) -> None:
        """The node is in this state."""
        self.run.stage.fleet.connection.execute("update nodes set state = %s where id = %s", (state, self.run.node))

    @property
    def row(self) -> dict[str, Any]:
        return allocation_of(self.url, self.allocation)

    @property
    def task(self) -> dict[str, Any]:
        return task_of(self.url, self.allocation)

    @property
    def claim(self) -> dict[str, Any]:
        return claim_of(self.url, self.allocation)

    async def provision(self) -> Begun:
        """The workflow begins."""
        begun = await begin_provisioning(self.run.stage.worker, self.allocation, "provisioning-1")
        assert isinstance(begun, Begun), begun
        return begun

    async def provisioned(self) -> Any:
        """What the workflow finds after the signal."""
        return await finish_provisioning(self.run.stage.worker, self.allocation)

    async def release(self) -> None:
        """The tenant's release."""
        context = self.run.stage.context
        await release_allocation(context, operation(self.seeded), TENANT, self.seeded.tenant_id, self.allocation)

    async def clean_up(self, notify: str = "releasing-1") -> Begun:
        """The workflow of the release begins an attempt."""
        begun = await begin_release(self.run.stage.worker, self.allocation, notify)
        assert isinstance(begun, Begun), begun
        return begun

    async def cleaned_up(self, notify: str = "releasing-1") -> Any:
        """What that workflow finds after the signal."""
        return await finish_release(self.run.stage.worker, self.allocation, notify)

    async def order(self, verb: Verb) -> None:
        """The tenant orders a verb, whose workflow begins."""
        context = self.run.stage.context
        answer = await order_verb(
            context, operation(self.seeded), TENANT, self.seeded.tenant_id, self.allocation, verb
        )  # fmt: skip
        assert answer.status == 202, answer
        begun = await begin_verb(self.run.stage.worker, self.allocation, "verb-1")
        assert isinstance(begun, Begun), begun

    async def ordered(self) -> Any:
        """What that workflow finds after the signal."""
        return await finish_verb(self.run.stage.worker, self.allocation)

    async def is_at(self, step: str) -> bool:
        """Whether a run of the allocation is at this step."""
        shown = await self.run.shown()
        return (shown["allocation_id"], shown["step"]) == (str(self.allocation), step)

    async def steps(self) -> Move | None:
        """The site and the worker do what can be done; the last move. In `work` the deploy system is awaited."""
        last = None
        while True:
            move = await self.run.advance()
            last = move or last
            if move is not None:
                continue
            if not self.run.row(
                "select count(*) from bmc_tasks where node_id = %s and ended_at is null", self.run.node
            )[0]:
                return last
            await self.run.perform()

    async def deploy(self) -> None:
        """The deploy system of the run deploys the machine, and reports its host key."""
        await self.run.report(self.run.boot(), result=self.deployed())

    async def prepare_rescue(self) -> str:
        """The deploy system of the run prepares the rescue, reports its host key, and waits; the serial of its certificate."""
        serial = self.run.boot()
        await self.run.report(serial, result={"host_key": self.host_key}, power="On")
        return serial

    async def rescue(self) -> Any:
        """From `active` to the rescue system; what the workflow finds at the end."""
        await self.order(Verb.RESCUE)
        assert await self.steps() is Move.WORK
        await self.prepare_rescue()
        assert await self.steps() is Move.CLOSE
        return await self.ordered()

    def deployed(self) -> dict[str, Any]:
        """The report of a deployment on the small disk."""
        return {
            "root_disk": {"serial": "S1", "size_bytes": 2 * GIB}, "image_sha256": IMAGE_SHA256, "written_bytes": GIB,
            "written_sha256": "0" * 64, "config_drive_sha256": "0" * 64, "host_key": self.host_key,
        }  # fmt: skip

    async def show_another_host_key(self) -> None:
        """The deployed machine is reached, and does not prove the host key of its deployment."""
        while not await self.is_at("reach"):
            if await self.run.advance() is None:
                await self.run.perform()
        self.run.stage.fleet.connection.execute(
            "update bmc_tasks set outcome = 'failed', failure = 'not_reached: it shows another host key',"
            " ended_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null"
            " where node_id = %s and ended_at is null", (self.run.node,)
        )  # fmt: skip

    async def wipe(
        self,
        count: int = 2,
        firmware: list[dict[str, str]] | None = None,
        signing: MachineKey | None = None,
        also: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """The deploy system of the run wipes the disks, and reads this firmware; `changes` of the first disk's report.

        `signing` signs what it found; `also`: further members of the report.
        """
        disks = [
            {
                "serial": disk["serial"], "size_bytes": disk["size_bytes"], "name": disk["name"], "method": "overwrite",
                "attempts": [{"method": "overwrite", "accepted": True}], "read_bytes": 4096,
                "nonzero_bytes_found": False, "markers_found": 0,
            }
            for disk in (SMALL, LARGE)
        ]  # fmt: skip
        found: dict[str, Any] = {"disks": [{**disks[0], **changes}, *disks[1:count]], **(also or {})}
        if firmware is not None:
            found["firmware"] = firmware
        serial = self.run.boot()
        if signing is None:
            return await self.run.report(serial, result=found)
        signing.certify(self.run, serial)
        return await self.run.report(signing.serial, result=found, sign=signing.signed)

    async def activate(self) -> None:
        """From `requested` to `active`."""
        self.create()
        await self.provision()
        assert await self.steps() is Move.WORK
        await self.deploy()
        assert await self.steps() is Move.CLOSE
        concluded = await self.provisioned()
        assert isinstance(concluded, Concluded)
        assert self.row["state"] == "active", self.row


Scene = Callable[[Renting], Coroutine[Any, Any, None]]


@asynccontextmanager
async def ssh_server(port_of: Any) -> AsyncIterator[str]:
    """The system of the machine: an SSH server with a new host key, whose public line this yields. `port_of` gets its port."""
    private, public = new_host_key()
    server = await asyncssh.listen("127.0.0.1", 0, server_host_keys=[asyncssh.import_private_key(private)])
    port_of(server.get_port())
    try:
        yield public
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def renting(url: str, directory: Path) -> AsyncIterator[Renting]:
    """A machine in service behind a BMC that a run has inspected, and a tenant."""
    medium = directory / "deploy.iso"
    common_medium(medium)
    async with rotations(url, medium) as stage:
        seeded = seed(url, slice_nodes=0, metal_nodes=1)
        connection = stage.fleet.connection
        connection.execute("update images set format = 'raw', disk_bytes_min = %s where name = %s", (GIB, IMAGE))
        run = Run(stage, await stage.machine(seeded.nodes[0].id))
        connection.execute("update nodes set state = 'cordoned' where id = %s", (run.node,))
        await run.request(network=LOCAL)
        await run.stop()
        assert await run.advance() is Move.CLOSE
        connection.execute(
            "update deploy_runs set outcome = 'completed', failure = null where node_id = %s", (run.node,)
        )
        inspect(run, disks=[SMALL, LARGE])
        connection.execute("update nodes set state = 'active' where id = %s", (run.node,))
        yield Renting(url, run, seeded)


class Reached(Protocol):
    """A machine whose system is reached by SSH."""

    host_key: str


M = TypeVar("M", bound=Reached)


def player(
    machine: Callable[[], AbstractAsyncContextManager[M]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[M], Coroutine[Any, Any, None]]], None]:
    """What plays a scene with such a machine and its SSH server; each scene has a new one."""

    def played(scene: Callable[[M], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with (
                ssh_server(lambda port: monkeypatch.setattr(tenancies, "SSH_PORT", port)) as host_key,
                machine() as opened,
            ):
                opened.host_key = host_key
                await scene(opened)

        asyncio.run(whole())

    return played
