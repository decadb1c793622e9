"""Two tenants in turn on each machine: what the first one wrote is on the raw disk before the release, and nowhere after."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.client import Allocation, AsyncClient, Connection
from berth.local.demo.machines.steps import FORESEEN, MachineGivenUp, NotProven, ProvenSteps, StepName
from berth.local.demo.ssh_probe import run_there
from berth.local.demo.stage import Player, Stage
from berth.local.machines.plan import DISK_BYTES, DISK_SERIAL, REGION, SKU
from berth.local.machines.rack import Machine
from berth.local.machines.raw_disks import RawContent, read_raw
from berth.process.json_objects import JsonMapping

ALLOCATION_SECONDS_MAX = 1_800.0
LOGIN_SECONDS_MAX = 120.0
MARKER_MIB = 300
"""Where the marker is written: beyond the image and the config drive."""


@dataclass
class Tenancy:
    """An allocation on a machine, and the marker that its tenant writes."""

    machine: Machine
    active: Allocation
    marker: str


async def deploy(
    stage: Stage,
    player: Player,
    machine_of: dict[str, Machine],
    steps: ProvenSteps,
    name: StepName,
    at_once: asyncio.Semaphore,
) -> list[Tenancy]:
    """Create one allocation for each of these machines, by node; those that became active, one on each machine."""
    async with stage.client(player) as berth:
        made = await asyncio.gather(*(_deploy(berth, player, machine_of, steps, name, at_once) for _ in machine_of))
    return [tenancy for tenancy in made if tenancy is not None]


async def _deploy(
    berth: AsyncClient,
    player: Player,
    machine_of: dict[str, Machine],
    steps: ProvenSteps,
    name: StepName,
    at_once: asyncio.Semaphore,
) -> Tenancy | None:
    async with at_once:
        began = time.monotonic()
        try:
            made = await berth.create_allocation(sku=SKU, gpus=1, region=REGION, ssh_key_ids=[player.ssh_key_id])
            placed = await berth.get_allocation(made.allocation_id)
            machine = machine_of[str(placed.node)]
        except FORESEEN as error:
            steps.check(f"a create for {player.name} is placed ({error})", False)
            return None
        try:
            with steps.step(machine.name, name) as step:
                active = await berth.wait_for(made.allocation_id, {"active"}, ALLOCATION_SECONDS_MAX)
                step.found = _deployed(machine, active, time.monotonic() - began)
        except MachineGivenUp:
            return None
        return Tenancy(machine, active, f"BERTH-MARKER-{secrets.token_hex(16)}")


def _deployed(machine: Machine, active: Allocation, seconds: float) -> str:
    if active.connection is None or active.connection.host != machine.planned.address:
        raise NotProven(f"the address {machine.planned.address} was expected, the allocation says {active.connection}")
    if not machine.is_on():
        raise NotProven("the machine is off")
    return f"active after {seconds:.0f} s"


async def use_and_release(
    stage: Stage, player: Player, tenancy: Tenancy, steps: ProvenSteps, at_once: asyncio.Semaphore
) -> None:
    """Write the marker, find it on the raw disk, release, and find nothing on it. Raises `MachineGivenUp`."""
    machine, marker = tenancy.machine, tenancy.marker
    with steps.step(machine.name, StepName.WRITE) as step:
        step.found = await _write_marker(stage, tenancy)
    with steps.step(machine.name, StepName.CONTROL) as step:
        step.found = require_marker(await raw(machine, marker))
    async with at_once, stage.client(player) as berth:
        with steps.step(machine.name, StepName.RELEASE) as step:
            step.found = await _release(stage, berth, tenancy)
    with steps.step(machine.name, StepName.GONE) as step:
        step.found = require_nothing(await raw(machine, marker))


async def search(stage: Stage, tenancy: Tenancy, former: Tenancy, steps: ProvenSteps) -> None:
    """The next tenant looks for what the former one wrote, and so does this host on the raw disk. Raises `MachineGivenUp`."""
    with steps.step(tenancy.machine.name, StepName.CLEAN) as step:
        connection, before = tenancy.active.connection, former.active.connection
        assert connection is not None, "it is active"
        if before is None or connection.host_key == before.host_key:
            raise NotProven("the machine has the host key of its former tenant")
        seen = await _count(stage, connection, former.marker)
        if seen:
            raise NotProven(f"the next tenant reads the marker {seen} times on its disk")
        content = await raw(tenancy.machine, former.marker)
        if content.has_marker:
            raise NotProven("the marker is on the raw disk again")
        step.found = f"0 markers by SSH, 0 on the raw disk of {content.used_bytes >> 20} MiB in use"


async def raw(machine: Machine, marker: str) -> RawContent:
    """The raw disk, read whole by this host."""
    return await asyncio.to_thread(read_raw, Path(machine.disk), marker.encode())


def require_marker(content: RawContent) -> str:
    """What to say of a raw disk on which the marker is. Raises `NotProven`: then its absence would prove nothing."""
    if not content.has_marker:
        raise NotProven(
            f"the marker is not among the {content.used_bytes} bytes in use, so that its absence would prove nothing"
        )
    return f"found, {content.used_bytes >> 20} MiB in use"


def require_nothing(content: RawContent) -> str:
    """What to say of a raw disk without one byte of content. Raises `NotProven`."""
    if content.has_marker:
        raise NotProven("the marker is still on the raw disk")
    if content.read_bytes != DISK_BYTES:
        raise NotProven(f"{content.read_bytes} bytes of the raw disk were read, it has {DISK_BYTES}")
    if content.used_bytes:
        raise NotProven(f"{content.used_bytes} bytes of the raw disk are not zero")
    return f"{content.read_bytes} bytes read, all zero"


async def _write_marker(stage: Stage, tenancy: Tenancy) -> str:
    connection, marker = tenancy.active.connection, tenancy.marker
    assert connection is not None, "it is active"
    written = f"echo {marker} | dd of=/dev/vda bs=1M seek={MARKER_MIB} conv=notrunc,fsync 2>/dev/null && hostname"
    host = (await run_there(connection, stage.ssh_key, written, LOGIN_SECONDS_MAX)).strip()
    if host != f"berth-{tenancy.active.allocation_id}":
        raise NotProven(f"the machine calls itself {host}")
    seen = await _count(stage, connection, marker)
    if not seen:
        raise NotProven("its tenant does not read the marker back")
    return f"{connection.user}@{connection.host}, read back"


async def _count(stage: Stage, connection: Connection, marker: str) -> int:
    """How many lines of the machine's disk have the marker, as its tenant reads it."""
    command = f"tr -d '\\000' </dev/vda | grep -a -c {marker} || true"
    return int((await run_there(connection, stage.ssh_key, command, LOGIN_SECONDS_MAX)).strip())


