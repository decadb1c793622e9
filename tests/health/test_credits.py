"""Time without service as lines of the ledger: once per outage, within metered time, never twice, by the operator's rule."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from node_agent.wire.guests import GuestReport
from orchestrator.allocations.commands.health import pass_health_deadline
from orchestrator.billing.store.metering import Credit, credit
from orchestrator.nodes.commands.heartbeat import mark_node_offline
from orchestrator.operations.execution import Context
from tests.allocations.driving import allocation_of, provision, release, row_of, rows_of, run_with
from tests.allocations.reconciling import kept
from tests.allocations.seeding import PRICE, Seeded, connect, create_allocation, seed
from tests.consumers.metered import meter_all
from tests.health.sights import SILENT_SECONDS, fall_silent, pass_time, see
from worker.metering.meter import CreditRule, credit_of

DOWN, ENDED, RUNNING = GuestReport.DOWN, GuestReport.ENDED, GuestReport.RUNNING


def _active(url: str) -> tuple[Seeded, uuid.UUID, uuid.UUID]:
    seeded = seed(url)
    mine = create_allocation(url, seeded, gpus=2)
    run_with(url, lambda context: provision(context, url, mine))
    return seeded, mine, seeded.nodes[0].id


def _credits(url: str) -> list[dict[str, Any]]:
    rows = rows_of(url, "select to_jsonb(l) from ledger l where kind = 'credit' order by id")
    return [row[0] for row in rows]


def _cost(url: str, allocation_id: uuid.UUID, starts_at: Any, ends_at: Any) -> int:
    """What this part of the active time costs, computed by whole microseconds since its beginning."""
    begin = allocation_of(url, allocation_id)["active_at"]
    until = [(at - begin) // timedelta(microseconds=1) for at in (starts_at, ends_at)]
    first, second = (2 * PRICE * microseconds // 1_000_000 for microseconds in until)
    return int(second - first)


def test_an_outage_is_credited_from_the_last_proof_of_life_until_the_recovery(database_url: str) -> None:
    seeded, mine, node = _active(database_url)

    async def way(context: Context) -> Any:
        proof = await see(context, node, (mine, RUNNING))
        await see(context, node, (mine, DOWN))
        await see(context, node, (mine, RUNNING))
        return proof

    proof = run_with(database_url, way)
    meter_all(database_url)
    line = row_of(database_url, "select * from ledger where kind = 'credit'")
    recovered = row_of(
        database_url,
        "select (payload ->> 'recovered_at')::timestamptz as at, version from log where event_type = 'allocation.recovered'",
    )
    assert (line["starts_at"], line["ends_at"], line["version"]) == (proof, recovered["at"], recovered["version"])
    assert line["amount_micro_units"] == _cost(database_url, mine, proof, recovered["at"]) > 0
    balance = row_of(database_url, "select * from balances where tenant_id = %s", seeded.tenant_id)
    assert balance["settled_micro_units"] == line["amount_micro_units"]
    meter_all(database_url)
    assert len(_credits(database_url)) == 1
    assert kept(database_url) == []


def test_outages_in_a_row_never_credit_a_time_twice_and_a_release_ends_the_last(database_url: str) -> None:
    seeded, mine, node = _active(database_url)

    async def way(context: Context) -> None:
        for state in (DOWN, RUNNING, DOWN, ENDED, RUNNING, DOWN):
            await see(context, node, (mine, state))
        await release(context, seeded, mine)

    run_with(database_url, way)
    meter_all(database_url, batch_max=1)
    lines = rows_of(
        database_url, "select starts_at, ends_at, amount_micro_units from ledger where kind = 'credit' order by id"
    )
    assert len(lines) == 3
    row = allocation_of(database_url, mine)
    assert lines[0][0] == row["active_at"], "no inventory proved life before"
    assert lines[2][1] == row["releasing_at"]
    assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(lines))
    assert [amount for *_, amount in lines] == [_cost(database_url, mine, since, until) for since, until, _ in lines]
    usage = row_of(database_url, "select amount_micro_units as cost from ledger where kind = 'usage'")["cost"]
    assert sum(amount for *_, amount in lines) <= usage
    assert kept(database_url) == []


def test_one_batch_of_outages_is_credited_as_many_batches_are(database_url: str) -> None:
    _, mine, node = _active(database_url)

    async def way(context: Context) -> None:
        for state in (DOWN, RUNNING, DOWN, RUNNING):
            await see(context, node, (mine, state))

    run_with(database_url, way)
    meter_all(database_url)
    first, second = _credits(database_url)
    assert second["starts_at"] >= first["ends_at"]
    assert kept(database_url) == []


def test_a_redelivered_end_and_a_time_outside_of_the_metered_credit_nothing(database_url: str) -> None:
    _, mine, node = _active(database_url)

    async def way(context: Context) -> None:
        for state in (DOWN, RUNNING):
            await see(context, node, (mine, state))

    run_with(database_url, way)
    meter_all(database_url)
    (line,) = _credits(database_url)
    begin = allocation_of(database_url, mine)["active_at"]
    again = Credit(mine, line["starts_at"], line["ends_at"], line["version"])
    before = Credit(mine, str(begin - timedelta(hours=2)), str(begin - timedelta(hours=1)), line["version"] + 1)

    async def deliver() -> list[int]:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            return [await credit(connection, [due]) for due in (again, before)]

    assert asyncio.run(deliver()) == [0, 0]
    assert _credits(database_url) == [line]


def test_no_credit_begins_before_the_metered_time(database_url: str) -> None:
    _, mine, _ = _active(database_url)
    meter_all(database_url)
    begin = allocation_of(database_url, mine)["active_at"]
    due = Credit(mine, str(begin - timedelta(hours=2)), str(begin + timedelta(microseconds=5)), 10_000)

    async def deliver() -> int:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            return await credit(connection, [due])

    assert asyncio.run(deliver()) == 1
    (line,) = rows_of(database_url, "select starts_at, ends_at from ledger where kind = 'credit'")
    assert tuple(line) == (begin, begin + timedelta(microseconds=5))


@pytest.mark.parametrize("is_released", [False, True])
def test_a_guest_that_stays_ended_is_credited_until_it_counts_as_lost(database_url: str, is_released: bool) -> None:
    seeded, mine, node = _active(database_url)

    async def way(context: Context) -> Any:
        await see(context, node, (mine, DOWN))
        await see(context, node, (mine, ENDED))
        lost_at = allocation_of(database_url, mine)["lost_at"]
        if is_released:
            await release(context, seeded, mine)
        else:
            await see(context, node, (mine, RUNNING))
        return lost_at

    lost_at = run_with(database_url, way)
    meter_all(database_url)
    line = row_of(database_url, "select * from ledger where kind = 'credit'")
    row = allocation_of(database_url, mine)
    assert (line["starts_at"], line["ends_at"]) == (row["active_at"], lost_at)
    assert row["lost_at"] is None
    assert kept(database_url) == []


@pytest.mark.parametrize("is_released", [False, True])
def test_a_guest_that_ran_and_did_not_answer_is_credited_nothing(database_url: str, is_released: bool) -> None:
    """Its tenant may have closed the port."""
    seeded, mine, node = _active(database_url)

    async def way(context: Context) -> None:
        await see(context, node, (mine, RUNNING))
        await see(context, node, (mine, GuestReport.UNREACHABLE))
        if is_released:
            await release(context, seeded, mine)
        else:
            await see(context, node, (mine, RUNNING))

    run_with(database_url, way)
    meter_all(database_url)
    assert _credits(database_url) == []
    assert kept(database_url) == []


def test_the_silence_of_a_node_is_credited_until_the_end(database_url: str) -> None:
    _, mine, node = _active(database_url)
    fall_silent(database_url, node)

    async def way(context: Context) -> None:
        assert await mark_node_offline(context, node, SILENT_SECONDS)
        pass_time(database_url, mine)
        assert await pass_health_deadline(context, mine) == "lost"
        await see(context, node, (mine, RUNNING))

    run_with(database_url, way)
    meter_all(database_url)
    line = row_of(database_url, "select * from ledger where kind = 'credit'")
    payload = (
        "select (payload ->> 'recovered_at')::timestamptz as at from log where event_type = 'allocation.recovered'"
    )
    assert line["ends_at"] == row_of(database_url, payload)["at"]


@pytest.mark.parametrize(("rule", "begins"), [("last_proof_of_life", "proof"), ("noticed", "since"), ("none", None)])
def test_the_operator_chooses_from_when_on_an_outage_is_credited(
    database_url: str, rule: CreditRule, begins: str | None
) -> None:
    _, mine, node = _active(database_url)

    async def way(context: Context) -> None:
        for state in (RUNNING, DOWN, RUNNING):
            await see(context, node, (mine, state))

    run_with(database_url, way)
    with connect(database_url) as database:
        payload = database.execute("select payload from outbox where event_type = 'allocation.recovered'").fetchone()
    assert payload is not None
    due = credit_of("allocation.recovered", payload[0], 7, rule)
    expected = {"proof": payload[0]["last_proof_of_life_at"], "since": payload[0]["since"], None: None}[begins]
    assert (None if due is None else due.starts_at) == expected
