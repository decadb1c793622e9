"""The durable JetStream consumer of the worker and its saved position.

NATS stores which messages are acknowledged. PostgreSQL stores the version below which all are, so that a consumer that
has to be created again, after its stream was lost or rebuilt, does not repeat finished work.
"""

from __future__ import annotations

from dataclasses import replace

import nats.errors
import structlog
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, ConsumerInfo, DeliverPolicy
from nats.js.errors import APIError, NotFoundError

from orchestrator.log.commands import raise_consumer_position, register_consumer
from orchestrator.log.queries import find_consumer_position
from orchestrator.operations.execution import Context
from orchestrator.problems import Problem
from worker.consumers.events import FILTER_SUBJECTS
from worker.health import WorkerHealth
from worker.metrics import EVENTS_PENDING, EVENTS_UNACKNOWLEDGED, POSITION
from worker.settings import Settings

log = structlog.get_logger()

UNACKNOWLEDGED_MAX = 10_000
"""Most events that all workers have read ahead or are handling; NATS delivers no more until one is acknowledged."""


class DurableConsumer:
    """Creates the consumer if it is missing, and saves its position."""

    def __init__(self, jetstream: JetStreamContext, context: Context, settings: Settings, health: WorkerHealth) -> None:
        self._jetstream = jetstream
        self._context = context
        self._stream = settings.log_stream_name
        self._name = settings.worker_consumer_name
        self._ack_wait_seconds = settings.worker_ack_wait_seconds
        self._health = health
        self._saved = 0
        self._last_error = ""

    async def bind(self) -> bool:
        """Create the consumer if it is missing. False, with a warning for each new reason, if that is impossible now."""
        try:
            await self._ensure_exists()
        except (nats.errors.Error, Problem) as error:
            self._health.consuming = False
            why = f"{type(error).__name__}: {error}"
            if why != self._last_error:
                log.warning("waiting", for_what=f"stream {self._stream}", why=why)
                self._last_error = why
            return False
        self._health.consuming = True
        self._last_error = ""
        return True

    async def _ensure_exists(self) -> None:
        try:
            found = await self._jetstream.consumer_info(self._stream, self._name)
        except NotFoundError:
            await self._create()
            return
        wanted = replace(found.config, max_ack_pending=UNACKNOWLEDGED_MAX, filter_subjects=_wider(found.config))
        if wanted != found.config:  # made by an earlier version of Berth
            await self._jetstream.add_consumer(self._stream, wanted)

    async def _create(self) -> None:
        await register_consumer(self._context, self._name)
        position = await find_consumer_position(self._context, self._name)
        config = ConsumerConfig(
            durable_name=self._name,
            description="Starts and signals workflows",
            filter_subjects=list(FILTER_SUBJECTS),
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_wait_seconds,
            max_deliver=-1,
            max_ack_pending=UNACKNOWLEDGED_MAX,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if position else DeliverPolicy.ALL,
            opt_start_seq=position + 1 if position else None,
        )
        try:
            await self._jetstream.add_consumer(self._stream, config)
        except APIError as error:
            # Another worker may have created it meanwhile, perhaps from a newer position. If not, this raises NotFoundError.
            await self._jetstream.consumer_info(self._stream, self._name)
            log.info("consumer_created_by_another_worker", why=str(error))
        else:
            log.info("consumer_created", stream=self._stream, consumer=self._name, after_version=position)

    async def save_position(self) -> None:
        """Save the version below which every event is acknowledged, if it has risen, and set the gauges."""
        try:
            # The stream's end is read first: an event published between the two calls must not count as done.
            end = (await self._jetstream.stream_info(self._stream)).state.last_seq
            info = await self._jetstream.consumer_info(self._stream, self._name)
            await self._save(info, end)
        except (nats.errors.Error, Problem) as error:
            log.warning("position_not_saved", why=str(error))

    async def _save(self, info: ConsumerInfo, end: int) -> None:
        EVENTS_PENDING.set(info.num_pending or 0)
        EVENTS_UNACKNOWLEDGED.set(info.num_ack_pending or 0)
        floor = info.ack_floor.stream_seq if info.ack_floor else 0
        if info.num_pending == 0 and info.num_ack_pending == 0:
            # Every event that matches the filter is acknowledged: the others must not delay truncation of the log.
            floor = max(floor, end)
        if floor and floor > self._saved:
            await raise_consumer_position(self._context, self._name, floor)
            self._saved = floor
            POSITION.set(floor)


def _wider(config: ConsumerConfig) -> list[str]:
    """The subjects of the consumer and those of this version. Why a union: a newer version's must stay."""
    return list(dict.fromkeys([*(config.filter_subjects or ()), *FILTER_SUBJECTS]))
