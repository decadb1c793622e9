"""Operators reset the BMC of a machine: it is back as the same machine with the same power, or the task says why not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from node_agent.site.lease import LeaseEnded
from node_agent.wire.sites import BmcTaskKind, BmcTaskReport
from orchestrator.problems import Invalid
from orchestrator.sites.commands.bmcs import request_bmc_task
from orchestrator.sites.commands.reports import accept_bmc_report
from orchestrator.sites.commands.tasks import advance_bmc_task
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.nodes.answers import body_of
from tests.sites.rotations import Killed, Machine, Rotations, rotations
from tests.sites.running import Run, claim, play, to_work
from tests.support.bmc.faults import Fault

RESET = BmcTaskKind.RESET_BMC
EVENT = "select payload from outbox where event_type = 'node.bmc_reset_ended' and subject = %s order by id desc limit 1"
AUDITED = "select action, detail from audit_pending where subject = %s and action like 'node.bmc%%' order by id"


async def nothing() -> None:
    """A step of an agent that goes on."""


async def machine_of(stage: Rotations) -> Machine:
    """A machine that is on, and the open task that resets its BMC."""
    machine = await stage.machine()
    machine.service.machine.power = "On"
    await machine.request(RESET)
    return machine


def ended(machine: Machine) -> tuple[object, ...]:
    row = machine.rotations.fleet.connection.execute(
        "select outcome, split_part(failure, ':', 1), power_state from bmc_tasks where id = %s", (machine.task_id,)
    ).fetchone()
    event = machine.rotations.fleet.connection.execute(EVENT, (f"nodes/{machine.node_id}",)).fetchone()
    assert row is not None
    assert event is not None
    failure = event[0]["failure"]
    assert (event[0]["outcome"], failure and failure.partition(":")[0]) == row[:2]
    assert event[0]["task_id"] == str(machine.task_id)
    return tuple(row)


async def performed(stage: Rotations, machine: Machine) -> None:
    assert (await stage.perform(stage.second, machine, await stage.take(stage.second, machine), nothing)).applied


def scene_of(url: str, scene: Callable[[Rotations], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with rotations(url) as stage:
            await scene(stage)

    asyncio.run(whole())


def test_a_bmc_is_reset_and_its_machine_goes_on(database_url: str) -> None:
    async def scene(stage: Rotations) -> None:
        machine = await machine_of(stage)
        await performed(stage, machine)
        found = machine.service.machine
        assert (found.restarts, found.effects, found.power) == (1, ["bmc"], "On")
        assert ended(machine) == ("completed", None, "On")
        row = stage.fleet.connection.execute(
            "select inventory -> 'manager' ->> 'id', looked_at is not null from node_bmcs where node_id = %s",
            (machine.node_id,),
        ).fetchone()
        assert row == ("BMC", True), "what the BMC says afterwards is recorded"

    scene_of(database_url, scene)


Change = Callable[[Machine], None]


def _option(**options: Any) -> Change:
    def change(machine: Machine) -> None:
        for name, value in options.items():
            setattr(machine.service.machine.options, name, value)

    return change


def _effect(effect: Callable[[Machine], None]) -> Change:
    def change(machine: Machine) -> None:
        machine.service.machine.options.restart_effect = lambda: effect(machine)

    return change


def _fault(fault: Fault) -> Change:
    return lambda machine: machine.service.script.add("POST .*Manager.Reset", fault)


def _other_uuid(machine: Machine) -> None:
    identity = b'"@odata.id": "/redfish/v1/Systems/1", "Id": "1", "UUID": "11111111-1111-1111-1111-111111111111"'
    body = b"{" + identity + b', "PowerState": "On"}'
    machine.service.script.add("GET /redfish/v1/Systems/1$", Fault.BODY, times=9, body=body)


def _switched_off(machine: Machine) -> None:
    machine.service.machine.power = "Off"


@pytest.mark.parametrize(
    ("change", "found", "restarts"),
    [
        (_fault(Fault.LIE), ("failed", "bmc_without_effect", None), 0),
        (_fault(Fault.BROKEN_AFTER), ("completed", None, "On"), 1),
        (_fault(Fault.NO_ANSWER_WITH_EFFECT), ("completed", None, "On"), 1),
        (_fault(Fault.NO_ANSWER), ("unknown", "bmc_outcome_unknown", None), 0),
        (_fault(Fault.BUSY), ("failed", "bmc_busy", None), 0),
        (_option(restart_seconds=math.inf), ("failed", "bmc_not_back", None), 1),
        (_effect(_other_uuid), ("failed", "other_machine", None), 1),
        (_effect(_switched_off), ("failed", "power_changed", None), 1),
    ],
    ids=["lie", "broken", "silent", "lost", "busy", "gone", "other-machine", "switched-off"],
)
def test_what_was_not_read_back_is_not_believed(
    database_url: str, change: Change, found: tuple[object, ...], restarts: int
) -> None:
    async def scene(stage: Rotations) -> None:
        machine = await machine_of(stage)
        change(machine)
        await performed(stage, machine)
        assert ended(machine) == found
        sent = [line for line in machine.service.requests if line.endswith("Manager.Reset")]
        assert (machine.service.machine.restarts, len(sent)) == (restarts, 1)

    scene_of(database_url, scene)


def test_two_passwords_are_no_reason_for_a_second_reset(database_url: str) -> None:
    async def scene(stage: Rotations) -> None:
        machine = await machine_of(stage)
        found = machine.service.machine
        found.options.restart_effect = lambda: found.passwords.update(berth="default")
        await performed(stage, machine)
        assert ended(machine) == ("failed", "bmc_not_back", None)
        assert found.restarts == 1

    scene_of(database_url, scene)


def test_a_report_without_a_description_completes_nothing(database_url: str) -> None:
    async def scene(stage: Rotations) -> None:
        machine = await machine_of(stage)
        order = await stage.take(stage.second, machine)
        report = BmcTaskReport(
            fence=order.body.fence, lease_fence=order.lease_fence, outcome="completed", power_state="On"
        )
        with pytest.raises(Invalid):
            await accept_bmc_report(stage.context, stage.second.id, machine.task_id, report, "r")

    scene_of(database_url, scene)


def test_a_reset_that_no_agent_performs_ends_by_its_deadline(database_url: str) -> None:
    async def scene(stage: Rotations) -> None:
        machine = await machine_of(stage)
        stage.fleet.connection.execute("update bmc_tasks set waits_until = clock_timestamp()")
        await advance_bmc_task(stage.worker, machine.task_id)
        assert ended(machine) == ("failed", "no_agent", None)

    scene_of(database_url, scene)


def test_an_agent_that_dies_in_a_reset_is_followed_by_one_that_proves_it(database_url: str) -> None:
    async def scene(stage: Rotations) -> None:
        number, is_over = 1, False
        while not is_over:
            machine = await machine_of(stage)
            steps = 0

            async def step(number: int = number, machine: Machine = machine) -> None:
                nonlocal steps
                *_, before, last = ["", "", *machine.service.requests]
                steps += not (before == last and last.startswith("GET"))
                if steps >= number:
                    raise Killed

            order = await stage.take(stage.first, machine)
            try:
                await stage.perform(stage.first, machine, order, step)
                is_over = True
            except (Killed, LeaseEnded):
                if machine.state()[2] is None:
                    await performed(stage, machine)
            assert ended(machine) == ("completed", None, "On")
            assert machine.service.machine.restarts in (1, 2), "the next holder resets again, once"
            number += 3
        assert number > 12

    scene_of(database_url, scene)


def test_a_reset_is_requested_once_and_refused_while_something_works_through_the_bmc(
    database_url: str, tmp_path: Path
) -> None:
    async def scene(run: Run) -> None:
        async def ask() -> dict[str, Any]:
            found: dict[str, Any] = body_of(
                await request_bmc_task(run.stage.api, admin_operation(), ADMIN, run.node, RESET)
            )
            return found

        claim(run, "allocation")
        asked = await ask()
        assert (asked["task"]["kind"], asked["task"]["outcome"]) == ("reset_bmc", None), "a tenant's machine goes on"
        assert (await ask())["task"]["id"] == asked["task"]["id"]
        other = await request_bmc_task(run.stage.api, admin_operation(), ADMIN, run.node, BmcTaskKind.LOOK)
        assert body_of(other)["state"] == "task_open"
        rows = run.stage.fleet.connection.execute(AUDITED, (f"nodes/{run.node}",)).fetchall()
        assert [(action, detail["kind"]) for action, detail in rows] == [("node.bmc_reset", "reset_bmc")] * 2
        connection = run.stage.fleet.connection
        connection.execute("delete from bmc_tasks")
        connection.execute("delete from claims where node_id = %s", (run.node,))
        await to_work(run)
        assert (await ask())["state"] == "run_open"
        await run.sign()
        connection.execute("delete from deploy_runs")
        assert (await ask())["state"] == "deploy_task", "its medium is read through the BMC"

    play(database_url, tmp_path, scene)
