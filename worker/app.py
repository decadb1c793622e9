"""The only place where the worker's things are constructed and supervised."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from nats.aio.client import Client as NatsClient
from temporalio.client import Client as TemporalClient
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.direct_connection import connect_directly
from orchestrator.database.transactions import connect_database
from orchestrator.heap import settle_heap
from orchestrator.operations.execution import Context
from orchestrator.tasks.signing import load_signer
from orchestrator.webhooks.keys import WebhookKeys
from worker.activities.lifecycle import LifecycleActivities
from worker.connecting import await_database, connect_nats, connect_temporal
from worker.consumers.consumer import EventConsumer
from worker.consumers.durable import DurableConsumer
from worker.consumers.giving_up import GivingUp
from worker.consumers.pulling import Puller
from worker.consumers.retrying import retry_dead_letters
from worker.health import Health
from worker.metering.log_source import LogSource
from worker.metering.meter import meter_for_ever
from worker.problems import CannotRun
from worker.settings import Settings
from worker.sweepers.balances import sweep_balances
from worker.sweepers.beginnings import Beginnings
from worker.sweepers.census import CensusTaker
from worker.sweepers.endings import sweep_ended, sweep_ending
from worker.sweepers.expired_tasks import sweep_expired_tasks
from worker.sweepers.lost_workflows import LostWorkflows
from worker.sweepers.metering import measure_metering
from worker.sweepers.overdue import sweep_overdue
from worker.sweepers.reconciliation import Reconciler
from worker.sweepers.reservations import sweep_overdue_holds, sweep_retired_reservations, sweep_windows_over
from worker.sweepers.retirement import sweep_deleted_keys, sweep_operations
from worker.sweepers.rounds import sweep_for_ever
from worker.sweepers.silence import sweep_silent_nodes
from worker.sweepers.truncation import LogTruncator
from worker.sweepers.webhooks import WebhookSweeper
from worker.webhooks.destinations import Resolver
from worker.webhooks.dispatching import Dispatcher as WebhookDispatcher
from worker.webhooks.sending import Sender
from worker.workflows.provisioning import ProvisioningWorkflow
from worker.workflows.release import ReleaseWorkflow
from worker.workflows.starting import WorkflowStarter

log = structlog.get_logger()

CATALOGUE_CACHE_SECONDS = 1.0
CANCEL_AGAIN_SECONDS = 1.0


def make_context(settings: Settings) -> Context:
    """What commands work with. Raises `CannotRun` if the signing key cannot be read."""
    try:
        signer = load_signer(settings.task_signing_key_file)
    except (OSError, ValueError) as error:
        raise CannotRun(f"the task signing key cannot be used: {error}") from error
    database = connect_database(
        settings.database_url,
        pool_size=settings.database_pool_size,
        reserve_size=1,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-worker",
    )
    return Context(database, settings.limits(), signer, settings.fault_labels_allowed)


def sandbox() -> SandboxedWorkflowRunner:
    """The sandbox stays on; only what is pure is passed through, so that it need not be loaded for every run."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("worker.activities", "worker.metrics")
    return SandboxedWorkflowRunner(restrictions=restrictions)


def make_worker(client: TemporalClient, context: Context, settings: Settings) -> Worker:
    """The Temporal worker, not running yet."""
    activities = LifecycleActivities(context)
    return Worker(
        client,
        task_queue=settings.worker_task_queue,
        workflows=[ProvisioningWorkflow, ReleaseWorkflow],
        activities=[
            activities.begin_provisioning,
            activities.finish_provisioning,
            activities.begin_release,
            activities.finish_release,
        ],
        workflow_runner=sandbox(),
        # Every activity is local, so nobody need ask the server for remote ones.
        no_remote_activities=True,
        max_cached_workflows=settings.worker_workflows_cached_max,
        max_concurrent_local_activities=settings.worker_commands_in_flight_max,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.worker_sticky_seconds),
        graceful_shutdown_timeout=timedelta(seconds=settings.worker_graceful_stop_seconds),
    )


async def run_worker(settings: Settings, health: Health, stop: asyncio.Event) -> None:
    """Work until `stop` is set, then end in order. Raises `CannotRun` when a server is missing or a loop dies."""
    context = make_context(settings)
    try:
        await await_database(context.database, settings)
        nats_connection = await connect_nats(settings)
        try:
            client = await connect_temporal(settings)
            await _supervise(settings, health, stop, context, nats_connection, client)
        finally:
            await nats_connection.close()
    finally:
        await context.database.close()


