"""Runs of deploy systems: off, start, task, end; whatever fails, the machine is off without a medium, or the failure says so."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psycopg
import pytest

from node_agent.wire.sites import BmcTaskKind
from orchestrator.nodes.commands.deploy_systems import (
    DeployOrder,
    permit_deploy_system,
    request_inspection,
    revoke_deploy_system,
)
from orchestrator.nodes.commands.deploy_tasks import advance_deploy_task
from orchestrator.nodes.commands.drains import uncordon_node
from orchestrator.nodes.deploy_systems.run_rules import END_ATTEMPTS_MAX, Move
from orchestrator.operations.sealing import Sealer
from orchestrator.problems import Invalid
from orchestrator.sites.commands.bmcs import remove_bmc, request_bmc_task
from orchestrator.sites.commands.tasks import Advanced, advance_bmc_task
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.stage import MAC, SMBIOS
from tests.nodes.answers import body_of
from tests.sites.running import ADDRESSES, NETWORK, Run, another, play, to_work
from tests.support.bmc.faults import Fault


async def ended(run: Run, outcome: str, code: str | None = None) -> dict[str, Any]:
    """The run has ended so, and is not moved any more."""
    assert await run.advance() is None
    shown = await run.shown()
    failure = None if shown["failure"] is None else shown["failure"].partition(":")[0]
    assert (shown["outcome"], failure, shown["waits"]) == (outcome, code, None)
    event = run.row(
        "select payload from outbox where event_type = 'node.deploy_run_ended' and subject = %s order by id desc",
        f"nodes/{run.node}",
    )[0]
    assert (event["deploy_run_id"], event["outcome"], event["failure"]) == (shown["id"], outcome, shown["failure"])
    return shown


def test_a_run_inspects_a_machine_from_off_to_off(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        asked = body_of(await run.request())
        assert (asked["step"], asked["outcome"], asked["waits"]["for"]) == ("power_off", None, "site_agent")
        assert body_of(await run.request())["id"] == asked["id"], "an open run is the answer"
        assert await run.advance() is None
        await run.perform()
        assert run.machine.service.machine.power == "Off"
        assert await run.advance() is Move.START
        assert (await run.shown())["deploy_epoch"] is None, "it is permitted when an agent is there"
        await run.perform()
        assert (run.machine.service.machine.power, run.machine.service.machine.boots) == ("On", ["Cd"])
        token = run.medium().token
        stored = run.row(
            "select (select string_agg(t::text, ' ') from bmc_tasks t) || (select string_agg(r::text, ' ') from deploy_runs r)"
            " || (select string_agg(a::text, ' ') from audit_pending a)"
        )[0]
        assert token not in stored
        assert await run.advance() is Move.WORK
        assert await run.advance() is None
        await run.report(run.boot())
        assert await run.advance() is Move.END
        await run.perform()
        assert await run.advance() is Move.CLOSE
        shown = await ended(run, "completed")
        assert run.is_undone()
        known = run.row("select smbios_uuid, macs from node_machines where node_id = %s", run.node)
        assert known[0] == SMBIOS
        rows = run.stage.fleet.connection.execute(
            "select action from audit_pending where subject = %s and action like '%%deploy_run%%' order by id",
            (f"nodes/{run.node}",),
        )
        actions = [row[0] for row in rows]
        assert actions == ["node.request_deploy_run", "node.deploy_run_ended"]
        again = body_of(await run.request(network=None, smbios=None))
        assert (again["network"], again["smbios_uuid"]) == (shown["network"], str(SMBIOS)), (
            "as it was, and as inspected"
        )

    play(database_url, tmp_path, scene)


def test_a_hello_proves_the_boot_whatever_the_agent_reports(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await run.request()
        await run.perform()
        await run.advance()
        run.machine.service.script.add("Reset", Fault.LIE)
        await run.perform()
        assert await run.advance() is Move.WORK, "it is unknown whether the machine boots: its hello decides"
        other = await another(run.stage)
        await other.request()
        await other.perform()
        await other.advance()
        task = other.row("select bmc_task_id from deploy_runs where node_id = %s", other.node)[0]
        assert await advance_bmc_task(run.stage.context, task) is Advanced.ISSUED
        run.stage.fleet.connection.execute(
            "update deploy_systems set used_at = clock_timestamp(), key_sha256 = sha256('k'), csr_pem = 'c', serial = 's',"
            " pem = 'p', not_after = clock_timestamp() + interval '1 h', authority_key_sha256 = sha256('a'),"
            " hello_at = clock_timestamp(), hello = '{}' where node_id = %s", (other.node,)
        )  # fmt: skip
        assert await other.advance() is Move.WORK
        assert other.row("select outcome from bmc_tasks where id = %s", task)[0] == "completed", (
            "no agent starts it again"
        )

    play(database_url, tmp_path, scene)


async def fail_power_off(run: Run) -> str:
    run.machine.service.script.add("Reset", Fault.LIE, 9)
    await run.perform()
    run.machine.service.script.rules.clear()
    return "bmc_not_settled"


async def fail_start(run: Run) -> str:
    await run.perform()
    await run.advance()
    run.machine.service.script.add("InsertMedia", Fault.BUSY)
    await run.perform()
    return "bmc_busy"


async def fail_hello(run: Run) -> str:
    await run.perform()
    await run.advance()
    await run.perform()
    await run.advance()
    run.stage.fleet.connection.execute(
        "update deploy_tasks set waits_until = clock_timestamp() where node_id = %s and ended_at is null", (run.node,)
    )
    await advance_deploy_task(run.stage.context, run.node)
    return "not_started"


async def fail_task(run: Run) -> str:
    await run.perform()
    await run.advance()
    await run.perform()
    serial = run.boot()
    await run.advance()
    await run.report(serial, {"code": "disk_error", "detail": "d"})
    return "disk_error"


async def fail_in_time(run: Run) -> str:
    await run.perform()
    await run.advance()
    await run.perform()
    await run.advance()
    run.expire()
    return "deadline_passed"


async def revoke(run: Run) -> str:
    await run.perform()
    await run.advance()
    await run.perform()
    await run.advance()
    await revoke_deploy_system(run.stage.context, admin_operation(), ADMIN, run.node)
    return "revoked"


@pytest.mark.quick("fail_hello", "fail_task", "revoke")
@pytest.mark.parametrize("fail", [fail_power_off, fail_start, fail_hello, fail_task, fail_in_time, revoke])
def test_a_run_that_fails_is_undone_and_says_why(
    database_url: str, tmp_path: Path, fail: Callable[[Run], Coroutine[Any, Any, str]]
) -> None:
    async def scene(run: Run) -> None:
        await run.request()
        code = await fail(run)
        if fail is not fail_power_off:
            assert await run.advance() is Move.END
            await run.perform(run.stage.second)
        assert await run.advance() is Move.CLOSE
        await ended(run, "failed", code)
        if fail is not fail_power_off:
            run.stage.first.media._publications._published.clear()  # its lease is over: it serves nothing
            assert run.is_undone()

    play(database_url, tmp_path, scene)


def test_an_end_that_fails_is_tried_again_and_then_named(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await run.report(await to_work(run))
        run.machine.service.script.add("EjectMedia", Fault.BUSY, 2 * END_ATTEMPTS_MAX)
        moves = []
        while (move := await run.advance()) in (Move.END, Move.END_AGAIN):
            moves.append(move)
            await run.perform()
        assert moves == [Move.END, *[Move.END_AGAIN] * (END_ATTEMPTS_MAX - 1)]
        assert move is Move.CLOSE
        shown = await ended(run, "failed", "not_ended")
        assert "bmc_busy" in shown["failure"]

    play(database_url, tmp_path, scene)


@pytest.mark.quick("starting", "signed")
@pytest.mark.parametrize("step", ["requested", "switched_off", "starting", "signed", "working"])
def test_a_run_is_stopped_at_any_step(database_url: str, tmp_path: Path, step: str) -> None:
    async def scene(run: Run) -> None:
        await run.request()
        if step != "requested":
            await run.perform()
        if step in ("starting", "signed", "working"):
            await run.advance()
        if step == "signed":
            task = run.row("select bmc_task_id from deploy_runs where node_id = %s", run.node)[0]
            await advance_bmc_task(run.stage.context, task)
        if step == "working":
            await run.perform()
            run.boot()
            await run.advance()
        assert body_of(await run.stop())["stop_requested_at"] is not None
        assert (await run.stop()).status == 200
        counting = "select count(*) from deploy_systems where node_id = %s and ended_at is null"
        assert run.row(counting, run.node)[0] == 0, "its deploy system is refused at once"
        if step == "signed":
            assert await run.advance() is None, "an agent may perform it"
            await run.perform()
        if step in ("signed", "working"):
            assert await run.advance() is Move.END
            await run.perform()
            assert await run.advance() is Move.CLOSE
            assert run.is_undone()
        else:
            assert await run.advance() is Move.CLOSE
        await ended(run, "stopped")
        assert run.row("select count(*) from bmc_tasks where node_id = %s and ended_at is null", run.node)[0] == 0
        assert body_of(await run.stop())["state"] == "no_run"

    play(database_url, tmp_path, scene)


def test_nothing_else_works_on_a_machine_while_a_run_is_open(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        context, node = run.stage.context, run.node
        task = (context, admin_operation(), ADMIN, node)
        assert body_of(await request_bmc_task(*task, BmcTaskKind.LOOK))["task"]["kind"] == "look"
        assert body_of(await run.request())["state"] == "task_open"
        await run.perform()
        answers = await asyncio.gather(*(run.request() for _ in range(4)))
        assert len({body_of(one)["id"] for one in answers}) == 1
        order = DeployOrder(NETWORK, SMBIOS, (MAC,), False, 900, 900)
        for refused in (
            await request_bmc_task(context, admin_operation(), ADMIN, node, BmcTaskKind.POWER_ON),
            await remove_bmc(context, admin_operation(), ADMIN, node),
            await permit_deploy_system(context, admin_operation(), ADMIN, Sealer("k"), node, order, ADDRESSES),
            await request_inspection(context, admin_operation(), ADMIN, node, power_off=True),
            await uncordon_node(context, admin_operation(), ADMIN, node),
        ):
            assert (refused.status, body_of(refused)["code"], body_of(refused)["state"]) == (
                409,
                "invalid_state",
                "run_open",
            )
        with pytest.raises(psycopg.errors.UniqueViolation):
            run.stage.fleet.connection.execute(
                "insert into deploy_runs (node_id, site_id, kind, medium, requested_by, bmc_task_id, waits_for, waits_since,"
                " waits_until) select node_id, site_id, kind, medium, requested_by, bmc_task_id, waits_for, waits_since,"
                " waits_until from deploy_runs where node_id = %s", (node,)
            )  # fmt: skip

    play(database_url, tmp_path, scene)


def test_a_run_without_a_known_machine_or_network_is_refused(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        with pytest.raises(Invalid, match="network"):
            await run.request(network=None)
        assert body_of(await run.request(smbios=None))["code"] == "machine_unknown"
        reported = str(uuid.uuid4())
        run.stage.fleet.connection.execute(
            "update node_bmcs set power_state = 'On', looked_at = clock_timestamp(),"
            " inventory = jsonb_build_object('uuid', %s::text)"
            " where node_id = %s", (reported, run.node)
        )  # fmt: skip
        run.stage.fleet.connection.execute("update nodes set state = 'active' where id = %s", (run.node,))
        assert body_of(await run.request(smbios=None))["state"] == "active"
        run.stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (run.node,))
        assert body_of(await run.request(smbios=None))["smbios_uuid"] == reported

    play(database_url, tmp_path, scene)


@pytest.mark.parametrize("seed", [1, *(pytest.param(number, marks=pytest.mark.full) for number in range(2, 40))])
def test_whatever_happens_every_run_ends(database_url: str, tmp_path: Path, seed: int) -> None:
    """A story: tasks end in any way, deadlines pass, operators stop. The sweeper finds each run that can move, and no other."""
    chance = random.Random(seed)

    async def happen(run: Run) -> None:
        kind = chance.choice(["site", "site", "site", "hello", "deploy", "deploy", "stop", "late"])
        connection, node = run.stage.fleet.connection, run.node
        if kind == "site":
            outcome = chance.choice(["completed", "completed", "failed", "unknown"])
            task = run.row("select id from bmc_tasks where node_id = %s and ended_at is null", node)
            if task is not None and chance.random() < 0.8:
                run.stage.expire()
                connection.execute(
                    "update sites set lease_agent = %s, lease_run = %s, lease_until = clock_timestamp() + interval '9 s'",
                    (run.stage.first.id, run.stage.first.run_id),
                )
                await advance_bmc_task(run.stage.context, task[0])
            connection.execute(
                "update bmc_tasks set outcome = %s, failure = nullif(%s, 'completed'), ended_at = clock_timestamp(),"
                " waits_for = null, waits_since = null, waits_until = null where node_id = %s and ended_at is null",
                (outcome, outcome, node),
            )  # fmt: skip
        elif kind == "hello":
            connection.execute(
                "update deploy_systems set used_at = clock_timestamp(), key_sha256 = sha256('k'), csr_pem = 'c',"
                " serial = id::text, pem = 'p', not_after = clock_timestamp() + interval '1 h',"
                " authority_key_sha256 = sha256('a'), hello_at = clock_timestamp(), hello = '{}'"
                " where node_id = %s and ended_at is null", (node,)
            )  # fmt: skip
        elif kind == "deploy":
            connection.execute(
                "update deploy_tasks set outcome = 'not_run', failure = 'x: y', ended_at = clock_timestamp(),"
                " waits_for = null, waits_since = null, waits_until = null where node_id = %s and ended_at is null", (node,)
            )  # fmt: skip
        elif kind == "stop":
            await run.stop()
        else:
            run.expire()

    async def scene(run: Run) -> None:
        for _ in range(6):
            await run.request()
            moves = 0
            while (await run.shown())["outcome"] is None:
                if await run.advance() is None:
                    await happen(run)
                moves += 1
                assert moves < 200
            left = run.row(
                "select (select count(*) from bmc_tasks where node_id = %s and ended_at is null),"
                " (select count(*) from deploy_tasks where node_id = %s and ended_at is null),"
                " (select count(*) from deploy_systems where node_id = %s and ended_at is null)",
                run.node, run.node, run.node,
            )  # fmt: skip
            assert tuple(left) == (0, 0, 0)

    play(database_url, tmp_path, scene)
