"""Commands on one allocation in any order, and the state that they must leave."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.verbs import begin_verb, finish_verb, order_verb
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.states import Verb
from orchestrator.operations.execution import Context
from tests.allocations.driving import (
    ADMIN,
    CONNECTION,
    NOT_WIPED,
    PROVISIONED,
    TENANT,
    WIPED,
    completed,
    failed,
    operation,
    release,
    report,
)
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import Seeded, connect, try_create

GPUS_LIMIT = 6


COMMANDS = (
    "create", "create_overdue", "begin_provisioning", "finish_provisioning", "release", "force_release", "begin_release",
    "finish_release", "fail_unstarted", "report_well", "report_badly", "report_unproven", "report_older",
    "stop_guest", "rebuild_guest", "begin_verb", "finish_verb",
    "provision", "provision", "provision", "clean_up", "clean_up", "fail_to_clean_up",
)  # fmt: skip


EVERY_END = [
    [("provision", 0, "wf-a"), ("begin_provisioning", 1, "wf-b")],
    [("release", 0, ""), ("report_badly", 1, "")],
    [("fail_to_clean_up", 0, "wf-a"), ("finish_provisioning", 1, "")],
    [("finish_release", 0, "wf-a"), ("clean_up", 1, "wf-b")],
    [("create", 0, "")],
    [("provision", 2, "wf-a")],
    [("stop_guest", 2, ""), ("rebuild_guest", 2, "")],
    [("begin_verb", 2, "wf-a"), ("begin_verb", 2, "wf-b")],
    [("report_well", 2, ""), ("finish_verb", 2, "")],
    [("finish_verb", 2, ""), ("force_release", 0, ""), ("force_release", 2, "")],
    [("clean_up", 0, "wf-a"), ("clean_up", 2, "wf-b")],
    [("create", 0, "")],
    [("begin_provisioning", 3, "wf-a")],
    [("release", 3, "")],
]
"""One story that reaches every final state, so that the random ones need not."""


@dataclass
class World:
    """One node, one tenant with a quota smaller than the node, and what was created on it."""

    url: str
    context: Context
    seeded: Seeded
    ids: list[uuid.UUID] = field(default_factory=list)

    async def take(self, command: str, which: int, notify: str) -> None:
        """One step; on an allocation that is not there, nothing."""
        if command.startswith("create"):
            await asyncio.to_thread(self._create, which, -1.0 if command == "create_overdue" else 300.0)
        elif self.ids:
            await self._act(command, self.ids[which % len(self.ids)], notify)

    def _create(self, which: int, start_seconds: float) -> None:
        with connect(self.url) as connection:
            made = try_create(connection, self.seeded, gpus=(1, 2, 4)[which % 3], start_seconds=start_seconds)
        if made is not None:
            self.ids.append(made)

    async def _act(self, command: str, allocation_id: uuid.UUID, notify: str) -> None:
        context = self.context
        match command:
            case "begin_provisioning":
                await begin_provisioning(context, allocation_id, notify)
            case "finish_provisioning":
                await finish_provisioning(context, allocation_id)
            case "release":
                await release(context, self.seeded, allocation_id)
            case "force_release":
                await force_release(context, admin_operation(), ADMIN, allocation_id, "tried")
            case "begin_release":
                await begin_release(context, allocation_id, notify)
            case "finish_release":
                await finish_release(context, allocation_id, notify)
            case "stop_guest" | "rebuild_guest":
                verb = Verb.STOP if command == "stop_guest" else Verb.REBUILD
                seeded = self.seeded
                await order_verb(context, operation(seeded), TENANT, seeded.tenant_id, allocation_id, verb)
            case "begin_verb":
                await begin_verb(context, allocation_id, notify)
            case "finish_verb":
                await finish_verb(context, allocation_id)
            case "fail_unstarted":
                await fail_unstarted(context, allocation_id)
            case "provision":
                for part in ("begin_provisioning", "report_well", "finish_provisioning"):
                    await self._act(part, allocation_id, notify)
            case "clean_up" | "fail_to_clean_up":
                report_ = "report_well" if command == "clean_up" else "report_unproven"
                for part in ("begin_release", report_, "finish_release"):
                    await self._act(part, allocation_id, notify)
            case _:
                await self._report(command, allocation_id)

    async def _report(self, how: str, allocation_id: uuid.UUID) -> None:
        tasks = await asyncio.to_thread(self._tasks, allocation_id)
        if not tasks:
            return
        task = tasks[0] if how == "report_older" else tasks[-1]
        releasing = "release" in task["type"]
        verb = task["type"] in ("allocation.stop", "allocation.rebuild")
        if how == "report_badly":
            await report(self.context, task, failed(task))
        elif releasing:
            await report(self.context, task, completed(task, NOT_WIPED if how == "report_unproven" else WIPED))
        elif verb:
            connection = None if task["type"] == "allocation.stop" else CONNECTION
            await report(self.context, task, completed(task, {"connection": connection}))
        else:
            await report(self.context, task, completed(task, PROVISIONED))

    def _tasks(self, allocation_id: uuid.UUID) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            query = "select * from node_tasks where allocation_id = %s order by fence"
            return connection.execute(query, (allocation_id,)).fetchall()
