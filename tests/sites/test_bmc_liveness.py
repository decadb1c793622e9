"""Nodes without an agent: in service once their machine was inspected, online as long as their BMC answers the site's agent."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from node_agent.site.bmc_liveness import ask_bmc
from node_agent.wire.sites import LeaseRequest, SiteMachine
from orchestrator.nodes.commands.drains import uncordon_node
from orchestrator.nodes.deploy_systems.run_rules import RunKind
from orchestrator.nodes.probes.queries import find_due_probes
from orchestrator.nodes.refusals import DriverRefused
from orchestrator.nodes.store.slot_service import keep_slots
from orchestrator.nodes.topology.queries import find_due_nodes
from orchestrator.operations.execution import transact
from orchestrator.operations.store.operations import Answer
from orchestrator.sites.commands.bmcs import remove_bmc
from orchestrator.sites.commands.leases import take_site_lease
from orchestrator.sites.commands.liveness import note_answers, turn_node
from orchestrator.sites.queries import find_turned_nodes, list_machines
from orchestrator.tasks.store.heartbeats import RESERVED_DRIVERS
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.ordering import WIPED
from tests.nodes.answers import body_of, refusal_of
from tests.sites.rotations import Agent, Rotations
from tests.sites.running import Run, another, play, to_work
from tests.sites.stage import Site, Stage
from tests.support.bmc.faults import Fault
from tests.support.waiting import wait_for

SILENT_SECONDS = 60.0
BEFORE_ALL = uuid.UUID(int=0)


async def inspect(run: Run) -> None:
    """A whole run of a deploy system."""
    serial = await to_work(run)
    await run.report(serial)
    await run.advance()
    await run.perform()
    await run.advance()
    assert (await run.shown())["outcome"] == "completed"


def registered(run: Run) -> None:
    """The node of the run was never in service."""
    set_state(run, "registered")
    run.stage.fleet.connection.execute("update nodes set online = false where id = %s", (run.node,))


def set_state(run: Run, state: str) -> None:
    """The node is in this state, without a legal way there."""
    run.stage.fleet.connection.execute("set session_replication_role = replica")
    run.stage.fleet.connection.execute("update nodes set state = %s where id = %s", (state, run.node))
    run.stage.fleet.connection.execute("set session_replication_role = origin")


async def uncordon(run: Run) -> Answer:
    return await uncordon_node(run.stage.api, admin_operation(), ADMIN, run.node)


async def hold(stage: Rotations, agent: Agent) -> int:
    """The agent takes the lease, whose former holder is silent; its fence."""
    stage.expire()
    key = agent.key.public_key().public_bytes_raw().hex()
    wanted = LeaseRequest(run_id=agent.run_id, agent_version="1", sealing_key=key)
    held = await take_site_lease(stage.context, agent.id, wanted, 20.0, "r")
    assert held.held
    return held.fence


async def note(run: Run, agent: Agent, fence: int, *, silent: str | None = None) -> bool:
    """The agent reports that the machine's BMC answered, or why it did not."""
    answered, codes = ([run.node], {}) if silent is None else ([], {run.node: silent})
    return await note_answers(
        run.stage.context, agent.id, agent.serial, agent.run_id, fence, datetime.now(UTC), answered, codes
    )  # fmt: skip


def standing(run: Run) -> Any:
    """Driver, state and liveness of the node."""
    return run.row("select driver, state, online from nodes where id = %s", run.node)


def events(run: Run, prefix: str) -> list[tuple[str, Any]]:
    rows = run.stage.fleet.connection.execute(
        "select event_type, payload -> 'last_seen_at' from outbox where subject = %s and event_type like %s order by id",
        (f"nodes/{run.node}", f"{prefix}%"),
    )
    return [(row[0], row[1]) for row in rows]


def late(run: Run, seconds: float = SILENT_SECONDS + 1) -> None:
    """The BMC answered so long ago."""
    run.stage.fleet.connection.execute(
        "update node_bmcs set answered_at = clock_timestamp() - make_interval(secs => %s) where node_id = %s",
        (seconds, run.node),
    )


