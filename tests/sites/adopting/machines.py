"""A machine of a site that runs already: its BMC is looked at, an operator adopts it, and it is rented from then on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from node_agent.wire.sites import BmcTaskKind
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.sites.commands.adoptions import AdoptionOrder, adopt_machine
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import IMAGE, METAL_SKU, seed
from tests.deploy_system.stage import INSPECTED, TOPOLOGY
from tests.media.media_files import common_medium
from tests.nodes.answers import body_of
from tests.sites.renting.tenancy import GIB, LARGE, LOCAL, SMALL, Renting
from tests.sites.rotations import rotations
from tests.sites.running import ADDRESSES, Run
from tests.support.bmc.resources import UUID as BMC_UUID

CONNECTION = {"host": "192.0.2.7", "port": 22, "user": "root", "host_key": "ssh-ed25519 AAAA"}
SERIAL = "437XR1138R2"
FOUND = {**INSPECTED, "smbios_uuid": BMC_UUID, "topology": {**TOPOLOGY, "disks": [SMALL, LARGE]}}
"""What the deploy system finds when it inspects the machine."""
READS = frozenset({"GET", "HEAD"})
_NEVER_ENROLLED = "update nodes set state = %s, online = false, enrolled_at = null, driver = null where id = %s"
_RESTORED = """
insert into restores (written_by, leader_id, head_version, without_export) values ('w', 'l', 0, 'none') returning epoch
"""


@dataclass
class Adopting(Renting):
    """One tenant, and one machine that runs, which Berth has neither deployed nor inspected."""

    def stated(self, **changes: Any) -> AdoptionOrder:
        """What the operator states."""
        stated = AdoptionOrder(
            tenant_id=self.seeded.tenant_id, sku=METAL_SKU, image=None, ssh_key_ids=(self.seeded.ssh_key_id,), name="a",
            labels={"team": "x"}, ends_at=None, connection=CONNECTION, network=LOCAL, macs=(), require_tpm=False,
            smbios_uuid=None, serial=None,
        )  # fmt: skip
        return replace(stated, **changes)

    async def look(self) -> None:
        """An operator has the BMC describe the machine."""
        await self.run.machine.request(BmcTaskKind.LOOK)
        await self.run.perform()

    async def request(self, operation: Operation | None = None, **changes: Any) -> Answer:
        """An operator's request of the adoption."""
        return await adopt_machine(
            self.run.stage.api, operation or admin_operation(), ADMIN, self.run.node, self.stated(**changes), ADDRESSES
        )

    async def adopt(self, **changes: Any) -> dict[str, Any]:
        """The adoption of a machine that was looked at."""
        await self.look()
        answer = await self.request(**changes)
        assert answer.status == 200, answer
        adopted: dict[str, Any] = body_of(answer)
        self.allocation = uuid.UUID(adopted["allocation"]["allocation_id"])
        return adopted

    async def release_to(self, step: str) -> None:
        """The tenant releases, and the first run is at this step."""
        await self.release()
        await self.clean_up()
        assert await self.run.advance() is Move.OPEN
        while not await self.is_at(step):
            if await self.run.advance() is None:
                await self.run.perform()

    async def inspect(self, found: dict[str, Any] = FOUND) -> None:
        """The deploy system of the run inspects the machine."""
        await self.run.report(self.run.boot(), result=found)

    async def inspected_and_wiped(self) -> None:
        """From the release's first run in `work` to the end of its second."""
        await self.inspect()
        assert await self.steps() is Move.WORK
        await self.wipe()
        assert await self.steps() is Move.CLOSE

    def restore(self) -> None:
        """The database was restored to this moment, and serves again: what is on the machines is not known."""
        connection = self.run.stage.fleet.connection
        connection.execute("update nodes set driver = 'redfish' where id = %s", (self.run.node,))
        (epoch,) = self.run.row(_RESTORED)
        self.run.row("select restore_end_runs(%s), restore_close_nodes(%s)", epoch, epoch)
        connection.execute("update restores set closed_at = clock_timestamp() where epoch = %s", (epoch,))

    def commands(self) -> list[str]:
        """Requests that were more than reads, but those of sessions, since the stub was started."""
        return [
            line for line in self.run.machine.service.requests
            if line.split(" ")[0] not in READS and "/Sessions" not in line
        ]  # fmt: skip

    def count(self, what: str) -> int:
        """How many rows a query without conditions finds."""
        found: int = self.run.row(f"select count(*) from {what}")[0]
        return found


Scene = Callable[[Adopting], Coroutine[Any, Any, None]]


@asynccontextmanager
async def adopting(url: str, directory: Path, state: str = "registered") -> AsyncIterator[Adopting]:
    """A machine that is on behind a BMC of a site, of a node without an agent, and a tenant."""
    medium = directory / "deploy.iso"
    common_medium(medium)
    async with rotations(url, medium) as stage:
        seeded = seed(url, slice_nodes=0, metal_nodes=1)
        connection = stage.fleet.connection
        connection.execute("update images set format = 'raw', disk_bytes_min = %s where name = %s", (GIB, IMAGE))
        connection.execute("alter table nodes disable trigger node_transitions")
        connection.execute(_NEVER_ENROLLED, (state, seeded.nodes[0].id))
        connection.execute("alter table nodes enable trigger node_transitions")
        run = Run(stage, await stage.machine(seeded.nodes[0].id))
        run.machine.service.machine.power = "On"
        yield Adopting(url, run, seeded)
