"""Does again, once a restore is closed, what was ended in its lost interval."""

from __future__ import annotations

import structlog

from orchestrator.allocations.commands.replays import replay_release
from orchestrator.operations.execution import Context
from orchestrator.reservations.commands.replays import replay_cancel
from orchestrator.restores.queries import find_replays
from orchestrator.restores.store import RELEASE
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_replays(context: Context, limit: int) -> None:
    """Release and cancel at most `limit` objects that had been ended, each in its own transaction."""
    for replay in await find_replays(context, limit):
        with isolate_failure("restore_replays", kind=replay.kind, id=str(replay.subject_id)):
            replays = replay_release if replay.kind == RELEASE else replay_cancel
            if await replays(context, replay):
                SWEPT.labels(f"replayed_{replay.kind}").inc()
                log.info("end_replayed", kind=replay.kind, id=str(replay.subject_id))
