"""A rented machine is switched and deployed anew for its tenant: by runs of its site, in its own tenancy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_agent.drivers.ssh import new_host_key
from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.nodes.deploy_systems.run_rules import HISTORY_MAX, Move
from orchestrator.sites.commands.runs import advance_run
from orchestrator.tasks.store.site_tasks import PROVISION_SECONDS_MAX, SWITCH_SECONDS_MAX
from tests.at_length import at_length
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.tenancy import Renting, Scene
from tests.support.bmc.faults import Fault

SWITCHED = {Verb.REBOOT: (["Off", "On"], "running"), Verb.STOP: (["Off"], "stopped"), Verb.START: (["On"], "running")}
"""What the machine does, and the guest's state after it."""


def runs(rent: Renting, kind: str) -> int:
    """How many runs of this kind are kept."""
    count: int = rent.run.row("select count(*) from deploy_runs where kind = %s", kind)[0]
    return count


def test_a_tenant_switches_its_machine_and_keeps_what_is_on_it(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        await rent.activate()
        connection, deployed = rent.row["connection"], rent.run.row("select count(*) from deploy_systems")
        for verb, (powers, guest) in SWITCHED.items():
            await rent.order(verb)
            assert (rent.task["deploy_epoch"], rent.task["type"]) == (0, f"allocation.{verb}")
            seen = []
            while await rent.run.advance() is not Move.CLOSE:
                await rent.run.perform()
                seen.append(machine.power)
            assert seen == powers, verb
            assert (await rent.run.shown())["outcome"] == "completed"
            concluded = await rent.ordered()
            assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, None)
            assert (rent.row["guest_state"], rent.row["guest_verb"]) == (guest, None)
        assert rent.row["connection"] == connection
        assert rent.run.row("select count(*) from deploy_systems") == deployed, "no deploy system was permitted"
        assert rent.run.is_undone() or machine.power == "On"

    play(scene)


def test_a_rebuilt_machine_has_its_image_anew_and_another_host_key(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        before, claim = rent.row["connection"], rent.row["claim_id"]
        await rent.order(Verb.REBUILD)
        assert await rent.steps() is Move.WORK
        parameters, of_claim = rent.run.row(
            "select parameters, claim_id from deploy_tasks where type = 'metal.deploy' order by id desc limit 1"
        )
        assert (parameters["root_disk"]["serial"], of_claim) == ("S1", claim)
        await rent.deploy()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.ordered()).code is None
        assert (rent.row["guest_state"], rent.row["claim_id"]) == ("running", claim)
        assert rent.row["connection"]["host_key"] == before["host_key"] == rent.host_key, "it was proven over SSH"
        await released(rent)

    play(scene)


async def released(rent: Renting) -> None:
    """The release of the allocation wipes the machine and frees its units."""
    await rent.release()
    await rent.clean_up()
    assert await rent.steps() is Move.WORK
    assert (await rent.run.shown())["kind"] == "wipe"
    await rent.wipe()
    assert await rent.steps() is Move.CLOSE
    assert (await rent.cleaned_up()).state is AllocationState.RELEASED
    assert rent.run.is_undone()


@pytest.mark.full
def test_a_rebuilt_machine_that_shows_another_host_key_has_failed_its_verb(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.REBUILD)
        assert await rent.steps() is Move.WORK
        report = {**rent.deployed(), "host_key": new_host_key()[1]}
        await rent.run.report(rent.run.boot(), result=report)
        await rent.show_another_host_key()
        assert await rent.steps() is Move.CLOSE
        concluded = await rent.ordered()
        assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, "ssh_readiness_timeout")
        assert rent.row["guest_state"] == "unknown"
        await released(rent)

    play(scene)


