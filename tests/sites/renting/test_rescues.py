"""A rented machine runs the rescue system of its tenant: entered without its disks, handed over, and left by the next verb."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from node_agent.drivers.ssh import new_host_key
from orchestrator.allocations.commands.verbs import order_verb
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.allocations.store.rows import allocation_body, read_allocation
from orchestrator.nodes.deploy_systems.queries import require_deploy_standing
from orchestrator.nodes.deploy_systems.refusals import DeploySystemEnded
from orchestrator.nodes.deploy_systems.run_rules import END_ATTEMPTS_MAX, HISTORY_MAX, Move
from orchestrator.sites.commands.runs import advance_run
from orchestrator.sites.tenancies import RESCUE_USER
from tests.allocations.driving import TENANT, events_of, operation
from tests.allocations.seeding import SSH_KEY
from tests.at_length import at_length
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.tenancy import Renting, Scene
from tests.support.bmc.faults import Fault

OTHER_KEY = "ssh-ed25519 " + "B" * 68 + " colleague@example.com"
LEAVING = {
    Verb.START: (["Off", "On"], "running"),
    Verb.REBOOT: (["Off", "On"], "running"),
    Verb.STOP: (["Off"], "stopped"),
}
"""What the machine does, and the guest's state after it."""
STEPS = ["queued", "power_off", "start", "work", "eject", "reach", "rescued"]
LOGIN_DATA = """
select (select string_agg(parameters::text, '') from deploy_runs) || (select string_agg(parameters::text, '') from deploy_tasks)
       || (select string_agg(convert_from(decode(coalesce(envelope ->> 'payload', ''), 'base64'), 'UTF8'), '') from node_tasks
           where deploy_epoch > 0)
"""


async def shown(rent: Renting) -> dict[str, Any]:
    """The allocation as its tenant reads it."""
    async with rent.run.stage.context.database.reading() as reading:
        row = await read_allocation(reading, rent.allocation, rent.seeded.tenant_id)
    assert row is not None
    return allocation_body(row)


async def is_at(rent: Renting, step: str) -> bool:
    """Whether the run of the rescue is at this step."""
    return await rent.is_at(step) and (await rent.run.shown())["kind"] == "rescue"


async def to_step(rent: Renting, step: str) -> None:
    """The tenant's rescue is at this step."""
    if step == "rescued":
        await rent.rescue()
        return
    await rent.order(Verb.RESCUE)
    while step != "queued" and not await is_at(rent, step):
        if await is_at(rent, "work"):
            await rent.prepare_rescue()
        if await rent.run.advance() is None:
            await rent.run.perform()


def test_a_rescue_hands_over_a_machine_without_its_medium_and_its_certificate(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        await rent.activate()
        before, claim = await shown(rent), rent.row["claim_id"]
        assert before["guest"]["rescue"] is None
        await rent.order(Verb.RESCUE)
        assert (rent.task["deploy_epoch"], rent.task["type"]) == (0, "allocation.rescue")
        assert await rent.steps() is Move.WORK
        assert machine.boots[-1] == "Cd"
        parameters, of_claim = rent.run.row(
            "select parameters, claim_id from deploy_tasks where type = 'metal.rescue' order by id desc limit 1"
        )
        assert (parameters["ssh_public_keys"], parameters["then"], of_claim) == ([SSH_KEY], "hand_over", claim)
        serial = await rent.prepare_rescue()
        assert await rent.run.advance() is Move.EJECT
        epoch = (await rent.run.shown())["deploy_epoch"]
        database = rent.run.stage.context.database
        await require_deploy_standing(
            database, rent.run.node, epoch, serial
        )  # until the medium is read back as ejected
        assert machine.image is not None
        await rent.run.perform()
        assert (machine.power, machine.image or "") == ("On", "")
        assert machine.override["enabled"] == "Disabled" or machine.override["target"] != "Cd"
        assert rent.run.stage.first.media._publications._published == {}, "nothing serves the medium"
        await require_deploy_standing(database, rent.run.node, epoch, serial)
        assert await rent.run.advance() is Move.REACH
        with pytest.raises(DeploySystemEnded) as ended:
            await require_deploy_standing(database, rent.run.node, epoch, serial)
        assert ended.value.extra["reason"] == "handed_over"
        assert rent.row["guest_state"] == "running", "not before its host key is proven"
        assert await rent.steps() is Move.CLOSE
        concluded = await rent.ordered()
        assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, None)
        after = await shown(rent)
        login = {
            "host": "127.0.0.1",
            "port": after["connection"]["port"],
            "user": RESCUE_USER,
            "host_key": rent.host_key,
        }
        assert (after["guest"]["state"], after["guest"]["rescue"]) == ("rescue", login)
        assert after["connection"] == before["connection"], "that of the tenant's own system"
        assert (machine.power, machine.image or "") == ("On", "")
        assert SSH_KEY.split()[1] not in rent.run.row(LOGIN_DATA)[0], "the keys have left runs and tasks"
        wanted = ["allocation.verb_requested", "task.finished", "allocation.verb_completed"]
        assert events_of(rent.url, rent.allocation)[-3:] == wanted

    play(scene)


