"""Adoptions that race with each other, and with what else takes or uses the node: one of them wins, by real commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.maintenance.commands.windows import Bounds, Wanted, commit_maintenance
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.states import Resolution
from orchestrator.nodes.commands.drains import uncordon_node
from orchestrator.nodes.commands.nodes import retire_node
from orchestrator.operations.store.operations import Answer
from orchestrator.reservations.resource_names import NamedResources
from orchestrator.verification.all_checks import run_checks
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import create_allocation
from tests.nodes.answers import body_of
from tests.sites.adopting.machines import Adopting, Scene
from tests.sites.renting.tenancy import LOCAL

ROUNDS = 6
FREED = (
    "delete from allocation_timeline", "delete from allocations", "delete from claims", "delete from maintenance_windows",
    "delete from bmc_tasks where ended_at is null", "delete from deploy_runs", "delete from outbox",
    "update tenant_quotas set gpus_used = 0",
    "update nodes set state = 'registered', online = true, free_mask = 255, fit_class = 4 * 64 + 4, driver = null",
)  # fmt: skip
HOLDERS = "select count(*) from claims where closed_at is null and (booked or occupied)"


async def window(rent: Adopting) -> Answer:
    """A maintenance window of the node that has begun."""
    now = datetime.now(UTC)
    policies = Policies(Resolution.REFUSE, Resolution.REFUSE)
    named = NamedResources((str(rent.run.node),), (rent.run.node,), (), ())
    wanted = Wanted(named, now, now + timedelta(hours=1), "x", policies)
    bounds = Bounds(10, CatalogueCache(rent.run.stage.api.database, 0.0))
    return await commit_maintenance(rent.run.stage.api, admin_operation(), ADMIN, wanted, bounds)


async def retire(rent: Adopting) -> Answer:
    return await retire_node(rent.run.stage.api, admin_operation(), ADMIN, rent.run.node, reason="x")


async def inspect(rent: Adopting) -> Answer:
    return await rent.run.request(network=LOCAL, smbios=None)


async def adopt(rent: Adopting) -> Answer:
    return await rent.request()


RIVALS: dict[str, tuple[Callable[[Adopting], Awaitable[Answer]], int]] = {
    "another adoption": (adopt, 200), "a maintenance window": (window, 201), "a retirement": (retire, 200),
    "an inspection": (inspect, 200),
}  # fmt: skip
"""Each with its status if it wins. All exclude an adoption, and are excluded by one."""


@pytest.mark.parametrize("name", [pytest.param("another adoption", marks=pytest.mark.quick), *list(RIVALS)[1:]])
def test_of_an_adoption_and_its_rival_one_wins(play: Callable[[Scene], None], name: str) -> None:
    rival, status = RIVALS[name]

    async def scene(rent: Adopting) -> None:
        await rent.look()
        connection = rent.run.stage.fleet.connection
        for number in range(ROUNDS):
            both = [rent.request(), rival(rent)] if number % 2 else [rival(rent), rent.request()]
            answers = await asyncio.gather(*both)
            adopted, other = answers if number % 2 else reversed(answers)
            won = [adopted.status == 200, other.status == status]
            assert won in ([True, False], [False, True]), (body_of(adopted), body_of(other))
            assert rent.run.row(HOLDERS)[0] <= 1
            loser = other if won[0] else adopted
            assert loser.status == 409, body_of(loser)
            connection.execute("set session_replication_role = replica")
            for statement in FREED:
                connection.execute(statement)
            connection.execute("set session_replication_role = origin")

    play(scene)


def test_of_an_adoption_and_a_create_on_the_uncordoned_node_one_has_it(play: Callable[[Scene], None]) -> None:
    async def create(rent: Adopting) -> bool:
        await uncordon_node(rent.run.stage.api, admin_operation(), ADMIN, rent.run.node)
        try:
            await asyncio.to_thread(create_allocation, rent.url, rent.seeded, shape="baremetal")
        except (AssertionError, psycopg.Error):
            return False
        return True

    async def scene(rent: Adopting) -> None:
        await rent.look()
        connection = rent.run.stage.fleet.connection
        winners = set()
        for number in range(ROUNDS):
            connection.execute("set session_replication_role = replica")
            connection.execute(
                "update nodes set state = 'cordoned', online = true, driver = 'sandbox', enrolled_at = null"
            )
            connection.execute("set session_replication_role = origin")
            both = [rent.request(), create(rent)] if number % 2 else [create(rent), rent.request()]
            answers = await asyncio.gather(*both)
            adopted, created = answers if number % 2 else reversed(answers)
            assert isinstance(adopted, Answer)
            winners.add(won := (adopted.status == 200, created is True))
            assert sum(won) == 1, (body_of(adopted), created)
            assert rent.run.row(HOLDERS) == (1,)
            assert not any(verdict.violations for verdict in run_checks(rent.url) if verdict.promise == "P1")
            connection.execute("set session_replication_role = replica")
            for statement in FREED:
                connection.execute(statement)
            connection.execute("set session_replication_role = origin")
        assert winners

    play(scene)
