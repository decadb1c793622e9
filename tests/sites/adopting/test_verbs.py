"""Verbs of a tenant whose machine was adopted: its site switches the machine, and inspects it before it writes."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.allocations.states import AllocationState, Verb
from orchestrator.nodes.deploy_systems.root_disks import RootDiskHint
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from tests.nodes.answers import body_of
from tests.sites.adopting.machines import CONNECTION, Adopting, Scene
from tests.sites.renting.tenancy import LOCAL

SWITCHED = {Verb.REBOOT: ("On", "running"), Verb.STOP: ("Off", "stopped"), Verb.START: ("On", "running")}
KINDS = "select array_agg(kind order by id) from deploy_runs"


def test_a_tenant_switches_its_adopted_machine(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        for verb, (power, guest) in SWITCHED.items():
            await rent.order(verb)
            assert (rent.task["deploy_epoch"], rent.task["type"]) == (0, f"allocation.{verb}")
            assert await rent.steps() is Move.CLOSE
            concluded = await rent.ordered()
            assert (concluded.state, concluded.code, rent.row["guest_state"]) == (AllocationState.ACTIVE, None, guest)
            assert rent.run.machine.service.machine.power == power
        assert rent.row["connection"] == CONNECTION
        assert rent.count("deploy_systems") == 0, "nothing was booted"

    play(scene)


def test_a_rebuild_inspects_the_machine_first_and_deploys_then(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.order(Verb.REBUILD)
        assert await rent.steps() is Move.WORK
        assert rent.run.row(KINDS) == (["inspect"],)
        await rent.inspect()
        assert await rent.steps() is Move.WORK
        assert rent.run.row(KINDS) == (["inspect", "deploy"],)
        await rent.deploy()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.ordered()).code is None
        assert rent.row["connection"]["host_key"] == rent.host_key
        await rent.release_to("work")
        assert rent.run.row("select kind from deploy_runs where ended_at is null") == ("wipe",), (
            "inspected by the rebuild"
        )
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED

    play(scene)


def test_a_rebuild_whose_inspection_fails_is_a_failed_verb(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.order(Verb.REBUILD)
        await rent.steps()
        await rent.run.report(rent.run.boot(), failure={"code": "internal_error", "detail": "x"})
        await rent.steps()
        assert (await rent.ordered()).code == "machine_run_failed"
        assert (rent.row["state"], rent.row["guest_state"]) == ("active", "unknown")

    play(scene)


def test_a_rescue_needs_no_inspection(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.order(Verb.RESCUE)
        assert await rent.steps() is Move.WORK
        await rent.prepare_rescue()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.ordered()).code is None
        assert (rent.row["guest_state"], rent.row["rescue"]["host_key"]) == ("rescue", rent.host_key)
        await rent.order(Verb.REBOOT)
        await rent.steps()
        assert (await rent.ordered()).code is None
        assert rent.row["guest_state"] == "running"

    play(scene)


def test_after_a_restore_the_operator_has_it_inspected_and_then_wiped(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        rent.restore()
        await rent.release()
        await rent.clean_up()
        assert await rent.run.advance() is None
        shown = body_of(await rent.run.request(network=LOCAL, smbios=None, kind=RunKind.WIPE))
        assert (shown["kind"], shown["allocation_id"]) == ("inspect", str(rent.allocation))
        assert await rent.steps() is Move.WORK
        await rent.inspect()
        assert await rent.steps() is Move.CLOSE
        assert rent.run.row(KINDS) == (["inspect"],), "nothing is wiped before the operator says so again"
        shown = body_of(await rent.run.request(network=LOCAL, smbios=None, kind=RunKind.WIPE))
        assert shown["kind"] == "wipe"
        assert await rent.steps() is Move.WORK
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED

    play(scene)


def test_an_adoption_keeps_the_hint_of_the_machine(play: Callable[[Scene], None]) -> None:
    """A rebuild of the adopted machine, and its tenants after the release, are deployed to such a disk."""

    async def scene(rent: Adopting) -> None:
        await rent.run.request(root_disk=RootDiskHint(serial="S2"))
        await rent.run.stop()
        assert await rent.run.advance() is Move.CLOSE
        rent.run.machine.service.machine.power = "On"
        await rent.adopt()
        await rent.order(Verb.REBUILD)
        assert await rent.steps() is Move.WORK
        await rent.inspect()
        assert await rent.steps() is Move.WORK
        parameters = rent.run.row("select parameters from deploy_tasks where type = 'metal.deploy'")[0]
        assert parameters["root_disk"]["serial"] == "S2"

    play(scene)
