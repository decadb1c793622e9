"""Runs the sweepers one after another, for ever. Trouble that passes is logged; anything else ends the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog
from temporalio.service import RPCError

from orchestrator.problems import Problem
from worker.metrics import SWEEP_FAILURES

log = structlog.get_logger()


async def sweep_for_ever(sweepers: Mapping[str, Callable[[], Awaitable[None]]], pause_seconds: float) -> None:
    """One round of all sweepers, a pause, and again."""
    while True:
        for name, sweep in sweepers.items():
            try:
                await sweep()
            except (Problem, RPCError) as error:
                SWEEP_FAILURES.labels(name).inc()
                log.warning("sweep_failed", sweeper=name, why=str(error))
        await asyncio.sleep(pause_seconds)
