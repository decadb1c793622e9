"""One round of the task of a maintenance window in place of worker and node."""

from __future__ import annotations

import base64
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from node_agent.protocol import FailureCode, ResultAnswer, TaskBody
from node_agent.wire.maintenance import MaintenancePluginReport
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.maintenance.commands.advance import advance_window
from orchestrator.maintenance.commands.windows import (
    Bounds,
    Wanted,
    cancel_maintenance,
    commit_maintenance,
    end_maintenance,
)
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.states import Resolution, TaskKind, WindowState, WindowTaskState
from orchestrator.maintenance.window_tasks import SECONDS, WantedTask
from orchestrator.nodes.commands.maintenance_tasks import advance_task
from orchestrator.nodes.maintenance_tasks.queries import find_open_tasks
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer
from orchestrator.reservations.resource_names import parse_resources
from tests.allocations.driving import ADMIN, completed, failed, report, row_of, rows_of
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import connect
from tests.nodes.answers import body_of
from tests.verifying import broken_promises

FEATURES = "{burn_in,gpu_reset,maintenance_plugin}"
PLUGIN = WantedTask(TaskKind.PLUGIN, "firmware", 600)
DONE = MaintenancePluginReport(plugin="firmware", outcome="completed", evidence="BIOS 1.2")
BROKEN = MaintenancePluginReport(plugin="firmware", outcome="failed", evidence="checksum")
TASK = "select * from maintenance_tasks where window_id = %s"


def task_of(kind: TaskKind) -> WantedTask:
    return WantedTask(kind, "firmware" if kind is TaskKind.PLUGIN else None, SECONDS[kind])


def knows_tasks(url: str, features: str = FEATURES) -> None:
    """As heartbeats of this version's agents say."""
    with connect(url) as connection:
        connection.execute("update nodes set agent_features = %s", (features,))


def set_online(url: str, *, online: bool) -> None:
    with connect(url) as connection:
        connection.execute("update nodes set online = %s", (online,))


async def commit(
    context: Context, node: uuid.UUID, task: WantedTask | None = PLUGIN, *, slots: tuple[int, ...] = (), hours: float = 8,
    starts: float = -1, key: Any = None,
) -> Answer:  # fmt: skip
    """A window, on the whole node or these slots, which has begun unless `starts` says otherwise."""
    now = datetime.now(UTC)
    names = [f"slot:{node}:{slot}" for slot in slots] or [f"node:{node}"]
    policies = Policies(Resolution.NOTIFY, Resolution.REFUSE)
    begins, ends = now + timedelta(hours=starts), now + timedelta(hours=hours)
    wanted = Wanted(parse_resources(names), begins, ends, "new firmware", policies, task)
    bounds = Bounds(100, CatalogueCache(context.database, 1.0))
    return await commit_maintenance(context, key or admin_operation(), ADMIN, wanted, bounds)


async def begun_window(
    context: Context, node: uuid.UUID, task: WantedTask | None = PLUGIN, **options: Any
) -> uuid.UUID:
    """An active window."""
    made = await commit(context, node, task, **options)
    assert made.status == 201, made.body
    window_id = uuid.UUID(body_of(made)["window_id"])
    assert await advance_window(context, window_id) is WindowState.ACTIVE
    return window_id


async def advance(context: Context, window_id: uuid.UUID, node: uuid.UUID) -> WindowTaskState | None:
    return await advance_task(context, window_id, node, {})


async def begin(context: Context, window_id: uuid.UUID, node: uuid.UUID) -> None:
    assert await find_open_tasks(context, 10) == [(window_id, node)]
    assert await advance(context, window_id, node) is WindowTaskState.RUNNING
    assert await find_open_tasks(context, 10) == []


def signed_task(url: str) -> dict[str, Any]:
    """The only task that was signed for a window."""
    return row_of(url, "select k.* from node_tasks k join maintenance_tasks m on m.task_id = k.id")


def parameters_of(task: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Type and parameters that the signed task has."""
    body = TaskBody.model_validate_json(base64.b64decode(task["envelope"]["payload"]))
    return body.type.value, body.parameters


async def answer(context: Context, url: str, found: Any) -> ResultAnswer:
    """The node's report of the signed task."""
    task = signed_task(url)
    if isinstance(found, FailureCode):
        return await report(context, task, failed(task, found))
    return await report(context, task, completed(task, json.loads(found.canonical())))


async def end(context: Context, window_id: uuid.UUID) -> Answer:
    return await end_maintenance(context, admin_operation(), ADMIN, window_id)


async def cancel(context: Context, window_id: uuid.UUID) -> Answer:
    return await cancel_maintenance(context, admin_operation(), ADMIN, window_id)


def time_is_over(url: str, window_id: uuid.UUID) -> None:
    """As if the end of the window had come: its claims keep their time, which no command changes."""
    with connect(url) as connection:
        connection.execute(
            "update maintenance_windows set (ends_at, waits_until) = (select s, s from (select clock_timestamp() as s) n)"
            " where id = %s",
            (window_id,),
        )
        connection.execute(
            "update maintenance_tasks set waits_until = clock_timestamp() where window_id = %s and state = 'waiting'",
            (window_id,),
        )


def state_of(url: str, window_id: uuid.UUID) -> tuple[str, str, str | None]:
    """State of the window, and state and failure code of its task."""
    window = row_of(url, "select state from maintenance_windows where id = %s", window_id)["state"]
    task = row_of(url, TASK, window_id)
    return window, task["state"], task["failure"] and task["failure"].split(":")[0]


def occupied(url: str) -> list[bool]:
    """Whether the claims of windows that are open occupy their units."""
    found = rows_of(
        url, "select occupied from claims where owner_kind = 'maintenance' and closed_at is null order by id"
    )
    return [row[0] for row in found]


def quarantines(url: str) -> list[tuple[int, str, str]]:
    found = rows_of(
        url, "select slot_index, reason, evidence from slot_quarantines where returned_at is null order by slot_index"
    )
    return [(row[0], row[1], row[2]) for row in found]


def ended_events(url: str) -> list[tuple[str, str | None]]:
    """State and failure that the events of ended tasks name."""
    found = rows_of(url, "select payload from outbox where event_type = 'maintenance.task_ended' order by id")
    return [(row[0]["state"], row[0]["failure"]) for row in found]


def sound(url: str) -> None:
    """No check of `berth verify` finds anything."""
    found = broken_promises(url)
    assert found == {}, found
