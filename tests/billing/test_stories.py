"""A prepaid balance from top-up to depletion: events emitted once, release by billing, top-up again, refusals, rivals."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.billing.commands import evaluate_balance, release_for_billing
from orchestrator.billing.queries import find_balance, find_due_balances
from orchestrator.billing.rules import AMOUNT_MAX, BalanceSnapshot
from orchestrator.operations.execution import Context
from orchestrator.problems import OperationConflict
from orchestrator.verification.billing import check_billing
from orchestrator.verification.verdict import Bounds
from tests.allocations.driving import (
    allocation_of,
    clean_up,
    provision,
    release,
    row_of,
    rows_of,
    run_with,
    transitions_of,
)
from tests.allocations.seeding import Seeded, add_tenant, connect, create_allocation, outcome_of_create, seed
from tests.billing.payments import (
    balance_events,
    cost,
    make_due,
    make_prepaid,
    run_metered,
    run_since,
    top_up,
    withdraw,
)
from tests.consumers.metered import meter_all
from tests.databases import copied_database
from tests.event_payloads import unpromised
from tests.support.rival_sessions import until_waiting
from worker.sweepers.balances import sweep_balances

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def fleet(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[tuple[str, Seeded]]:
    """One database for all tests; each test makes its own tenant."""
    with copied_database(postgres_server, migrated_template) as url:
        yield url, seed(url, slice_nodes=8)


@pytest.fixture
def url(fleet: tuple[str, Seeded]) -> str:
    """Where."""
    return fleet[0]


@pytest.fixture
def tenant(fleet: tuple[str, Seeded]) -> Iterator[Seeded]:
    """Whose; at the end the ledger is exact, and every event says what it promises."""
    url, seeded = fleet
    with connect(url) as database:
        tenant = add_tenant(database, uuid.uuid4().hex)
    tenant.pools, tenant.nodes = seeded.pools, seeded.nodes
    yield tenant
    meter_all(url)
    assert unpromised(url) == []
    with psycopg.connect(url) as checked:
        assert check_billing(checked, Bounds()).violations == []


def standing(url: str, tenant: Seeded) -> BalanceSnapshot:
    return run_with(url, lambda context: find_balance(context.database, tenant.tenant_id))


def sweep(url: str) -> None:
    run_with(url, lambda context: sweep_balances(context, 50))


def begins(url: str, tenant: Seeded) -> str:
    """What becomes of a create."""
    with connect(url) as database:
        return outcome_of_create(database, tenant)


def require_released_by_billing(url: str, allocation_id: uuid.UUID) -> None:
    """Timeline, event and audit name billing and the depleted balance."""
    assert transitions_of(url, allocation_id)[-1] == "releasing"
    (actor,) = rows_of(
        url,
        "select actor_kind, actor_id from allocation_timeline where allocation_id = %s and to_state = 'releasing'",
        allocation_id,
    )
    assert actor == ("billing", "balance_depleted")
    (event,) = rows_of(
        url,
        "select payload from outbox where subject = %s and event_type = 'provisioning.releasing.requested'",
        f"allocations/{allocation_id}",
    )
    assert (event[0]["actor_kind"], event[0]["reason"]) == ("billing", "balance_depleted")
    audited = rows_of(
        url, "select principal_kind, action from audit where subject = %s", f"allocations/{allocation_id}"
    )
    assert audited == [("billing", "allocation.release")]


def test_from_the_first_top_up_to_the_last_unit(url: str, tenant: Seeded) -> None:
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(5_000)))
    balance = run_with(url, lambda context: make_prepaid(context, tenant.tenant_id, cost(1_000)))
    assert balance["available_micro_units"] == cost(5_000) == balance["settled_micro_units"]
    first = run_metered(url, tenant, HOUR)
    sweep(url)
    found = standing(url, tenant)
    assert (found.low_told_at, found.depleted_at, found.running, found.rate) == (None, None, 1, cost(1))
    assert found.available == cost(5_000) - found.accruing
    assert found.accruing >= cost(3_600)
    assert found.runs_out_at is not None
    assert abs((found.runs_out_at - found.at).total_seconds() - found.available / found.rate) < 0.001

    second = run_metered(url, tenant, timedelta(seconds=600))
    sweep(url)
    assert balance_events(url, tenant.tenant_id) == ["low"]
    make_due(url, tenant.tenant_id)
    sweep(url)
    assert balance_events(url, tenant.tenant_id) == ["low"], "once"
    assert allocation_of(url, first)["state"] == "active"

    third = run_metered(url, tenant, HOUR)
    begun = create_allocation(url, tenant)
    sweep(url)
    assert balance_events(url, tenant.tenant_id) == ["low", "depleted"]
    for allocation_id in (first, second, third):
        require_released_by_billing(url, allocation_id)
    assert allocation_of(url, begun)["state"] == "requested", "it is released when it has become active"
    meter_all(url)
    sweep(url)
    assert balance_events(url, tenant.tenant_id) == ["low", "depleted"]
    assert row_of(url, "select look_at from balances where tenant_id = %s", tenant.tenant_id)["look_at"] is None

    # What was begun before becomes active, is metered, and goes.
    run_with(url, lambda context: provision(context, url, begun))
    meter_all(url)
    sweep(url)
    assert allocation_of(url, begun)["state"] == "releasing"
    meter_all(url)
    final = standing(url, tenant)
    assert (final.accruing, final.running) == (0, 0)
    assert final.available == final.settled < 0

    # Too little lifts nothing, enough lifts it; what ended stays ended.
    run_with(url, lambda context: top_up(context, tenant.tenant_id, -final.settled))
    assert standing(url, tenant).available == 0
    assert begins(url, tenant) == "depleted"
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(2_000)))
    lifted = standing(url, tenant)
    assert (lifted.depleted_at, lifted.low_told_at) == (None, None)
    assert begins(url, tenant) == "created"
    assert allocation_of(url, first)["state"] == "releasing"
    # The balance drops again, which emits another event.
    run_with(url, lambda context: withdraw(context, tenant.tenant_id, cost(1_500)))
    assert balance_events(url, tenant.tenant_id) == ["low", "depleted", "low"]


def test_no_tenant_is_made_prepaid_whose_allocations_would_end_at_once(url: str, tenant: Seeded) -> None:
    running = run_metered(url, tenant, HOUR)
    assert run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))["code"] == "balance_insufficient"
    sweep(url)
    assert allocation_of(url, running)["state"] == "active"
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(7_200)))
    assert run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))["prepaid"]
    run_with(url, lambda context: withdraw(context, tenant.tenant_id, cost(7_200)))
    assert balance_events(url, tenant.tenant_id) == ["depleted"]
    postpaid = run_with(url, lambda context: make_prepaid(context, tenant.tenant_id, prepaid=False))
    assert (postpaid["depleted_at"], postpaid["prepaid"]) == (None, False)
    make = "update balances set look_at = null where tenant_id = %s"
    with connect(url) as database:
        database.execute(make, (tenant.tenant_id,))
    sweep(url)
    assert allocation_of(url, running)["state"] == "active"
    assert begins(url, tenant) == "created"


def test_new_and_prepaid_with_nothing_begins_nothing(url: str, tenant: Seeded) -> None:
    assert run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))["depleted_at"] is not None
    assert balance_events(url, tenant.tenant_id) == ["depleted"]
    assert begins(url, tenant) == "depleted"


def test_a_key_pays_once_however_long_ago(url: str, tenant: Seeded) -> None:
    key = uuid.uuid4().hex
    first = run_with(url, lambda context: top_up(context, tenant.tenant_id, 5, key))
    again = run_with(url, lambda context: top_up(context, tenant.tenant_id, 5, key))
    assert (again.body, again.replayed) == (first.body, True)
    with connect(url) as database:
        database.execute("delete from operations where key = %s", (key,))
    late = run_with(url, lambda context: top_up(context, tenant.tenant_id, 5, key))
    assert json.loads(late.body) == json.loads(first.body)
    assert standing(url, tenant).settled == 5
    with connect(url) as database:
        database.execute("delete from operations where key = %s", (key,))
    with pytest.raises(OperationConflict):
        run_with(url, lambda context: top_up(context, tenant.tenant_id, 6, key))
    assert standing(url, tenant).settled == 5


def test_what_it_cannot_hold_is_refused(url: str, tenant: Seeded) -> None:
    run_with(url, lambda context: top_up(context, tenant.tenant_id, AMOUNT_MAX))
    more = run_with(url, lambda context: top_up(context, tenant.tenant_id, 1))
    assert (more.status, json.loads(more.body)["code"]) == (409, "balance_out_of_bounds")
    assert standing(url, tenant).settled == AMOUNT_MAX
    for after in (0, -AMOUNT_MAX):
        assert run_with(url, lambda context: withdraw(context, tenant.tenant_id, AMOUNT_MAX)).status == 201
        assert standing(url, tenant).settled == after
    answer = run_with(url, lambda context: withdraw(context, tenant.tenant_id, 1))
    assert json.loads(answer.body)["code"] == "balance_out_of_bounds"
    audited = rows_of(url, "select action from audit where subject = %s order by id", f"tenants/{tenant.tenant_id}")
    assert [row[0] for row in audited] == ["balance.top_up", "balance.withdrawal", "balance.withdrawal"]


def test_two_sweepers_at_once_announce_and_release_once(url: str, tenant: Seeded) -> None:
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(1)))
    run_with(url, lambda context: make_prepaid(context, tenant.tenant_id, cost(1)))
    ids = [run_since(url, tenant, HOUR) for _ in range(3)]
    meter_all(url)

    async def both(context: Context) -> None:
        await asyncio.gather(*(sweep_balances(context, 2) for _ in range(4)))

    run_with(url, both, pool_size=6)
    make_due(url, tenant.tenant_id)
    run_with(url, both, pool_size=6)
    assert balance_events(url, tenant.tenant_id) == ["low", "depleted"]
    for allocation_id in ids:
        assert transitions_of(url, allocation_id).count("releasing") == 1


@pytest.mark.full
def test_a_top_up_and_the_end_come_one_after_the_other(url: str, tenant: Seeded) -> None:
    """In either order the balance is never depleted, or depleted and lifted; billing releases only while it is depleted."""
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(1)))
    run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))
    seen = set()
    for turn in range(4):
        allocation_id = run_metered(url, tenant, HOUR)
        before = len(balance_events(url, tenant.tenant_id))

        async def race(context: Context, turn: int = turn) -> None:
            rivals = [sweep_balances(context, 50), top_up(context, tenant.tenant_id, cost(100_000))]
            await asyncio.gather(*(rivals if turn % 2 else rivals[::-1]))

        run_with(url, race)
        found = standing(url, tenant)
        assert found.available > 0
        assert found.depleted_at is None
        state = allocation_of(url, allocation_id)["state"]
        depleted = len(balance_events(url, tenant.tenant_id)) - before
        assert depleted in (0, 1)
        assert state == "active" or (state == "releasing" and depleted == 1)
        seen.add((state, depleted))
        assert begins(url, tenant) == "created"
        # Back to nearly nothing for the next turn.
        run_with(url, lambda context: release(context, tenant, allocation_id))  # noqa: B023
        run_with(url, lambda context: clean_up(context, url, allocation_id))  # noqa: B023
        meter_all(url)
        left = standing(url, tenant).settled
        run_with(url, lambda context: withdraw(context, tenant.tenant_id, left - cost(1)))  # noqa: B023
    assert seen


def test_the_lock_of_the_balance_decides(url: str, tenant: Seeded) -> None:
    """A top-up that has its lock and is not committed yet: billing's release waits, and then leaves the allocation alone."""
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(10)))
    run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))
    allocation_id = run_metered(url, tenant, HOUR)

    async def race(context: Context) -> bool:
        assert (await evaluate_balance(context, tenant.tenant_id)).emit_depleted
        async with await psycopg.AsyncConnection.connect(url) as paying_:
            await paying_.execute("select from balances where tenant_id = %s for update", (tenant.tenant_id,))
            releasing = asyncio.create_task(release_for_billing(context, allocation_id))
            await until_waiting(url)
            await paying_.execute("update tenants set depleted_at = null where id = %s", (tenant.tenant_id,))
            await paying_.commit()
            return await releasing

    assert run_with(url, race) is False
    assert allocation_of(url, allocation_id)["state"] == "active"
    sweep(url)
    make_due(url, tenant.tenant_id)
    sweep(url)
    assert allocation_of(url, allocation_id)["state"] == "releasing"