@pytest.mark.parametrize("verb", at_length(SWITCHED, [Verb.START]))
def test_a_bmc_that_does_not_do_it_fails_the_verb_and_the_next_one_works(
    play: Callable[[Scene], None], verb: Verb
) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        if verb is Verb.START:
            rent.run.machine.service.machine.power = "Off"
            rent.run.stage.fleet.connection.execute("update allocations set guest_state = 'stopped'")
        rent.run.machine.service.script.add("Reset", Fault.LIE, 9)
        await rent.order(verb)
        assert await rent.steps() is Move.CLOSE
        concluded = await rent.ordered()
        assert (concluded.state, concluded.code) == (AllocationState.ACTIVE, "machine_run_failed")
        assert rent.row["guest_state"] == "unknown"
        assert rent.row["guest_failure_detail"].startswith("bmc_not_settled")
        rent.run.machine.service.script.rules.clear()
        await rent.order(Verb.REBOOT)
        assert await rent.steps() is Move.CLOSE
        assert ((await rent.ordered()).code, rent.row["guest_state"]) == (None, "running")

    play(scene)


@pytest.mark.parametrize("step", at_length(["queued", "power_off", "power_on"], ["power_off"]))
def test_a_release_at_any_step_of_a_verb_wipes(play: Callable[[Scene], None], step: str) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.REBOOT)
        while step != "queued" and not await rent.is_at(step):
            if await rent.run.advance() is None:
                await rent.run.perform()
        await released(rent)
        assert runs(rent, "reboot") == (step != "queued")

    play(scene)


def test_a_worker_that_dies_before_any_step_of_a_verb_leaves_the_step_before(
    database_url: str, play: Callable[[Scene], None]
) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.REBOOT)
        workers = Workers(database_url, rent.run)
        while rent.task["state"] == "queued":
            await workers.killed(QUICK, lambda context: advance_run(context, rent.run.node))
            if rent.task["state"] == "queued" and await rent.run.advance() is None:
                await rent.run.perform()
        assert workers.deaths > 2
        assert ((await rent.ordered()).code, rent.row["guest_state"]) == (None, "running")
        assert runs(rent, "reboot") == 1

    play(scene)


@pytest.mark.parametrize(
    ("verb", "seconds"),
    [
        (Verb.STOP, SWITCH_SECONDS_MAX), (Verb.REBUILD, PROVISION_SECONDS_MAX), (Verb.RESCUE, PROVISION_SECONDS_MAX),
    ],
)  # fmt: skip
def test_a_verb_has_the_time_of_its_run(play: Callable[[Scene], None], verb: Verb, seconds: float) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(verb)
        assert seconds - 600 < (await rent.ordered()).seconds <= seconds

    play(scene)


def test_a_verb_without_an_agent_of_the_site_ends_at_its_deadline(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.order(Verb.STOP)
        assert await rent.run.advance() is Move.OPEN
        rent.run.stage.fleet.connection.execute(
            "update node_tasks set not_before = clock_timestamp() - interval '2 days',"
            " expires_at = clock_timestamp() - interval '1 day' where deploy_epoch = 0 and state = 'queued'"
        )
        concluded = await rent.ordered()
        assert concluded.state is AllocationState.ACTIVE
        assert concluded.code is not None
        assert await rent.run.advance() is Move.CLOSE
        assert rent.run.machine.service.machine.power == "On", "nothing was done"

    play(scene)


def test_what_cannot_be_deployed_anew_changes_nothing(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        rent.run.stage.fleet.connection.execute("update images set format = 'qcow2'")
        await rent.order(Verb.REBUILD)
        assert await rent.run.advance() is Move.REFUSE
        concluded = await rent.ordered()
        assert (concluded.code, rent.row["guest_state"]) == ("task_refused", "running")
        assert rent.row["guest_failure_detail"].startswith("image_does_not_fit")
        assert rent.run.machine.service.machine.power == "On"

    play(scene)


@pytest.mark.full
def test_runs_that_switch_push_out_no_run_with_a_report(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        before: Any = rent.run.row("select array_agg(id order by id) from deploy_runs")[0]
        for _ in range(HISTORY_MAX + 3):
            await rent.order(Verb.REBOOT)
            await rent.steps()
            await rent.ordered()
        assert runs(rent, "reboot") == HISTORY_MAX
        kept = rent.run.row("select array_agg(id order by id) from deploy_runs where kind <> 'reboot'")[0]
        assert kept == before

    play(scene)
