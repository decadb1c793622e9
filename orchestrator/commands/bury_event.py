"""A consumer of the log gives up on an event."""

from __future__ import annotations

from orchestrator.execution import Context, transact
from orchestrator.store import dead_letters
from orchestrator.store.dead_letters import Burial


async def bury_event(context: Context, burial: Burial) -> bool:
    """Keep the event as a dead letter; the consumer may then acknowledge it. Repeating it makes no second one.

    False if a person discarded it, or a retry handled it, before it came again.
    """
    return await transact(context, lambda tx: dead_letters.bury(tx, burial))
