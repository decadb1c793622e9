"""Keeps the gauges of how far metering is behind the log."""

from __future__ import annotations

from orchestrator.billing.queries import find_metering_lag
from orchestrator.operations.execution import Context
from worker.metrics import METERING_LAG_SECONDS, METERING_LAG_VERSIONS


async def measure_metering(context: Context) -> None:
    """In versions, and in seconds since the first of them was committed."""
    lag = await find_metering_lag(context)
    METERING_LAG_VERSIONS.set(lag.versions)
    METERING_LAG_SECONDS.set(lag.seconds)
