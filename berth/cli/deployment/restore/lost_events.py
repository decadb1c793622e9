"""Reads from NATS what a restored database has lost: NATS is the only witness of the lost interval."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import Error as JetStreamError

from berth.cli.deployment.stream_check import STREAM, StreamUnreachable, connect_nats
from berth.cli.endings import UNREACHABLE, Refused
from berth.process.json_objects import JsonObject
from outbox_relay.continuity import compare
from outbox_relay.problems import RelayProblem, ServerUnavailable
from outbox_relay.settings import Settings

BATCH = 500
FETCH_SECONDS_MAX = 10.0
FORGET_SECONDS = 60.0
TYPE_PREFIX = "berth."


@dataclass(frozen=True)
class Lost:
    """An event as it was published: its version, its whole document, and what the report reads of it."""

    version: int
    document: bytes
    event_id: str
    event_type: str
    tenant_id: str | None
    subject: str
    occurred_at: str
    operation_key: str | None
    data: JsonObject


@dataclass(frozen=True)
class Interval:
    """The versions, both ends included, that NATS published and the restored log does not have. Empty: `last` below `first`."""

    first: int
    last: int

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)


async def find_interval(database_url: str, nats_url: str) -> Interval:
    """Compare log and stream by content. Raises `Refused` if NATS cannot be read or has no stream."""
    settings = Settings(database_url=database_url, nats_url=nats_url)
    try:
        history = await compare(settings, settings.database_url)
    except ServerUnavailable as error:
        raise _unreachable(error.why if error.server == "nats" else str(error), nats_url) from error
    except RelayProblem as error:
        raise Refused(str(error), code="cannot_export") from error
    if history.last == 0:
        raise Refused(
            f"NATS has no stream {STREAM}, so nothing is known of the lost interval. If it is lost too, go on with"
            " `berth restore run --without-export REASON`",
            code="no_stream",
        )
    first = history.differs_from if history.differs_from is not None else history.status.head + 1
    return Interval(first, history.last)


async def read_lost(nats_url: str, interval: Interval) -> AsyncIterator[list[Lost]]:
    """The events of the interval in order, at most `BATCH` at a time; those that NATS keeps no more are left out.

    A pull consumer in the server's memory, which goes with the reading: nothing is acknowledged, and a repetition reads the same.
    """
    if not len(interval):
        return
    try:
        client = await connect_nats(nats_url)
    except StreamUnreachable as error:
        raise _unreachable(str(error), nats_url) from error
    try:
        stream = client.jetstream()
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=interval.first, ack_policy=AckPolicy.NONE,
            mem_storage=True, inactive_threshold=FORGET_SECONDS,
        )  # fmt: skip
        subscription = await stream.pull_subscribe("", stream=STREAM, config=config)
        left = (await subscription.consumer_info()).num_pending or 0
        while left > 0:
            messages = await subscription.fetch(min(left, BATCH), timeout=FETCH_SECONDS_MAX)
            left -= len(messages)
            found = [(message.metadata.sequence.stream, message.data) for message in messages]
            yield [_lost(version, data) for version, data in found if version <= interval.last]
            if found[-1][0] >= interval.last:
                return
    except (TimeoutError, NatsError, NatsTimeout, JetStreamError, OSError) as error:
        raise _unreachable(str(error) or type(error).__name__, nats_url) from error
    finally:
        await client.close()


def _lost(version: int, document: bytes) -> Lost:
    """The event in a message. Raises `Refused` for what is none: another publisher wrote to the stream."""
    try:
        content = json.loads(document)
        return Lost(
            version, document, content["id"], content["type"].removeprefix(TYPE_PREFIX), content.get("tenantid"),
            content.get("subject", ""), content["time"], content.get("operationkey"), dict(content["data"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused(
            f"the message at version {version} of the stream {STREAM} is not an event of Berth ({error})",
            code="cannot_export",
        ) from error


def _unreachable(why: str, nats_url: str) -> Refused:
    return Refused(
        f"NATS at {nats_url} cannot be read ({why}); repeat the command. If its stream is lost, go on with"
        " `berth restore run --without-export REASON`",
        code="nats_unreachable",
        exit_code=UNREACHABLE,
    )
