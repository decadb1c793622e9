"""Allocations that get another end, through the command, and what is then stored of them."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from orchestrator.allocations.commands.update import Changes, update_allocation
from orchestrator.allocations.rules import NewEnd
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from orchestrator.tenants.principals import Actor
from tests.allocations.driving import TENANT, rows_of
from tests.allocations.seeding import connect
from tests.reservations.holding import ReservationClient
from tests.verifying import broken_promises


def at(seconds: float = 0.0) -> datetime:
    """A moment so far from now."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def set_end(
    client: ReservationClient, allocation_id: UUID, end: datetime | None, *, key: str | None = None,
    tenant_id: UUID | None = None, actor: Actor = TENANT, **others: Any,
) -> Answer:  # fmt: skip
    """The answer to a PATCH with this `ends_at`."""
    tenant = tenant_id or client.seeded.tenant_id
    changes = Changes(**others, end=NewEnd(end))
    return await update_allocation(client.context, client.operation(tenant, key), actor, tenant, allocation_id, changes)


async def ends(client: ReservationClient, allocation_id: UUID, end: datetime | None, **options: Any) -> dict[str, Any]:
    """The allocation after a PATCH that succeeds."""
    answer = await set_end(client, allocation_id, end, **options)
    assert answer.status == 200, answer.body
    return dict(json.loads(answer.body))


def refusal(answer: Answer) -> tuple[int, str]:
    """Status and code."""
    return answer.status, str(json.loads(answer.body)["code"])


async def outcome(change: Awaitable[Answer]) -> tuple[int, str]:
    """Status and code, also of a refusal that is not stored; the code of a success is empty."""
    try:
        answer = await change
    except Problem as problem:
        return problem.status, problem.code
    return refusal(answer) if answer.status >= 400 else (answer.status, "")


CLAIMS = """
select id, units, lower(during) as starts, upper(during) as ends, booked, occupied, fence, inherited_fence, closed_at,
       occupied_from, occupied_until from claims where owner_id = %s order by id
"""


def claims_of(url: str, owner: UUID) -> list[dict[str, Any]]:
    """All claims that the owner has or had, the oldest first."""
    with connect(url) as connection:
        cursor = connection.execute(CLAIMS, (owner,))
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def slot_of(client: ReservationClient, allocation_id: UUID) -> str:
    """The name of its first slot."""
    ((index,),) = rows_of(
        client.url,
        "select lower(c.units) - n.unit_base from allocations a join claims c on c.id = a.claim_id"
        " join nodes n on n.id = c.node_id where a.id = %s",
        allocation_id,
    )
    return client.slot(index)


TRACES = {
    "claims": "select * from claims order by id",
    "allocations": "select * from allocations order by id",
    "nodes": "select id, row_version, free_mask, fit_class from nodes order by id",
    "timeline": "select * from allocation_timeline order by id",
    "quotas": "select * from tenant_quotas order by tenant_id",
    "events": "select event_type, subject, payload from outbox where event_type not like 'operation.%%' order by id",
}


def traces(url: str) -> dict[str, list[Any]]:
    """Everything that a change of an end could leave behind, operations aside."""
    return {name: rows_of(url, statement) for name, statement in TRACES.items()}


def broken(url: str) -> dict[str, list[str]]:
    """What `berth verify` finds, by promise."""
    with connect(url) as connection:
        # Nodes report here without having leased the task; the proof requires that the task reached a node.
        connection.execute("update node_tasks set dispatched_at = queued_at where finished_at is not null")
        connection.execute("select log_advance(100000)")
    return broken_promises(url)
