"""Units reserved as a SKU can be used after the SKU was retired."""

from __future__ import annotations

import json

import pytest

from tests.allocations.driving import row_of, rows_of
from tests.allocations.seeding import SLICE_SKU, connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import code_of, consume, consumed, gpus, starting, violations
from worker.sweepers.reservation_starter import ReservationStarter

WITHDRAWN = {
    "retired": "update skus set state = 'retired', row_version = row_version + 1",
    "not by so many": "update skus set allowed_counts = '{8}', row_version = row_version + 1",
}


@pytest.mark.parametrize("change", WITHDRAWN)
def test_what_was_sold_becomes_allocations(database_url: str, change: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=3)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(1, 2))
        confirmed = await client.held(wanted=gpus(2, 2))
        await client.confirm(confirmed)
        by_itself, moved = await starting(client, each=2), await starting(client, each=4)
        node = row_of(database_url, "select node_id from claims where owner_id = %s", moved)["node_id"]
        with connect(database_url) as connection:
            connection.execute(WITHDRAWN[change].encode())
            connection.execute("update nodes set state = 'cordoned' where id = %s", (node,))
        client.catalogue.forget()
        for reservation in (held, confirmed, confirmed):
            await consumed(client, reservation)
        await ReservationStarter(client.context, client.catalogue, 10).start_due()
        for reservation in (held, confirmed, by_itself, moved):
            assert client.state(reservation) == "consumed"
        assert rows_of(database_url, "select gpus, sku from allocations order by gpus") == [
            (gpus_, SLICE_SKU) for gpus_ in (2, 2, 2, 2, 4)
        ]
        assert rows_of(database_url, "select from outbox where event_type = 'reservation.moved'") == [()]
        assert code_of(await client.hold(wanted=gpus(1, 2))) == "sku_unavailable", "a retired SKU is refused"

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_what_was_named_is_sold_when_it_is_turned_over(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        named = await client.held(client.slot(0))
        with connect(database_url) as connection:
            connection.execute(WITHDRAWN["retired"].encode())
        client.catalogue.forget()
        refused = await consume(client, named, sku=SLICE_SKU)
        assert code_of(refused) == "sku_unavailable"
        assert json.loads(refused.body)["reason"] == "unknown_sku"
        assert client.state(named) == "hold"

    as_client(database_url, seeded, way)


def test_a_sku_that_means_something_else_now_is_not_what_was_reserved(database_url: str) -> None:
    """It fails with a reason instead of running as what its node is not."""
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        held, by_itself = await client.held(wanted=gpus(1, 2)), await starting(client)
        with connect(database_url) as connection:
            connection.execute("update skus set gpu_model = 'Other', row_version = row_version + 1")
            connection.execute("update images set gpu_models = null, row_version = row_version + 1")
        client.catalogue.forget()
        refused = await consume(client, held)
        assert (code_of(refused), json.loads(refused.body)["reason"]) == ("sku_unavailable", "not_reserved")
        await ReservationStarter(client.context, client.catalogue, 10).start_due()
        row = row_of(database_url, "select state, failure_code from reservations where id = %s", by_itself)
        assert (row["state"], row["failure_code"]) == ("cancelled", "sku_unavailable")

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
