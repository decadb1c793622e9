"""What begins and ends by itself: templates at their start, moves, failures, notices, ends (docs/reference/reservations.md)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from uuid import UUID

from orchestrator.allocations.commands.notify_expiry import notify_expiry
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.operations.execution import Limits
from orchestrator.reservations.commands.cancel import cancel_reservation
from orchestrator.reservations.commands.move import move_reservation
from orchestrator.reservations.commands.start import Started, start_reservation
from orchestrator.verification import run_checks
from tests.allocations.driving import (
    TENANT,
    allocation_of,
    claim_of,
    clean_up,
    provision,
    release,
    row_of,
    rows_of,
    transitions_of,
)
from tests.allocations.seeding import connect, create_allocation
from tests.reservations.holding import HOLDER, ReservationClient, as_client, deadlocks, seed_with_seats
from tests.reservations.passing_time import ALMOST, let_come
from tests.reservations.turning_over.consuming import consumed, events_of, gpus, soon, starting, violations
from worker.sweepers.allocation_ends import announce_ends, release_ended
from worker.sweepers.reservation_starter import ReservationStarter


def execute(url: str, statement: str, *values: object) -> None:
    with connect(url) as connection:
        connection.execute(statement.encode(), values)


def starter(client: ReservationClient, limit: int = 10) -> ReservationStarter:
    return ReservationStarter(client.context, client.catalogue, limit)


def test_a_confirmed_one_starts_by_itself_not_before_its_time_and_a_hold_never(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        starts_at, ends_at = soon(300), soon(600)
        made = await starting(client, count=2, each=2, starts_at=starts_at, ends_at=ends_at)
        held = await starting(client, confirm=False)
        assert await start_reservation(client.context, client.catalogue, held) is Started.NOT_DUE
        assert await start_reservation(client.context, client.catalogue, made) is Started.NOT_DUE
        almost = let_come(database_url, starts_at, left=ALMOST)
        await starter(client).start_due()
        assert await start_reservation(client.context, client.catalogue, made) is Started.NOT_DUE
        assert client.state(made) == "confirmed"
        started_at = let_come(database_url, almost)
        await starter(client).start_due()
        assert (client.state(made), client.state(held)) == ("consumed", "hold")
        found = rows_of(database_url, "select id, gpus, name, labels, ends_at, requested_at from allocations")
        assert [row[1:5] for row in found] == [(2, "by itself", {"a": "b"}, ends_at - (starts_at - started_at))] * 2
        assert all(row[5] >= started_at for row in found)
        assert events_of(database_url, f"reservations/{made}")[-1] == "reservation.consumed"
        assert await start_reservation(client.context, client.catalogue, made) is Started.NOT_DUE
        await provision(client.context, database_url, found[0][0])

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_many_sweepers_start_it_once_and_a_cancel_meanwhile_is_whole(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    states: set[str] = set()

    async def way(client: ReservationClient) -> None:
        for n in range(8):
            made = await starting(client, count=2)
            sweeps = [starter(client).start_due() for _ in range(3)]
            cancel = cancel_reservation(
                client.context, client.operation(seeded.tenant_id), TENANT, seeded.tenant_id, made, HOLDER
            )
            order = [cancel, *sweeps] if n % 2 else [*sweeps, cancel]
            await asyncio.gather(*order)
            states.add(client.state(made))
            for (one,) in rows_of(database_url, "select id from allocations where state = 'requested'"):
                await release(client.context, seeded, one)
                await clean_up(client.context, database_url, one)
            assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 0
            assert violations(database_url) == []

    as_client(database_url, seeded, way)
    assert states <= {"consumed", "cancelled"}
    assert deadlocks(database_url) == 0


def test_a_node_out_of_service_at_the_start_is_left_for_an_equal_one(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=3)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, each=4, ends_at=soon(600))
        before = row_of(database_url, "select * from claims where owner_id = %s", made)
        execute(database_url, "update nodes set state = 'cordoned' where id = %s", before["node_id"])
        # Of the two others one has no room in the window, although it is free now.
        others = [node for node in seeded.nodes if node.id != before["node_id"]]
        await client.held(f"node:{others[0].id}", starts_at=soon(300))
        await starter(client).start_due()
        assert client.state(made) == "consumed"
        after = row_of(database_url, "select * from claims where id = %s", before["id"])
        assert (after["owner_kind"], after["node_id"], after["during"]) == (
            "allocation",
            others[1].id,
            before["during"],
        )
        assert events_of(database_url, f"reservations/{made}") == [
            "reservation.held", "reservation.confirmed", "reservation.moved", "reservation.consumed",
        ]  # fmt: skip
        moved = row_of(database_url, "select payload from outbox where event_type = 'reservation.moved'")["payload"]
        assert (moved["from"]["node_id"], moved["to"]["node_id"]) == (str(before["node_id"]), str(others[1].id))
        assert after["fence"] > moved["to"]["fence"] > moved["from"]["fence"] == before["fence"]
        named = row_of(database_url, "select resources from reservations where id = %s", made)["resources"]
        assert [name.split(":")[1] for name in named] == [str(others[1].id)] * 4

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_without_an_equal_node_it_fails_with_a_reason_and_an_event(database_url: str) -> None:
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        made = await starting(client, each=8)
        create_allocation(database_url, seeded)
        execute(
            database_url,
            "update nodes set state = 'draining' where id = (select node_id from claims where owner_id = %s)",
            made,
        )
        await starter(client).start_due()
        row = row_of(database_url, "select * from reservations where id = %s", made)
        assert (row["state"], row["failure_code"]) == ("cancelled", "resource_out_of_service")
        assert "the node is draining" in row["failure_detail"]
        assert events_of(database_url, f"reservations/{made}")[-1] == "reservation.failed"
        payload = row_of(database_url, "select payload from outbox where event_type = 'reservation.failed'")["payload"]
        assert (payload["code"], payload["detail"]) == (row["failure_code"], row["failure_detail"])
        assert row_of(database_url, "select gpus_used from tenant_quotas")["gpus_used"] == 1

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_what_cannot_be_started_anywhere_fails_at_once(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        breaks = {
            "image_unavailable": "update images set state = 'retired', row_version = row_version + 1",
            "ssh_key_not_found": "delete from ssh_keys",
            "balance_depleted": "update tenants set depleted_at = clock_timestamp()",
            "forbidden": "update tenants set state = 'suspended'",
        }
        repairs = {
            "image_unavailable": "update images set state = 'active', row_version = row_version + 1",
            "balance_depleted": "update tenants set depleted_at = null",
        }
        for code, statement in breaks.items():
            made = await starting(client)
            execute(database_url, statement)
            client.catalogue.forget()
            await starter(client).start_due()
            assert client.state(made) == "cancelled", code
            row = row_of(database_url, "select failure_code from reservations where id = %s", made)
            assert row["failure_code"] == code
            if code in repairs:
                execute(database_url, repairs[code])
                client.catalogue.forget()
            if code == "ssh_key_not_found":
                execute(
                    database_url,
                    """insert into ssh_keys (id, tenant_id, name, public_key, fingerprint)
                       values (%s, %s, 'again', 'ssh-ed25519 AAAA', 'SHA256:again')""",
                    seeded.ssh_key_id,
                    seeded.tenant_id,
                )

    as_client(database_url, seeded, way)
    assert rows_of(database_url, "select count(*) from allocations") == [(0,)]
    assert violations(database_url) == []


def test_the_place_that_it_is_moved_to_may_have_been_another_s(database_url: str) -> None:
    """`berth verify` knows from when on it is there."""
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        made = await client.held(wanted=gpus(1, 8))
        await client.confirm(made)
        mine = row_of(database_url, "select node_id from claims where owner_id = %s", made)["node_id"]
        earlier = await client.held(*(f"slot:{node.id}:3" for node in seeded.nodes if node.id != mine))
        await client.cancel(earlier)
        execute(database_url, "update nodes set state = 'cordoned' where id = %s", mine)
        assert await move_reservation(client.context, client.catalogue, made)
        assert check_rights(database_url) == []
        execute(database_url, "select log_advance(100)")
        assert check_rights(database_url) == []
        # If the earlier right had lasted until after the move:
        execute(database_url, "update claims set closed_at = clock_timestamp() where owner_id = %s", earlier)
        execute(database_url, "update reservations set ended_at = clock_timestamp() where id = %s", earlier)
        assert len(check_rights(database_url)) == 1

    as_client(database_url, seeded, way)


def check_rights(url: str) -> list[str]:
    return [sentence for verdict in run_checks(url) if verdict.promise == "P1" for sentence in verdict.violations]


def test_rivals_for_the_place_that_it_is_moved_to(database_url: str) -> None:
    """Concurrent moves and holds: no unit is shared, nothing deadlocks, and each slot is taken once."""
    seeded = seed_with_seats(database_url, slice_nodes=3)

    async def way(client: ReservationClient) -> None:
        made = [await starting(client, each=4) for _ in range(2)]
        nodes = {row[0] for row in rows_of(database_url, "select node_id from claims")}
        for node in nodes:
            execute(database_url, "update nodes set state = 'cordoned' where id = %s", node)
        moved, answers = await asyncio.gather(
            asyncio.gather(*(move_reservation(client.context, client.catalogue, one) for one in made * 2)),
            asyncio.gather(*(client.hold(wanted=gpus(1, 4)) for _ in range(4))),
        )
        places = sum(moved) + sum(answer.status == 201 for answer in answers)
        assert places == 2 * (3 - len(nodes))
        assert violations(database_url) == []

    as_client(database_url, seeded, way)
    assert deadlocks(database_url) == 0


def test_an_allocation_is_warned_once_and_released_at_its_end(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def way(client: ReservationClient) -> None:
        ends_at = soon(50)
        far = await consumed(client, await client.held(wanted=gpus(), ends_at=soon(3_000)))
        near = await consumed(client, await client.held(wanted=gpus(), ends_at=ends_at))
        await provision(client.context, database_url, near)
        for _ in range(2):
            await asyncio.gather(*(announce_ends(client.context, 10) for _ in range(3)))
        await release_ended(client.context, 10)
        assert allocation_of(database_url, near)["state"] == "active"
        told_ = rows_of(database_url, "select subject, payload from outbox where event_type = 'reservation.ending'")
        assert [row[0] for row in told_] == [f"allocations/{near}"]
        assert datetime.fromisoformat(told_[0][1]["ends_at"]) == ends_at
        assert not await release_at_end(client.context, far)
        almost = let_come(database_url, ends_at, left=ALMOST)
        await release_ended(client.context, 10)
        assert not await release_at_end(client.context, near)
        assert allocation_of(database_url, near)["state"] == "active"
        let_come(database_url, almost)
        assert not await notify_expiry(client.context, near)
        await asyncio.gather(*(release_ended(client.context, 10) for _ in range(3)))
        assert transitions_of(database_url, near)[-1] == "releasing"
        actor = row_of(
            database_url,
            "select actor_kind, actor_id from allocation_timeline where allocation_id = %s and to_state = 'releasing'",
            near,
        )
        assert actor == {"actor_kind": "tenant", "actor_id": "ends_at"}
        assert events_of(database_url, f"allocations/{near}").count("provisioning.releasing.requested") == 1
        assert allocation_of(database_url, far)["state"] == "requested"
        await clean_up(client.context, database_url, near)

    as_client(database_url, seeded, way, limits=Limits(ending_notice_seconds=60))
    assert violations(database_url) == []


def test_an_end_that_no_worker_carried_out_comes_late_and_in_every_state(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    ids = [create_allocation(database_url, seeded) for _ in range(4)]
    requested, provisioning, active, over = ids

    async def way(client: ReservationClient) -> None:
        await begin_provisioning(client.context, provisioning, "wf")
        await provision(client.context, database_url, active)
        await release(client.context, seeded, over)
        execute(
            database_url,
            "update allocations set ends_at = clock_timestamp() - interval '1 day' where id = any(%s)",
            ids,
        )
        await announce_ends(client.context, 10)
        await release_ended(client.context, 2)
        await release_ended(client.context, 2)
        for one in (requested, provisioning, active):
            assert transitions_of(database_url, one)[-1] == "releasing"
        assert transitions_of(database_url, over).count("releasing") == 1
        assert rows_of(database_url, "select from node_tasks where state in ('queued', 'dispatched')") == []
        assert rows_of(database_url, "select from outbox where event_type = 'reservation.ending'") == []

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_what_was_begun_and_not_used_is_moved_from_a_silent_node(database_url: str) -> None:
    """Its tenant asks later, and finds it on a node that works."""
    seeded = seed_with_seats(database_url, slice_nodes=2)

    async def way(client: ReservationClient) -> None:
        held = await client.held(wanted=gpus(1, 4))
        await client.confirm(held)
        named = await client.held(client.slot(7, 0), client.slot(7, 1))
        await client.confirm(named)
        stays = rows_of(database_url, "select * from claims where owner_id = %s order by id", named)
        node: UUID = row_of(database_url, "select node_id from claims where owner_id = %s", held)["node_id"]
        execute(database_url, "update nodes set online = false where id = %s", node)
        await starter(client).move_stranded()
        made = await consumed(client, held)
        assert claim_of(database_url, made)["node_id"] != node
        assert rows_of(database_url, "select * from claims where owner_id = %s order by id", named) == stays

    as_client(database_url, seeded, way)
    assert violations(database_url) == []


def test_far_ends_are_announced_when_they_come_near(database_url: str) -> None:
    seeded = seed_with_seats(database_url)
    made = create_allocation(database_url, seeded)

    async def way(client: ReservationClient) -> None:
        for seconds, told_ in ((120, False), (50, True), (40, False)):
            execute(database_url, "update allocations set ends_at = %s where id = %s", soon(seconds), made)
            assert await notify_expiry(client.context, made) is told_

    as_client(database_url, seeded, way, limits=Limits(ending_notice_seconds=60))
