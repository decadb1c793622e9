"""The history of hardware: entries and closed repairs past their retention, and counts."""

from __future__ import annotations

from orchestrator.nodes.commands.repairs import retire_hardware
from orchestrator.nodes.hardware.queries import count_hardware
from orchestrator.operations.execution import Context
from worker.metrics import HARDWARE
from worker.sweepers.metrics import SWEPT


async def sweep_hardware(context: Context, retention_seconds: float, limit: int) -> None:
    """Delete at most `limit` entries, and as many closed repairs, past their retention; set the gauges."""
    SWEPT.labels("hardware_history").inc(await retire_hardware(context, retention_seconds, limit))
    for state, count in (await count_hardware(context)).items():
        HARDWARE.labels(state).set(count)
