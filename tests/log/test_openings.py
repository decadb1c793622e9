"""The opening of a named subscription that the database does not let through: a socket has no key to ask or to repeat by."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from orchestrator.notifications.commands import open_subscription
from orchestrator.notifications.store import SubscriptionRetention
from orchestrator.operations.execution import Context
from orchestrator.problems import OutcomeUnknown, Overloaded
from orchestrator.tenants.principals import Principal
from tests.placement.cutting import CuttingProxy
from tests.placement.fleet import Fleet, working
from tests.support.waiting import async_wait_for

COUNT = "select count(*) from notification_subscriptions"


async def opened(context: Context, scope: uuid.UUID) -> int:
    """The version after which the subscription of an operator goes on."""
    retention = SubscriptionRetention(60.0, 10)
    caller = Principal("admin", scope, None)
    return await open_subscription(
        context, scope, "mine", 0, caller=caller, request_id="r", retention=retention, subscriptions_max=5
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_its_outcome_is_unknown_and_it_opens_when_repeated(database_url: str, when: str) -> None:
    fleet = Fleet(database_url, slice_nodes=0)
    scope = uuid.uuid4()

    async def committed() -> None:
        await async_wait_for(lambda: fleet.one(COUNT) == 1, "the subscription")

    async def scene() -> None:
        async with CuttingProxy(database_url).running() as proxy, working(proxy.url) as (context, _):
            proxy.wait_committed = committed
            proxy.arm(when)
            with pytest.raises(OutcomeUnknown) as lost:
                await opened(context, scope)
            assert (lost.value.outcome, proxy.cuts) == ("unknown", 1)
            assert "open the subscription again" in str(lost.value.detail)
            assert await opened(context, scope) == 0

    asyncio.run(scene())
    assert fleet.one(COUNT) == 1


def test_it_is_refused_as_overloaded_while_its_table_is_locked(database_url: str) -> None:
    fleet, scope = Fleet(database_url, slice_nodes=0), uuid.uuid4()

    async def scene() -> None:
        async with working(database_url, lock_timeout_seconds=0.5) as (context, _):
            fleet.connection.execute("begin; lock table notification_subscriptions in exclusive mode")
            with pytest.raises(Overloaded) as held:
                await opened(context, scope)
            assert "key" not in str(held.value.detail)
            fleet.connection.execute("rollback")
            assert await opened(context, scope) == 0

    asyncio.run(scene())
