"""Releases that failed until their attempts were exhausted."""

from __future__ import annotations

import uuid

from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.operations.execution import Context, Limits
from tests.allocations.driving import (
    failed,
    report,
    task_of,
)

ONCE = Limits(release_attempts_max=1)


async def stuck_failure(context: Context, url: str, allocation_id: uuid.UUID) -> None:
    """-> failed, its slots cleanup_blocked."""
    await begin_provisioning(context, allocation_id, "wf")
    task = task_of(url, allocation_id)
    await report(context, task, failed(task))
    await finish_provisioning(context, allocation_id)
    await begin_release(context, allocation_id, "wf")
    task = task_of(url, allocation_id)
    await report(context, task, failed(task))
    await finish_release(context, allocation_id, "wf")
