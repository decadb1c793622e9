"""Everything that is done with reservations and resources, each once, and which part of it is counted."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from orchestrator.allocations import queries as allocation_queries
from orchestrator.allocations.commands.create import create_allocations
from orchestrator.database.census import take_census
from orchestrator.operations.commands import Question, ask_operation, retire_operations
from orchestrator.operations.execution import Context
from orchestrator.operations.live_rows import gather_counts
from orchestrator.placement.queries import AskedAvailability, find_availability
from orchestrator.placement.store.placing import Create
from orchestrator.reservations import queries as reservation_queries
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.commands.expire import end_window, expire_reservation, retire_reservations
from orchestrator.reservations.hold_requests import GpuRequest
from orchestrator.reservations.rival_expiry import expire_overdue_holds
from orchestrator.reservations.states import reservation_id
from orchestrator.tasks import queries as task_queries
from tests.allocations.seeding import METAL_SKU, REGION, SLICE_SKU, SLOTS
from tests.database.counting import Counted
from tests.reservations.holding import ReservationClient
from tests.reservations.turning_over.consuming import consumed, gpus
from tests.support.reservation_lists import code_of, confirm_of

DAY = timedelta(days=1)
PAGE = 50
SWEPT = 100


@dataclass
class Stage:
    """A client whose work is counted; `began`: what the routes have made is younger."""

    client: ReservationClient
    counted: Counted
    connection: psycopg.Connection[Any]
    began: datetime

    @property
    def context(self) -> Context:
        return self.client.context

    def change(self, statement: str, *values: Any) -> None:
        """What only a test may do to the tables."""
        self.connection.execute(statement.encode(), values)

    def read(self, statement: str, *values: Any) -> Any:
        """The first column of the first row."""
        row = self.connection.execute(statement.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def past(self) -> tuple[int, UUID]:
        """A reservation of the tenant's that ended long ago; without a past, one that has just ended."""
        row = self.connection.execute(
            """with ended as (select position, id from reservations where ended_at is not null and tenant_id = %s)
               select * from ended order by position offset (select count(*) / 2 from ended) limit 1""",
            (self.client.seeded.tenant_id,),
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    async def cancelled(self) -> UUID:
        """A reservation that has just ended."""
        held = await self.client.held(self.client.slot(2))
        await self.client.cancel(held)
        return held

    async def allocated(self) -> UUID:
        """An allocation that came from a reservation and ends."""
        held = await self.client.held(self.client.slot(0), ends_at=at(0.005))
        return await consumed(self.client, held, sku=SLICE_SKU)

    async def fill_metal(self, day: int) -> None:
        """Every bare-metal node is taken from that day on."""
        node_count = self.read("select count(*) from nodes where shape = 'baremetal'")
        answer = await self.client.hold(wanted=metal(node_count), starts_at=at(day))
        assert answer.status == 201, answer.body


Route = Callable[[Stage], Awaitable[object]]
ROUTES: dict[str, Route] = {}


def route(function: Route) -> Route:
    """Register it."""
    ROUTES[function.__name__] = function
    return function


def at(days: float) -> datetime:
    """So many days from now."""
    return datetime.now(UTC) + days * DAY


def metal(count: int = 1) -> GpuRequest:
    """Bare-metal nodes."""
    return GpuRequest(METAL_SKU, SLOTS, REGION, count)


@route
async def hold_a_slot(stage: Stage) -> None:
    await stage.counted(stage.client.held(stage.client.slot(0)))


@route
async def hold_a_bundle_in_a_window(stage: Stage) -> None:
    client = stage.client
    await stage.counted(client.held(client.slot(0), client.node(1), "seat-1", starts_at=at(1), ends_at=at(2)))


@route
async def hold_what_is_busy(stage: Stage) -> None:
    await stage.client.held(stage.client.node())
    assert (await stage.counted(stage.client.hold(stage.client.slot(1)))).status == 409


@route
async def hold_what_is_overdue(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0), "seat-2")
    stage.client.set_deadline(held, -5)
    await stage.counted(stage.client.held(stage.client.slot(0)))


@route
async def hold_gpus(stage: Stage) -> None:
    await stage.counted(stage.client.held(wanted=gpus(3, 2)))