async def _release(stage: Stage, berth: AsyncClient, tenancy: Tenancy) -> str:
    allocation_id = tenancy.active.allocation_id
    await berth.release_allocation(allocation_id)
    ended = await berth.wait_for(allocation_id, {"released"}, ALLOCATION_SECONDS_MAX)
    proof = ended.release_result or {}
    if not all(proof.get(item) is True for item in ("released", "wiped", "leases_released")):
        raise NotProven(f"the release proves {proof}")
    async with stage.admin() as admin:
        run = await admin.get_deploy_run((await admin.get_node(tenancy.machine.name)).id)
    if run.allocation_id != allocation_id or run.wipe is None or not run.wipe.proven:
        raise NotProven(
            f"the newest run of the machine is no proven wipe of this allocation: {run.kind}, {run.outcome}"
        )
    said = require_wiped(run.wipe.report["disks"])
    if tenancy.machine.is_on():
        raise NotProven("the machine is still on")
    return said


def require_wiped(disks: Sequence[JsonMapping]) -> str:
    """What to say of the reported wipe of the machine's one disk, read back whole. Raises `NotProven`."""
    known = [(disk["serial"], disk["size_bytes"], disk["read_bytes"], disk["nonzero_bytes_found"]) for disk in disks]
    if known != [(DISK_SERIAL, DISK_BYTES, DISK_BYTES, False)]:
        raise NotProven(f"the disk {DISK_SERIAL} of {DISK_BYTES} bytes, all read back, was expected; reported: {known}")
    return f"disk {DISK_SERIAL} by {disks[0]['method']}, {DISK_BYTES} bytes read back by the deploy system"
