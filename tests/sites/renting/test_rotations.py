"""A release rotates the password of the BMC; a rotation that fails keeps no unit, and takes the node out of service."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from berth.cli.deployment.release_finding import release_finding
from migrations.roles import Role
from node_agent.wire.sites import BmcTaskKind
from orchestrator.allocations.commands.force import force_cleanup
from orchestrator.nodes.commands.quarantines import quarantine_slot, return_slot
from orchestrator.nodes.deploy_systems.run_rules import (
    NEXT_STEPS,
    ROTATION_ATTEMPTS_MAX,
    FindingCode,
    Move,
)
from orchestrator.sites.commands.runs import advance_run
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.at_length import at_length
from tests.databases import as_role
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.releasing import (
    CHANGE,
    quarantines,
    require_released,
    slots_of,
    to_rotation,
)
from tests.sites.renting.tenancy import Renting, Scene
from tests.sites.rotations import FIRST_PASSWORD, Killed
from tests.support.bmc.faults import Fault


def test_a_release_rotates_the_password_once_the_machine_is_off(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        assert rent.run.is_undone(), "the machine is off before its password is changed"
        assert rent.claim["closed_at"] is None
        assert rent.run.machine.password == FIRST_PASSWORD
        assert await rent.steps() is Move.CLOSE
        assert rent.run.machine.state() == (2, None, "completed")
        assert rent.run.machine.password != FIRST_PASSWORD
        shown = await rent.run.shown()
        assert (shown["outcome"], shown["step"], shown["findings"]) == ("completed", "rotate", [])
        await require_released(rent)
        assert quarantines(rent) == []

    play(scene)


async def fail_each(rent: Renting) -> None:
    """The BMC answers to each change, and keeps its password."""
    rent.run.machine.service.script.add(CHANGE, Fault.LIE, times=100)


async def silent_site(rent: Renting) -> None:
    """No agent performs the rotation before the deadline of the step."""
    rent.run.expire()


async def silent_task(rent: Renting) -> None:
    """The task of the rotation is gone."""
    rent.run.stage.fleet.connection.execute("delete from bmc_tasks where node_id = %s", (rent.run.node,))


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (fail_each, "password_not_changed: "),
        pytest.param(silent_site, "its task did not end", marks=pytest.mark.full),
        pytest.param(silent_task, "its task did not end", marks=pytest.mark.full),
    ],
)
def test_a_rotation_that_fails_ends_the_release_in_quarantine(
    database_url: str, play: Callable[[Scene], None], trouble: Callable[[Renting], Any], why: str
) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        for attempt in range(1, ROTATION_ATTEMPTS_MAX + 1):
            assert rent.run.row("select attempts from deploy_runs where ended_at is null") == (attempt,)
            await trouble(rent)
            if trouble is fail_each:
                await rent.run.perform()
            move = await rent.run.advance()
            assert move is (Move.ROTATE_AGAIN if attempt < ROTATION_ATTEMPTS_MAX else Move.QUARANTINE)
        shown = await rent.run.shown()
        (found,) = shown["findings"]
        assert (shown["outcome"], shown["failure"], found["code"]) == ("completed", None, "bmc_rotation_failed")
        assert found["detail"].startswith(why)
        assert found["next_step"] == NEXT_STEPS[FindingCode.BMC_ROTATION_FAILED]
        taken = quarantines(rent)
        assert [(slot, source) for slot, source, _, _ in taken] == [(n, "release") for n in range(slots_of(rent))]
        evidence = json.loads(taken[0][3])
        assert (evidence["code"], evidence["deploy_run"]) == ("bmc_rotation_failed", shown["id"])
        assert taken[0][2].startswith("bmc_rotation_failed: ")
        events = rent.run.row("select payload from outbox where event_type = 'node.deploy_run_ended' order by id desc")
        assert events[0]["findings"] == [{"code": found["code"], "detail": found["detail"]}]
        await require_released(rent)
        free = rent.run.row("select bool_or(state = 'in_service') from slots where node_id = %s", rent.run.node)[0]
        assert free is False, "nothing is placed on the machine"
        finding = release_finding(as_role(database_url, Role.OPERATOR))
        assert finding.verdict == "warning"
        assert "(bmc_rotation_failed)" in finding.detail

        rent.run.machine.service.script.rules.clear()
        await rent.run.machine.request(BmcTaskKind.ROTATE)
        await rent.run.perform()
        assert rent.run.machine.password != FIRST_PASSWORD
        for slot in range(slots_of(rent)):
            returned = await return_slot(
                rent.run.stage.context, admin_operation(), ADMIN, rent.run.node, slot, note="rotated"
            )
            assert returned.status == 200, "no burn-in is required"
        assert release_finding(as_role(database_url, Role.OPERATOR)).verdict == "ok"
        await rent.activate()

    play(scene)


def test_what_another_attempt_cannot_help_is_not_repeated(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        rent.run.machine.service.machine.passwords["berth"] = "set-by-the-tenant"
        await rent.run.perform()
        refused = rent.run.machine.service.machine.refused_logins
        assert await rent.run.advance() is Move.QUARANTINE
        assert rent.run.machine.service.machine.refused_logins == refused <= 2, "the account is not locked"
        assert (await rent.run.shown())["findings"][0]["detail"].startswith("bmc_credentials_refused: ")

    play(scene)


def test_a_slot_that_is_in_quarantine_gets_the_evidence(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        await quarantine_slot(
            rent.run.stage.context, admin_operation(), ADMIN, rent.run.node, 0, reason="XID 79", evidence="dmesg"
        )  # fmt: skip
        rent.run.machine.service.machine.passwords["berth"] = "set-by-the-tenant"
        await rent.run.perform()
        assert await rent.run.advance() is Move.QUARANTINE
        first = quarantines(rent)[0]
        assert first[1:3] == ("operator", "XID 79")
        assert first[3].startswith("dmesg\nbmc_rotation_failed: ")

    play(scene)


def test_a_bmc_that_is_set_not_to_rotate_keeps_its_password(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.run.stage.fleet.connection.execute("update node_bmcs set rotates_at_release = false")
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe()
        assert await rent.steps() is Move.CLOSE
        assert rent.run.machine.password == FIRST_PASSWORD
        await require_released(rent)
        assert quarantines(rent) == []

    play(scene)


@pytest.mark.parametrize("signed", at_length([False, True], [True]))
def test_a_force_cleanup_waits_for_no_rotation_that_has_not_begun(play: Callable[[Scene], None], signed: bool) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        if signed:
            rent.run.machine.task_id = rent.run.row("select id from bmc_tasks where ended_at is null")[0]
            await rent.run.stage.take(rent.run.stage.first, rent.run.machine)
        await force_cleanup(rent.run.stage.context, admin_operation(), ADMIN, rent.allocation, reason="looked")
        if signed:
            assert await rent.run.advance() is None, "an agent may be changing the password"
            await rent.run.perform()
        assert await rent.run.advance() is Move.CLOSE
        assert (await rent.run.shown())["outcome"] == "stopped"
        assert (rent.run.machine.password != FIRST_PASSWORD) is signed
        assert rent.run.is_undone()

    play(scene)


def test_a_wipe_that_is_not_proven_rotates_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe(nonzero_bytes_found=True)
        assert await rent.steps() is Move.CLOSE
        assert rent.run.machine.password == FIRST_PASSWORD, "the next attempt rotates it"

    play(scene)


@pytest.mark.parametrize("numbers", at_length([[1, 9], list(range(1, 40))], [[1, 9]]))
def test_an_agent_that_dies_in_the_rotation_of_a_release_is_replaced(
    play: Callable[[Scene], None], numbers: list[int]
) -> None:
    async def scene(rent: Renting) -> None:
        stage, machine = rent.run.stage, rent.run.machine
        generation, deaths = 1, 0
        for number in numbers:
            await to_rotation(rent)
            before, steps = machine.password, 0

            async def step(number: int = number) -> None:
                nonlocal steps
                steps += 1
                if steps >= number:
                    raise Killed

            machine.task_id = rent.run.row("select id from bmc_tasks where ended_at is null")[0]
            order = await stage.take(stage.first, machine)
            try:
                await stage.perform(stage.first, machine, order, step)
            except Killed:
                deaths += 1
                if rent.run.row("select count(*) from bmc_tasks where ended_at is null")[0]:
                    await rent.run.perform(stage.second)
            assert await rent.run.advance() is Move.CLOSE
            generation += 1
            assert machine.state() == (generation, None, "completed")
            assert machine.password != before
            assert (await rent.run.shown())["findings"] == []
            await require_released(rent)
            if steps < number:
                break
        assert deaths

    play(scene)


@pytest.mark.parametrize("numbers", at_length([[QUICK], list(range(1, 60))], [[QUICK]]))
def test_a_worker_that_dies_before_any_step_of_a_release_leaves_the_step_before(
    database_url: str, play: Callable[[Scene], None], numbers: list[int]
) -> None:
    async def released(rent: Renting, number: int) -> int:
        workers = Workers(database_url, rent.run)
        rent.run.machine.service.machine.refused_logins = 0
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        while rent.task["state"] == "queued":
            await workers.killed(number, lambda context: advance_run(context, rent.run.node))
            if rent.task["state"] != "queued" or await rent.run.advance() is not None:
                continue
            if await rent.is_at("work"):
                await rent.wipe()
            else:
                await rent.run.perform()
        assert rent.run.machine.state()[1:] == (None, "completed")
        await require_released(rent)
        return workers.deaths

    async def scene(rent: Renting) -> None:
        deaths = [await released(rent, number) for number in numbers]
        assert deaths[0]
        assert numbers == [QUICK] or deaths[-1] == 0, "no move has so many statements"
        assert rent.run.machine.service.machine.effects.count("password") == len(numbers)

    play(scene)


@pytest.mark.full
def test_a_worker_that_dies_while_it_takes_a_node_out_of_service_has_done_nothing(
    database_url: str, play: Callable[[Scene], None]
) -> None:
    async def scene(rent: Renting) -> None:
        await to_rotation(rent)
        rent.run.machine.service.machine.passwords["berth"] = "set-by-the-tenant"
        await rent.run.perform()
        workers, number = Workers(database_url, rent.run), 0
        while not quarantines(rent):
            number += 1
            await workers.killed(number, lambda context: advance_run(context, rent.run.node))
            assert (rent.task["state"] == "queued") is not bool(quarantines(rent)), "both, or neither"
        assert workers.deaths >= QUICK

    play(scene)
