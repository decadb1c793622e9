"""Prints the log from NATS: one event per line, in order. An event's stream sequence is its version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import typer
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from berth.cli.commands.event_lines import line
from berth.cli.deployment.stream_check import STREAM, StreamUnreachable, connect_nats
from berth.cli.endings import UNREACHABLE, Refused
from berth.cli.session import Session
from berth.process.json_objects import JsonObject

QUIET_SECONDS = 1.0


def print_events(session: Session, url: str, subject: str, from_version: int, follow: bool) -> None:
    """Print the events that `subject` matches, from a version on. Raises `Refused` if NATS or its stream cannot be read."""
    try:
        asyncio.run(_print_events(session, url, subject, from_version, follow))
    except NotFoundError as error:
        raise Refused(f"NATS has no stream {STREAM} yet; is the relay running?", code="no_stream") from error
    except StreamUnreachable as error:
        raise Refused(str(error), code="nats_unreachable", exit_code=UNREACHABLE) from error
    except BrokenPipeError:
        raise  # the reader closed the pipe; NATS did not fail
    except (NatsError, OSError) as error:
        detail = f"cannot read from NATS at {url}: {error or type(error).__name__}"
        raise Refused(detail, code="nats_unreachable", exit_code=UNREACHABLE) from error


async def _print_events(session: Session, url: str, subject: str, from_version: int, follow: bool) -> None:
    client = await connect_nats(url)
    try:
        async for version, event in _events(client, subject, from_version, follow):
            if session.json:
                typer.echo(json.dumps(event, separators=(",", ":")))
            else:
                typer.echo(line(version, event))
    finally:
        await client.close()


async def _events(
    client: NatsClient, subject: str, from_version: int, follow: bool
) -> AsyncIterator[tuple[int, JsonObject]]:
    stream = client.jetstream()
    await stream.stream_info(STREAM)
    start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=from_version)
    subscription = await stream.subscribe(subject, stream=STREAM, ordered_consumer=True, config=start)
    while True:
        if not follow and (await subscription.consumer_info()).num_pending == 0 and subscription.pending_msgs == 0:
            return
        try:
            message = await subscription.next_msg(timeout=QUIET_SECONDS)
        except NatsTimeout:
            continue
        yield message.metadata.sequence.stream, json.loads(message.data)