def test_an_inspected_machine_serves_while_its_bmc_answers(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        worker, fleet = run.stage.worker, run.stage.fleet
        registered(run)
        assert refusal_of(await uncordon(run)) == (409, "invalid_state", "registered"), "nothing proves the machine"
        await inspect(run)
        found = run.row("select found ->> 'driver', failure from node_topologies where node_id = %s", run.node)
        assert found == ("redfish", None), "the inspection is its discovery"
        assert body_of(await uncordon(run))["state"] == "active"
        assert standing(run) == ("redfish", "active", False)
        assert fleet.one("select p.driver from pools p join nodes n on n.pool_id = p.id where n.id = %s", run.node) == (
            "redfish"
        )
        fleet.connection.execute("update node_bmcs set answered_at = null where node_id = %s", (run.node,))
        assert await find_turned_nodes(worker, SILENT_SECONDS, 10) == [], "it did not answer yet"

        assert await note(run, run.stage.first, await hold(run.stage, run.stage.first))
        assert await find_turned_nodes(worker, SILENT_SECONDS, 10) == [run.node]
        turned = await asyncio.gather(*(turn_node(worker, run.node, SILENT_SECONDS) for _ in range(4)))
        assert sorted(turned, key=str) == [None, None, None, True], "one of them turns it"
        assert standing(run) == ("redfish", "active", True)
        assert await find_turned_nodes(worker, SILENT_SECONDS, 10) == []

        late(run)
        assert await find_turned_nodes(worker, SILENT_SECONDS, 10) == [run.node]
        assert await turn_node(worker, run.node, SILENT_SECONDS) is False
        assert standing(run) == ("redfish", "active", False)
        (_, online), (_, offline) = happened = events(run, "node.o")
        assert [name for name, _ in happened] == ["node.online", "node.offline"]
        assert (online, offline is None) == (None, False)

    play(database_url, tmp_path, scene)


def test_no_task_for_an_agent_is_issued_to_a_node_without_one(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspect(run)
        await uncordon(run)
        with_agent = (await another(run.stage)).node
        connection = run.stage.fleet.connection
        connection.execute("update nodes set online = true, state = 'active'")
        assert await find_due_nodes(run.stage.worker, 10) == [with_agent]
        connection.execute(
            "insert into node_topologies (node_id, task_id, epoch, next_at) values (%s, uuidv7(), 0, now())",
            (with_agent,),
        )
        assert await find_due_probes(run.stage.worker, 10) == [with_agent]
        assert {"redfish"} == RESERVED_DRIVERS

    play(database_url, tmp_path, scene)


def test_a_node_whose_agent_has_enrolled_stays_its_agents(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        connection = run.stage.fleet.connection
        connection.execute(
            "update nodes set enrolled_at = clock_timestamp(), driver = 'sandbox' where id = %s", (run.node,)
        )
        await inspect(run)
        assert standing(run)[0] == "sandbox"
        assert run.row("select count(*) from node_topologies where node_id = %s", run.node) == (0,)
        await note(run, run.stage.first, await hold(run.stage, run.stage.first))
        connection.execute("update nodes set online = false where id = %s", (run.node,))
        assert await find_turned_nodes(run.stage.worker, SILENT_SECONDS, 10) == []
        assert await turn_node(run.stage.worker, run.node, SILENT_SECONDS) is None
        registered(run)
        assert refusal_of(await uncordon(run)) == (409, "invalid_state", "registered"), "its agent enrols"

    play(database_url, tmp_path, scene)


def test_a_node_without_an_agent_needs_slots_and_a_pool_of_such_nodes(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await inspect(run)
        connection = run.stage.fleet.connection
        connection.execute("update deploy_runs set node_id = %s", ((await another(run.stage)).node,))
        assert refusal_of(await uncordon(run)) == (409, "invalid_state", "cordoned"), "it was inspected by hand"
        connection.execute("update deploy_runs set node_id = %s, outcome = 'stopped'", (run.node,))
        assert refusal_of(await uncordon(run)) == (409, "invalid_state", "cordoned"), "no run has completed"
        connection.execute("update deploy_runs set outcome = 'completed'")
        connection.execute("update pools set driver = 'libvirt' where shape = 'baremetal'")
        with pytest.raises(DriverRefused, match="'libvirt'"):
            await uncordon(run)
        assert standing(run)[1] == "cordoned"
        connection.execute("update pools set driver = 'redfish' where shape = 'baremetal'")
        connection.execute("delete from slots where node_id = %s", (run.node,))
        connection.execute(
            "update nodes set slot_count = 0, half_slots = 0, free_mask = 0, fit_class = 0 where id = %s", (run.node,)
        )
        assert refusal_of(await uncordon(run)) == (409, "invalid_state", "cordoned")

    play(database_url, tmp_path, scene)


@pytest.mark.parametrize(
    "change",
    [
        "update sites set lease_until = clock_timestamp() - interval '1 s'",
        "update sites set lease_fence = lease_fence + 1",
        "update sites set lease_run = gen_random_uuid()",
        "update site_agent_certificates set revoked_at = clock_timestamp()",
        "update site_agents set epoch = epoch + 1",
        "update site_agents set state = 'retired'",
        "update site_agents set identity_conflict_at = clock_timestamp()",
        "update sites set lease_agent = (select id from site_agents where name = 'second')",
    ],
)
def test_without_the_lease_nothing_is_shown_or_recorded(database_url: str, tmp_path: Path, change: str) -> None:
    async def scene(run: Run) -> None:
        agent, stage = run.stage.first, run.stage
        fence = await hold(stage, agent)
        wanted = (stage.context.database, agent.id, agent.serial, agent.run_id, fence, BEFORE_ALL, 10)
        shown, _ = await list_machines(*wanted)
        assert shown is not None
        assert [one.node_id for one in shown] == [run.node]
        stage.fleet.connection.execute(change.encode())
        assert (await list_machines(*wanted))[0] is None
        assert not await note(run, agent, fence)
        assert not await note(run, agent, fence, silent="bmc_busy")
        assert run.row("select answered_at, silent_because from node_bmcs where node_id = %s", run.node) == (None, None)

    play(database_url, tmp_path, scene)


def test_an_agent_reports_about_its_site_alone_and_waits_for_no_lock(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        stage, agent = run.stage, run.stage.first
        fence = await hold(stage, agent)
        here, elsewhere = await another(stage), await another(stage)
        site = stage.fleet.one("insert into sites (name, recovery_key) values ('other', sha256('r')) returning id")
        stage.fleet.connection.execute("update node_bmcs set site_id = %s where node_id = %s", (site, elsewhere.node))
        asked = (stage.context.database, agent.id, agent.serial, agent.run_id, fence)
        pages = [(await list_machines(*asked, after, 1))[0] for after in (BEFORE_ALL, run.node, here.node)]
        assert [[one.node_id for one in page or ()] for page in pages] == [[run.node], [here.node], []]
        with psycopg.connect(stage.fleet.url) as other:
            other.execute("select from node_bmcs where node_id = %s for update", (run.node,))
            nodes = [run.node, here.node, elsewhere.node, uuid.uuid4()]
            assert await note_answers(
                stage.context, agent.id, agent.serial, agent.run_id, fence, datetime.now(UTC), nodes, {}
            )
        rows = stage.fleet.connection.execute(
            "select node_id from node_bmcs where answered_at is not null order by node_id"
        )
        assert [row[0] for row in rows] == [here.node]

    play(database_url, tmp_path, scene)


def test_silence_is_explained_until_the_bmc_answers_again(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        fence = await hold(run.stage, run.stage.first)
        shown = "select silent_because, answered_at from node_bmcs where node_id = %s"
        assert await note(run, run.stage.first, fence)
        answered = run.row(shown, run.node)[1]
        assert await note(run, run.stage.first, fence, silent="bmc_certificate_changed")
        assert run.row(shown, run.node) == ("bmc_certificate_changed", answered), "silence does not count as an answer"
        assert await note(run, run.stage.first, fence)
        code, again = run.row(shown, run.node)
        assert (code, again > answered) == (None, True)

    play(database_url, tmp_path, scene)


def test_a_node_that_lost_its_bmc_is_offline_and_a_retired_one_stays_so(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        worker = run.stage.worker
        await inspect(run)
        await uncordon(run)
        await note(run, run.stage.first, await hold(run.stage, run.stage.first))
        for state in ("retired", "registered"):
            set_state(run, state)
            run.stage.fleet.connection.execute("update nodes set online = false where id = %s", (run.node,))
            assert await find_turned_nodes(worker, SILENT_SECONDS, 10) == []
            assert await turn_node(worker, run.node, SILENT_SECONDS) is None
        set_state(run, "active")
        run.stage.fleet.connection.execute("update nodes set online = false where id = %s", (run.node,))
        assert await turn_node(worker, run.node, SILENT_SECONDS) is True
        assert (await remove_bmc(run.stage.api, admin_operation(), ADMIN, run.node)).status == 204
        assert standing(run) == ("redfish", "active", False)
        assert events(run, "node.o")[-1] == ("node.offline", None)

    play(database_url, tmp_path, scene)


def test_an_answer_of_before_a_change_does_not_count_for_the_new_bmc(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        agent, stage = run.stage.first, run.stage
        fence = await hold(stage, agent)
        asked = (agent.id, agent.serial, agent.run_id, fence)
        _, listed_at = await list_machines(stage.context.database, *asked, BEFORE_ALL, 10)
        stage.fleet.connection.execute("update node_bmcs set changed_at = clock_timestamp()")
        assert await note_answers(stage.context, *asked, listed_at, [run.node], {})
        assert await note_answers(stage.context, *asked, listed_at, [], {run.node: "bmc_busy"})
        assert run.row("select answered_at, silent_because from node_bmcs where node_id = %s", run.node) == (None, None)
        _, listed_at = await list_machines(stage.context.database, *asked, BEFORE_ALL, 10)
        assert await note_answers(stage.context, *asked, listed_at, [run.node], {})
        assert run.row("select answered_at is not null from node_bmcs where node_id = %s", run.node) == (True,)

    play(database_url, tmp_path, scene)


def test_after_a_restore_a_wipe_alone_opens_a_machine_again(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        connection = run.stage.fleet.connection
        await inspect(run)
        connection.execute(
            "with r as (insert into restores (written_by, leader_id, head_version, closed_at)"
            " values ('w', 'l', 0, clock_timestamp()) returning epoch)"
            " insert into awaited_inventories (node_id, epoch) select %s, epoch from r", (run.node,)
        )  # fmt: skip
        await transact(run.stage.context, lambda tx: keep_slots(tx, run.node))
        closed = "select count(*) from slots where node_id = %s and state = 'out_of_service'"
        assert run.row(closed, run.node) == (8,)
        await inspect(run)
        assert run.row(closed, run.node) == (8,), "a tenant of the lost interval may have left its disks"
        await run.report(await to_work(run, RunKind.WIPE), result=WIPED)
        assert run.row(closed, run.node) == (0,)
        assert run.row("select count(*) from awaited_inventories") == (0,)

    play(database_url, tmp_path, scene)


def test_agents_ask_every_bmc_of_the_site_and_nodes_follow(stage: Stage, site: Site) -> None:
    with stage.machine() as machine:
        node = machine.node_id
        site.agent("first", BERTH_SITE_BMC_CHECK_SECONDS="0.3")
        site.wait_for_holder("first")
        # More than a page, at a port that nothing listens on: the round goes on behind them.
        stage.fleet.connection.execute(
            "with made as (insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state,"
            " free_mask, fit_class) select 'dark-' || g, n.pool_id, n.region, n.gpu_model, n.shape, 0, 0,"
            " nextval('unit_numbers') + 100000, 'cordoned', 0, 0 from nodes n, generate_series(1, 550) g where n.id = %s"
            " returning id) insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)"
            " select id, %s, 'https://127.0.0.1:9', sha256('c'), 'berth', 1, 'test' from made", (node, site.id)
        )  # fmt: skip
        stage.fleet.connection.execute("update nodes set online = false, driver = 'redfish' where id = %s", (node,))
        site.put_bmc(machine)
        dark = "select count(*) from node_bmcs where site_id = %s and silent_because = 'bmc_unreachable'"
        wait_for(lambda: stage.fleet.one(dark, site.id) == 550, "each BMC was asked", 60)
        wait_for(lambda: stage.fleet.one("select online from nodes where id = %s", node), "the node is online", 30)
        counted = ("berth_site_agent_bmcs_silent", 550), ("berth_site_agent_bmcs_answering", 1)
        for name, number in counted:
            wait_for(lambda: site.agents[0].metric(name) == number, f"{name} counts a whole round", 60)  # noqa: B023
        assert machine.logins() == 0, "the service root needs no credentials"
        stage.fleet.connection.execute(
            "delete from node_bmcs where site_id = %s and url = 'https://127.0.0.1:9'", (site.id,)
        )
    # It may be offline earlier, because a round of a busy agent was late.
    wait_for(lambda: stage.bmc(node)["silent_because"] == "bmc_unreachable", "the BMC is unreachable", 60)
    wait_for(lambda: not stage.fleet.one("select online from nodes where id = %s", node), "the node is offline", 30)


def test_what_counts_as_an_answer_of_a_bmc(stage: Stage) -> None:
    def ask(url: str, pin: str) -> str | None:
        return asyncio.run(
            ask_bmc(SiteMachine(node_id=uuid.uuid4(), url=url, certificate_sha256=pin))
        )  # fmt: skip

    with stage.machine() as machine:
        assert ask(machine.url, machine.pin) is None
        assert ask(machine.url, "0" * 64) == "bmc_certificate_changed"
        asked = len(machine.service.requests)
        for fault, answer in ((Fault.BUSY, "bmc_busy"), (Fault.ERROR, "bmc_busy"), (Fault.UNAUTHORISED, None),
                              (Fault.BROKEN_BEFORE, "bmc_unreachable"), (Fault.ENDLESS, None)):  # fmt: skip
            machine.service.script.add("GET /redfish/v1/", fault)
            assert ask(machine.url, machine.pin) == answer, fault
        assert len(machine.service.requests) == asked + 5, "each was asked once"
    for url in (
        machine.url,
        "https://a:b",
        "https://1.2.3.4:443:443",
        "https://xn--",
        "https://xn--a",
        "https://[::1",
        "https://",
    ):
        assert ask(url, machine.pin) == "bmc_unreachable", url
