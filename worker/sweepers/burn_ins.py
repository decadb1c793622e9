"""Burn-ins of nodes: issued when an operator has requested them, and concluded when their task has ended."""

from __future__ import annotations

import structlog

from orchestrator.nodes.burn_ins.queries import find_open_burn_ins
from orchestrator.nodes.commands.burn_ins import Advanced, BurnInPolicy, advance_burn_in
from orchestrator.operations.execution import Context
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_burn_ins(context: Context, policy: BurnInPolicy, limit: int) -> None:
    """Issue or conclude at most `limit` burn-ins."""
    for node_id in await find_open_burn_ins(context, limit):
        with isolate_failure("burn_ins", node_id=str(node_id)):
            if (advanced := await advance_burn_in(context, node_id, policy)) is not None:
                SWEPT.labels(f"burn_in_{advanced}").inc()
                write = log.warning if advanced in (Advanced.FAULTY, Advanced.FAILED) else log.info
                write(f"burn_in_{advanced}", node_id=str(node_id))
