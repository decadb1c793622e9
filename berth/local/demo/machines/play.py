"""All machines through all steps, some of them at once, and the report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.client import ImageStatement
from berth.local.demo.act import Say
from berth.local.demo.interruption import run_interruptibly
from berth.local.demo.machines.certificates import verify_certificate_of
from berth.local.demo.machines.enrolment import put_into_service
from berth.local.demo.machines.steps import MachineGivenUp, ProvenSteps, StepName
from berth.local.demo.machines.tenancies import deploy, search, use_and_release
from berth.local.demo.play import REPORT
from berth.local.demo.stage import Stage, set_stage
from berth.local.machines.images import ServedImage, image_served
from berth.local.machines.plan import GPU_MODEL, IMAGE, SKU, plan_machines
from berth.local.machines.rack import Machine, own_directory, racked
from berth.local.machines.stack import MachineStack
from berth.local.state import StateDirectory, write_whole
from berth.process.json_objects import JsonObject
from orchestrator.verification import run_checks


@dataclass(frozen=True)
class MachineDemo:
    """What the demo is played with: how many machines, how many of them work at once, and its files."""

    machines: int
    at_once: int
    medium: Path
    image: Path
    tools: Path
    directory: Path


def play_machines(stack: MachineStack, demo: MachineDemo, say: Say) -> ProvenSteps:
    """Play every step; a machine with one that is not proven goes no further, and the others do."""
    planned = plan_machines(demo.machines)
    steps = ProvenSteps([machine.name for machine in planned], say)
    with ExitStack() as held:
        directory = held.enter_context(own_directory(demo.directory))
        image = held.enter_context(image_served(stack.authority, demo.image, directory))
        machines = held.enter_context(racked(planned, directory, demo.tools, stack.state.log, stack.remember))
        say(f"{len(machines)} machines are off, with empty disks; {demo.at_once} work at once")
        stage = set_stage(stack)
        run_interruptibly(_play(stage, machines, image, steps, demo.at_once))
    return steps


async def _play(
    stage: Stage, machines: Sequence[Machine], image: ServedImage, steps: ProvenSteps, at_once: int
) -> ProvenSteps:
    first, next_tenant = stage.players[0], stage.players[1]
    slots = asyncio.Semaphore(at_once)
    async with stage.admin() as admin:
        statement = ImageStatement(format="raw", firmware="uefi", disk_bytes_min=image.disk_bytes)
        await admin.put_image(IMAGE, url=image.url, sha256=image.sha256, shapes=["baremetal"], statement=statement)
        await admin.put_sku(
            SKU, shape="baremetal", gpu_model=GPU_MODEL, allowed_counts=(1,), default_image=IMAGE,
            price_micro_per_gpu_second=700,
        )  # fmt: skip
        await _each(put_into_service(admin, machine, steps, slots) for machine in machines)
    serving = _proven(machines, steps, StepName.SERVICE)
    former = await deploy(stage, first, serving, steps, StepName.DEPLOY, slots)
    await _each(use_and_release(stage, first, tenancy, steps, slots) for tenancy in former)
    empty = _proven(machines, steps, StepName.GONE)
    later = await deploy(stage, next_tenant, empty, steps, StepName.NEXT, slots)
    left_by = {tenancy.machine.name: tenancy for tenancy in former}
    await _each(search(stage, tenancy, left_by[tenancy.machine.name], steps) for tenancy in later)
    wiped = [tenancy for tenancy in former if tenancy.machine.name in empty]
    for tenancy in wiped:  # one after the other, as each prints what its tenant sees
        await _each([verify_certificate_of(stage, first, tenancy, steps)])
    for verdict in await asyncio.to_thread(run_checks, stage.stack.endpoints.database_url):
        steps.check(f"{verdict.promise}: {verdict.title}", verdict.kept)
    return steps


async def _each(lives: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all to their end; a machine that was given up ends no other one."""
    for ended in await asyncio.gather(*lives, return_exceptions=True):
        if isinstance(ended, BaseException) and not isinstance(ended, MachineGivenUp):
            raise ended


def _proven(machines: Sequence[Machine], steps: ProvenSteps, name: StepName) -> dict[str, Machine]:
    """The machines with this step proven, by node."""
    found = {machine.name: steps.of(machine.name, name) for machine in machines}
    return {machine.name: machine for machine in machines if (step := found[machine.name]) and step.why is None}


def write_machine_report(state: StateDirectory, steps: ProvenSteps, seconds: float) -> JsonObject:
    """Write demo-report.json and answer its content."""
    report = steps.report(seconds)
    write_whole(state.path / REPORT, json.dumps(report, indent=2) + "\n")
    return report
