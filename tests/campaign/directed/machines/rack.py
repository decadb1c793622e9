"""One machine of a rack on one database: real commands and Redfish client in this process, evidence as in a campaign."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.rows import dict_row

from node_agent.deploy_system.effects.contract import Host, ToolRun
from node_agent.protocol import TaskType
from node_agent.wire.deploy_tasks import DiskIdentity, MetalDeployParameters, MetalWipeParameters
from node_agent.wire.images import ImageParameters
from tests.allocations.seeding import IMAGE_SHA256
from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.machines.bmcs import KeptService
from tests.campaign.machines.judging_machines import judge_machines
from tests.campaign.machines.place import SERIAL, SIZE_BYTES, USER, Place
from tests.campaign.machines.watching import PASSWORDS, RUNS, run_sight, strange_password
from tests.campaign.machines.work import Work
from tests.sites.renting.tenancy import Renting, renting
from tests.support.bmc.clock import VirtualClock

NAME = "machine-1"


@dataclass
class RackScene:
    """A rented machine whose BMC and disk leave evidence."""

    rent: Renting
    place: Place
    history: History = field(default_factory=lambda: History(seed=0))

    @property
    def boot(self) -> int:
        """The number of the machine's start."""
        return int(self.place.read("bmc")["boot"])

    def work(self, kind: TaskType, owner: uuid.UUID | None = None) -> None:
        """The deploy system that runs on the machine writes its disk."""
        host = Host(run=lambda command, timeout: ToolRun(127, ""), scratch=self.place.directory)
        epoch = self.rent.run.row(
            "select max(deploy_epoch) from deploy_systems where node_id = %s", self.rent.run.node
        )[0]
        disk = DiskIdentity(serial=SERIAL, size_bytes=SIZE_BYTES)
        wipe = MetalWipeParameters(deploy_epoch=epoch, disks=[disk])
        image = ImageParameters(name="image", url="https://images.example/i.raw", sha256=IMAGE_SHA256)
        drive = {"hostname": "m1", "instance_id": str(owner), "ssh_public_keys": ["ssh-ed25519 AAAA"]}
        deploy = MetalDeployParameters.model_validate(
            {"deploy_epoch": epoch, "root_disk": disk, "image": image, "image_bytes": 4096, "config_drive": drive}
        )
        parameters = wipe if kind is TaskType.METAL_WIPE else deploy
        Work(self.place, self.boot, step_seconds=0.0).by_type[kind](host, parameters, lambda step, detail: None)

    def boot_tenant(self, owner: uuid.UUID) -> None:
        """The system of an allocation starts, finds what is on the disk, and leaves its marker."""
        disk = self.place.read("disk")
        self.place.note("tenant", boot=self.boot, allocation=str(owner), markers=disk["markers"])
        self.place.write("disk", disk | {"markers": [*disk["markers"], str(owner)]})

    async def live(self) -> None:
        """A tenant creates the machine, and its system starts."""
        rent = self.rent
        rent.create()
        await rent.provision()
        await rent.steps()
        self.work(TaskType.METAL_DEPLOY, rent.allocation)
        await rent.deploy()
        await rent.steps()
        await rent.provisioned()
        self.boot_tenant(rent.allocation)

    def judge(self) -> list[Violation]:
        """Every check on machines, with what is read at the end."""
        found, run = self.history.machines, self.rent.run
        found.seen[NAME] = self.place.seen()
        found.left[NAME] = self.place.read("bmc")
        cursor = run.stage.fleet.connection.cursor(row_factory=dict_row)
        for row in cursor.execute(RUNS).fetchall():
            run_sight(found, row | {"machine": NAME})
        name = run.row("select name from nodes where id = %s", run.node)[0]
        rows = cursor.execute(PASSWORDS, (name,)).fetchall()
        password = self.place.read("bmc")["passwords"][USER]
        found.strange_passwords += strange_password(NAME, password, rows, run.stage.recovery)
        return judge_machines(self.history)


@asynccontextmanager
async def racked(url: str, directory: Path) -> AsyncIterator[RackScene]:
    """A machine in service that was inspected, with its evidence in this directory."""
    place = Place(directory / NAME, 1, 0)
    place.directory.mkdir()
    async with renting(url, directory) as rent:
        service = KeptService(place, VirtualClock())
        service.machine.passwords = dict(rent.run.machine.service.machine.passwords)
        service.kept.save()
        rent.run.machine.service = service
        yield RackScene(rent, place)
