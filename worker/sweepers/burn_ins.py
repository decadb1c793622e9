"""Burn-ins and resets of GPUs: issued when an operator has requested them, and concluded when their task has ended."""

from __future__ import annotations

import structlog

from orchestrator.nodes.burn_ins.queries import find_open_burn_ins
from orchestrator.nodes.commands import gpu_resets
from orchestrator.nodes.commands.burn_ins import Advanced, BurnInPolicy, advance_burn_in
from orchestrator.nodes.gpu_resets.queries import find_open_gpu_resets
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


async def sweep_gpu_resets(context: Context, history_max: int, limit: int) -> None:
    """Issue or conclude at most `limit` resets; `history_max` ended ones are kept of each node."""
    for node_id in await find_open_gpu_resets(context, limit):
        with isolate_failure("gpu_resets", node_id=str(node_id)):
            if (advanced := await gpu_resets.advance_gpu_reset(context, node_id, history_max)) is not None:
                SWEPT.labels(f"gpu_reset_{advanced}").inc()
                write = log.warning if advanced is gpu_resets.Advanced.FAILED else log.info
                write(f"gpu_reset_{advanced}", node_id=str(node_id))
