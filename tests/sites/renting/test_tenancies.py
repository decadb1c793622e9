"""An allocation on a machine behind a BMC: deployed, reached over SSH, wiped; whatever happens, it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_agent.deploy_system.effects.steps import GIB, STEPS
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.failures import Code
from orchestrator.allocations.outcomes import Retry, Waiting
from orchestrator.allocations.states import AllocationState
from orchestrator.database.calls import CallGroup
from orchestrator.nodes.deploy_systems.run_rules import (
    DEPLOY_SECONDS_MAX,
    END_ATTEMPTS_MAX,
    ROTATION_ATTEMPTS_MAX,
    RUN_SECONDS_MAX,
    SITE_STEP_SECONDS_MAX,
    WIPE_SECONDS_MAX,
    Move,
    deploy_seconds,
    work_step_seconds,
)
from orchestrator.problems import NotFound
from orchestrator.sites import tenancies
from orchestrator.sites.commands.bmcs import remove_bmc
from orchestrator.sites.commands.runs import advance_run
from orchestrator.tasks.store import site_tasks
from orchestrator.tasks.store.dispatch import lease_queued_tasks
from tests.allocations.driving import ADMIN, PROVISIONED, completed, report
from tests.allocations.reconciling import admin_operation
from tests.at_length import at_length
from tests.nodes.answers import body_of
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.tenancy import SMALL, Renting, Scene
from tests.sites.running import inspect


def test_a_machine_is_deployed_reached_and_wiped(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        machine = rent.run.machine.service.machine
        rent.create()
        begun = await rent.provision()
        assert (rent.task["deploy_epoch"], rent.task["type"]) == (0, "allocation.provision_user")
        assert await rent.run.advance() is Move.OPEN
        assert isinstance(await rent.provisioned(), Waiting)
        assert await rent.steps() is Move.WORK
        parameters, claim = rent.run.row("select parameters, claim_id from deploy_tasks where type = 'metal.deploy'")
        assert (parameters["root_disk"]["serial"], claim) == ("S1", rent.row["claim_id"]), "the smallest that fits"
        drive = parameters["config_drive"]
        assert (drive["hostname"], drive["instance_id"]) == (f"berth-{rent.allocation}", str(rent.allocation))
        assert drive["network"]["ethernets"]["port0"]["addresses"] == ["127.0.0.1/8"]
        await rent.deploy()
        assert await rent.steps() is Move.CLOSE
        assert (machine.power, machine.image) == ("On", None)
        reached = 'select count(*) from audit_pending where detail @> \'{"kind": "reach", "outcome": "completed"}\''
        assert rent.run.row(reached)[0] == 1, "the machine has proven its host key"
        event = rent.run.row(
            "select payload from outbox where event_type = 'task.finished' and payload ->> 'task_id' = %s",
            str(begun.task_id),
        )[0]
        assert (event["notify"], event["outcome"]) == ("provisioning-1", "completed")
        assert (await rent.provisioned()).state is AllocationState.ACTIVE
        connection = rent.row["connection"]
        assert (connection["host"], connection["host_key"]) == ("127.0.0.1", rent.host_key)

        await rent.release()
        await rent.clean_up()
        assert await rent.steps() is Move.WORK
        await rent.wipe()
        assert await rent.steps() is Move.CLOSE
        concluded = await rent.cleaned_up()
        assert concluded.state is AllocationState.RELEASED
        assert rent.claim["closed_at"] is not None
        assert rent.run.is_undone()
        proofs = rent.row["release_result"]["evidence"]["devices"]
        assert [(one["device"], one["proven"]) for one in proofs] == [("disk S1", True), ("disk S2", True)]
        assert rent.run.row("select count(*) from wipe_certificates")[0] == 0, "no node has signed a statement"

    play(scene)


def test_nothing_of_the_tenants_login_stays_after_the_release(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        key = rent.run.row("select public_key from ssh_keys")[0]
        await rent.activate()
        parts = ("deploy_runs", "deploy_tasks", "node_tasks")
        texts = " || ".join(f"coalesce((select string_agg(t::text, ' ') from {name} t), '')" for name in parts)
        for _ in ("active", "released"):
            assert key not in rent.run.row(f"select {texts}")[0]
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe()
        await rent.steps()
        await rent.cleaned_up()
        decoded = (
            "select string_agg(convert_from(decode(envelope ->> 'payload', 'base64'), 'UTF8'), ' ') from node_tasks"
        )
        assert key not in rent.run.row(decoded)[0]

    play(scene)


def test_a_machine_that_does_not_prove_its_host_key_is_no_allocation(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        await rent.steps()
        await rent.deploy()
        await rent.show_another_host_key()
        assert await rent.steps() is Move.CLOSE
        assert rent.run.is_undone(), "a machine that is not reached is switched off"
        concluded = await rent.provisioned()
        assert (concluded.state, concluded.code, concluded.cleanup) == (
            AllocationState.FAILED,
            "ssh_readiness_timeout",
            True,
        )

    play(scene)


@pytest.mark.parametrize(
    "step", at_length(["queued", "power_off", "start", "work", "power_on", "reach"], ["queued", "work"])
)
def test_a_release_at_any_step_undoes_the_deployment_and_wipes(play: Callable[[Scene], None], step: str) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        while step != "queued" and not await rent.is_at(step):
            if await rent.run.advance() is not None:
                continue
            if (await rent.run.shown())["step"] == "work":
                await rent.deploy()
            else:
                await rent.run.perform()
        await rent.release()
        await rent.clean_up()
        assert await rent.steps() is Move.WORK
        shown = await rent.run.shown()
        assert (shown["kind"], shown["allocation_id"]) == ("wipe", str(rent.allocation))
        before = rent.run.row("select outcome from deploy_runs where kind = 'deploy'")
        assert before == (None if step == "queued" else ("stopped",))
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED
        assert rent.run.is_undone()

    play(scene)


def test_a_release_after_the_hello_stops_the_deploy_system_before_its_task(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        while not await rent.is_at("start"):
            if await rent.run.advance() is None:
                await rent.run.perform()
        await rent.run.perform()
        rent.run.boot()
        await rent.release()
        assert await rent.run.advance() is Move.END
        await rent.run.sign()
        assert rent.run.row("select count(*) from node_tasks where type = 'metal.deploy'")[0] == 0
        await rent.steps()
        assert rent.run.is_undone()

    play(scene)


def test_an_unproven_wipe_keeps_the_units(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.release()
        outcome: Any = Retry(0)
        while isinstance(outcome, Retry):
            rent.run.stage.fleet.connection.execute("update claims set waits_until = clock_timestamp() where id > 0")
            await rent.clean_up()
            await rent.steps()
            await rent.wipe(nonzero_bytes_found=True)
            assert await rent.steps() is Move.CLOSE
            outcome = await rent.cleaned_up()
        assert (outcome.state, outcome.code) == (AllocationState.RELEASE_FAILED, "release_exhausted")
        assert "wipe_not_proven" in rent.row["failure_detail"]
        assert rent.claim["closed_at"] is None
        assert rent.run.is_undone()

    play(scene)


def test_a_disk_that_was_deployed_and_is_not_wiped_keeps_the_units(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        inspect(rent.run, disks=[SMALL])  # the other one was taken out
        await rent.release()
        await rent.clean_up()
        await rent.steps()
        await rent.wipe(count=1)
        assert await rent.steps() is Move.CLOSE
        assert (await rent.run.shown())["wipe"]["proven"] is True
        assert isinstance(await rent.cleaned_up(), Retry)
        assert rent.claim["closed_at"] is None

    play(scene)


@pytest.mark.full
def test_what_no_run_can_perform_fails_at_once(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        connection = rent.run.stage.fleet.connection
        for statement, code in (
            ("update images set format = 'qcow2'", "image_does_not_fit"),
            ("update images set format = 'raw', disk_bytes_min = 1::bigint << 40", "image_does_not_fit"),
            ('update node_machines set report = report || \'{"storage_without_driver": ["0000:00:1f.2"]}\'', None),
        ):
            connection.execute(statement)
            if code is None:
                break
            rent.create()
            await rent.provision()
            assert await rent.run.advance() is Move.REFUSE
            concluded = await rent.provisioned()
            assert (concluded.state, concluded.code) == (AllocationState.FAILED, code)
            await rent.clean_up()
            await rent.steps()
            await rent.wipe()
            await rent.steps()
            assert (await rent.cleaned_up()).state is AllocationState.FAILED
            assert rent.claim["closed_at"] is not None
        connection.execute("update images set disk_bytes_min = 4096")
        await rent.activate()
        await rent.release()
        await rent.clean_up()
        assert await rent.run.advance() is Move.REFUSE
        assert isinstance(await rent.cleaned_up(), Retry)
        assert rent.task["failure_detail"].startswith("storage_without_driver: ")

    play(scene)


@pytest.mark.full
def test_a_second_workflow_and_a_forced_release_begin_anew_and_end(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        begun = await rent.provision()
        assert await rent.run.advance() is Move.OPEN
        repeated = await rent.provision()
        assert (repeated.task_id, repeated.repeated) == (begun.task_id, True), "two signals, one run"
        for _ in range(2):
            context = rent.run.stage.context
            await force_release(context, admin_operation(), ADMIN, rent.allocation, "stuck")
            await rent.clean_up()
            assert await rent.steps() is Move.WORK
            assert (await rent.run.shown())["kind"] == "wipe"
        await rent.clean_up("releasing-overdue")
        assert await rent.steps() is Move.WORK, "the run of a lost workflow is undone, and the rescuer has another one"
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up("releasing-overdue")).state is AllocationState.RELEASED
        outcomes = "select array_agg(distinct outcome order by outcome) from deploy_runs where allocation_id = %s"
        assert rent.run.row(outcomes, rent.allocation)[0] == ["completed", "stopped"]
        assert rent.run.is_undone()

    play(scene)


def test_no_agent_of_the_node_leases_or_reports_the_tasks_of_a_site(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        context, task = rent.run.stage.context, rent.task
        rent.run.stage.fleet.connection.execute(
            "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
            " values ('aa', %s, 1, sha256('k'), clock_timestamp(), clock_timestamp() + interval '1 day')", (rent.run.node,)
        )  # fmt: skip
        async with context.database.function_call(CallGroup.NODES) as call:
            assert await lease_queued_tasks(call, {rent.run.node: "aa"}, batch_max=9) == []
        with pytest.raises(NotFound):
            await report(context, task, completed(task, PROVISIONED))
        assert rent.task["state"] == "queued"

    play(scene)


def test_what_an_agent_provisioned_is_released_by_the_agent(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        connection = rent.run.stage.fleet.connection
        rent.create()
        await rent.provision()
        connection.execute("update node_tasks set deploy_epoch = null")  # before the machine had a BMC
        await rent.release()
        await rent.clean_up()
        assert rent.task["deploy_epoch"] is None, "its system is the agent's: it is not wiped away"

    play(scene)


def test_the_removal_of_the_bmc_is_refused_while_a_tenant_is_there(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        removed = await remove_bmc(rent.run.stage.context, admin_operation(), ADMIN, rent.run.node)
        assert body_of(removed)["code"] == "node_in_use"

    play(scene)


def test_a_worker_that_dies_before_any_step_of_a_deployment_leaves_the_step_before(
    database_url: str, play: Callable[[Scene], None]
) -> None:
    async def scene(rent: Renting) -> None:
        workers = Workers(database_url, rent.run)
        rent.create()
        await rent.provision()
        while rent.task["state"] == "queued":
            await workers.killed(QUICK, lambda context: advance_run(context, rent.run.node))
            if rent.task["state"] != "queued" or await rent.run.advance() is not None:
                continue
            if await rent.is_at("work"):
                await rent.deploy()
            else:
                await rent.run.perform()
        assert workers.deaths
        assert (await rent.provisioned()).state is AllocationState.ACTIVE
        assert rent.run.machine.service.machine.effects.count("On") == 2, "the deploy system, and what it wrote"

    play(scene)


def test_a_task_of_a_site_lasts_longer_than_its_runs() -> None:
    before = 5 * SITE_STEP_SECONDS_MAX + work_step_seconds(RUN_SECONDS_MAX)
    steps = (4 + 2 * END_ATTEMPTS_MAX + ROTATION_ATTEMPTS_MAX) * SITE_STEP_SECONDS_MAX
    assert before + steps + work_step_seconds(DEPLOY_SECONDS_MAX) < site_tasks.PROVISION_SECONDS_MAX
    assert before + steps + work_step_seconds(WIPE_SECONDS_MAX) < site_tasks.RELEASE_SECONDS_MAX
    assert set(tenancies.CODES.values()) | {tenancies.RUN_FAILED, tenancies.CLEANUP_FAILED} <= set(Code)


@pytest.mark.parametrize("image_bytes", [4096, 4 << 30, 40 << 30])
def test_a_deployment_has_the_time_of_its_steps(image_bytes: int) -> None:
    fixed = ("find_disks", "partition", "config_drive", "boot_entry", "data_disks")
    sized = (STEPS["write_image"], STEPS["read_back"])
    needed = sum(STEPS[name].seconds for name in fixed) + sum(
        one.seconds + one.seconds_per_gib * image_bytes / GIB for one in sized
    )
    assert needed < deploy_seconds(image_bytes) <= DEPLOY_SECONDS_MAX


def test_an_operator_does_not_stop_the_run_of_an_allocation(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        await rent.run.advance()
        assert body_of(await rent.run.stop())["state"] == "run_of_allocation"
        assert (await rent.run.shown())["stop_requested_at"] is None

    play(scene)
