"""Claims beside the one of a rented machine: the next booking, a maintenance window, and another end of the same allocation."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from node_agent.wire.deploy_medium import MediumNetwork
from orchestrator.allocations.commands.update import Changes, update_allocation
from orchestrator.allocations.rules import NewEnd
from orchestrator.allocations.states import AllocationState
from orchestrator.nodes.deploy_systems.refusals import DeployReason
from orchestrator.nodes.deploy_systems.rules import NodeUse
from orchestrator.nodes.deploy_systems.run_rules import HISTORY_MAX, Move
from orchestrator.nodes.states import NodeState
from tests.allocations.driving import TENANT, operation
from tests.at_length import at_length
from tests.deploy_system.stage import MAC
from tests.sites.renting.tenancy import Renting, Scene

_BEGINS = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select c.node_id, case when %(kind)s = 'maintenance' then null else c.tenant_id end, %(kind)s, %(owner)s, c.units,
       tstzrange(clock_timestamp(), clock_timestamp() + interval '1 day'), nextval('fences')
from claims c where c.id = %(claim)s
"""


@pytest.mark.parametrize("kind", at_length(["reservation", "maintenance"], ["reservation"]))
def test_what_begins_next_on_the_machine_waits_for_its_wipe(play: Callable[[Scene], None], kind: str) -> None:
    async def scene(rent: Renting) -> None:
        await rent.activate()
        await rent.release()
        rent.run.stage.fleet.connection.execute(
            _BEGINS, {"kind": kind, "owner": uuid.uuid4(), "claim": rent.row["claim_id"]}
        )
        await rent.clean_up()
        await rent.steps()
        await rent.wipe()
        await rent.steps()
        assert (await rent.cleaned_up()).state is AllocationState.RELEASED

    play(scene)


@pytest.mark.parametrize("step", at_length(["power_off", "start", "work"], ["work"]))
def test_another_end_leaves_a_deployment_alone(play: Callable[[Scene], None], step: str) -> None:
    async def scene(rent: Renting) -> None:
        rent.create()
        await rent.provision()
        while not await rent.is_at(step):
            if await rent.run.advance() is None:
                await rent.run.perform()
        before = rent.row["claim_id"]
        changes = Changes(None, None, NewEnd(datetime.now(UTC) + timedelta(days=2)))
        context, seeded = rent.run.stage.context, rent.seeded
        await update_allocation(context, operation(seeded), TENANT, seeded.tenant_id, rent.allocation, changes)
        assert rent.row["claim_id"] != before
        await rent.steps()
        await rent.deploy()
        await rent.steps()
        await rent.provisioned()
        assert rent.row["state"] == "active"

    play(scene)


def test_all_attempts_of_a_site_have_one_deadline(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        connection = rent.run.stage.fleet.connection
        rent.create()
        await rent.provision()
        assert rent.task["expires_at"] == rent.row["provision_until"]
        connection.execute(
            "update node_tasks set state = 'failed', finished_at = clock_timestamp(), failure_code = 'interrupted',"
            " failure_detail = 'd' where id = %s", (rent.task["id"],)
        )  # fmt: skip
        connection.execute("update allocations set provision_until = clock_timestamp() + interval '1 hour'")
        await rent.provision()
        assert (rent.task["attempt"], rent.task["state"]) == (2, "queued")
        assert rent.task["expires_at"] <= rent.row["provision_until"]

    play(scene)


def test_a_network_that_no_run_completed_with_is_used_for_no_tenant(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        rent.set_state("cordoned")
        wrong = MediumNetwork.model_validate({"mac": MAC, "address": "127.0.0.9/8"})
        for _ in range(HISTORY_MAX + 1):
            await rent.run.request(network=wrong)
            await rent.run.stop()
            assert await rent.run.advance() is Move.CLOSE
        rent.set_state("active")
        rent.create()
        await rent.provision()
        assert await rent.run.advance() is Move.OPEN
        assert (await rent.run.shown())["network"]["address"] == "127.0.0.1/8"

    play(scene)


@pytest.mark.parametrize(
    ("claims", "occupied", "writing", "reason"),
    [
        ({1: "allocation", 2: "allocation"}, {1}, True, None),
        ({1: "allocation", 2: "maintenance"}, {1}, True, None),
        ({1: "allocation", 2: "allocation"}, {1, 2}, True, DeployReason.NODE_IN_USE),
        ({1: "allocation", 2: "allocation"}, {2}, False, DeployReason.NODE_IN_USE),
        ({1: "allocation", 2: "allocation"}, set(), False, DeployReason.NODE_IN_USE),
        ({2: "allocation"}, {2}, False, DeployReason.NODE_IN_USE),
        ({}, set(), False, DeployReason.NODE_IN_USE),
    ],
)
def test_a_claim_that_occupies_the_machine_has_it_alone(
    claims: dict[int, str], occupied: set[int], writing: bool, reason: DeployReason | None
) -> None:
    use = NodeUse(NodeState.ACTIVE, "baremetal", 1, claims, 0, frozenset(occupied), 1)
    assert use.obstacle(writing=writing) is reason
