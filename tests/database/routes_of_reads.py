"""Everything that is shown and listed of reservations and resources, each once, and which part of it is counted."""

from __future__ import annotations

from uuid import UUID

from orchestrator.allocations import queries as allocations
from orchestrator.problems import Problem
from orchestrator.reservations import queries as reservations
from orchestrator.reservations.states import ReservationState, reservation_id
from orchestrator.reservations.store.resources import ResourceKind
from tests.database.routes import PAGE, Stage, route


@route
async def show_one_that_has_ended(stage: Stage) -> None:
    await stage.cancelled()
    await _show(stage, stage.past()[1])


@route
async def show_one_that_is_retired(stage: Stage) -> None:
    await stage.cancelled()
    position, _ = stage.past()
    await _show(stage, reservation_id(0, max(1, position - 1)))


async def _show(stage: Stage, which: UUID) -> None:
    async def show() -> None:
        try:
            await reservations.find_reservation(stage.context.database, which, stage.client.seeded.tenant_id, 0)
        except Problem:
            return

    await stage.counted(show())


async def _list(stage: Stage, state: ReservationState | None, after: int) -> None:
    held = await stage.client.held(stage.client.slot(0))
    confirmed = await stage.client.held(stage.client.slot(1))
    await stage.client.confirm(confirmed)
    await stage.cancelled()
    found = await stage.counted(
        reservations.list_reservations(
            stage.context.database, stage.client.seeded.tenant_id, state=state, after=after, limit=PAGE
        )
    )
    listed = {UUID(str(body["reservation_id"])) for _, body in found}
    expected = {ReservationState.HOLD: {held}, ReservationState.CONFIRMED: {confirmed}}.get(state) if state else None
    assert expected is None or listed == expected
    assert 0 < len(found) <= PAGE


@route
async def list_the_first_page(stage: Stage) -> None:
    await _list(stage, None, 0)


@route
async def list_from_the_middle(stage: Stage) -> None:
    await stage.cancelled()
    await _list(stage, None, stage.past()[0])


@route
async def list_holds(stage: Stage) -> None:
    await _list(stage, ReservationState.HOLD, 0)


@route
async def list_confirmed(stage: Stage) -> None:
    await _list(stage, ReservationState.CONFIRMED, 0)


@route
async def list_cancelled(stage: Stage) -> None:
    await _list(stage, ReservationState.CANCELLED, 0)


@route
async def list_allocations(stage: Stage) -> None:
    await stage.allocated()
    tenant_id = stage.client.seeded.tenant_id
    found = await stage.counted(
        allocations.list_allocations(
            stage.context.database, tenant_id, state=None, label=None, after=UUID(int=0), limit=PAGE
        )
    )
    assert 0 < len(found) <= PAGE


async def _show_resource(stage: Stage, name: str) -> None:
    await stage.counted(reservations.find_resource(stage.context.database, name, stage.client.seeded.tenant_id))


@route
async def show_a_node(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(1))
    await _show_resource(stage, stage.client.node())


@route
async def show_a_slot(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(1))
    await _show_resource(stage, stage.client.slot(1))


@route
async def show_what_is_registered(stage: Stage) -> None:
    await stage.client.held("seat-1")
    await _show_resource(stage, "seat-1")


async def _list_resources(stage: Stage, kind: ResourceKind | None) -> None:
    """A page near the end."""
    after = 0 if kind == "registered" else stage.read("select 2 * max(unit) - 100 from slots")
    found = await stage.counted(
        reservations.list_resources(
            stage.context.database, stage.client.seeded.tenant_id, kind=kind, after=after, limit=PAGE
        )
    )
    assert found
    assert found[0].place > after


@route
async def list_resources(stage: Stage) -> None:
    await _list_resources(stage, None)


@route
async def list_nodes(stage: Stage) -> None:
    await _list_resources(stage, "node")


@route
async def list_slots(stage: Stage) -> None:
    await _list_resources(stage, "slot")


@route
async def list_what_is_registered(stage: Stage) -> None:
    await _list_resources(stage, "registered")