@route
async def hold_gpus_where_only_a_window_is_free(stage: Stage) -> None:
    await stage.fill_metal(20)
    await stage.counted(stage.client.held(wanted=metal(), starts_at=at(1), ends_at=at(2)))


@route
async def hold_gpus_where_nothing_is_free(stage: Stage) -> None:
    await stage.fill_metal(2)
    answer = await stage.counted(stage.client.hold(wanted=metal(), starts_at=at(1), ends_at=at(3)))
    assert answer.status == 409


@route
async def hold_again_under_a_key_whose_answer_is_forgotten(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(0), key="again")
    stage.change("delete from operations where key = 'again'")
    assert (await stage.counted(stage.client.hold(stage.client.slot(0), key="again"))).replayed


@route
async def confirm(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0))
    assert (await stage.counted(stage.client.confirm(held))).status == 200


@route
async def confirm_together(stage: Stage) -> None:
    held = [await stage.client.held(stage.client.slot(index)) for index in range(4)]
    confirms = [confirm_of(stage.client, one) for one in held]
    results = await stage.counted(confirm_reservation(stage.client.context, confirms))
    assert [code_of(result) for result in results] == ["200"] * 4


@route
async def confirm_together_what_cannot_be(stage: Stage) -> None:
    ended, held = await stage.cancelled(), await stage.client.held(stage.client.slot(0))
    confirms = [
        confirm_of(stage.client, ended), confirm_of(stage.client, held, holder="another"), confirm_of(stage.client, uuid4()),
    ]  # fmt: skip
    results = await stage.counted(confirm_reservation(stage.client.context, confirms))
    assert [code_of(result) for result in results] == ["invalid_state", "holder_mismatch", "reservation_not_found"]


@route
async def confirm_what_is_overdue(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0))
    stage.client.set_deadline(held, -5)
    assert (await stage.counted(stage.client.confirm(held))).status == 409


@route
async def confirm_what_nobody_knows(stage: Stage) -> None:
    assert (await stage.counted(stage.client.confirm(reservation_id(0, 2**40)))).status == 404


@route
async def cancel(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0), stage.client.slot(1, 1), "seat-1")
    assert (await stage.counted(stage.client.cancel(held))).status == 200


@route
async def cancel_what_has_ended(stage: Stage) -> None:
    held = await stage.cancelled()
    assert (await stage.counted(stage.client.cancel(held))).status == 200


@route
async def expire(stage: Stage) -> None:
    held = await stage.client.held(stage.client.slot(0), "seat-1")
    stage.client.set_deadline(held, -5)
    assert await stage.counted(reservation_queries.find_overdue_holds(stage.context, SWEPT)) == [held]
    assert await stage.counted(expire_reservation(stage.context, held))


@route
async def end_overdue_holds_for_a_tenant_without_quota(stage: Stage) -> None:
    stage.client.set_deadline(await stage.client.held(stage.client.slot(0)), -5)
    assert await stage.counted(expire_overdue_holds(stage.context, tenant_id=stage.client.seeded.tenant_id)) == 1


@route
async def end_overdue_holds_of_a_full_pool(stage: Stage) -> None:
    stage.client.set_deadline(await stage.client.held(stage.client.slot(0)), -5)
    assert await stage.counted(expire_overdue_holds(stage.context, pool_id=stage.client.seeded.pools["gpu_slice"])) == 1


async def _window_over(stage: Stage) -> UUID:
    held = await stage.client.held(stage.client.slot(0), ends_at=at(1))
    await stage.client.confirm(held)
    stage.change(
        """update reservations set starts_at = starts_at - interval '1 h', ends_at = clock_timestamp(),
                                   waits_until = clock_timestamp() where id = %s""",
        held,
    )
    return held


@route
async def find_windows_over(stage: Stage) -> None:
    held = await _window_over(stage)
    assert await stage.counted(reservation_queries.find_windows_over(stage.context, SWEPT)) == [held]


@route
async def release_a_window_that_is_over(stage: Stage) -> None:
    held = await _window_over(stage)
    assert await stage.counted(end_window(stage.context, held))


