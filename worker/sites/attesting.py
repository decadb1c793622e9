"""Attestations on demand: signed when an operator has requested them, and judged when their answer has come."""

from __future__ import annotations

import structlog

from orchestrator.nodes.attestation.queries import find_open_attestations
from orchestrator.nodes.attestation.rules import OnFailure
from orchestrator.operations.execution import Context
from orchestrator.sites.commands.attestations import Advanced, advance_attestation
from worker.sweepers.metrics import SWEPT
from worker.sweepers.sweeper import isolate_failure

log = structlog.get_logger()


async def sweep_attestations(context: Context, on_failure: OnFailure, limit: int) -> None:
    """Sign or judge at most `limit` attestations."""
    for node_id in await find_open_attestations(context, limit):
        with isolate_failure("attestations", node_id=str(node_id)):
            if (advanced := await advance_attestation(context, node_id, on_failure)) is not None:
                SWEPT.labels(f"attestation_{advanced}").inc()
                write = log.info if advanced in (Advanced.ISSUED, Advanced.PASSED) else log.warning
                write(f"attestation_{advanced}", node_id=str(node_id))
