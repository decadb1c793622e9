"""The opening of a named subscription whose connection is lost at COMMIT: it may be repeated, and nobody has a key to ask by."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from orchestrator.notifications.commands import open_subscription
from orchestrator.notifications.store import SubscriptionRetention
from orchestrator.problems import DatabaseUnavailable
from tests.placement.cutting import CuttingProxy
from tests.placement.fleet import Fleet, working
from tests.support.waiting import async_wait_for

COUNT = "select count(*) from notification_subscriptions"


@pytest.mark.parametrize("when", ["before", "after"])
def test_it_is_refused_as_not_reached_and_opens_when_repeated(database_url: str, when: str) -> None:
    fleet = Fleet(database_url, slice_nodes=0)
    scope = uuid.uuid4()

    async def committed() -> None:
        await async_wait_for(lambda: fleet.one(COUNT) == 1, "the subscription")

    async def scene() -> None:
        async with CuttingProxy(database_url).running() as proxy, working(proxy.url) as (context, _):
            proxy.wait_committed = committed

            async def opened() -> int:
                return await open_subscription(
                    context, scope, "mine", 0, tenant_id=None,
                    retention=SubscriptionRetention(60.0, 10), subscriptions_max=5,
                )  # fmt: skip

            proxy.arm(when)
            with pytest.raises(DatabaseUnavailable) as lost:
                await opened()
            assert (lost.value.code, proxy.cuts) == ("database_unavailable", 1)
            assert "key" not in str(lost.value.detail)
            assert await opened() == 0

    asyncio.run(scene())
    assert fleet.one(COUNT) == 1
