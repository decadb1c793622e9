"""Bugs planted into the worker's consumers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.testbuild.planting import replace


def acknowledge_first() -> None:
    """An event is acknowledged, and NATS has that, before it has led to anything."""
    from worker.consumers.consumer import EventConsumer

    genuine = EventConsumer._answer

    async def nothing(*_: Any, **__: Any) -> None:
        """The message is acknowledged already."""

    async def answer(self: Any, message: Any) -> None:
        await message.ack_sync()
        message.ack = message.nak = message.term = nothing
        await genuine(self, message)

    replace(EventConsumer, "_answer", answer)


def reuse_workflow_ids() -> None:
    """Temporal's default: an id that has completed may be used again."""
    from worker.workflows import starting

    policy = vars(starting)["WorkflowIDReusePolicy"]
    everything = SimpleNamespace(
        ALLOW_DUPLICATE=policy.ALLOW_DUPLICATE, ALLOW_DUPLICATE_FAILED_ONLY=policy.ALLOW_DUPLICATE
    )
    replace(starting, "WorkflowIDReusePolicy", everything)
