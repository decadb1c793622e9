"""Payments, policies and evaluations of a balance through the real commands, and what the database then holds."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from typing import Any

from orchestrator.billing.commands import set_balance_policy, top_up_balance, withdraw_from_balance
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer, Operation
from tests.allocations.driving import ADMIN, provision, rows_of, run_with
from tests.allocations.seeding import PRICE, Seeded, connect, create_allocation
from tests.consumers.metered import meter_all

OPERATORS = uuid.uuid5(uuid.NAMESPACE_URL, "operators")


def paying(key: str | None = None) -> Operation:
    """A write of an operator's under a key."""
    return Operation(OPERATORS, key or uuid.uuid4().hex, b"\0" * 32, 3600.0)


async def top_up(context: Context, tenant_id: uuid.UUID, amount: int, key: str | None = None) -> Answer:
    """Give."""
    return await top_up_balance(context, paying(key), ADMIN, tenant_id, amount=amount, reference="a payment")


async def withdraw(context: Context, tenant_id: uuid.UUID, amount: int) -> Answer:
    """Take back."""
    return await withdraw_from_balance(context, paying(), ADMIN, tenant_id, amount=amount, reference="a mistake")


async def make_prepaid(
    context: Context, tenant_id: uuid.UUID, low_threshold: int | None = None, prepaid: bool = True
) -> dict[str, Any]:
    """The policy; the balance as it was answered."""
    answer = await set_balance_policy(context, paying(), ADMIN, tenant_id, prepaid=prepaid, low_threshold=low_threshold)
    return dict(json.loads(answer.body))


def run_since(url: str, seeded: Seeded, ago: timedelta, *, gpus: int = 1, name: str | None = None) -> uuid.UUID:
    """An allocation that has been active for so long; not metered yet."""
    allocation_id = create_allocation(url, seeded, gpus=gpus, name=name)
    run_with(url, lambda context: provision(context, url, allocation_id))
    with connect(url) as database:
        database.execute(
            "update allocations set active_at = active_at - %s, requested_at = requested_at - %s where id = %s",
            (ago, ago, allocation_id),
        )
        database.execute(
            "update outbox set payload = payload || jsonb_build_object('active_at', rfc3339(a.active_at)) from allocations a"
            " where event_type = 'provisioning.active' and a.id = %s and subject = 'allocations/' || a.id",
            (allocation_id,),
        )
    return allocation_id


def run_metered(url: str, seeded: Seeded, ago: timedelta, *, gpus: int = 1) -> uuid.UUID:
    """The same, metered."""
    allocation_id = run_since(url, seeded, ago, gpus=gpus)
    meter_all(url)
    return allocation_id


def cost(seconds: float, gpus: int = 1) -> int:
    """Micro-units of so much time."""
    return int(gpus * PRICE * seconds)


def balance_events(url: str, tenant_id: uuid.UUID) -> list[str]:
    """The balance events of the tenant so far, in order, without their prefix."""
    found = rows_of(
        url,
        "select event_type from (select event_type, tenant_id, version as place, 0 as waits from log union all"
        " select event_type, tenant_id, id, 1 from outbox) e"
        " where event_type like 'balance.%%' and tenant_id = %s order by waits, place",
        tenant_id,
    )
    return [row[0].removeprefix("balance.") for row in found]


def make_due(url: str, tenant_id: uuid.UUID) -> None:
    """It is looked at in the next round."""
    with connect(url) as database:
        database.execute("update balances set look_at = clock_timestamp() where tenant_id = %s", (tenant_id,))
