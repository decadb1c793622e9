"""Each machine from its BMC to service: described, inspected by the deploy system, approved by the operator, online."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from berth.client import AsyncClient, SealedBmcPassword, Site
from berth.local.demo.machines.steps import NotProven, ProvenSteps, StepName
from berth.local.machines.plan import DISK_BYTES, DISK_SERIAL, GPU_MODEL, REGION, SITE
from berth.local.machines.rack import Machine
from berth.process.sealed_passwords import Purpose, seal_to_all

LOOK_SECONDS_MAX = 300.0
RUN_SECONDS_MAX = 1_800.0
ONLINE_SECONDS_MAX = 120.0
POLL_SECONDS = 0.5

T = TypeVar("T")


async def until(read: Callable[[], Awaitable[T]], enough: Callable[[T], bool], what: str, seconds_max: float) -> T:
    """The first value of `read` that is `enough`. Raises `NotProven` naming `what` after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while not enough(value := await read()):
        if time.monotonic() > deadline:
            raise NotProven(f"{what} took longer than {seconds_max:.0f} s")
        await asyncio.sleep(POLL_SECONDS)
    return value


async def put_into_service(
    admin: AsyncClient, machine: Machine, steps: ProvenSteps, at_once: asyncio.Semaphore
) -> None:
    """As docs/how-to/metal/put-a-machine-into-service.md. Raises `MachineGivenUp`."""
    with steps.step(machine.name, StepName.BMC) as step:
        node_id = await _enrol(admin, machine)
        step.found = f"https BMC at {machine.access.url.rpartition(':')[2]}, off"
    async with at_once:
        with steps.step(machine.name, StepName.INSPECT) as step:
            step.found = await _inspect(admin, machine, node_id)
    with steps.step(machine.name, StepName.SERVICE) as step:
        found = await admin.get_node_topology(node_id)
        gpus = (found.found or {}).get("gpus") or []
        if found.found_digest is None or len(gpus) != 1:
            raise NotProven(f"one GPU was expected, the inspection found {len(gpus)}")
        await admin.approve_node(node_id, digest=found.found_digest)
        await admin.uncordon_node(node_id)
        node = await until(lambda: admin.get_node(node_id), lambda n: n.online, "coming online", ONLINE_SECONDS_MAX)
        step.found = f"{node.state}, {node.slot_count} slot, driver redfish"


async def _enrol(admin: AsyncClient, machine: Machine) -> UUID:
    node = await admin.create_node(
        name=machine.name, region=REGION, gpu_model=GPU_MODEL, shape="baremetal", slots_from_topology=True
    )
    site = await until(lambda: admin.get_site(SITE), _serves, "the site's agent to serve", LOOK_SECONDS_MAX)
    sealed = seal_to_all(machine.access.password, Purpose(site.id, node.id, 1), site.recipients())
    await admin.put_bmc(
        node.id, site_id=site.id, url=machine.access.url, certificate_sha256=machine.access.certificate_sha256,
        username=machine.access.username, password=SealedBmcPassword(1, sealed),
        rotates_at_release=False,  # the emulator has no accounts
    )  # fmt: skip
    await admin.describe_bmc(node.id)
    bmc = await until(
        lambda: admin.get_bmc(node.id), lambda b: b.task is not None and b.task.outcome is not None, "the BMC's description",
        LOOK_SECONDS_MAX,
    )  # fmt: skip
    if bmc.task is None or bmc.task.outcome != "completed" or bmc.power_state != "Off":
        raise NotProven(f"the BMC was not described as off: {bmc.task and bmc.task.failure}, power {bmc.power_state}")
    return node.id


def _serves(site: Site) -> bool:
    return site.lease is not None and len(site.recipients()) > 1


async def _inspect(admin: AsyncClient, machine: Machine, node_id: UUID) -> str:
    await admin.run_deploy_system(node_id, network=machine.planned.network)
    run = await until(
        lambda: admin.get_deploy_run(node_id), lambda r: r.outcome is not None, "the inspection", RUN_SECONDS_MAX
    )
    if (run.outcome, run.failure) != ("completed", None):
        raise NotProven(f"the run ended as {run.outcome}: {run.failure}")
    found = (await admin.get_deploy_system(node_id)).machine or {}
    if found.get("smbios_uuid") != machine.uuid:
        raise NotProven(f"machine {machine.uuid} was expected, the deploy system ran on {found.get('smbios_uuid')}")
    disks = [(disk["serial"], disk["size_bytes"]) for disk in found["report"]["topology"]["disks"]]
    if disks != [(DISK_SERIAL, DISK_BYTES)]:
        raise NotProven(f"the disk {DISK_SERIAL} of {DISK_BYTES} bytes was expected, found: {disks}")
    if machine.is_on():
        raise NotProven("the machine is still on after its run")
    return f"disk {DISK_SERIAL} of {DISK_BYTES >> 20} MiB, off again"


def console_tail(machine: Machine, lines: int = 3) -> str:
    """The last lines of the machine's serial console, for a person."""
    path: Path = machine.directory / "console"
    if not path.exists():
        return "no console"
    return " | ".join(path.read_text(errors="replace").split("\n")[-lines:])
