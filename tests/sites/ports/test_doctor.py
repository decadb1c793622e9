"""`berth doctor` names machines in service that no switch is proven to separate."""

from __future__ import annotations

from collections.abc import Callable

from berth.cli.deployment.isolation_finding import isolation_finding
from migrations.roles import Role
from node_agent.switches.noop import NoopSwitch
from orchestrator.sites.ports.rules import Verb
from tests.databases import as_role
from tests.sites.ports.placed import PORT, connect, move, set_segments
from tests.sites.renting.tenancy import Renting, Scene
from tests.switches.scripted import ScriptedSwitch


def test_machines_without_isolation_are_named(database_url: str, play: Callable[[Scene], None]) -> None:
    url = as_role(database_url, Role.OPERATOR)

    async def scene(rent: Renting) -> None:
        name = rent.run.row("select name from nodes where id = %s", rent.run.node)[0]
        rent.run.stage.fleet.connection.execute("update nodes set driver = 'redfish', enrolled_at = null")
        found = isolation_finding(url)
        assert (found.verdict, found.detail[:15]) == ("ok", "isolation none:")
        await set_segments(rent.run.stage)
        found = isolation_finding(url)
        assert (found.verdict, name in found.detail) == ("warning", True)
        switch = ScriptedSwitch()
        await connect(rent.run, switch)
        assert isolation_finding(url).verdict == "ok", "its first run places the port"
        await rent.activate()
        assert isolation_finding(url).verdict == "ok"
        switch.put(PORT, 100)
        await move(rent.run, Verb.CHECK)
        await rent.run.perform()
        assert isolation_finding(url).verdict == "warning"
        await move(rent.run, Verb.TENANT)
        await rent.run.perform()
        assert isolation_finding(url).verdict == "ok"

    play(scene)


def test_noop_is_no_isolation(database_url: str, play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.run.stage.fleet.connection.execute("update nodes set driver = 'redfish', enrolled_at = null")
        await connect(rent.run, NoopSwitch())
        await rent.activate()
        assert isolation_finding(as_role(database_url, Role.OPERATOR)).verdict == "warning"

    play(scene)
