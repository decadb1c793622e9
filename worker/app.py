"""Constructs the worker's objects and supervises its loops. No other module constructs them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import structlog
from nats.aio.client import Client as NatsClient
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from orchestrator.database.direct_connection import connect_directly
from orchestrator.database.transactions import connect_database
from orchestrator.heap import settle_heap
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from orchestrator.tasks.signing import load_signer
from worker.activities.lifecycle import LifecycleActivities
from worker.connecting import ask_nats, ask_temporal, connect_nats, connect_temporal
from worker.consumers.consumer import EventConsumer
from worker.consumers.dead_letters import FailedEvents
from worker.consumers.durable import DurableConsumer
from worker.consumers.pulling import Puller
from worker.health import WorkerHealth, ask_database, examine_for_ever
from worker.metering.log_source import LogSource
from worker.metering.meter import meter_for_ever
from worker.payloads import PayloadKeys, load_payload_keys
from worker.problems import CannotRun
from worker.reconnecting import TemporalReconnection
from worker.settings import Settings
from worker.startup import await_database
from worker.supervision import supervise
from worker.sweepers.runner import SweepRunner
from worker.sweepers.table import make_prompt_sweepers, make_sweepers
from worker.workflows.provisioning import ProvisioningWorkflow
from worker.workflows.release import ReleaseWorkflow
from worker.workflows.starting import WorkflowStarter
from worker.workflows.verb import VerbWorkflow

log = structlog.get_logger()

PULL_MAX = 500
"""Events asked for at a time: more than are handled at once, so that those of every tenant are here to be shared out."""


def make_context(settings: Settings) -> Context:
    """The context of all commands. Raises `CannotRun` if the signing key cannot be read."""
    try:
        signer = load_signer(settings.task_signing_key_file, settings.key_set_file)
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


def read_payload_keys(settings: Settings) -> PayloadKeys:
    """The keys of what Temporal stores. Raises `CannotRun` if they cannot be read."""
    try:
        return load_payload_keys(
            settings.temporal_payload_key_file, earlier_allowed=settings.temporal_earlier_payloads_allowed
        )
    except (OSError, ValueError) as error:
        raise CannotRun(f"the payload keys cannot be used: {error}") from error


def sandbox() -> SandboxedWorkflowRunner:
    """The determinism sandbox. Modules that workflows only refer to are loaded once, not for every run."""
    restrictions = SandboxRestrictions.default.with_passthrough_modules("worker.activities", "worker.metrics")
    return SandboxedWorkflowRunner(restrictions=restrictions)


def make_worker(client: TemporalClient, context: Context, settings: Settings) -> Worker:
    """The Temporal worker, not running yet."""
    activities = LifecycleActivities(context)
    return Worker(
        client,
        task_queue=settings.worker_task_queue,
        workflows=[ProvisioningWorkflow, ReleaseWorkflow, VerbWorkflow],
        activities=[
            activities.begin_provisioning,
            activities.finish_provisioning,
            activities.begin_release,
            activities.finish_release,
            activities.begin_verb,
            activities.finish_verb,
        ],
        workflow_runner=sandbox(),
        # Every activity is local, so the worker need not poll for remote ones.
        no_remote_activities=True,
        max_cached_workflows=settings.worker_workflows_cached_max,
        max_concurrent_local_activities=settings.worker_commands_in_flight_max,
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.worker_sticky_seconds),
        graceful_shutdown_timeout=timedelta(seconds=settings.worker_graceful_stop_seconds),
    )


async def run_worker(settings: Settings, health: WorkerHealth, stop: asyncio.Event) -> None:
    """Run until `stop` is set, then shut down in order. Raises `CannotRun` if a server is missing or a loop ends."""
    keys = read_payload_keys(settings)
    context = make_context(settings)
    try:
        await await_database(context.database, settings.startup_seconds_max, health)
        nats_connection = await connect_nats(settings)
        try:
            reconnection = TemporalReconnection(settings, keys)
            client = await connect_temporal(settings, keys)
            starter = WorkflowStarter(client, settings.worker_task_queue, settings.worker_step_seconds, keys.digest)
            worker = make_worker(client, context, settings)
            await _supervise(settings, health, stop, context, nats_connection, worker, starter, reconnection)
        finally:
            await nats_connection.close()
    finally:
        await context.database.close()


async def _supervise(
    settings: Settings,
    health: WorkerHealth,
    stop: asyncio.Event,
    context: Context,
    nats_connection: NatsClient,
    worker: Worker,
    starter: WorkflowStarter,
    reconnection: TemporalReconnection,
) -> None:
    """Run every loop until `stop` is set. Raises `CannotRun` when a loop ends."""
    durable = DurableConsumer(nats_connection.jetstream(), context, settings, health)
    consumer = make_consumer(nats_connection, durable, starter, context, settings)
    runner = SweepRunner(
        make_sweepers(context, starter, settings), settings.sweep_seconds, unavailable=(Problem, RPCError)
    )
    prompt = SweepRunner(
        make_prompt_sweepers(context, settings), settings.console_issue_seconds, unavailable=(Problem,)
    )

    def use(client: TemporalClient) -> None:
        worker.client = client
        starter.use(client)

    questions = {
        "database": ask_database(context.database),
        "nats": ask_nats(nats_connection),
        "temporal": ask_temporal(lambda: worker.client),
    }
    async with worker:
        loops = {
            asyncio.create_task(consumer.run(), name="consumer"),
            asyncio.create_task(_save_positions(durable, settings.worker_position_seconds), name="positions"),
            asyncio.create_task(_meter(context, settings), name="metering"),
            asyncio.create_task(runner.run(), name="sweepers"),
            asyncio.create_task(prompt.run(), name="prompt sweepers"),
            asyncio.create_task(reconnection.run(use), name="temporal credentials"),
            asyncio.create_task(examine_for_ever(health, questions), name="readiness"),
        }
        settle_heap()
        health.started = True
        log.info("worker_started", task_queue=settings.worker_task_queue, stream=settings.log_stream_name)
        await supervise(loops, stop)
        await durable.save_position()


def make_consumer(
    nats_connection: NatsClient,
    durable: DurableConsumer,
    starter: WorkflowStarter,
    context: Context,
    settings: Settings,
) -> EventConsumer:
    """The consumer of the log, not running yet."""
    puller = Puller(
        nats_connection,
        stream=settings.log_stream_name,
        consumer=settings.worker_consumer_name,
        messages_max=PULL_MAX,
        heartbeat_seconds=settings.worker_pull_heartbeat_seconds,
        bind=durable.bind,
    )
    failed_events = FailedEvents(
        context,
        settings.worker_consumer_name,
        tries_max=settings.worker_event_tries_max,
        pause_seconds=settings.worker_retry_event_seconds,
        pause_seconds_max=settings.worker_retry_event_seconds_max,
    )
    return EventConsumer(
        puller, starter, failed_events,
        in_flight_max=settings.worker_events_in_flight_max, ack_wait_seconds=settings.worker_ack_wait_seconds,
    )  # fmt: skip


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
    await meter_for_ever(source, connect, settings.metering_batch_max, settings.credit_rule)
