"""Measures how far metering is behind the log."""

from __future__ import annotations

from orchestrator.billing.queries import find_metering_lag
from orchestrator.operations.execution import Context
from worker.metrics import METERING_LAG_SECONDS, METERING_LAG_VERSIONS


async def measure_metering_lag(context: Context) -> None:
    """Set the lag in versions, and in seconds since the first unmetered version was committed."""
    lag = await find_metering_lag(context)
    METERING_LAG_VERSIONS.set(lag.versions)
    METERING_LAG_SECONDS.set(lag.seconds)
