"""Random interleavings of every lifecycle command, several at once in real transactions, keep every invariant."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.operations.execution import Context, Limits
from tests.allocations.invariants import violations
from tests.allocations.seeding import Seeded, add_node, connect, make_context, seed
from tests.support.interleavings import COMMANDS, EVERY_END, GPUS_LIMIT, World

steps = st.tuples(st.sampled_from(COMMANDS), st.integers(0, 3), st.sampled_from(["wf-a", "wf-b"]))
stories = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=14)


# Long. tests/model/test_replay.py has histories in `make test`.
@pytest.mark.full
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
