"""Drives allocations through commands, in place of worker and node, and reads the database afterwards."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from psycopg.rows import dict_row

from node_agent.protocol import FailureCode, ProvisionResult, ReleaseResult, ResultAnswer, ResultReport, TaskFailure
from orchestrator.allocations.commands.cleanup import Outcome, begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.release import release_allocation
from orchestrator.allocations.commands.task_results import accept_task_result
from orchestrator.allocations.outcomes import Begun
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor, ActorKind
from tests.allocations.seeding import Seeded, connect, make_context

T = TypeVar("T")

TENANT = Actor(ActorKind.TENANT, "tenant-key")
ADMIN = Actor(ActorKind.ADMIN, "admin-key")
CONNECTION = {"host": "127.0.0.1", "port": 2222, "user": "tenant", "host_key": "ssh-ed25519 AAAA"}
PROVISIONED = ProvisionResult.model_validate({"connection": CONNECTION, "image_sha256": "ab" * 32}).model_dump(
    mode="json"
)
WIPED = ReleaseResult(released=True, hard_stopped=False, wiped=True, leases_released=True).model_dump(mode="json")
NOT_WIPED = ReleaseResult(released=False, hard_stopped=True, wiped=False, leases_released=True).model_dump(mode="json")


def run_with(
    url: str, work: Callable[[Context], Awaitable[T]], *, limits: Limits | None = None, pool_size: int = 4
) -> T:
    """Run `work` in a new event loop with a context that is closed after it."""

    async def main() -> T:
        context = make_context(url, pool_size=pool_size, limits=limits)
        try:
            return await work(context)
        finally:
            await context.database.close()

    return asyncio.run(main())


def row_of(url: str, statement: str, *values: Any) -> dict[str, Any]:
    """The one row of a query."""
    with connect(url) as connection:
        rows = connection.cursor(row_factory=dict_row).execute(statement, values).fetchall()
    assert len(rows) == 1, rows
    return dict(rows[0])


def rows_of(url: str, statement: str, *values: Any) -> list[Any]:
    """All rows of a query, as tuples."""
    with connect(url) as connection:
        return connection.execute(statement, values).fetchall()


def allocation_of(url: str, allocation_id: uuid.UUID) -> dict[str, Any]:
    """The allocation's row."""
    return row_of(url, "select * from allocations where id = %s", allocation_id)


def claim_of(url: str, allocation_id: uuid.UUID) -> dict[str, Any]:
    """The row of the allocation's claim."""
    claim = "select c.* from allocations a join claims c on c.id = a.claim_id where a.id = %s"
    return row_of(url, claim, allocation_id)


def task_of(url: str, allocation_id: uuid.UUID) -> dict[str, Any]:
    """The row of the task issued last."""
    return row_of(url, "select * from node_tasks where allocation_id = %s order by fence desc limit 1", allocation_id)


def events_of(url: str, allocation_id: uuid.UUID) -> list[str]:
    """Types of the allocation's events so far, in order, its tasks' included."""
    found = rows_of(
        url, "select event_type from outbox where payload ->> 'allocation_id' = %s order by id", str(allocation_id)
    )
    return [row[0] for row in found]


def transitions_of(url: str, allocation_id: uuid.UUID) -> list[str]:
    """The states the allocation went through, by its timeline."""
    found = rows_of(
        url,
        "select to_state from allocation_timeline where allocation_id = %s and kind = 'transition' order by id",
        allocation_id,
    )
    return [row[0] for row in found]


def operation(seeded: Seeded, key: str | None = None) -> Operation:
    """A write of the tenant's under a key."""
    return Operation(seeded.tenant_id, key or uuid.uuid4().hex, b"\0" * 32, 3600.0)


def completed(task: dict[str, Any], result: dict[str, Any]) -> ResultReport:
    """The report of a task that went well."""
    return ResultReport(fence=task["fence"], outcome="completed", result=result)


def failed(task: dict[str, Any], code: FailureCode = FailureCode.DRIVER_ERROR) -> ResultReport:
    """The report of a task that did not."""
    return ResultReport(fence=task["fence"], outcome="failed", failure=TaskFailure(code=code, detail="it broke"))


async def report(context: Context, task: dict[str, Any], of: ResultReport) -> ResultAnswer:
    """Report as the task's node would."""
    return await accept_task_result(context, task["node_id"], task["node_epoch"], task["id"], of)


async def provision(context: Context, url: str, allocation_id: uuid.UUID) -> None:
    """requested -> active."""
    begun = await begin_provisioning(context, allocation_id, f"provisioning-{allocation_id}")
    assert isinstance(begun, Begun)
    task = task_of(url, allocation_id)
    await report(context, task, completed(task, PROVISIONED))
    await finish_provisioning(context, allocation_id)


async def release(context: Context, seeded: Seeded, allocation_id: uuid.UUID, key: str | None = None) -> Answer:
    """The tenant's release."""
    return await release_allocation(context, operation(seeded, key), TENANT, seeded.tenant_id, allocation_id)


async def clean_up(
    context: Context,
    url: str,
    allocation_id: uuid.UUID,
    proof: Callable[[dict[str, Any]], dict[str, Any]] = lambda task: WIPED,
) -> Outcome:
    """Release or clean up an allocation until its units are free; return the outcome of the last step.

    `proof` makes the node's result from the row of its task.
    """
    notify = f"releasing-{allocation_id}"
    begun = await begin_release(context, allocation_id, notify)
    assert isinstance(begun, Begun)
    task = task_of(url, allocation_id)
    await report(context, task, completed(task, proof(task)))
    return await finish_release(context, allocation_id, notify)
