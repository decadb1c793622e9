"""Reservations that become allocations, through commands over a small fleet, in the place of tenants and worker."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.operations.store.operations import Answer
from orchestrator.reservations.commands.consume import Consume, consume_reservation
from orchestrator.reservations.hold_requests import GpuRequest
from orchestrator.reservations.store.holding import Hold
from orchestrator.reservations.store.turn_over import Start
from tests.allocations import invariants
from tests.allocations.driving import TENANT, provision, rows_of
from tests.allocations.seeding import IMAGE, REGION, SLICE_SKU
from tests.reservations import holding
from tests.reservations.holding import HOLDER, ReservationClient, hold_alone
from tests.support.waiting import wait_past


async def consume(
    client: ReservationClient, reservation_id: UUID, *, holder: str = HOLDER, sku: str | None = None, key: str | None = None,
    tenant_id: UUID | None = None, ssh_key_id: UUID | None = None,
) -> Answer:  # fmt: skip
    """The answer to `POST /allocations` with this reservation."""
    tenant = tenant_id or client.seeded.tenant_id
    operation = client.operation(tenant, key)
    start = Start(
        operation.key,
        operation.fingerprint,
        None,
        uuid.uuid4(),
        (ssh_key_id or client.seeded.ssh_key_id,),
        None,
        {},
        None,
    )
    wanted = Consume(reservation_id, holder, sku, None, start)
    return await consume_reservation(client.context, client.catalogue, operation, TENANT, tenant, wanted)


async def consumed(client: ReservationClient, reservation_id: UUID, **options: Any) -> UUID:
    """The allocation that a claim of the reservation became."""
    answer = await consume(client, reservation_id, **options)
    assert answer.status == 201, answer.body
    return UUID(json.loads(answer.body)["allocation_id"])


def code_of(answer: Answer) -> str:
    """The code of a refusal."""
    assert answer.status >= 400, answer.body
    return str(json.loads(answer.body)["code"])


def gpus(count: int = 1, each: int = 1, *, starts: bool = False) -> GpuRequest:
    """So many allocations of so many GPUs of a slice."""
    return GpuRequest(SLICE_SKU, each, REGION, count, IMAGE if starts else None, starts)


async def starting(
    client: ReservationClient, *, count: int = 1, each: int = 1, confirm: bool = True, **times: Any
) -> UUID:
    """A reservation that starts its allocation by itself once it is confirmed."""
    template = times.get("template") or {
        "image": None, "ssh_key_ids": [str(client.seeded.ssh_key_id)], "name": "by itself", "labels": {"a": "b"},
        "user_data": None,
    }  # fmt: skip
    operation = client.operation(client.seeded.tenant_id)
    hold = Hold(
        operation, client.seeded.tenant_id, HOLDER, times.get("starts_at"), times.get("ends_at"), 900, template, None,
        uuid.uuid4(),
    )  # fmt: skip
    answer = await hold_alone(client.context, client.catalogue, hold, gpus(count, each, starts=True))
    assert answer.status == 201, answer.body
    made = UUID(json.loads(answer.body)["reservation_id"])
    assert not confirm or (await client.confirm(made)).status == 200
    return made


def soon(seconds: float = 5.0) -> datetime:
    """A moment that a test can wait for, and before which a slow machine still does ten commands."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def back_to_back(client: ReservationClient, *, lasts: float = 600) -> tuple[UUID, UUID]:
    """An allocation that runs although its window is over, and the next one, on half of its units, that waits."""
    change = soon()
    first = await client.held(client.slot(0), client.slot(1), ends_at=change)
    second = await client.held(
        client.slot(1), client.slot(2), starts_at=change, ends_at=change + timedelta(seconds=lasts)
    )
    for one in (first, second):
        await client.confirm(one)
    running = await consumed(client, first, sku=SLICE_SKU)
    await provision(client.context, client.url, running)
    await wait_past(change)
    return running, await consumed(client, second, sku=SLICE_SKU)


def events_of(url: str, subject: str) -> list[str]:
    """The events of an allocation or reservation so far, in order."""
    return [row[0] for row in rows_of(url, "select event_type from outbox where subject = %s order by id", subject)]


def violations(url: str) -> list[Any]:
    """What is broken, of the invariants of allocations and of reservations."""
    return [*invariants.violations(url), *holding.violations(url)]
