"""Constructs the objects of the audit streamer and supervises its loops: one for each target."""

from __future__ import annotations

import asyncio

import structlog

from orchestrator.database.transactions import connect_database
from orchestrator.heap import settle_heap
from orchestrator.operations.execution import Context, Limits
from worker.audit_stream.settings import AuditStreamSettings
from worker.audit_stream.streamer import Streamer
from worker.health import Health, ask_database, examine_for_ever
from worker.startup import await_database
from worker.supervision import supervise

POOL_SIZE = 4

log = structlog.get_logger()


def make_context(settings: AuditStreamSettings) -> Context:
    """The context of the streamer's commands."""
    database = connect_database(
        settings.database_url,
        pool_size=POOL_SIZE,
        reserve_size=1,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-audit-stream",
    )
    return Context(database, Limits())


async def run_audit_stream(settings: AuditStreamSettings, health: Health, stop: asyncio.Event) -> None:
    """Run until `stop` is set. Raises `CannotRun` if the database is missing or a loop ends."""
    context, targets = make_context(settings), settings.targets()
    try:
        await await_database(context.database, settings.startup_seconds_max, health)
        loops = {
            asyncio.create_task(Streamer(context, target, settings.pace()).run(), name=f"audit stream {target.name}")
            for target in targets
        }
        questions = {"database": ask_database(context.database)}
        loops.add(asyncio.create_task(examine_for_ever(health, questions), name="readiness"))
        settle_heap()
        health.started = True
        log.info("audit_stream_started", targets=[target.name for target in targets])
        await supervise(loops, stop)
    finally:
        await context.database.close()
