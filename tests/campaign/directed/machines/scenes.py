"""Scenes of machines: each shows one planted bug."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from node_agent.protocol import TaskType
from node_agent.site.lease import LeaseEnded
from node_agent.wire.sites import BmcTaskKind
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.problems import Invalid
from orchestrator.sites.commands.runs import advance_run
from tests.campaign.directed.machines.rack import RackScene
from tests.sites.rotations import Killed
from tests.testbuild.attributing import attribute_requests

Play = Callable[[RackScene], Coroutine[Any, Any, None]]


async def a_disk_that_keeps_its_content(scene: RackScene) -> None:
    """The disk of a released machine reads as it was, and the next tenant wants the machine."""
    rent = scene.rent
    await scene.live()
    await rent.release()
    await rent.clean_up()
    await rent.steps()
    with suppress(Invalid):
        await rent.wipe(nonzero_bytes_found=True, markers_found=1)
        await rent.steps()
        await rent.cleaned_up()
    if rent.claim["closed_at"] is not None:
        await scene.live()
        await rent.release()
        await rent.clean_up("releasing-2")
    await _end(scene)


async def _end(scene: RackScene) -> None:
    """The machine ends wiped and off, however the scene went before."""
    rent = scene.rent
    while rent.run.row("select count(*) from deploy_runs where node_id = %s and ended_at is null", rent.run.node)[0]:
        if await rent.steps() is Move.WORK:
            scene.work(TaskType.METAL_WIPE)
            await rent.wipe()
        else:
            rent.run.expire()


async def an_agent_that_stood_still(scene: RackScene) -> None:
    """An agent stops at its first command, another one takes over and ends the task, and the first one goes on."""
    attribute_requests()
    stage, machine = scene.rent.run.stage, scene.rent.run.machine
    scene.rent.set_state("cordoned")
    await machine.request(BmcTaskKind.POWER_RESET)
    order = await stage.take(stage.first, machine)
    requests = 0

    async def step() -> None:
        nonlocal requests
        requests += 1
        if requests == 2:
            stage.first.seconds += 60
            later = await stage.take(stage.second, machine)
            await stage.perform(stage.second, machine, later, _nothing)

    with suppress(LeaseEnded):
        await stage.perform(stage.first, machine, order, step)
    scene.place.write("ended", {"boot": scene.boot})
    machine.service.tick()  # type: ignore[attr-defined]


async def _nothing() -> None:
    """A step of an agent that goes on."""


async def an_agent_that_dies_after_a_rotation(scene: RackScene) -> None:
    """An agent dies between the change of a password and its report."""
    stage, machine = scene.rent.run.stage, scene.rent.run.machine
    await machine.request(BmcTaskKind.ROTATE)
    before = machine.password

    async def step() -> None:
        if machine.password != before:
            raise Killed

    with suppress(Killed):
        await stage.perform(stage.first, machine, await stage.take(stage.first, machine), step)


async def a_deployment_that_fails(scene: RackScene) -> None:
    """The deploy system of a create reports that it failed, and leaves the machine on."""
    rent = scene.rent
    rent.create()
    await rent.provision()
    await rent.steps()
    failure = {"code": "disk_error", "detail": "sda: read error"}
    await rent.run.report(rent.run.boot(), failure=failure, power="On")
    await rent.steps()


async def a_deploy_system_that_is_silent(scene: RackScene) -> None:
    """The deploy system of a create never says hello, and its deadline passes a minute ago."""
    rent = scene.rent
    rent.create()
    await rent.provision()
    await rent.steps()
    connection = rent.run.stage.fleet.connection
    connection.execute(
        "update deploy_runs set waits_until = clock_timestamp() - interval '1 min', waits_since ="
        " clock_timestamp() - interval '2 min' where ended_at is null"
    )
    while await advance_run(rent.run.stage.worker, rent.run.node) not in (None, Move.CLOSE):
        await rent.run.perform()


MACHINE_SCENES: list[tuple[str, Play, tuple[str, ...]]] = [
    ("wipe_not_read_back", a_disk_that_keeps_its_content, ("empty disk", "wiped before the next")),
    ("lease_not_required", an_agent_that_stood_still, ("no fenced command",)),
    ("password_not_stored", an_agent_that_dies_after_a_rotation, ("password known",)),
    ("failed_run_not_undone", a_deployment_that_fails, ("left off",)),
    ("step_without_deadline", a_deploy_system_that_is_silent, ("run ends", "run in time")),
]
"""Which planted bug shows in which scene, and to which checks."""
