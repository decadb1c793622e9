"""A machine's deploy system is started and ended through its BMC, whatever step an agent dies or loses its lease at (P7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from berth.local.servers import free_port
from berth.process.sealed_passwords import DEPLOY_TOKEN_FORMAT, Purpose
from node_agent.media.medium import MediumChanged
from node_agent.media.placeholder import CONFIGURATION_BYTES
from node_agent.protocol import TaskType
from node_agent.site.lease import Lease, LeaseEnded
from node_agent.site.media import MediaPlace, SiteMedia
from node_agent.wire.deploy_medium import DeployMedium, read_medium
from node_agent.wire.sites import BmcTaskReport
from tests.media.media_files import AT, common_medium
from tests.sites.boots import EJECT, END, NODE, SITE, START, TOKEN, Agent, Rack
from tests.sites.rotations import Killed
from tests.support.bmc.faults import Fault
from tests.support.bmc.machine import Options


def outcome(report: BmcTaskReport) -> tuple[str, str | None]:
    return report.outcome, None if report.failure is None else report.failure.code


def started(rack: Rack, agent: Agent) -> None:
    """The machine has booted once from the medium, which this agent serves."""
    assert (rack.machine.power, rack.machine.boots) == ("On", ["Cd"])
    assert agent.served(rack.machine.image) is not None


def ended(rack: Rack, *agents: Agent) -> None:
    """The machine is off, has no medium, boots from no CD, and no agent serves its medium."""
    assert (rack.machine.power, rack.machine.image) == ("Off", None)
    assert rack.machine.override["enabled"] == "Disabled" or rack.machine.override["target"] == "Hdd"
    for agent in agents:
        assert not agent.media._publications._published


def ejected(rack: Rack, *agents: Agent) -> None:
    """The machine runs on without a medium, boots from no CD, and no agent serves its medium."""
    assert (rack.machine.power, rack.machine.image) == ("On", None)
    assert rack.machine.override["enabled"] == "Disabled" or rack.machine.override["target"] == "Hdd"
    for agent in agents:
        assert not agent.media._publications._published


def test_a_deploy_system_is_started_from_its_own_medium_and_ended(tmp_path: Path) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        agent = rack.first
        order = rack.order(agent, START)
        assert outcome(await rack.perform(agent, order)) == ("completed", None)
        started(rack, agent)
        served = agent.served(rack.machine.image)
        assert served is not None
        found = read_medium(served.read(AT, CONFIGURATION_BYTES))
        assert (found.token, found.node_id, found.deploy_epoch) == (TOKEN, NODE, 3)
        assert TOKEN not in str(rack.machine.image)
        assert TOKEN not in json.dumps(order.parameters.model_dump(mode="json")), "the task has it sealed alone"
        agent.seconds += 30
        assert agent.served(rack.machine.image) is None, "nothing is served after the lease"
        with pytest.raises(MediumChanged):
            served.read(0, 1)
        image = rack.machine.image
        order = rack.order(agent, END)
        assert outcome(await rack.perform(agent, order)) == ("completed", None)
        ended(rack, agent)
        assert agent.served(image) is None

    asyncio.run(scene())


async def begun(rack: Rack, kind: TaskType) -> None:
    """What comes before the task: nothing, or a start by the first agent."""
    if kind in (EJECT, END):
        await rack.perform(rack.first, rack.order(rack.first, START))


def require(rack: Rack, kind: TaskType) -> None:
    if kind is START:
        started(rack, rack.second if rack.second.media._paths else rack.first)
    elif kind is EJECT:
        ejected(rack, rack.second)
    else:
        ended(rack, rack.second)
    assert rack.machine.effects.count("On") == 1


async def killed_at(rack: Rack, kind: TaskType, number: int) -> bool:
    """Kill the first agent at its step of this number, and let the second one go on; False if there is no such step."""
    steps, is_dead = 0, False

    async def step() -> None:
        nonlocal steps, is_dead
        steps += not rack.is_repeated()
        is_dead = is_dead or steps == number
        if is_dead:
            raise Killed

    await begun(rack, kind)
    order = rack.order(rack.first, kind)
    try:
        await rack.perform(rack.first, order, step)
    except Killed:
        assert outcome(await rack.perform(rack.second, rack.order(rack.second, kind))) == ("completed", None)
    require(rack, kind)
    return steps >= number


async def stopped_at(rack: Rack, kind: TaskType, number: int) -> bool:
    """Stop the first agent there, continue it when the second one has done everything; False if there is no such step."""
    steps, reached = 0, 0

    async def step() -> None:
        nonlocal steps, reached
        steps += not rack.is_repeated()
        if steps == number and not reached:
            rack.first.seconds += 60
            assert outcome(await rack.perform(rack.second, rack.order(rack.second, kind))) == ("completed", None)
            reached = len(rack.service.requests)

    await begun(rack, kind)
    order = rack.order(rack.first, kind)
    try:
        await rack.perform(rack.first, order, step)
    except LeaseEnded:
        assert reached
    assert reached in (0, len(rack.service.requests)), "no request reached the BMC after the lease"
    require(rack, kind)
    return steps >= number


@pytest.mark.parametrize(
    "options", [pytest.param({}, id="once"), pytest.param({"keeps_override": True}, id="kept", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("play", [killed_at, stopped_at])
@pytest.mark.parametrize("kind", [START, EJECT, END])
def test_start_eject_and_end_are_finished_whatever_step_an_agent_ends_at(
    tmp_path: Path, kind: TaskType, play: Callable[[Rack, TaskType, int], Coroutine[None, None, bool]],
    options: dict[str, Any],
) -> None:  # fmt: skip
    async def scene() -> int:
        number = 1
        while await play(Rack(tmp_path, Options(**options)), kind, number):
            number += 1
        return number - 1

    assert asyncio.run(scene()) >= (8 if kind is EJECT else 12)


@pytest.mark.parametrize(
    ("line", "fault", "found"),
    [
        ("EjectMedia", Fault.LIE, ("failed", "bmc_without_effect")),
        ("EjectMedia", Fault.NO_ANSWER, ("unknown", "bmc_outcome_unknown")),
        ("PATCH", Fault.LIE, ("failed", "bmc_without_effect")),
    ],
)
def test_a_medium_that_a_bmc_does_not_eject_is_named_and_is_served_no_more(
    tmp_path: Path, line: str, fault: Fault, found: tuple[str, str | None]
) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path, Options(keeps_override=True))
        agent = rack.first
        await rack.perform(agent, rack.order(agent, START))
        rack.service.script.add(line, fault)
        assert outcome(await rack.perform(agent, rack.order(agent, EJECT))) == found
        assert not agent.media._publications._published
        assert outcome(await rack.perform(agent, rack.order(agent, EJECT))) == ("completed", None)
        ejected(rack, agent)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("boot", "code"),
    [("missing", "not_sealed"), ("of another epoch", "seal_broken"), ("a password", "seal_broken")],
)
def test_a_token_that_is_not_sealed_to_this_agent_for_this_start_boots_nothing(
    tmp_path: Path, boot: str, code: str
) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        purposes = {
            "missing": Purpose(SITE, NODE, 3, DEPLOY_TOKEN_FORMAT), "a password": Purpose(SITE, NODE, 3),
            "of another epoch": Purpose(SITE, NODE, 4, DEPLOY_TOKEN_FORMAT),
        }  # fmt: skip
        token = dict(rack.sealed(TOKEN, purposes[boot]))
        if boot == "missing":
            del token[rack.first.id]
        report = await rack.perform(rack.first, rack.order(rack.first, START, token=token))
        assert outcome(report) == ("failed", code)
        assert rack.service.requests == []

    asyncio.run(scene())


def test_an_agent_without_a_medium_starts_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        for medium in (None, tmp_path / "absent.iso"):
            agent = rack.first = Agent("a", medium)
            assert outcome(await rack.perform(agent, rack.order(agent, START))) == ("failed", "no_medium")
        assert rack.machine.effects == []

    asyncio.run(scene())


def test_a_machine_that_is_on_with_another_medium_is_left_alone(tmp_path: Path) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        rack.machine.power, rack.machine.image = "On", "http://first/media/other/deploy.iso"
        assert outcome(await rack.perform(rack.first, rack.order(rack.first, START))) == ("failed", "machine_on")
        assert rack.machine.effects == []
        assert not rack.first.media._publications._published

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("line", "fault", "found", "is_served"),
    [
        ("InsertMedia", Fault.LIE, ("failed", "bmc_without_effect"), False),
        ("InsertMedia", Fault.BUSY, ("failed", "bmc_busy"), False),
        ("PATCH", Fault.LIE, ("failed", "bmc_without_effect"), False),
        ("Reset", Fault.LIE, ("unknown", "bmc_not_settled"), True),
        ("Reset", Fault.NO_ANSWER, ("unknown", "bmc_outcome_unknown"), True),
        ("Reset", Fault.NO_ANSWER_WITH_EFFECT, ("completed", None), True),
    ],
)
def test_a_start_that_a_bmc_does_not_perform_is_named_and_can_be_ended(
    tmp_path: Path, line: str, fault: Fault, found: tuple[str, str | None], is_served: bool
) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        rack.service.script.add(line, fault)
        assert outcome(await rack.perform(rack.first, rack.order(rack.first, START))) == found
        assert bool(rack.first.media._publications._published) is is_served
        assert outcome(await rack.perform(rack.first, rack.order(rack.first, END))) == ("completed", None)
        ended(rack, rack.first)

    asyncio.run(scene())


def test_a_second_command_of_one_lease_does_not_wait_for_queued_ones(tmp_path: Path) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        order = rack.order(rack.first, START)
        await rack.perform(rack.first, order)
        began = rack.machine.clock.now()
        again = rack.order(rack.first, END)
        rack.first.lease.grant(order.lease_fence, 20.0, rack.first.seconds)
        await rack.perform(rack.first, replace(again, lease_fence=order.lease_fence))
        assert rack.machine.clock.now() - began < 30, "the last command had its effect"
        began = rack.machine.clock.now()
        await rack.perform(rack.first, rack.order(rack.first, TaskType.METAL_POWER_ON))
        assert rack.machine.clock.now() - began >= 30, "under another lease an earlier process may have sent one"

    asyncio.run(scene())


def test_after_a_command_without_its_effect_the_next_one_waits(tmp_path: Path) -> None:
    async def scene() -> None:
        rack = Rack(tmp_path)
        order = rack.order(rack.first, TaskType.METAL_POWER_OFF)
        await rack.perform(rack.first, order)
        rack.service.script.add("Reset", Fault.LIE)
        on = replace(rack.order(rack.first, TaskType.METAL_POWER_ON), lease_fence=order.lease_fence)
        rack.first.lease.grant(order.lease_fence, 20.0, rack.first.seconds)
        assert outcome(await rack.perform(rack.first, on)) == ("unknown", "bmc_not_settled")
        began = rack.machine.clock.now()
        assert outcome(await rack.perform(rack.first, on)) == ("completed", None)
        assert rack.machine.clock.now() - began >= 30

    asyncio.run(scene())


def test_a_bmc_reads_a_medium_over_http_while_the_lease_is_held(tmp_path: Path) -> None:
    async def scene() -> None:
        file, port = tmp_path / "deploy.iso", free_port()
        common_medium(file)
        lease = Lease(lambda: 0.0)
        lease.grant(1, 20.0, 0.0)
        place = MediaPlace(f"http://127.0.0.1:{port}", "127.0.0.1", port, file)
        media = SiteMedia(place, lease, CollectorRegistry())
        await media.start()
        boot = Rack(tmp_path).parameters(START).boot
        assert boot is not None
        medium = DeployMedium.model_validate({**boot.model_dump(), "node_id": NODE, "token": TOKEN})
        url = await media.publish(medium, 1)
        async with httpx.AsyncClient() as bmc:
            read = await bmc.get(url)
            assert (read.status_code, TOKEN.encode() in read.content) == (200, True)
            lease.drop()
            assert (await bmc.get(url)).status_code == 404
        await media.stop()

    asyncio.run(scene())
