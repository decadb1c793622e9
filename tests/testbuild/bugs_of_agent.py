"""Bugs planted into the agent."""

from __future__ import annotations

from typing import Any

from tests.testbuild.planting import replace


def accept_old_fences() -> None:
    """The agent takes any task that was signed, however old its fence."""
    from node_agent.journal_state import JournalState

    replace(JournalState, "fence_objection", lambda self, body: None)


def begin_before_journaling() -> None:
    """An effect begins before its start is journaled."""
    from node_agent.executor import Executor
    from node_agent.journal_records import Started

    async def carried_out(self: Any, run: Any, progress: Any) -> Any:
        report = await self._effects.carry_out(run.body, run.interrupted, progress.offer)
        if not run.began_before:
            self._journal.append(Started(task_id=run.body.task_id))
            await self._journal.sync()
        return report

    replace(Executor, "_carried_out", carried_out)
