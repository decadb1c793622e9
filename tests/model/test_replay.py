"""With several clients at once, the model follows the log to the tables, and every response was justified."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.catalogue.cache import CatalogueCache
from tests.allocations.seeding import make_context, seed
from tests.model.driving import Run, Step, Story
from tests.model.log import Event
from tests.model.replaying import replay
from tests.model.state import State
from tests.support.model_runs import GPUS_LIMIT, fresh_run

VERBS = (
    "hold", "hold", "hold", "gpus", "confirm", "confirm", "cancel", "twice", "at_the_deadline", "over", "expire", "end_window",
    "pass", "use", "use", "create", "end", "end", "run", "release", "clean_up",
)  # fmt: skip
steps = st.tuples(st.sampled_from(VERBS), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
stories = st.lists(st.lists(steps, min_size=1, max_size=5), min_size=1, max_size=12)

EVERY_END: list[list[Step]] = [
    [("hold", 0, 1, 0), ("hold", 0, 1, 0), ("hold", 6, 1, 0)],
    [("hold", 1, 1, 3), ("hold", 1, 1, 4), ("hold", 1, 1, 6)],
    [("confirm", 0, 1, 0), ("cancel", 0, 1, 0)],
    [("hold", 2, 2, 5), ("hold", 3, 2, 1), ("hold", 7, 2, 7), ("hold", 7, 2, 8), ("hold", 8, 1, 3)],
    [("confirm", 3, 1, 0), ("confirm", 4, 2, 0), ("confirm", 3, 2, 0)],
    [("pass", 0, 0, 0)],
    [("pass", 0, 0, 0)],
    [("end_window", n, 0, 0) for n in range(6)],
    [("expire", n, 0, 0) for n in range(6)],
    [("create", 0, 0, 0), ("gpus", 1, 1, 0), ("twice", 4, 1, 0), ("twice", 4, 1, 1), ("twice", 4, 1, 2)],
    [("at_the_deadline", 2, 0, 0), ("at_the_deadline", 3, 0, 0)],
    [("over", 4, 0, 0), ("over", 0, 0, 0), ("over", 1, 0, 0)],
    [("run", 0, 0, 0), ("confirm", 7, 1, 0), ("cancel", 1, 0, 0)],
    [("release", 0, 0, 0)],
    [("clean_up", 0, 0, 0)],
    [("hold", 5, 1, 0), ("create", 2, 0, 0), ("gpus", 0, 0, 0)],
    [("use", n, 0, 0) for n in range(20)],
    [("end", n, m, 0) for n in range(4) for m in (1, 2)],
    [("end", 0, 0, 0), ("hold", 0, 1, 4), ("hold", 1, 1, 3), ("hold", 2, 1, 2)],
    [("run", n, 0, 0) for n in range(4)],
    [("end", n, m, 0) for n in range(4) for m in (3, 0, 4)],
    [("release", n, 0, 0) for n in range(4)],
    [("clean_up", n, 0, 0) for n in range(4)],
]
"""A story that reaches every end and most refusals, so that the random ones need not."""
CONFIRMED: list[list[Step]] = [[("hold", 0, 1, 0)], [("confirm", 0, 1, 0)]]
"""A story that leaves a confirmed reservation."""


def test_every_history_replays_to_its_tables_and_its_answers(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=0, gpus_limit=GPUS_LIMIT)
    reached: Counter[str] = Counter()

    with asyncio.Runner() as runner:

        async def begin() -> Run:
            context = make_context(database_url, pool_size=8)
            return Run(database_url, context, seeded, CatalogueCache(context.database, 0.0))

        first = runner.run(begin())

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        @given(stories)
        @example(EVERY_END)
        @example(CONFIRMED)
        def play(story: Story) -> None:
            run = fresh_run(database_url, first)
            runner.run(run.play(story))
            assert "\n".join(run.judge()) == ""
            reached.update(asked.code for asked in run.asked)
            state = run.replayed().state
            reached.update(one.state for one in state.reservations.values())
            reached.update("another end" for one in state.allocations.values() if one.former)

        try:
            play()
        finally:
            runner.run(first.context.database.close())
    wanted = {"ok", "noop", "hold", "confirmed", "cancelled", "expired", "released", "resource_busy", "invalid_state",
              "holder_mismatch", "reservation_not_found", "resource_not_found", "ttl_out_of_range", "window_invalid",
              "operation_conflict", "quota_exceeded", "consumed", "another end"}  # fmt: skip
    assert wanted <= set(reached), wanted - set(reached)


def test_the_order_of_a_verb_concludes_its_operation() -> None:
    event = Event(
        1, "allocation.verb_requested", datetime.now(UTC), "acme", "k", {"allocation_id": "a", "verb": "stop"}
    )
    followed = replay([event], State(resources={}, out_of_service=frozenset(), quotas={}))
    assert followed.divergences == []
    assert followed.state.operations["acme", "k"].code == "ok"