async def _supervise(
    settings: Settings,
    health: Health,
    stop: asyncio.Event,
    context: Context,
    nats_connection: NatsClient,
    client: TemporalClient,
) -> None:
    starter = WorkflowStarter(client, settings.worker_task_queue, settings.worker_step_seconds)
    durable = DurableConsumer(nats_connection.jetstream(), context, settings, health)
    puller = Puller(
        nats_connection,
        stream=settings.log_stream_name,
        consumer=settings.worker_consumer_name,
        messages_max=settings.worker_events_in_flight_max,
        heartbeat_seconds=settings.worker_pull_heartbeat_seconds,
        bind=durable.bind,
    )
    consumer = EventConsumer(
        puller,
        starter,
        GivingUp(
            context,
            settings.worker_consumer_name,
            tries_max=settings.worker_event_tries_max,
            pause_seconds=settings.worker_retry_event_seconds,
            pause_seconds_max=settings.worker_retry_event_seconds_max,
        ),
        in_flight_max=settings.worker_events_in_flight_max,
    )
    batch, grace = settings.sweep_batch_max, settings.sweep_grace_seconds
    lost_workflows = LostWorkflows(
        context, starter, consumer=settings.worker_consumer_name, patience_seconds=settings.rescue_patience_seconds,
        seconds=settings.rescue_seconds, limit=batch,
    )  # fmt: skip
    reconciler = Reconciler(
        context, seconds=settings.reconcile_seconds, nodes_max=settings.reconcile_nodes_max, limit=batch,
        inventories_min=settings.missing_inventories_min,
    )  # fmt: skip
    beginnings = Beginnings(context, CatalogueCache(context.database, CATALOGUE_CACHE_SECONDS), batch)
    truncator = LogTruncator(
        context, seconds=settings.log_truncation_seconds, age_seconds=settings.log_age_seconds_min,
        versions_min=settings.log_versions_min,
    )  # fmt: skip
    sweepers: dict[str, Callable[[], Awaitable[None]]] = {
        "balances": lambda: sweep_balances(context, batch),
        "allocations_ended": lambda: sweep_ended(context, batch),
        "due_starts": beginnings.start_due,
        "late_starts": beginnings.start_late,
        "stranded_reservations": beginnings.move_stranded,
        "units_to_start": beginnings.start_waiting,
        "ending_notices": lambda: sweep_ending(context, batch),
        "overdue": lambda: sweep_overdue(context, starter, grace, batch),
        "expired_tasks": lambda: sweep_expired_tasks(context, grace, batch),
        "lost_workflows": lost_workflows.sweep,
        "reconciliation": reconciler.sweep,
        "silent_nodes": lambda: sweep_silent_nodes(context, settings.node_silent_seconds, batch),
        "overdue_holds": lambda: sweep_overdue_holds(context, batch),
        "windows_over": lambda: sweep_windows_over(context, batch),
        "retired_reservations": lambda: sweep_retired_reservations(context, batch),
        "operations": lambda: sweep_operations(context),
        "deleted_keys": lambda: sweep_deleted_keys(context),
        "dead_letters": lambda: retry_dead_letters(
            context, starter, settings.worker_consumer_name, batch, settings.worker_dead_letter_retention_seconds
        ),
        "metering": lambda: measure_metering(context),
        "log": truncator.sweep,
        "webhooks": WebhookSweeper(
            context, seconds=settings.webhook_delivery_retention_seconds, kept=settings.webhook_deliveries_kept_max
        ).sweep,
        "census": CensusTaker(context, settings.census_seconds).take,
    }
    async with make_worker(client, context, settings):
        loops = {
            asyncio.create_task(consumer.run(), name="consumer"),
            asyncio.create_task(_save_positions(durable, settings.worker_position_seconds), name="positions"),
            asyncio.create_task(_meter(context, settings), name="metering"),
            asyncio.create_task(_deliver(context, settings), name="webhooks"),
            asyncio.create_task(sweep_for_ever(sweepers, settings.sweep_seconds), name="sweepers"),
        }
        stopping = asyncio.create_task(stop.wait(), name="stop")
        settle_heap()
        health.started = True
        log.info("worker_started", task_queue=settings.worker_task_queue, stream=settings.log_stream_name)
        try:
            await asyncio.wait({*loops, stopping}, return_when=asyncio.FIRST_COMPLETED)
            _require_alive(loops)
        finally:
            await end_all({*loops, stopping})
        await durable.save_position()


async def end_all(tasks: set[asyncio.Task[Any]], cancel_again_seconds: float = CANCEL_AGAIN_SECONDS) -> None:
    """Cancel until all have ended: a wait that is over at that very moment swallows the cancellation (cpython 86296)."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=cancel_again_seconds)


async def _save_positions(durable: DurableConsumer, pause_seconds: float) -> None:
    while True:
        await asyncio.sleep(pause_seconds)
        await durable.save_position()


async def _meter(context: Context, settings: Settings) -> None:
    source = LogSource(context, settings.metering_tick_seconds)
    connect = partial(
        connect_directly,
        settings.database_url,
        lock_timeout_seconds=settings.lock_timeout_seconds,
        transaction_timeout_seconds=settings.transaction_timeout_seconds,
        application="berth-metering",
    )
    await meter_for_ever(source, connect, settings.metering_batch_max)


async def _deliver(context: Context, settings: Settings) -> None:
    assert context.signer is not None, "the worker has one"
    resolver = Resolver(settings.webhook_attempts_max)
    sender = Sender(
        resolver.resolve,
        timeout_seconds=settings.webhook_timeout_seconds,
        http_allowed=settings.webhook_http_allowed,
        private_allowed=settings.webhook_private_addresses_allowed,
        tls=ssl.create_default_context(),
    )
    try:
        await WebhookDispatcher(context, WebhookKeys(context.signer), sender, settings.webhook_bounds()).run()
    finally:
        resolver.close()


def _require_alive(loops: set[asyncio.Task[None]]) -> None:
    """A loop that ended, however, is the end of the process: nobody may believe that it still works."""
    for task in loops:
        if task.done():
            error = task.exception()
            raise CannotRun(f"the loop {task.get_name()} ended: {type(error).__name__}: {error}") from error