@pytest.mark.parametrize("verb", at_length(LEAVING, [Verb.REBOOT]))
def test_the_next_verb_ends_the_rescue_and_boots_the_disk(play: Callable[[Scene], None], verb: Verb) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        await rent.activate()
        await rent.rescue()
        before = len(machine.boots)
        await rent.order(verb)
        seen = []
        assert await rent.run.advance() is Move.OPEN
        assert (await rent.run.shown())["step"] == "end", "off by force: nothing in memory is worth a shutdown"
        while rent.task["state"] == "queued":
            await rent.run.perform()
            seen.append(machine.power)
            await rent.run.advance()
        powers, guest = LEAVING[verb]
        assert seen == powers
        assert (len(machine.boots[before:]), "Cd" in machine.boots[before:]) == (powers.count("On"), False)
        assert (await rent.ordered()).code is None
        found = await shown(rent)
        assert (found["guest"]["state"], found["guest"]["rescue"]) == (guest, None)
        await rent.order(Verb.REBOOT)
        assert await rent.run.advance() is Move.OPEN
        assert (await rent.run.shown())["step"] == "power_off", "it was left: the next verb shuts down"

    play(scene)


@pytest.mark.full  # the next verb ends it in the test above
def test_a_rebuild_ends_the_rescue(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.rescue()
        await rent.order(Verb.REBUILD)
        assert await rent.steps() is Move.WORK
        await rent.deploy()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.ordered()).code is None
        assert (rent.row["guest_state"], rent.row["rescue"]) == ("running", None)

    play(scene)


def test_a_rescue_of_a_rescue_changes_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.rescue()
        before = rent.row
        for _ in range(2):
            answer = await order_verb(
                rent.run.stage.context, operation(rent.seeded), TENANT, rent.seeded.tenant_id, rent.allocation, Verb.RESCUE
            )  # fmt: skip
            assert answer.status == 202
            assert json.loads(answer.body)["guest"]["verb"] is None
        assert rent.row == before
        assert await rent.run.advance() is None

    play(scene)


@pytest.mark.full  # quicker: tests/guests/test_rivals.py
def test_of_a_rescue_and_a_rebuild_at_once_one_is_ordered(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        orders = [
            order_verb(
                rent.run.stage.context, operation(rent.seeded), TENANT, rent.seeded.tenant_id, rent.allocation, verb
            )
            for verb in (Verb.RESCUE, Verb.REBUILD)
        ]
        answers = await asyncio.gather(*orders)
        assert sorted(answer.status for answer in answers) == [202, 409]
        assert "verb_in_progress" in {json.loads(answer.body).get("code") for answer in answers}
        assert rent.row["guest_verb"] in ("rescue", "rebuild")

    play(scene)


@pytest.mark.parametrize("step", at_length(STEPS, ["eject"]))
def test_a_release_at_any_step_of_a_rescue_wipes(play: Callable[[Scene], None], step: str) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await to_step(rent, step)
        await rent.release()
        await rent.clean_up()
        assert rent.row["rescue"] is None
        assert await rent.steps() is Move.WORK
        assert (await rent.run.shown())["kind"] == "wipe"
        await rent.wipe()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED
        assert rent.run.is_undone()
        handed = rent.run.row("select count(*) from deploy_systems where ended_by = 'handed_over'")[0]
        assert handed == (step in ("reach", "rescued")), "no machine is handed over once its allocation is released"

    play(scene)


@pytest.mark.parametrize("verb", at_length([Verb.START, Verb.REBOOT], [Verb.REBOOT]))
def test_a_medium_that_cannot_be_ejected_is_no_rescue(play: Callable[[Scene], None], verb: Verb) -> None:
    async def scene(rent: Renting) -> None:
        machine, script = rent.run.machine.service.machine, rent.run.machine.service.script
        await rent.activate()
        await to_step(rent, "eject")
        script.add("EjectMedia", Fault.LIE, 1)
        assert await rent.steps() is Move.CLOSE
        assert rent.run.is_undone(), "off, and the medium ejected by the end"
        concluded = await rent.ordered()
        assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, "machine_run_failed")
        assert (rent.row["guest_state"], rent.row["rescue"]) == ("unknown", None)
        assert rent.run.row("select count(*) from deploy_systems where ended_by = 'handed_over'")[0] == 0
        script.rules.clear()
        await rent.order(verb)
        assert await rent.run.advance() is Move.OPEN
        assert (await rent.run.shown())["step"] == "end", "what a failed rescue has left is ended first"
        assert await rent.steps() is Move.CLOSE
        assert ((await rent.ordered()).code, rent.row["guest_state"], machine.power) == (None, "running", "On")

    play(scene)


