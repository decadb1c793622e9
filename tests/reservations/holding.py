"""Holds, confirms and cancels through commands over a small fleet, and what must hold of the tables at every moment."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import Context, Deferred, Limits, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Problem
from orchestrator.reservations.commands.cancel import cancel_reservation
from orchestrator.reservations.commands.confirm import confirm_reservation
from orchestrator.reservations.commands.hold import hold_resources
from orchestrator.reservations.hold_requests import GpuRequest, HoldRequest
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.holding import Hold
from orchestrator.tenants.principals import Actor, ActorKind
from tests.allocations.driving import run_with
from tests.allocations.seeding import REGION, SLICE_SKU, Seeded, connect, seed
from tests.event_payloads import unpromised
from tests.support.waiting import wait_for

HOLDER = "holder"
TENANT = Actor(ActorKind.TENANT, "tenant-key")
T = TypeVar("T")

INVARIANTS = {
    "a tenant's quota is what it holds and runs": """
        select q.tenant_id, q.gpus_used from tenant_quotas q where q.gpus_used <> coalesce((
            select sum(r.gpus_held) from reservations r where r.tenant_id = q.tenant_id and r.state in ('hold', 'confirmed')), 0)
          + coalesce((select sum(a.gpus) from allocations a
                      where a.tenant_id = q.tenant_id and a.state not in ('released', 'failed')), 0)""",
    "a node's mask is what its claims leave": """
        select n.name from nodes n join lateral (
            select coalesce(sum(1::bigint << s.slot_index), 0)::bigint as mask from slots s
            where s.node_id = n.id and not exists (
                select from claims c where c.node_id = n.id and (c.booked or c.occupied) and c.units @> s.unit)
        ) fit on true where n.free_mask <> fit.mask""",
    "a live reservation has its claims, an ended one has none": """
        select r.id, r.state from reservations r
        where (r.state in ('hold', 'confirmed')) <> exists (
            select from claims c where c.owner_id = r.id and c.closed_at is null and c.booked)""",
    "no two rights to a unit at a time": """
        select a.id, b.id from claims a join claims b on a.id < b.id and a.units && b.units and a.during && b.during
        where a.booked and b.booked""",
    "no hold expires early, none is confirmed late": """
        select e.event_type, e.payload from outbox e join reservations r on r.id = (e.payload ->> 'reservation_id')::uuid
        where (e.event_type = 'reservation.expired' and (e.payload ->> 'judged_at')::timestamptz < r.hold_until)
           or (e.event_type = 'reservation.confirmed' and (e.payload ->> 'judged_at')::timestamptz >= r.hold_until)""",
    "every end has one event": """
        select r.id, r.state from reservations r
        where (select count(*) from outbox e where e.subject = 'reservations/' || r.id
               and e.event_type not in ('reservation.held', 'reservation.confirmed', 'reservation.moved', 'reservation.waiting'))
           <> (r.state not in ('hold', 'confirmed'))::integer""",
    "a live reservation says what it waits for": """
        select id from reservations where (state in ('hold', 'confirmed')) <> (waits_for is not null)""",
}


_OF_POOLS = """
select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name <> ''
limit 1"""


def violations(url: str) -> list[tuple[str, list[Any]]]:
    """Every broken invariant with the rows that break it."""
    with connect(url) as connection:
        found = [(name, connection.execute(query.encode()).fetchall()) for name, query in INVARIANTS.items()]
    found.append(("events say what they promise", unpromised(url)))
    return [(name, rows) for name, rows in found if rows]


def deadlocks(url: str) -> int:
    """How many deadlocks PostgreSQL has broken in this database so far. A session reports its own when it ends."""
    with connect(url) as connection:
        wait_for(lambda: connection.execute(_OF_POOLS).fetchone() is None, "the sessions of the pools to end")
        row = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


async def hold_alone(
    context: Context, catalogue: CatalogueCache, hold: Hold, wanted: tuple[str, ...] | GpuRequest
) -> Answer:
    """The answer to a hold that shares its transaction with none. Raises its refusal if that is not remembered."""
    return await _only(await hold_resources(context, catalogue, [HoldRequest(hold, wanted)]))


async def confirm_alone(context: Context, confirm: Confirm) -> Answer:
    """The answer to a confirm that shares its transaction with none. Raises its refusal if that is not remembered."""
    return await _only(await confirm_reservation(context, [confirm]))


async def _only(results: list[Result | Deferred]) -> Answer:
    (result,) = results
    became = result if isinstance(result, Answer | Problem) else await result.retry_alone()
    if isinstance(became, Problem):
        raise became
    return became


@dataclass
class ReservationClient:
    """Where a tenant reserves: commands over one context."""

    url: str
    context: Context
    seeded: Seeded
    catalogue: CatalogueCache

    async def hold(
        self, *names: str, key: str | None = None, tenant_id: UUID | None = None, ttl_seconds: int = 900,
        starts_at: datetime | None = None, ends_at: datetime | None = None, holder: str = HOLDER,
        wanted: GpuRequest | None = None,
    ) -> Answer:  # fmt: skip
        """A hold of named resources, or of GPUs."""
        tenant = tenant_id or self.seeded.tenant_id
        hold = Hold(
            self.operation(tenant, key), tenant, holder, starts_at, ends_at, ttl_seconds, None, None, uuid.uuid4()
        )
        return await hold_alone(self.context, self.catalogue, hold, wanted or names)

    async def held(self, *names: str, **options: Any) -> UUID:
        """The id of a hold that succeeds."""
        answer = await self.hold(*names, **options)
        assert answer.status == 201, answer.body
        return UUID(json.loads(answer.body)["reservation_id"])

    async def confirm(self, reservation_id: UUID, *, key: str | None = None, holder: str = HOLDER) -> Answer:
        """The holder's confirm."""
        tenant = self.seeded.tenant_id
        operation = self.operation(tenant, key, ending=True)
        return await confirm_alone(self.context, Confirm(operation, tenant, reservation_id, holder))

    async def cancel(self, reservation_id: UUID, *, key: str | None = None, holder: str = HOLDER) -> Answer:
        """The holder's cancel."""
        tenant = self.seeded.tenant_id
        operation = self.operation(tenant, key, ending=True)
        return await cancel_reservation(self.context, operation, TENANT, tenant, reservation_id, holder)

    def operation(self, tenant_id: UUID, key: str | None = None, *, ending: bool = False) -> Operation:
        """A write under a key, its content drawn at random unless the key is given."""
        fingerprint = os.urandom(32) if key is None else key.encode().ljust(32)[:32]
        return Operation(tenant_id, key or uuid.uuid4().hex, fingerprint, 3600.0, ending=ending)

    def slot(self, index: int, node: int = 0) -> str:
        """How a slot is named."""
        return f"slot:{self.seeded.nodes[node].id}:{index}"

    def node(self, node: int = 0) -> str:
        """How a node is named."""
        return f"node:{self.seeded.nodes[node].id}"

    def set_deadline(self, reservation_id: UUID, milliseconds: float) -> None:
        """Its deadline is so far from now."""
        with connect(self.url) as connection:
            connection.execute(
                """update reservations set (expires_at, hold_until, waits_until) = (select at, at, at from (
                       select clock_timestamp() + make_interval(secs => %s) as at) deadline) where id = %s""",
                (milliseconds / 1000, reservation_id),
            )

    def state(self, reservation_id: UUID) -> str:
        """Its state."""
        with connect(self.url) as connection:
            row = connection.execute("select state from reservations where id = %s", (reservation_id,)).fetchone()
        assert row is not None
        return str(row[0])


def seed_with_seats(url: str, *, seats: int = 0, slice_nodes: int = 1, gpus_limit: int | None = None) -> Seeded:
    """A small fleet, and registered resources `seat-0`, `seat-1`, ..."""
    seeded = seed(url, slice_nodes=slice_nodes, gpus_limit=gpus_limit)
    with connect(url) as connection:
        connection.execute("select setval('unit_numbers', 100000)")
        connection.execute("insert into resources (id) select 'seat-' || n from generate_series(0, %s) n", (seats - 1,))
    return seeded


def as_client(
    url: str,
    seeded: Seeded,
    work: Callable[[ReservationClient], Awaitable[T]],
    *,
    limits: Limits | None = None,
    pool_size: int = 8,
) -> T:
    """Run `work` with a new `ReservationClient`."""

    async def main(context: Context) -> T:
        return await work(ReservationClient(url, context, seeded, CatalogueCache(context.database, 60.0)))

    return run_with(url, main, limits=limits, pool_size=pool_size)


def wanted_gpus(gpus: int = 1, count: int = 1) -> GpuRequest:
    """GPUs of the seeded slices."""
    return GpuRequest(SLICE_SKU, gpus, REGION, count)