@route
async def retire(stage: Stage) -> None:
    await stage.cancelled()
    # More are due than are taken at once.
    stage.change(
        """update reservations set retire_after = clock_timestamp() where id in (
               select id from reservations where ended_at is not null order by position desc limit 300)"""
    )
    assert await stage.counted(retire_reservations(stage.context, SWEPT)) > 0
    stage.change("update reservations set retire_after = retire_after + interval '1 day' where retire_after < now()")


@route
async def retire_the_operations(stage: Stage) -> None:
    await stage.cancelled()
    stage.change("update operations set retire_after = clock_timestamp() where created_at > %s", stage.began)
    assert await stage.counted(retire_operations(stage.context, SWEPT)) > 0


@route
async def gather_the_counts(stage: Stage) -> None:
    await stage.counted(gather_counts(stage.context))


@route
async def sweep_when_nothing_is_due(stage: Stage) -> None:
    """What every round of every sweeper asks, and the next after it."""
    context = stage.context

    async def sweep() -> list[object]:
        return [
            *await reservation_queries.find_overdue_holds(context, SWEPT),
            *await reservation_queries.find_windows_over(context, SWEPT),
            *await allocation_queries.find_overdue_allocations(context, 60.0, SWEPT),
            *await task_queries.find_expired_tasks(context, 60.0, SWEPT),
            *await allocation_queries.find_waiters(
                context, consumer="test", patience_seconds=0.0, after=(stage.began - DAY, UUID(int=0)), limit=SWEPT
            ),
            *await reservation_queries.find_due_starts(context, SWEPT),
            *await reservation_queries.find_late_starts(context, 0, SWEPT),
            *await reservation_queries.find_stranded(context, 0, SWEPT),
            *await reservation_queries.find_nodes_to_start(context, SWEPT),
            *await allocation_queries.find_ended(context, SWEPT),
            *await allocation_queries.find_ending(context, SWEPT),
            await retire_reservations(context, SWEPT),
            await retire_operations(context, SWEPT),
        ]

    assert await stage.counted(sweep()) == [0, 0]


@route
async def look_for_availability(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(0), starts_at=at(1), ends_at=at(2))
    asked = AskedAvailability(None, None, None, 1, at(1), at(30))
    seconds_max = stage.context.limits.window_seconds_max
    found = await stage.counted(
        find_availability(
            stage.context.database,
            stage.client.catalogue,
            asked,
            window_seconds_max=seconds_max,
            after=("", ""),
            limit=PAGE,
        )
    )
    assert found


def _create(stage: Stage, sku: str, gpus_: int, ends_at: datetime | None) -> Create:
    seeded = stage.client.seeded
    return Create(
        operation=stage.client.operation(seeded.tenant_id), tenant_id=seeded.tenant_id, actor_id="test", sku=sku, gpus=gpus_,
        region=REGION, image=None, ssh_key_ids=(seeded.ssh_key_id,), name=None, labels={}, user_data=None,
        correlation_id=uuid.uuid4(), ends_at=ends_at,
    )  # fmt: skip


async def _created(stage: Stage, create: Create, status: int) -> None:
    (answer,) = await stage.counted(create_allocations(stage.context, stage.client.catalogue, [create]))
    assert getattr(answer, "status", None) == status, answer


@route
async def create(stage: Stage) -> None:
    await _created(stage, _create(stage, SLICE_SKU, 2, None), 201)


@route
async def create_where_only_a_window_is_free(stage: Stage) -> None:
    await stage.fill_metal(20)
    await _created(stage, _create(stage, METAL_SKU, SLOTS, at(1)), 201)


@route
async def create_where_nothing_is_free(stage: Stage) -> None:
    await stage.fill_metal(2)
    await _created(stage, _create(stage, METAL_SKU, SLOTS, at(3)), 409)
    await _created(stage, _create(stage, METAL_SKU, SLOTS, None), 409)


@route
async def ask_for_a_key(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(0), key="asked")
    tenant = stage.client.seeded.tenant_id
    await stage.counted(ask_operation(stage.context, Question(tenant, "asked", tenant)))
    await stage.counted(ask_operation(stage.context, Question(tenant, "never seen", tenant)))


@route
async def count_for_metrics(stage: Stage) -> None:
    await stage.client.held(stage.client.slot(0))
    await stage.counted(take_census(stage.context.database))