def test_a_rescue_whose_host_key_is_not_proven_is_undone(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.RESCUE)
        assert await rent.steps() is Move.WORK
        proven, rent.host_key = rent.host_key, new_host_key()[1]
        await rent.prepare_rescue()
        await rent.show_another_host_key()
        assert await rent.steps() is Move.CLOSE
        assert rent.run.is_undone()
        assert (await rent.ordered()).code == "ssh_readiness_timeout"
        assert (rent.row["guest_state"], rent.row["rescue"]) == ("unknown", None)
        rent.host_key = proven

    play(scene)


@pytest.mark.parametrize("left", at_length([[], [OTHER_KEY]], [[]]))
def test_keys_that_the_tenant_has_removed_give_no_access(play: Callable[[Scene], None], left: list[str]) -> None:
    async def scene(rent: Renting) -> None:
        connection = rent.run.stage.fleet.connection
        await rent.activate()
        await rent.order(Verb.RESCUE)
        connection.execute(
            "update allocations set ssh_public_keys = %s where id = %s", ([SSH_KEY, *left], rent.allocation)
        )
        for key in left:
            connection.execute(
                "insert into ssh_keys (tenant_id, name, public_key, fingerprint) values (%s, 'other', %s, 'SHA256:x')",
                (rent.seeded.tenant_id, key),
            )
        connection.execute("delete from ssh_keys where public_key = %s", (SSH_KEY,))
        if left:
            assert await rent.steps() is Move.WORK
            parameters = rent.run.row("select parameters from deploy_tasks where type = 'metal.rescue'")[0]
            assert parameters["ssh_public_keys"] == left
            return
        assert await rent.run.advance() is Move.REFUSE
        assert (await rent.ordered()).code == "task_refused"
        assert rent.row["guest_failure_detail"].startswith("no_keys: ")
        assert (rent.row["guest_state"], rent.run.machine.service.machine.power) == ("running", "On"), (
            "nothing was done"
        )

    play(scene)


def test_another_key_of_the_tenant_does_not_log_in(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        rent.run.stage.fleet.connection.execute(
            "insert into ssh_keys (tenant_id, name, public_key, fingerprint) values (%s, 'other', %s, 'SHA256:x')",
            (rent.seeded.tenant_id, OTHER_KEY),
        )
        await rent.order(Verb.RESCUE)
        assert await rent.steps() is Move.WORK
        parameters = rent.run.row("select parameters from deploy_tasks where type = 'metal.rescue'")[0]
        assert parameters["ssh_public_keys"] == [SSH_KEY], "it was never meant for this machine"

    play(scene)


def test_a_rescue_that_cannot_be_left_is_tried_as_often_as_any_end(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.rescue()
        rent.run.machine.service.script.add("Reset", Fault.LIE, 99)
        await rent.order(Verb.REBOOT)
        moves = []
        while rent.task["state"] == "queued":
            move = await rent.run.advance()
            moves += [move] if move else []
            if move is None:
                await rent.run.perform()
        assert moves == [Move.OPEN, *[Move.END_AGAIN] * (END_ATTEMPTS_MAX - 1), Move.CLOSE]
        assert (await rent.ordered()).code == "machine_run_failed"
        assert rent.row["guest_failure_detail"].startswith("not_ended: ")
        rent.run.machine.service.script.rules.clear()
        await rent.order(Verb.START)
        assert await rent.run.advance() is Move.OPEN
        assert (await rent.run.shown())["step"] == "end", "a start believes no machine that may run the rescue system"

    play(scene)


def test_a_worker_that_dies_before_any_step_of_a_rescue_leaves_the_step_before(
    database_url: str, play: Callable[[Scene], None]
) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.RESCUE)
        workers, prepared = Workers(database_url, rent.run), False
        while rent.task["state"] == "queued":
            await workers.killed(QUICK, lambda context: advance_run(context, rent.run.node))
            if rent.task["state"] != "queued":
                break
            if await rent.run.advance() is not None:
                continue
            if await is_at(rent, "work") and not prepared:
                await rent.prepare_rescue()
                prepared = True
            else:
                await rent.run.perform()
        assert workers.deaths > 4
        assert ((await rent.ordered()).code, rent.row["guest_state"]) == (None, "rescue")

    play(scene)


@pytest.mark.full
def test_rescues_push_out_no_run_with_a_report(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        before: Any = rent.run.row("select array_agg(id order by id) from deploy_runs")[0]
        for _ in range(HISTORY_MAX + 2):
            await rent.rescue()
            await rent.order(Verb.STOP)
            await rent.steps()
            await rent.ordered()
        kept = rent.run.row("select array_agg(id order by id) from deploy_runs where kind not in ('stop', 'rescue')")[0]
        assert kept == before
        assert rent.run.row("select count(*) from deploy_runs where kind in ('stop', 'rescue')")[0] <= HISTORY_MAX + 1

    play(scene)
