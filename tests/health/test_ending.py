"""The end of an outage (P9): degraded becomes lost, lost is released by policy; of recovery and release exactly one wins."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from node_agent.wire.guests import GuestReport
from orchestrator.allocations.commands.health import pass_health_deadline
from orchestrator.allocations.queries import find_past_health_deadline
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import allocation_of, provision, release, rows_of, run_with
from tests.allocations.seeding import Seeded, create_allocation, seed
from tests.health.sights import contact, health_events, health_of, pass_time, see
from worker.sweepers.health import sweep_health

DOWN, ENDED, RUNNING = GuestReport.DOWN, GuestReport.ENDED, GuestReport.RUNNING


def _unhealthy(url: str, state: GuestReport, limits: Limits | None = None) -> tuple[Seeded, uuid.UUID, uuid.UUID]:
    seeded = seed(url)
    mine = create_allocation(url, seeded)
    node = seeded.nodes[0].id

    async def down(context: Context) -> None:
        await provision(context, url, mine)
        await see(context, node, (mine, state))

    run_with(url, down, limits=limits)
    return seeded, mine, node


def _releases(url: str, allocation_id: uuid.UUID) -> list[Any]:
    return rows_of(
        url,
        "select payload ->> 'reason', payload ->> 'actor_kind' from outbox"
        " where event_type = 'provisioning.releasing.requested' and subject = %s",
        f"allocations/{allocation_id}",
    )


def test_degraded_becomes_lost_and_lost_is_released_each_at_its_deadline(database_url: str) -> None:
    _, mine, _ = _unhealthy(database_url, DOWN)

    async def way(context: Context) -> None:
        assert await find_past_health_deadline(context, 10) == []
        assert await pass_health_deadline(context, mine) is None
        pass_time(database_url, mine)
        await sweep_health(context, 10)
        assert health_of(database_url, mine) == ("lost", "guest_down")
        await sweep_health(context, 10)
        row = allocation_of(database_url, mine)
        assert row["state"] == "active"
        assert timedelta(hours=23) < row["health_until"] - row["health_since"] < timedelta(hours=25)
        pass_time(database_url, mine)
        await sweep_health(context, 10)
        assert await pass_health_deadline(context, mine) is None

    run_with(database_url, way)
    assert allocation_of(database_url, mine)["state"] == "releasing"
    assert health_events(database_url, mine) == ["degraded", "lost"]
    assert _releases(database_url, mine) == [("lost", "admin")]
    assert rows_of(database_url, "select detail ->> 'reason' from audit where action = 'allocation.release'") == [
        ("lost",)
    ]


def test_with_no_bound_a_lost_allocation_is_kept(database_url: str) -> None:
    _, mine, _ = _unhealthy(database_url, ENDED, Limits(lost_release_seconds=0))
    assert allocation_of(database_url, mine)["health_until"] is None
    run_with(database_url, lambda context: sweep_health(context, 10))
    assert allocation_of(database_url, mine)["state"] == "active"


@pytest.mark.parametrize("rival", ["recovery", "tenant"])
def test_the_release_of_a_lost_allocation_and_its_rival_commit_one_change(database_url: str, rival: str) -> None:
    seeded, mine, node = _unhealthy(database_url, ENDED)
    pass_time(database_url, mine)

    async def race(context: Context) -> str | None:
        rivals: dict[str, Callable[[], Awaitable[Any]]] = {
            "recovery": lambda: see(context, node, (mine, RUNNING), after=told),
            "tenant": lambda: release(context, seeded, mine),
        }
        told = await contact(context, node)
        policy, _ = await asyncio.gather(pass_health_deadline(context, mine), rivals[rival]())
        return policy

    policy = run_with(database_url, race)
    reasons = [reason for reason, _ in _releases(database_url, mine)]
    recovered = "recovered" in health_events(database_url, mine)
    if rival == "tenant":
        assert reasons == (["lost"] if policy == "released" else ["requested"])
    else:
        assert reasons == (["lost"] if policy == "released" else [])
        assert recovered == (policy is None)
    assert allocation_of(database_url, mine)["state"] == ("active" if recovered else "releasing")
