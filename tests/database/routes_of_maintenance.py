"""Everything that is done with maintenance windows, each once, and which part of it is counted."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

from orchestrator.maintenance import queries
from orchestrator.maintenance.commands.advance import advance_window
from orchestrator.maintenance.commands.windows import Bounds, Wanted, commit_maintenance, end_maintenance
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.states import Resolution, WindowState
from orchestrator.reservations.resource_names import parse_resources
from tests.allocations.driving import ADMIN, release
from tests.allocations.seeding import create_allocation
from tests.database.routes import PAGE, Stage, at, route


def _wanted(stage: Stage, starts: float, *names: str) -> Wanted:
    policies = Policies(Resolution.NOTIFY, Resolution.REFUSE)
    return Wanted(parse_resources(names), at(starts), at(starts + 1), "why", policies)


async def _committed(stage: Stage, wanted: Wanted) -> UUID:
    operation = stage.client.operation(uuid4())
    answer = await commit_maintenance(stage.context, operation, ADMIN, wanted, Bounds(100, stage.client.catalogue))
    assert answer.status == 201, answer.body
    return UUID(json.loads(answer.body)["window_id"])


@route
async def plan_maintenance(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(0), starts_at=at(1), ends_at=at(2))
    wanted = _wanted(stage, 1.5, stage.client.node())
    planning = queries.plan_window(stage.context.database, wanted.resources, wanted.starts_at, wanted.ends_at)
    assert len(await stage.counted(planning)) == 1


@route
async def commit_a_maintenance_window(stage: Stage) -> None:
    await stage.counted(_committed(stage, _wanted(stage, 1, stage.client.node(), stage.client.slot(0, 1))))


@route
async def start_and_end_a_maintenance_window(stage: Stage) -> None:
    window_id = await _committed(stage, _wanted(stage, -0.5, stage.client.node()))
    assert await stage.counted(queries.find_due_windows(stage.context.database, PAGE)) == [window_id]
    assert await stage.counted(advance_window(stage.context, window_id)) is WindowState.ACTIVE
    ended = end_maintenance(stage.context, stage.client.operation(uuid4()), ADMIN, window_id)
    assert (await stage.counted(ended)).status == 200


@route
async def list_maintenance_windows(stage: Stage) -> None:
    window_id = await _committed(stage, _wanted(stage, 1, stage.client.slot(0)))
    listing = queries.list_windows(stage.context.database, state=None, after=UUID(int=0), limit=PAGE)
    assert [window.id for window in await stage.counted(listing)] == [window_id]


@route
async def release_what_a_maintenance_window_plans(stage: Stage) -> None:
    seeded = stage.client.seeded
    made = create_allocation(stage.client.url, seeded, name="planned")
    slot = stage.read(
        "select 'slot:' || n.id || ':' || lower(c.units) - n.unit_base from claims c join nodes n on n.id = c.node_id"
        " where c.owner_id = %s",
        made,
    )
    window_id = await _committed(stage, _wanted(stage, 1, slot))
    assert len((await queries.find_window(stage.context.database, window_id)).planned) > 0
    await stage.counted(release(stage.context, seeded, made))
    assert (await queries.find_window(stage.context.database, window_id)).planned == []
