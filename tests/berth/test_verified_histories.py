"""`berth verify` finds nothing in any history that real commands made, whatever their order and whoever came at once."""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, example, given, settings

from berth.verification import run_checks
from tests.lifecycle.seeding import connect, seed
from tests.lifecycle.test_interleavings import (
    EVERY_END,
    GPUS_LIMIT,
    World,
    _context,
    _fresh_node,
    _together,
    stories,
)


def test_no_legal_history_is_called_a_violation(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=0, gpus_limit=GPUS_LIMIT)

    with asyncio.Runner() as runner:
        context = runner.run(_context(database_url))

        @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
        @given(stories)
        @example(EVERY_END)
        def play(story: list[list[tuple[str, int, str]]]) -> None:
            world = World(database_url, context, _fresh_node(database_url, seeded))
            for batch in [[("create", 0, "")], [("create", 1, "")], *story]:
                runner.run(_together(world, batch))
            with connect(database_url) as connection:
                # Nodes report here without having asked; who looks for proof must find that something reached a node.
                connection.execute("update node_tasks set dispatched_at = queued_at where finished_at is not null")
                connection.execute("select log_advance(100000)")
                connection.execute("update nodes set state = 'cordoned'")
                connection.execute("update tenant_quotas set gpus_limit = gpus_used + %s", (GPUS_LIMIT,))
            broken = {v.promise: v.violations for v in run_checks(database_url) if not v.kept}
            assert broken == {}

        try:
            play()
        finally:
            runner.run(context.database.close())
