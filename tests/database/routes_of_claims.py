"""Everything that becomes of a reservation when its time comes, each once, and which part of it is counted."""

from __future__ import annotations

import json
from uuid import UUID

from orchestrator.allocations import queries as allocation_queries
from orchestrator.allocations.commands.notify_expiry import notify_expiry
from orchestrator.allocations.commands.release import release_at_end
from orchestrator.allocations.commands.waits import start_waiting
from orchestrator.reservations import queries as reservation_queries
from orchestrator.reservations.commands.move import move_reservation
from orchestrator.reservations.commands.postpone import fail_reservation
from orchestrator.reservations.commands.start import start_reservation
from tests.allocations.driving import clean_up, provision, release
from tests.allocations.ending import at, set_end
from tests.allocations.seeding import SLICE_SKU
from tests.database.routes import SWEPT, Stage, route
from tests.reservations.turning_over.consuming import consume, gpus, starting


@route
async def turn_over(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0), stage.client.slot(1, 1))
    assert (await stage.counted(consume(stage.client, held, sku=SLICE_SKU))).status == 201


@route
async def turn_over_the_last_claim(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0))
    assert (await stage.counted(consume(stage.client, held, sku=SLICE_SKU))).status == 201
    assert stage.client.state(held) == "consumed"


@route
async def turn_over_again_under_a_key_whose_answer_is_forgotten(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0))
    await consume(stage.client, held, sku=SLICE_SKU, key="again")
    stage.change("delete from operations where key = 'again'")
    assert (await stage.counted(consume(stage.client, held, sku=SLICE_SKU, key="again"))).replayed


@route
async def find_due_starts(stage: Stage) -> None:
    made = await starting(stage.client)
    assert await stage.counted(reservation_queries.find_due_starts(stage.context, SWEPT)) == [made]


@route
async def start_by_itself(stage: Stage) -> None:
    made = await starting(stage.client)
    await stage.counted(start_reservation(stage.context, stage.client.catalogue, made))
    assert stage.client.state(made) == "consumed"


async def _stranded(stage: Stage, *, starts: bool) -> UUID:
    held = await starting(stage.client) if starts else await stage.client.held(wanted=gpus())
    await stage.client.confirm(held)
    # One that is merely silent would be waited for.
    stage.change(
        "update nodes set state = 'cordoned' where id in (select node_id from claims where owner_id = %s)", held
    )
    return held


@route
async def find_stranded(stage: Stage) -> None:
    held = await _stranded(stage, starts=False)
    found = await stage.counted(reservation_queries.find_stranded(stage.context, 0, SWEPT))
    assert [reservation_id for reservation_id, _ in found] == [held]


@route
async def move(stage: Stage) -> None:
    held = await _stranded(stage, starts=False)
    assert await stage.counted(move_reservation(stage.context, stage.client.catalogue, held))


@route
async def fail_to_start(stage: Stage) -> None:
    held = await _stranded(stage, starts=True)
    assert await stage.counted(fail_reservation(stage.context, held))


async def _waits_for_units(stage: Stage) -> UUID:
    made = await stage.allocated()
    stage.change("update allocations set waits_for = 'units' where id = %s", made)
    stage.change("update claims set occupied = false, occupied_from = null where owner_id = %s", made)
    node: UUID = stage.read("select node_id from allocations where id = %s", made)
    return node


@route
async def find_nodes_to_start(stage: Stage) -> None:
    node = await _waits_for_units(stage)
    assert await stage.counted(reservation_queries.find_nodes_to_start(stage.context, SWEPT)) == [node]


@route
async def start_what_waits_for_units(stage: Stage) -> None:
    node = await _waits_for_units(stage)
    assert await stage.counted(start_waiting(stage.context, node)) == 1


@route
async def tell_of_an_end(stage: Stage) -> None:
    made = await stage.allocated()
    assert await stage.counted(allocation_queries.find_ending(stage.context, SWEPT)) == [made]
    assert await stage.counted(notify_expiry(stage.context, made))


@route
async def extend_an_allocation(stage: Stage) -> None:
    made = await _running_out(stage)
    assert (await stage.counted(set_end(stage.client, made, at(7_200)))).status == 200


@route
async def extend_an_allocation_past_an_overdue_hold(stage: Stage) -> None:
    made = await _running_out(stage)
    held = await stage.client.held(stage.client.slot(0), stage.client.slot(1, 1), starts_at=at(4_000))
    stage.client.set_deadline(held, -1)
    assert (await stage.counted(set_end(stage.client, made, None))).status == 200
    assert stage.client.state(held) == "expired"


@route
async def refuse_to_extend_an_allocation(stage: Stage) -> None:
    made = await _running_out(stage)
    held = await stage.client.held(stage.client.slot(0), starts_at=at(4_000))
    assert (await stage.counted(set_end(stage.client, made, None))).status == 409
    await stage.client.cancel(held)


async def _running_out(stage: Stage) -> UUID:
    answer = await consume(
        stage.client, await stage.client.held(stage.client.slot(0), ends_at=at(3_600)), sku=SLICE_SKU
    )
    return UUID(json.loads(answer.body)["allocation_id"])


@route
async def release_at_the_end(stage: Stage) -> None:
    made = await stage.allocated()
    stage.change("update allocations set ends_at = clock_timestamp() where id = %s", made)
    assert await stage.counted(allocation_queries.find_ended(stage.context, SWEPT)) == [made]
    assert await stage.counted(release_at_end(stage.context, made))


@route
async def release_and_prove_clean(stage: Stage) -> None:
    made = await stage.allocated()
    await provision(stage.context, stage.client.url, made)
    await stage.counted(release(stage.context, stage.client.seeded, made))
    await stage.counted(clean_up(stage.context, stage.client.url, made))
