"""The release of an adopted machine inspects it first, and wipes every disk that was found; until then its units stay taken."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from orchestrator.allocations.commands.force import force_cleanup, force_release
from orchestrator.allocations.queries import find_wipe_certificate
from orchestrator.allocations.states import AllocationState
from orchestrator.nodes.commands.nodes import cordon_node, retire_node
from orchestrator.nodes.deploy_systems.run_rules import Move
from orchestrator.sites.commands.runs import advance_run
from orchestrator.wipes.certificate import MachineFindings, read_certificate, verify_certificate
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import add_node, connect, create_allocation
from tests.deploy_system.stage import TOPOLOGY
from tests.nodes.answers import body_of
from tests.sites.adopting.machines import FOUND, Adopting, Scene
from tests.sites.renting.killed_workers import QUICK, Workers
from tests.sites.renting.machine_key import MachineKey
from tests.sites.renting.tenancy import LARGE, SMALL
from tests.sites.running import Run
from tests.verifying import broken_promises
from tests.wiping.sites import Site

WORK = "select kind, outcome, allocation_id from deploy_runs order by id"


def runs(rent: Adopting) -> list[tuple[str, str | None]]:
    """Kind and outcome of each run, in order."""
    rows = rent.run.stage.fleet.connection.execute(WORK).fetchall()
    assert {row[2] for row in rows} <= {rent.allocation}
    return [(str(row[0]), row[1]) for row in rows]


def test_a_release_inspects_first_and_then_wipes_every_disk(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        assert runs(rent) == [("inspect", None)]
        assert rent.run.medium().network.address == rent.stated().network.address
        await rent.inspect()
        assert rent.task["state"] in ("queued", "dispatched"), "the release waits for its wipe"
        assert await rent.steps() is Move.WORK
        assert runs(rent) == [("inspect", "completed"), ("wipe", None)]
        disks = rent.run.row("select parameters -> 'disks' from deploy_runs where kind = 'wipe'")[0]
        assert [disk["serial"] for disk in disks] == [SMALL["serial"], LARGE["serial"]]
        await rent.wipe()
        assert await rent.steps() is Move.CLOSE
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED
        assert rent.claim["closed_at"] is not None
        assert rent.run.is_undone()
        proofs = rent.row["release_result"]["evidence"]["devices"]
        assert [(one["device"], one["proven"]) for one in proofs] == [("disk S1", True), ("disk S2", True)]
        assert broken_promises(rent.url) == {}

    play(scene)


def test_the_certificate_of_an_adopted_machine_claims_no_comparison(
    play: Callable[[Scene], None], tmp_path: Path
) -> None:
    """The inspection belongs to the tenancy: what it lists is what the tenant has left."""
    site = Site()
    variable = {"name": "BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c", "sha256": "0" * 64}
    bios = [{"component": "bios", "unit": "smbios", "version": "2"}]

    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.inspect({**FOUND, "uefi_variables": [variable], "firmware": bios})
        assert await rent.steps() is Move.WORK
        ordered = rent.run.row("select parameters from deploy_runs where kind = 'wipe'")[0]
        assert "uefi_variables" not in ordered
        await rent.wipe(signing=MachineKey(site), firmware=bios)
        assert await rent.steps() is Move.CLOSE
        stage = rent.run.stage
        stage.worker = dataclasses.replace(stage.worker, signer=site.signer(tmp_path))
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED
        document = await find_wipe_certificate(stage.context.database, rent.allocation, rent.seeded.tenant_id)
        found = verify_certificate(read_certificate(json.dumps(document).encode()), rent.allocation, site.roots)
        assert found.predicate.machine is not None
        assert found.predicate.machine.uefi_variables is None
        assert found.link.machine == MachineFindings(firmware="not_compared", findings=[])

    play(scene)


def test_the_next_tenant_comes_after_the_proven_wipe_alone(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        def is_placed() -> bool:
            try:
                create_allocation(rent.url, rent.seeded, shape="baremetal")
            except (AssertionError, psycopg.Error):
                return False
            return True

        await rent.adopt()
        rent.set_state("active")
        rent.run.stage.fleet.connection.execute("update nodes set online = true")
        assert not is_placed()
        await rent.release_to("work")
        assert not is_placed()
        await rent.inspect()
        while runs(rent)[-1] != ("wipe", None):
            assert not is_placed()
            if await rent.run.advance() is None:
                await rent.run.perform()
        await rent.steps()
        assert not is_placed(), "the inspection has completed, and nothing is wiped"
        await rent.wipe()
        await rent.steps()
        assert not is_placed(), "the workflow has not concluded"
        await rent.cleaned_up()
        assert is_placed()

    play(scene)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"topology": {**TOPOLOGY, "disks": []}}, "no_disks", marks=pytest.mark.quick),
        ({"storage_without_driver": ["0000:01:00.0"]}, "storage_without_driver"),
        ({"topology": {**TOPOLOGY, "disks": [SMALL, {**LARGE, "serial": "S1"}]}}, "disk_ambiguous"),
        ({"topology": {**TOPOLOGY, "disks": [{"name": "sda", "size_bytes": 9}]}}, "disk_without_serial"),
    ],
)
def test_what_cannot_be_wiped_stays_taken(play: Callable[[Scene], None], changes: object, reason: str) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        assert isinstance(changes, dict)
        await rent.inspect({**FOUND, **changes})
        assert await rent.steps() is Move.REFUSE
        assert (rent.task["failure_code"], rent.task["failure_detail"].split(":")[0]) == ("cleanup_failed", reason)
        assert rent.claim["occupied"]
        assert rent.run.is_undone()
        await rent.cleaned_up()
        assert rent.row["state"] in ("releasing", "release_failed")
        assert rent.claim["occupied"]

    play(scene)


def test_a_failed_inspection_fails_the_attempt_and_the_next_one_inspects_again(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.run.report(rent.run.boot(), failure={"code": "internal_error", "detail": "x"})
        assert await rent.steps() is Move.CLOSE
        assert (rent.task["state"], rent.task["failure_code"]) == ("failed", "cleanup_failed")
        assert rent.claim["occupied"]
        rent.run.stage.fleet.connection.execute(
            "update allocations set waits_until = clock_timestamp() where id = %s", (rent.allocation,)
        )
        await rent.cleaned_up()
        operation = admin_operation()
        answer = await force_release(rent.run.stage.context, operation, ADMIN, rent.allocation, "again")
        assert answer.status == 202, answer
        await rent.clean_up("releasing-2")
        assert await rent.steps() is Move.WORK
        assert runs(rent) == [("inspect", "failed"), ("inspect", None)]
        await rent.inspected_and_wiped()
        assert (await rent.cleaned_up("releasing-2")).state is AllocationState.RELEASED

    play(scene)


def test_a_release_anew_after_the_inspection_wipes_without_another(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.inspect()
        await rent.steps()
        await force_release(rent.run.stage.context, admin_operation(), ADMIN, rent.allocation, "again")
        await rent.clean_up("releasing-2")
        assert await rent.steps() is Move.WORK
        assert [kind for kind, _ in runs(rent)] == ["inspect", "wipe", "wipe"]
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up("releasing-2")).state is AllocationState.RELEASED

    play(scene)


def test_an_inspection_before_the_adoption_does_not_count(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.inspected_and_wiped()
        await rent.cleaned_up()
        rent.run.machine.service.machine.power = "On"
        before = rent.allocation
        await rent.adopt()
        assert rent.allocation != before, "a machine that was wiped and runs again is adopted again"
        await rent.release_to("work")
        assert rent.run.row("select kind from deploy_runs where ended_at is null") == ("inspect",)
        await rent.inspected_and_wiped()
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED

    play(scene)


def test_runs_that_are_forgotten_have_the_machine_inspected_again(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        await rent.release_to("work")
        await rent.inspect()
        await rent.steps()
        rent.run.stage.fleet.connection.execute("delete from deploy_runs where kind = 'inspect'")
        await force_release(rent.run.stage.context, admin_operation(), ADMIN, rent.allocation, "again")
        await rent.clean_up("releasing-2")
        assert await rent.steps() is Move.WORK
        assert rent.run.row("select kind from deploy_runs where ended_at is null") == ("inspect",)

    play(scene)


def test_workers_that_die_between_the_runs_inspect_once_and_wipe_once(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        workers = Workers(rent.url, rent.run)

        async def advance() -> Move | None:
            for number in range(1, QUICK):
                await workers.killed(number, lambda context: advance_run(context, rent.run.node))
            return await rent.run.advance()

        async def to(step: str) -> None:
            while not (await rent.is_at(step) and runs(rent)[-1][1] is None):
                if await advance() is None:
                    await rent.run.perform()

        await rent.adopt()
        await rent.release()
        await rent.clean_up()
        await rent.run.advance()
        await to("work")
        await rent.inspect()
        while runs(rent)[-1][0] != "wipe":
            if await advance() is None:
                await rent.run.perform()
        await to("work")
        await rent.wipe()
        while runs(rent)[-1][1] is None:
            if await advance() is None:
                await rent.run.perform()
        assert workers.deaths > QUICK
        assert runs(rent) == [("inspect", "completed"), ("wipe", "completed")]
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED

    play(scene)


def test_an_operators_cordon_changes_nothing_of_it(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        answer = await cordon_node(rent.run.stage.api, admin_operation(), ADMIN, rent.run.node)
        assert body_of(answer)["state"] == "cordoned"
        assert rent.row["state"] == "active"

    play(scene)


def test_an_adoption_for_the_wrong_tenant_is_undone_by_statements_while_no_agent_acts(
    play: Callable[[Scene], None],
) -> None:
    async def scene(rent: Adopting) -> None:
        context, machine = rent.run.stage.context, rent.run.machine.service.machine
        await rent.adopt()
        first = rent.allocation
        await force_release(context, admin_operation(), ADMIN, first, "wrong tenant")
        await rent.clean_up()
        assert await rent.run.advance() is Move.OPEN
        answer = await force_cleanup(context, admin_operation(), ADMIN, first, "it runs on")
        assert answer.status == 200, answer
        assert await rent.run.advance() is Move.CLOSE
        assert (machine.power, machine.effects, rent.commands()) == ("On", [], [])
        await rent.adopt()
        assert (rent.allocation != first, rent.row["state"]) == (True, "active")
        assert broken_promises(rent.url) == {}

    play(scene)


def test_a_machine_whose_adoption_a_restore_has_lost_is_adopted_as_another_node(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        rent.restore()
        answer = await retire_node(rent.run.stage.api, admin_operation(), ADMIN, rent.run.node, reason="lost")
        assert answer.status == 200, answer
        assert await rent.run.advance() is None
        with connect(rent.url) as connection:
            found = add_node(connection, rent.seeded.pools["baremetal"], "found-again", "baremetal")
            connection.execute("update nodes set state = 'cordoned', online = false where id = %s", (found.id,))
        rent.run = Run(rent.run.stage, await rent.run.stage.machine(found.id))
        rent.run.machine.service.machine.power = "On"
        await rent.adopt()
        assert rent.row["state"] == "active"

    play(scene)
