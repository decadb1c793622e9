"""Mutants of readiness and liveness."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GONE = "tests/readiness/test_servers_gone.py::test_a_server_that_is_gone_makes_unready_what_needs_it_and_kills_nothing"
_FROZEN = "tests/readiness/test_frozen_loops.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "a frozen event loop counts as live",
        "worker",
        "berth/process/health_server.py",
        "is_live = silent < self.server.frozen_seconds",
        "is_live = True",
        (f"{_FROZEN}::test_a_frozen_loop_is_not_live_and_one_that_turns_again_is",),
    ),
    Mutant(
        "each question about a loop begins a new wait",
        "worker",
        "berth/process/loop_pulse.py",
        "if self._scheduled_at is not None:",
        "if False:",
        (f"{_FROZEN}::test_questions_about_a_loop_leave_one_callback_waiting",),
    ),
    Mutant(
        "liveness asks the database",
        "edge",
        "orchestrator/edge/health_endpoints.py",
        "async def live() -> str:",
        "async def live(parts: Parts) -> str:\n    await parts.schema.answer_for(parts.context.database, None)",
        (f"{_GONE}[postgres]",),
    ),
    Mutant(
        "liveness is shed under overload",
        "edge",
        "orchestrator/edge/edge.py",
        '"/ok", "/live", "/metrics"',
        '"/ok", "/metrics"',
        ("tests/api/test_overload.py::test_only_what_ends_something_is_never_shed[GET-/live-200]",),
    ),
    Mutant(
        "a worker is ready without Temporal",
        "worker",
        "worker/health.py",
        "return self.started and not self.unreachable",
        "return self.started",
        (f"{_GONE}[temporal]",),
    ),
]
