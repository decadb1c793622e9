"""Random interleavings of every lifecycle command, several at once in real transactions, keep every invariant."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.operations.execution import Context, Limits
from tests.lifecycle.driving import ADMIN, NOT_WIPED, PROVISIONED, WIPED, completed, failed, release, report
from tests.lifecycle.invariants import violations
from tests.lifecycle.reconciling import admin_operation
from tests.lifecycle.seeding import Seeded, add_node, connect, make_context, seed, try_create

GPUS_LIMIT = 6
COMMANDS = (
    "create", "create_overdue", "begin_provisioning", "finish_provisioning", "release", "force_release", "begin_release",
    "finish_release", "fail_unstarted", "report_well", "report_badly", "report_unproven", "report_older",
    "provision", "provision", "provision", "clean_up", "clean_up", "fail_to_clean_up",
)  # fmt: skip

steps = st.tuples(st.sampled_from(COMMANDS), st.integers(0, 3), st.sampled_from(["wf-a", "wf-b"]))
stories = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=14)

EVERY_END = [
    [("provision", 0, "wf-a"), ("begin_provisioning", 1, "wf-b")],
    [("release", 0, ""), ("report_badly", 1, "")],
    [("fail_to_clean_up", 0, "wf-a"), ("finish_provisioning", 1, "")],
    [("finish_release", 0, "wf-a"), ("clean_up", 1, "wf-b")],
    [("create", 0, "")],
    [("force_release", 0, ""), ("force_release", 2, "")],
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
        if how == "report_badly":
            await report(self.context, task, failed(task))
        elif releasing:
            await report(self.context, task, completed(task, NOT_WIPED if how == "report_unproven" else WIPED))
        else:
            await report(self.context, task, completed(task, PROVISIONED))

    def _tasks(self, allocation_id: uuid.UUID) -> list[dict[str, Any]]:
        with psycopg.connect(self.url, autocommit=True, row_factory=dict_row) as connection:
            query = "select * from node_tasks where allocation_id = %s order by fence"
            return connection.execute(query, (allocation_id,)).fetchall()


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
def test_every_interleaving_keeps_the_promises(database_url: str, examples: int) -> None:
    seeded = seed(database_url, slice_nodes=0, gpus_limit=GPUS_LIMIT)
    reached: set[str] = set()

    with asyncio.Runner() as runner:
        context = runner.run(_context(database_url))

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
        @given(stories)
        @example(EVERY_END)
        def play(story: list[list[tuple[str, int, str]]]) -> None:
            world = World(database_url, context, _fresh_node(database_url, seeded))
            for batch in [[("create", 0, "")], [("create", 1, "")], *story]:
                runner.run(_together(world, batch))
                assert violations(database_url) == []
            with connect(database_url) as connection:
                reached.update(
                    row[0] for row in connection.execute("select distinct to_state from allocation_timeline")
                )
                # The next story begins with a free quota and another node.
                connection.execute("update nodes set state = 'cordoned'")
                connection.execute("update tenant_quotas set gpus_limit = gpus_used + %s", (GPUS_LIMIT,))

        try:
            play()
        finally:
            runner.run(context.database.close())
    assert {"active", "releasing", "released", "failed"} <= reached, "the stories must lead somewhere"


async def _context(url: str) -> Context:
    return make_context(url, pool_size=6, limits=Limits(release_attempts_max=2))


async def _together(world: World, batch: list[tuple[str, int, str]]) -> None:
    await asyncio.gather(*(world.take(*step) for step in batch))


def _fresh_node(url: str, seeded: Seeded) -> Seeded:
    with connect(url) as connection:
        add_node(connection, seeded.pools["gpu_slice"], f"n-{uuid.uuid4().hex[:12]}", "gpu_slice")
    return seeded
