"""Each confirm of a batch is answered as if it were alone, whatever the other items are."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from uuid import UUID

from orchestrator.operations.execution import Result
from orchestrator.operations.store.operations import Answer
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.store.confirming import Confirm
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.reservations.holding import HOLDER, ReservationClient, as_client, seed_with_seats, violations
from tests.support.reservation_lists import code_of, confirm_of, settled
from tests.support.rival_sessions import take_key, until_waiting

KINDS = ("held", "held", "held", "confirmed", "cancelled", "overdue", "unknown", "another tenant's")
KEYS = ("new", "new", "remembered", "of an existing hold")
"""The first confirm's key: a new one, that of a hold with a stored answer, or that of a hold whose answer was deleted."""
ROUNDS = 25


async def stand(client: ReservationClient, kind: str, seat: str, other_tenant: UUID) -> UUID:
    """A reservation of that kind."""
    if kind == "unknown":
        return uuid.uuid4()
    held = await client.held(seat, tenant_id=other_tenant if kind == "another tenant's" else None)
    if kind == "confirmed":
        await client.confirm(held)
    elif kind == "cancelled":
        await client.cancel(held)
    elif kind == "overdue":
        client.set_deadline(held, -1)
    return held


def words(result: Result) -> tuple[str, str | None, bool]:
    """What a client would read, but for names and times."""
    body = json.loads(result.body) if isinstance(result, Answer) else {}
    return code_of(result), body.get("result"), isinstance(result, Answer) and result.replayed


def test_a_list_says_what_each_alone_would(database_url: str) -> None:
    """The same random situation twice: in one the confirms share a transaction, in the other each has its own."""
    seeded = seed_with_seats(database_url, seats=10 * ROUNDS)
    drawn = random.Random(11)
    seats = (f"seat-{number}" for number in range(10 * ROUNDS))
    with connect(database_url) as connection:
        other = uuid.uuid4()
        connection.execute("insert into tenants (id, name) values (%s, 'other')", (other,))
        connection.execute("insert into tenant_quotas (tenant_id, gpus_limit) values (%s, 8)", (other,))

    async def make(
        client: ReservationClient, kinds: list[str], asked: list[tuple[int, str, str]]
    ) -> tuple[list[UUID], list[Confirm]]:
        """Seed reservations and confirm them: which one, by which holder, under which kind of key."""
        ids = [await stand(client, kind, next(seats), other) for kind in kinds]
        prefix = uuid.uuid4().hex
        await client.cancel(await client.held(next(seats), key=f"{prefix} used"))
        if asked[0][2] == "of an existing hold":
            with connect(database_url) as connection:
                connection.execute("delete from operations where key = %s", (f"{prefix} used",))
        keys = [
            f"{prefix} used" if at == 0 and key != "new" else f"{prefix} {at}" for at, (_, _, key) in enumerate(asked)
        ]
        return ids, [
            confirm_of(client, ids[which], holder=holder, key=key)
            for key, (which, holder, _) in zip(keys, asked, strict=True)
        ]

    async def scene(client: ReservationClient) -> None:
        for _ in range(ROUNDS):
            kinds = [drawn.choice(KINDS) for _ in range(drawn.randint(2, 4))]
            asked = [
                (drawn.randrange(len(kinds)), drawn.choice((HOLDER, HOLDER, HOLDER, "other")), drawn.choice(KEYS))
                for _ in range(drawn.randint(2, 8))
            ]
            ids, confirms = await make(client, kinds, asked)
            together = await settled(await confirm_reservation(client.context, confirms))
            others, ones = await make(client, kinds, asked)
            alone = [(await settled(await confirm_reservation(client.context, [one])))[0] for one in ones]
            assert [words(one) for one in together] == [words(one) for one in alone], (kinds, asked)
            for mine, its, kind in zip(ids, others, kinds, strict=True):
                assert kind == "unknown" or client.state(mine) == client.state(its), (kinds, asked)
            again = await settled(await confirm_reservation(client.context, confirms))
            assert [code_of(one) for one in again] == [code_of(one) for one in together]

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []
    under_way = rows_of(database_url, "select key from operations where status is null")
    assert under_way == [], "what was refused leaves no key under way"
    told_twice = rows_of(
        database_url,
        "select subject from outbox where event_type = 'reservation.confirmed' group by subject having count(*) > 1",
    )
    assert told_twice == []


def test_a_list_that_waited_for_a_key_is_judged_by_the_clock_after_it(database_url: str) -> None:
    """A deadline that passes meanwhile is kept, whenever the list was sent (TRAPS: confirmed 2 s late)."""
    seeded = seed_with_seats(database_url, seats=2)

    async def scene(client: ReservationClient) -> None:
        late, other = await client.held("seat-0"), await client.held("seat-1")
        confirms = [confirm_of(client, late, key="a"), confirm_of(client, other, key="taken")]
        with connect(database_url) as rival:
            take_key(rival, seeded.tenant_id, "taken")
            sent = asyncio.create_task(confirm_reservation(client.context, confirms))
            await until_waiting(database_url)
            client.set_deadline(late, 0)
            rival.execute("rollback")
        assert [code_of(one) for one in await settled(await sent)] == ["invalid_state", "200"]
        assert [client.state(one) for one in (late, other)] == ["expired", "confirmed"]

    as_client(database_url, seeded, scene)
    assert violations(database_url) == []