@pytest.mark.full
def test_the_tenants_release_and_billings_are_one(url: str, tenant: Seeded) -> None:
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(1)))
    run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))
    for turn in range(4):
        with connect(url) as database:
            database.execute("update tenants set depleted_at = null where id = %s", (tenant.tenant_id,))
        allocation_id = run_metered(url, tenant, HOUR)

        async def race(context: Context, allocation_id: uuid.UUID = allocation_id, turn: int = turn) -> None:
            await evaluate_balance(context, tenant.tenant_id)
            rivals = [release_for_billing(context, allocation_id), release(context, tenant, allocation_id)]
            await asyncio.gather(*(rivals if turn % 2 else rivals[::-1]))

        run_with(url, race)
        assert transitions_of(url, allocation_id).count("releasing") == 1
        run_with(url, lambda context: clean_up(context, url, allocation_id))  # noqa: B023
        assert run_with(url, lambda context: release_for_billing(context, allocation_id)) is False  # noqa: B023


def test_metering_that_is_behind_neither_hides_nor_invents(url: str, tenant: Seeded) -> None:
    """What was released and has no line yet is counted to its end, not to now."""
    run_with(url, lambda context: top_up(context, tenant.tenant_id, cost(100_000)))
    run_with(url, lambda context: make_prepaid(context, tenant.tenant_id))
    allocation_id = run_metered(url, tenant, HOUR)
    run_with(url, lambda context: release(context, tenant, allocation_id))
    behind = [standing(url, tenant) for _ in range(2)]
    assert behind[0].accruing == behind[1].accruing > 0
    assert (behind[0].running, behind[0].rate) == (0, 0)
    meter_all(url)
    after = standing(url, tenant)
    assert (after.accruing, after.available) == (0, behind[0].available)


def test_a_postpaid_tenant_is_never_looked_at(url: str, tenant: Seeded) -> None:
    allocation_id = run_metered(url, tenant, HOUR)
    due = run_with(url, lambda context: find_due_balances(context, 1_000))
    assert tenant.tenant_id not in due
    sweep(url)
    assert allocation_of(url, allocation_id)["state"] == "active"
    assert standing(url, tenant).settled == 0
