"""A reservation that was cancelled in the lost interval of a restore neither starts by itself nor is consumed."""

from __future__ import annotations

import json

from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.reservations.queries import find_due_starts
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from tests.reservations.turning_over.consuming import code_of, consume, starting, violations
from worker.restores.sweeping import sweep_replays
from worker.sweepers.reservation_starter import ReservationStarter

CANCELLED = """
with made as (insert into restores (written_by, leader_id, head_version, without_export, closed_at)
              values ('1', '1', 1, 'none', clock_timestamp()) returning epoch)
insert into restore_replays (epoch, kind, subject_id, version, ended_at)
select epoch, 'cancel', %s, 1, clock_timestamp() from made
"""


def test_a_cancelled_reservation_never_starts_again(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        cancelled, other = await starting(client, count=2), await starting(client)
        with connect(database_url) as connection:
            connection.execute(CANCELLED, (cancelled,))
        assert await find_due_starts(client.context, 1) == [other], "it takes no place in the batch of another"
        assert await start_reservation(client.context, client.catalogue, cancelled) is Started.NOT_DUE
        refused = await consume(client, cancelled)
        assert code_of(refused) == "invalid_state"
        assert json.loads(refused.body)["state"] == "cancelled"
        with connect(database_url) as connection:  # it waits for a node, as it did at the moment of the restore
            connection.execute("update reservations set waits_for = 'node' where id = %s", (cancelled,))
        starter = ReservationStarter(client.context, client.catalogue, 10)
        await starter.start_due()
        await starter.start_late()
        await sweep_replays(client.context, 10)
        assert (client.state(cancelled), client.state(other)) == ("cancelled", "consumed")
        assert rows_of(database_url, "select reservation_id from allocations order by id") == [(other,)]
        assert rows_of(database_url, "select outcome from restore_replays order by subject_id") == [("done",)]
        assert await start_reservation(client.context, client.catalogue, cancelled) is Started.NOT_DUE

    as_client(database_url, seeded, way)
    assert violations(database_url) == []
