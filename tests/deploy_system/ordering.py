"""What several tests of deploy systems ask for: refusals, claims, and tasks that write."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx

from node_agent.protocol import TaskType
from node_agent.wire.deploy_tasks import (
    ConfigDrive,
    DiskIdentity,
    MetalDeployParameters,
    MetalParameters,
    MetalRescueParameters,
    MetalWipeParameters,
)
from node_agent.wire.images import ImageParameters
from orchestrator.nodes.commands.deploy_systems import TaskOrder, request_deploy_task
from orchestrator.operations.store.operations import Answer
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import make_context
from tests.deploy_system.stage import Stage

DISK = DiskIdentity(serial="S1", size_bytes=4096)
WIPED: dict[str, Any] = {
    "disks": [{
        "serial": "S1", "size_bytes": 4096, "name": "nvme0n1", "attempts": [{"method": "format", "accepted": True}],
        "method": "format", "read_bytes": 4096, "nonzero_bytes_found": False, "markers_found": 0,
    }],
}  # fmt: skip


def wipe(epoch: int) -> MetalParameters:
    return MetalWipeParameters(deploy_epoch=epoch, disks=[DISK])


def deploy(epoch: int) -> MetalParameters:
    image = ImageParameters(name="debian", url="https://images.example/d.raw", sha256="0" * 64)
    drive = ConfigDrive(hostname="m1", instance_id="i-1", ssh_public_keys=["ssh-ed25519 AAAA"])
    return MetalDeployParameters(deploy_epoch=epoch, root_disk=DISK, image=image, image_bytes=4096, config_drive=drive)


def rescue(epoch: int) -> MetalParameters:
    return MetalRescueParameters(deploy_epoch=epoch, then="hand_over", ssh_public_keys=["ssh-ed25519 AAAA"])


MAKERS = {TaskType.METAL_WIPE: wipe, TaskType.METAL_DEPLOY: deploy, TaskType.METAL_RESCUE: rescue}


def order(stage: Stage, node: uuid.UUID, kind: TaskType, claim_id: int | None = None) -> Answer:
    """Request a task that writes, as a workflow does for its claim."""

    def order_for(epoch: int) -> TaskOrder:
        return TaskOrder(kind, MAKERS[kind](epoch), 3_600, claim_id)

    async def work() -> Answer:
        context = make_context(stage.database_url)
        try:
            return await request_deploy_task(context.for_platform(), admin_operation(), ADMIN, node, order_for)
        finally:
            await context.database.close()

    return asyncio.run(work())


def refused(answer: httpx.Response, status: int, code: str, reason: str | None = None) -> None:
    """The answer is this refusal."""
    document = answer.json()
    assert (answer.status_code, document["code"], document.get("reason")) == (status, code, reason), answer.text


def claim(stage: Stage, node: uuid.UUID, kind: str = "allocation") -> int:
    """A claim on the whole node that has begun."""
    row = stage.fleet.connection.execute(
        "insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)"
        " select id, case when %s = 'allocation' then gen_random_uuid() end, %s, gen_random_uuid(),"
        " int8multirange(int8range(unit_base, unit_base + 8)),"
        " tstzrange(clock_timestamp() - interval '1 minute', null), true, clock_timestamp(), 1 from nodes where id = %s"
        " returning id",
        (kind, kind, node),
    ).fetchone()
    assert row is not None
    number: int = row[0]
    return number
