"""`berth verify` finds no violation in any history of real, concurrent commands in any order."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.allocations.commands.force import force_cleanup
from orchestrator.operations.execution import Limits
from orchestrator.verification import run_checks
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import add_node, connect, make_context, seed
from tests.support.interleavings import COMMANDS, EVERY_END, GPUS_LIMIT, World

Story = list[list[tuple[str, int, str]]]

steps = st.tuples(st.sampled_from([*COMMANDS, "force_cleanup"]), st.integers(0, 3), st.sampled_from(["wf-a", "wf-b"]))
stories = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=14)

ON_AN_ADMIN_S_WORD: Story = [
    [("provision", 0, "wf-a"), ("provision", 1, "wf-b")],
    [("release", 0, ""), ("release", 1, "")],
    [("fail_to_clean_up", 0, "wf-a"), ("force_cleanup", 1, "")],
    [("fail_to_clean_up", 0, "wf-a"), ("create", 0, ""), ("create", 1, "")],
    [("force_cleanup", 0, ""), ("finish_release", 0, "wf-a"), ("begin_provisioning", 2, "wf-a")],
    [("create", 1, ""), ("report_badly", 2, ""), ("report_older", 0, "")],
    [("finish_provisioning", 2, "")],
    [("force_cleanup", 2, ""), ("force_cleanup", 2, "")],
    [("create", 2, ""), ("clean_up", 2, "wf-b")],
]
"""Units that were given back without proof from a node, and taken again."""


class WorldWithForcedCleanup(World):
    """A world in which an admin may also state that nothing is left."""

    async def _act(self, command: str, allocation_id: uuid.UUID, notify: str) -> None:
        if command == "force_cleanup":
            await force_cleanup(self.context, admin_operation(), ADMIN, allocation_id, "the node was scrapped")
        else:
            await super()._act(command, allocation_id, notify)


# Long. tests/berth/test_verification.py judges a busy database.
@pytest.mark.full
def test_no_legal_history_is_called_a_violation(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=0, gpus_limit=GPUS_LIMIT)
    limits = Limits(release_attempts_max=2)

    with asyncio.Runner() as runner:

        async def connected() -> WorldWithForcedCleanup:
            return WorldWithForcedCleanup(database_url, make_context(database_url, pool_size=6, limits=limits), seeded)

        async def together(world: WorldWithForcedCleanup, batch: list[tuple[str, int, str]]) -> None:
            await asyncio.gather(*(world.take(*step) for step in batch))

        context = runner.run(connected()).context

        @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
        @given(stories)
        @example(EVERY_END)
        @example(ON_AN_ADMIN_S_WORD)
        def play(story: Story) -> None:
            with connect(database_url) as connection:
                # The last story's node takes no more; its quota is given back.
                connection.execute("update nodes set state = 'cordoned'")
                connection.execute("update tenant_quotas set gpus_limit = gpus_used + %s", (GPUS_LIMIT,))
                add_node(connection, seeded.pools["gpu_slice"], f"n-{uuid.uuid4().hex[:12]}", "gpu_slice")
            world = WorldWithForcedCleanup(database_url, context, seeded)
            for batch in [[("create", 0, "")], [("create", 1, "")], *story]:
                runner.run(together(world, batch))
            with connect(database_url) as connection:
                # Nodes report here without having asked; the checks of cleanup proof need a dispatched task.
                connection.execute("update node_tasks set dispatched_at = queued_at where finished_at is not null")
                connection.execute("select log_advance(100000)")
            broken = {verdict.promise: verdict.violations for verdict in run_checks(database_url) if not verdict.kept}
            assert broken == {}

        try:
            play()
        finally:
            runner.run(context.database.close())
    with connect(database_url) as connection:
        audited = connection.execute("select from audit where action = 'allocation.force_cleanup'").fetchall()
    assert audited, "the stories must lead there"
