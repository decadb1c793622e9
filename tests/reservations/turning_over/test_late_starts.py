"""A start by itself whose node is silent: moved, or given a bounded time, and then failed with a reason."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from uuid import UUID

from orchestrator.operations.execution import Limits
from orchestrator.reservations.commands.expire import end_window
from orchestrator.reservations.commands.postpone import fail_reservation, postpone_start
from tests.allocations.driving import row_of, rows_of
from tests.allocations.seeding import connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import events_of, starting, violations
from tests.verifying import broken_promises
from worker.sweepers.reservation_starter import ReservationStarter

WAIT_SECONDS = 600.0
LIMITS = Limits(units_seconds_max=WAIT_SECONDS)


def execute(url: str, statement: str, *values: object) -> None:
    with connect(url) as connection:
        connection.execute(statement.encode(), values)


def starter(client: ReservationClient, limit: int = 10) -> ReservationStarter:
    return ReservationStarter(client.context, client.catalogue, limit)


def silence(url: str, reservation: UUID, online: bool = False) -> UUID:
    """The node of its first claim is not heard of, or is again."""
    node: UUID = row_of(url, "select node_id from claims where owner_id = %s order by id limit 1", reservation)[
        "node_id"
    ]
    execute(url, "update nodes set online = %s where id = %s", online, node)
    return node


def run_out(url: str, reservation: UUID) -> None:
    """The time that it may wait is over."""
    execute(url, "update reservations set waits_until = clock_timestamp() where id = %s", reservation)


def test_it_waits_for_a_silent_node_and_then_fails(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, each=8)
        silence(database_url, made)
        before = row_of(database_url, "select * from claims where owner_id = %s", made)
        version = row_of(database_url, "select row_version from reservations where id = %s", made)["row_version"]
        await asyncio.gather(*(starter(client).start_due() for _ in range(3)))
        row = row_of(database_url, "select * from reservations where id = %s", made)
        assert (row["state"], row["waits_for"]) == ("confirmed", "node")
        assert row["waits_until"] - row["waits_since"] == timedelta(seconds=WAIT_SECONDS)
        assert row["waits_since"] >= row["starts_at"]
        assert row["row_version"] == version + 1
        for _ in range(2):
            await starter(client).start_due()
            await starter(client).start_late()
            assert not await fail_reservation(client.context, made)
        assert row_of(database_url, "select * from reservations where id = %s", made) == row, "its time does not grow"
        assert row_of(database_url, "select * from claims where owner_id = %s", made) == before
        waiting = row_of(database_url, "select payload from outbox where event_type = 'reservation.waiting'")["payload"]
        assert waiting["reason"] == "the node is offline"
        assert waiting["waits_until"].startswith(row["waits_until"].strftime("%Y-%m-%dT%H:%M:%S.%f"))
        run_out(database_url, made)
        await starter(client).start_due()
        row = row_of(database_url, "select * from reservations where id = %s", made)
        assert (row["state"], row["failure_code"], row["waits_for"]) == ("cancelled", "resource_out_of_service", None)
        assert "the node is offline" in row["failure_detail"]
        payload = row_of(database_url, "select payload from outbox where event_type = 'reservation.failed'")["payload"]
        assert (payload["code"], payload["detail"]) == (row["failure_code"], row["failure_detail"])
        assert events_of(database_url, f"reservations/{made}") == [
            "reservation.held", "reservation.confirmed", "reservation.waiting", "reservation.failed",
        ]  # fmt: skip
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0
        assert not await postpone_start(client.context, made)

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []


def test_it_starts_at_the_next_heartbeat_of_its_node(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, count=2, each=2)
        node = silence(database_url, made)
        await starter(client).start_due()
        assert client.state(made) == "confirmed"
        silence(database_url, made, online=True)
        await starter(client).start_late()
        assert client.state(made) == "consumed"
        assert rows_of(database_url, "select distinct node_id, state from allocations") == [(node, "requested")]
        assert not await postpone_start(client.context, made)

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []


def test_it_is_moved_when_an_equal_node_becomes_free(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, each=8)
        (other,) = {node.id for node in seeded.nodes if node.shape == "gpu_slice"} - {silence(database_url, made)}
        held = await client.held(f"node:{other}")
        await starter(client).start_due()
        assert client.state(made) == "confirmed"
        await client.cancel(held)
        await starter(client).start_late()
        assert client.state(made) == "consumed"
        assert rows_of(database_url, "select node_id from allocations") == [(other,)]
        assert events_of(database_url, f"reservations/{made}")[2:] == [
            "reservation.waiting", "reservation.moved", "reservation.consumed",
        ]  # fmt: skip

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []
    # Once the log is truncated, no event shows that its right to these units began after the rival's had ended.
    execute(database_url, "delete from outbox where event_type = 'reservation.moved'")
    assert "P1" not in broken_promises(database_url)


def test_what_an_operator_took_out_of_service_is_not_waited_for(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)

    async def way(client: ReservationClient) -> None:
        words = [
            ("update nodes set state = 'cordoned' where id = %s", "the node is cordoned"),
            ("update slots set state = 'out_of_service' where node_id = %s and slot_index = 3", "the node is offline"),
        ]
        for before, (word, detail) in itertools.product((False, True), words):
            made = await starting(client, each=8)
            node = silence(database_url, made)
            if before:
                await starter(client).start_due()
                assert client.state(made) == "confirmed"
            execute(database_url, word, node)
            await (starter(client).start_late() if before else starter(client).start_due())
            row = row_of(database_url, "select state, failure_detail from reservations where id = %s", made)
            assert row["state"] == "cancelled"
            assert detail in row["failure_detail"]
            execute(database_url, "update nodes set state = 'active', online = true where id = %s", node)
            execute(database_url, "update slots set state = 'in_service' where node_id = %s", node)
            execute(database_url, "select refresh_node_fit(%s)", node)

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []


def test_an_operators_word_on_one_of_its_nodes_is_enough(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, count=2, each=8)
        silent = silence(database_url, made)
        execute(database_url, "update nodes set state = 'cordoned' where id <> %s", silent)
        await starter(client).start_due()
        assert client.state(made) == "cancelled"

    as_client(database_url, seeded, way, limits=LIMITS)


def test_its_window_is_over_before_the_wait_is(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=1)
    times = "starts_at = starts_at - interval '1 h', ends_at = ends_at - interval '1 h'"

    async def way(client: ReservationClient) -> None:
        ends_at = row_of(database_url, "select clock_timestamp() + interval '5 min' as at")["at"]
        made = await starting(client, each=8, ends_at=ends_at)
        silence(database_url, made)
        await starter(client).start_due()
        row = row_of(database_url, "select waits_until, ends_at from reservations where id = %s", made)
        assert row["waits_until"] == row["ends_at"] == ends_at
        execute(database_url, f"update reservations set {times}, waits_until = waits_until - interval '1 h'")
        await starter(client).start_due()
        assert client.state(made) == "confirmed", "it is over, which another sweeper says"
        assert await end_window(client.context, made)
        row = row_of(database_url, "select state, failure_code from reservations where id = %s", made)
        assert (row["state"], row["failure_code"]) == ("cancelled", "resource_out_of_service")
        assert events_of(database_url, f"reservations/{made}")[-1] == "reservation.failed"

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []


def test_items_that_wait_in_vain_hide_no_other(database_url: str) -> None:
    """Of three waiting reservations each sweep tries one; the node of the last is back."""
    seeded = seed_with_seats(database_url, slice_nodes=3)

    async def way(client: ReservationClient) -> None:
        made = [await starting(client, each=8) for _ in range(3)]
        for one in made:
            silence(database_url, one)
        await starter(client).start_due()
        assert [client.state(one) for one in made] == ["confirmed"] * 3
        silence(database_url, made[2], online=True)
        turns = starter(client, limit=1)
        for _ in range(4):
            await turns.start_late()
        assert [client.state(one) for one in made] == ["confirmed", "confirmed", "consumed"]
        silence(database_url, made[0], online=True)
        for _ in range(3):
            await turns.start_late()
        assert [client.state(one) for one in made] == ["consumed", "confirmed", "consumed"], "and round again"

    as_client(database_url, seeded, way, limits=LIMITS)
    assert violations(database_url) == []
