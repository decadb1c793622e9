"""`berth events tail`: follows the log on NATS, where an event's stream sequence is its version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from berth.cli.session import UNREACHABLE, Refused, Session, command
from berth.verification.stream import STREAM, StreamUnreachable, connect_nats

app = typer.Typer(no_args_is_help=True, help="Events of the log.")

QUIET_SECONDS = 1.0


@command(app, "tail")
def tail(
    session: Session,
    from_version: Annotated[int, typer.Option("--from", min=1, help="first version to show")] = 1,
    type_: Annotated[str | None, typer.Option("--type", help="only this type; `provisioning.>` for all below")] = None,
    tenant: Annotated[str | None, typer.Option(help="only this tenant's id, or `operator`")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="keep waiting, or end at the newest")] = True,
) -> None:
    """Show events in their order, one per line; with --output json, CloudEvents."""
    url = session.nats_url()
    if url is None:
        raise Refused(
            f"no NATS is known (looked in {session.state_dir}): set BERTH_NATS_URL or name a stack's --state-dir",
            code="no_nats",
            exit_code=UNREACHABLE,
        )
    subject = f"berth.events.{tenant or '*'}.{type_ or '>'}"
    try:
        asyncio.run(_print_events(session, url, subject, from_version, follow))
    except NotFoundError as error:
        raise Refused(f"NATS has no stream {STREAM} yet; is the relay running?", code="no_stream") from error
    except StreamUnreachable as error:
        raise Refused(str(error), code="nats_unreachable", exit_code=UNREACHABLE) from error
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


def line(version: int, event: dict[str, Any]) -> str:
    """One event for a person."""
    data = json.dumps(event.get("data"), separators=(",", ":"))
    return f"{version:>8} {event.get('time', '-')} {event.get('type', '-'):<34} {event.get('subject', '-')} {data}"


async def _events(
    client: NatsClient, subject: str, from_version: int, follow: bool
) -> AsyncIterator[tuple[int, dict[str, Any]]]:
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
