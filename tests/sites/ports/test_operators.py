"""Operators set segments and ports, and move ports by hand: what is refused by name changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from node_agent.wire.sites import BmcTaskKind
from orchestrator.nodes.commands.nodes import retire_node
from orchestrator.problems import AlreadyExists, Invalid, InvalidState, NodeInUse, NotFound, Problem
from orchestrator.sites.commands.bmcs import put_bmc, remove_bmc
from orchestrator.sites.commands.sites import remove_site
from orchestrator.sites.ports.rules import Port, Verb
from orchestrator.sites.store.bmcs import Address
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect as connect_database
from tests.deploy_system.stage import INSPECTED, MAC, OTHER_MAC
from tests.sites.ports.placed import (
    PORT,
    PROVISIONING,
    SWITCH,
    TENANT_A,
    TENANT_B,
    connect,
    leased,
    move,
    set_ports,
    set_segments,
    shown,
)
from tests.sites.renting.tenancy import Renting, player, renting
from tests.sites.renting.tenancy import Scene as RentingScene
from tests.sites.running import Run, another, inspect, play
from tests.switches.scripted import ScriptedSwitch

ONE = Port(SWITCH, PORT, MAC)
ROWS = "select (select json_agg(p) from node_ports p)::text, (select json_agg(s) from node_segments s)::text"

CARRIES = """
with s as (insert into tenant_segments (site_id, vlan, tenant_id, fence)
           select site_id, 1001, %(tenant)s, 1 from node_segments where node_id = %(node)s)
update node_segments set tenant_vlan = 1001 where node_id = %(node)s
"""


async def refused(awaited: Any, kind: type[Problem], **extra: Any) -> None:
    """The refusal, whether it is raised or stored as an answer."""
    try:
        answer = await awaited
    except kind:
        return
    found = json.loads(answer.body)
    assert (answer.status, found["code"]) == (kind.status, kind.code), found
    assert {name: found[name] for name in extra} == extra


def test_ports_are_set_moved_and_shown(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        switch = ScriptedSwitch()
        run.stage.switches[SWITCH] = switch
        run.machine.service.machine.power = "Off"
        assert (await set_segments(run.stage)).status == 200
        assert (await set_ports(run, ONE)).status == 200
        assert (await shown(run))["ports"][0]["agrees"] is None
        for verb, vlan in ((Verb.PROVISIONING, PROVISIONING), (Verb.SHUT, None), (Verb.PROVISIONING, PROVISIONING)):
            answer = await move(run, verb)
            assert json.loads(answer.body)["task"]["kind"] == "move_ports"
            await run.perform()
            found = await shown(run)
            assert (found["place"], found["vlan"], found["task"]["outcome"]) == (verb.value, vlan, "completed")
            assert found["proven_at"] is not None
            assert switch.vlan(PORT) == vlan
        await move(run, Verb.CHECK)
        await run.perform()
        assert (await shown(run))["task"]["outcome"] == "completed"
        assert len(switch.writes) == 3, "a check moves nothing"
        assert (await set_ports(run)).status == 200
        assert (await shown(run))["ports"] == []
        actions = run.stage.fleet.connection.execute(
            "select action, detail ->> 'to' from audit_pending where action like '%port%' or action like '%segments' order by id"
        ).fetchall()
        assert actions == [
            ("site.put_segments", None), ("node.put_ports", None), ("node.move_ports", "provisioning"),
            ("node.move_ports", "shut"), ("node.move_ports", "provisioning"), ("node.move_ports", "check"),
            ("node.put_ports", None),
        ]  # fmt: skip

    play(database_url, tmp_path, scene)


def test_a_port_and_a_mac_belong_to_one_machine_of_the_site(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await set_segments(run.stage)
        other = await another(run.stage)
        await set_ports(run, ONE)
        before = run.row(ROWS)
        for taken in (Port(SWITCH, PORT, OTHER_MAC), Port("leaf-2", PORT, MAC)):
            await refused(set_ports(other, taken), AlreadyExists)
        await refused(set_ports(other, ONE, Port(SWITCH, PORT, OTHER_MAC)), Invalid)
        await refused(set_ports(other, ONE, Port(SWITCH, "p2", MAC)), Invalid)
        assert run.row(ROWS) == before
        assert (await set_ports(other, Port(SWITCH, "p2", OTHER_MAC))).status == 200
        assert (await set_ports(run, ONE)).status == 200, "its own are no obstacle"

    play(database_url, tmp_path, scene)


def test_what_cannot_be_set_or_moved_is_refused_and_changes_nothing(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await refused(set_ports(run, ONE), InvalidState, state="no_segments")
        await refused(move(run, Verb.CHECK), InvalidState, state="no_ports")
        await set_segments(run.stage)
        await set_ports(run, ONE)
        before = run.row(ROWS)
        await refused(move(run, Verb.TENANT), InvalidState, state="no_tenant_segment")
        await refused(move(run, Verb.CHECK), InvalidState, state="not_placed")
        await run.machine.request(BmcTaskKind.LOOK)
        await refused(move(run, Verb.SHUT), InvalidState, state="task_open")
        await refused(set_ports(run), InvalidState, state="task_open")
        run.stage.fleet.connection.execute("delete from bmc_tasks")
        await run.request()
        await refused(move(run, Verb.SHUT), InvalidState, state="run_open")
        await refused(set_ports(run), InvalidState, state="run_open")
        run.stage.fleet.connection.execute("delete from bmc_tasks")
        run.stage.fleet.connection.execute("delete from deploy_runs")
        run.stage.fleet.connection.execute("update nodes set state = 'active'")
        await refused(move(run, Verb.PROVISIONING), InvalidState, state="active")
        await refused(set_ports(run), InvalidState, state="active")
        run.stage.fleet.connection.execute("update nodes set state = 'cordoned'")
        api = run.stage.api
        await refused(remove_bmc(api, admin_operation(), ADMIN, run.node), InvalidState, state="ports_set")
        elsewhere = Address(run.node, "https://192.0.2.7", bytes(32), "u", None, None)
        await refused(put_bmc(api, admin_operation(), ADMIN, run.node, elsewhere, None), NotFound)
        assert run.row(ROWS) == before

    play(database_url, tmp_path, scene)


def test_a_bmc_with_ports_does_not_change_its_site(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        await set_segments(run.stage)
        await set_ports(run, ONE)
        other = run.row(
            "insert into sites (name, recovery_key) values ('b', decode(repeat('00', 32), 'hex')) returning id"
        )
        elsewhere = Address(other[0], "https://192.0.2.7", bytes(32), "u", None, None)
        api = run.stage.api
        await refused(
            put_bmc(api, admin_operation(), ADMIN, run.node, elsewhere, None), InvalidState, state="ports_set"
        )
        await set_ports(run)
        assert (await remove_bmc(api, admin_operation(), ADMIN, run.node)).status == 204
        run.stage.fleet.connection.execute("update site_agents set state = 'retired'")
        run.stage.fleet.connection.execute("delete from site_agent_certificates")
        assert (await remove_site(api, admin_operation(), ADMIN, run.stage.site_id)).status == 204
        assert run.row("select count(*) from site_segments")[0] == 0

    play(database_url, tmp_path, scene)


def test_a_retired_node_leaves_its_ports_to_other_machines(database_url: str, tmp_path: Path) -> None:
    async def scene(run: Run) -> None:
        run.stage.switches[SWITCH] = ScriptedSwitch()
        run.machine.service.machine.power = "Off"
        await set_segments(run.stage)
        other = await another(run.stage)
        await set_ports(run, ONE)
        await move(run, Verb.PROVISIONING)
        await run.perform()
        run.stage.fleet.connection.execute(CARRIES, {"tenant": run.stage.fleet.tenant().id, "node": run.node})
        assert (await retire_node(run.stage.api, admin_operation(), ADMIN, run.node, reason="x")).status == 200
        await refused(set_ports(run), InvalidState, state="in_tenant_segment")
        assert (await move(run, Verb.PROVISIONING)).status == 200
        await run.perform()
        await refused(set_ports(run, Port(SWITCH, "p2", MAC)), InvalidState, state="retired")
        assert (await set_ports(run)).status == 200
        assert (await set_ports(other, ONE)).status == 200
        assert (await remove_bmc(run.stage.api, admin_operation(), ADMIN, run.node)).status == 204

    play(database_url, tmp_path, scene)


@pytest.mark.parametrize("vlans", [(2000, 1000), (PROVISIONING, 200), (1, PROVISIONING)])
def test_segments_that_overlap_are_refused(database_url: str, tmp_path: Path, vlans: tuple[int, int]) -> None:
    async def scene(run: Run) -> None:
        await refused(set_segments(run.stage, vlans=vlans), Invalid)
        assert run.row("select count(*) from site_segments")[0] == 0

    play(database_url, tmp_path, scene)


@pytest.mark.parametrize("vlan", [PROVISIONING, TENANT_A, TENANT_B])
def test_vlans_of_networks_are_refused_to_a_site(database_url: str, tmp_path: Path, vlan: int) -> None:
    async def scene(run: Run) -> None:
        with connect_database(database_url) as connection:
            connection.execute("insert into regions (name, display_name) values ('far', 'Far')")
            make = "insert into network_vlans (region, vlan, network_id, left_at) values ('far', %s, %s, now())"
            connection.execute(make, (vlan, uuid4()))
        await refused(set_segments(run.stage), InvalidState, state="network_vlans_leased")
        assert run.row("select count(*) from site_segments")[0] == 0
        with connect_database(database_url) as connection:
            connection.execute("delete from network_vlans")
        assert (await set_segments(run.stage)).status == 200

    play(database_url, tmp_path, scene)


@pytest.fixture
def rented(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[RentingScene], None]:
    """A scene with a rented machine."""
    return player(partial(renting, database_url, tmp_path), monkeypatch)


def test_a_tenants_machine_keeps_its_ports_and_its_segment(rented: Callable[[RentingScene], None]) -> None:
    async def scene(rent: Renting) -> None:
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        await rent.activate()
        rent.set_state("cordoned")
        before = rent.run.row(ROWS)
        for request in (move(rent.run, Verb.PROVISIONING), move(rent.run, Verb.SHUT), set_ports(rent.run)):
            await refused(request, NodeInUse)
        stage = rent.run.stage
        await refused(set_segments(stage, vlans=(TENANT_B, TENANT_B)), InvalidState, state="segments_leased")
        await refused(set_segments(stage, provisioning=200), InvalidState, state="ports_placed")
        assert (rent.run.row(ROWS), switch.vlan(PORT)) == (before, TENANT_A)
        assert (await set_segments(stage, vlans=(TENANT_A, 2000), quarantine=0)).status == 200
        assert [one["vlan"] for one in await leased(stage)] == [TENANT_A]

    rented(scene)


@pytest.mark.parametrize(
    ("port_id", "system_name", "agrees"),
    [(PORT, SWITCH, True), (PORT, None, True), ("Ethernet9", SWITCH, False), (PORT, "leaf-2", False)],
)
def test_a_port_is_compared_with_what_the_switch_has_announced(
    database_url: str, tmp_path: Path, port_id: str, system_name: str | None, agrees: bool
) -> None:
    async def scene(run: Run) -> None:
        inspect(run)
        heard = {"mac": MAC, "chassis_id": "02:00:00:00:00:01", "port_id": port_id}
        if system_name is not None:
            heard["system_name"] = system_name
        run.stage.fleet.connection.execute(
            "update node_machines set report = %s", (json.dumps({**INSPECTED, "neighbours": [heard]}),)
        )
        await set_segments(run.stage)
        await set_ports(run, ONE, Port(SWITCH, "p2", OTHER_MAC))
        first, second = (await shown(run))["ports"]
        assert (first["agrees"], first["heard"]["port_id"]) == (agrees, port_id)
        assert (second["agrees"], second["heard"]) == (None, None), "nothing was heard there"

    play(database_url, tmp_path, scene)
