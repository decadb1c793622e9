"""Findings of `berth doctor` on NATS: the server, the log's stream and its lag, and the consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psycopg
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.api import ConsumerInfo, StreamInfo
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError
from pydantic import ValidationError

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import Backlog, read_backlog
from berth.cli.deployment.stream_check import StreamUnreachable, connect_nats
from outbox_relay.continuity import compare
from outbox_relay.postgres import bounded_address
from outbox_relay.problems import RelayProblem, ServerUnavailable
from outbox_relay.settings import Settings
from outbox_relay.stream import dangers_of

BACKLOG_SECONDS_MAX = 10


@dataclass(frozen=True)
class _Seen:
    """What NATS reports: its version, the stream if there is one, and the stream's durable consumers that ask for events."""

    version: str
    stream: StreamInfo | None
    consumers: Sequence[ConsumerInfo]


def stream_findings(url: str | None, database_url: str | None) -> Iterator[Finding]:
    """The server first. `database_url` None: the log that the stream should hold is not known."""
    if url is None:
        yield Finding("nats", "skipped", "no NATS is known: set BERTH_NATS_URL or start `berth up`")
        return
    try:
        settings = Settings(database_url=database_url or "postgresql://unknown", nats_url=url)
    except ValidationError as error:
        names = ", ".join(f"BERTH_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        yield Finding("nats", "bad", f"unusable environment: {names}")
        return
    try:
        seen = asyncio.run(_look(url, settings.log_stream_name))
    except StreamUnreachable as error:
        yield Finding("nats", "bad", str(error))
        return
    except (NatsError, JetStreamError) as error:
        yield Finding("nats", "bad", f"JetStream cannot be used: {error or type(error).__name__}")
        return
    yield Finding("nats", "ok", f"version {seen.version}, JetStream is on")
    if seen.stream is None:
        yield Finding("stream", "warning", f"there is no stream {settings.log_stream_name} yet; is a relay running?")
        return
    dangers = dangers_of(seen.stream.config, settings)
    fit = f"not fit for the log: {'; '.join(dangers)}" if dangers else "set as the log needs it"
    last = seen.stream.state.last_seq
    yield Finding("stream", "bad" if dangers else "ok", f"{settings.log_stream_name} is at {last}, {fit}")
    if database_url is not None:
        yield from _publishing(last, read_backlog(database_url, last))
        yield from _history(settings)
    yield _consumers(seen.consumers)


async def _look(url: str, name: str) -> _Seen:
    client: NatsClient = await connect_nats(url)
    try:
        found = client.connected_server_version
        version = f"{found.major}.{found.minor}.{found.patch}"
        jetstream = client.jetstream()
        await jetstream.account_info()
        try:
            stream = await jetstream.stream_info(name)
            consumers = await jetstream.consumers_info(name)
        except NotFoundError:
            return _Seen(version, None, [])
        asking = [
            c for c in consumers if c.config is not None and c.config.durable_name and not c.config.deliver_subject
        ]
        return _Seen(version, stream, asking)
    finally:
        await client.close()


def _publishing(last: int, backlog: Backlog | None) -> Iterator[Finding]:
    """How far the stream is behind the log; nothing where the log cannot be read."""
    if backlog is None:
        return
    if last > backlog.head_version:
        detail = f"NATS is ahead of Postgres: the stream ends at {last}, the log at {backlog.head_version}"
        yield Finding("publishing", "bad", f"{detail}; docs/reference/events.md says what that means")
        return
    late = backlog.oldest_seconds > BACKLOG_SECONDS_MAX
    detail = f"{backlog.head_version - last} events are not on NATS yet, the oldest for {backlog.oldest_seconds:.1f} s"
    advice = "; what does the relay's /ok say?" if late else ""
    yield Finding("publishing", "bad" if late else "ok", detail + advice)


def _history(settings: Settings) -> Iterator[Finding]:
    """Whether the log is the one whose events NATS has; nothing where that cannot be read, which others say better."""
    try:
        found = asyncio.run(compare(settings, bounded_address(settings.database_url, "doctor")))
    except (ServerUnavailable, RelayProblem, psycopg.Error):
        return
    status, advice = found.status, "check which is right, then docs/reference/events.md, When publishing stops"
    if found.differs_from is not None:
        last = min(found.last, status.head)
        versions = f"version {last}" if found.differs_from == last else f"versions {found.differs_from} to {last}"
        detail = (
            f"NATS and the log have different events at {versions} (Postgres restored or copied, or another publisher)"
        )
        yield Finding("history", "bad", f"{detail}; {advice}")
    elif status.is_foreign:
        detail = f"the log was written by Postgres {status.written_by} and this one is {status.leader_id}"
        yield Finding("history", "bad", f"{detail}; what does the relay's /ok say? {advice}")
    elif found.last <= status.head:
        yield Finding(
            "history", "ok", f"NATS and the log have the same events, and Postgres {status.leader_id} writes it"
        )


def _consumers(consumers: Sequence[ConsumerInfo]) -> Finding:
    """The consumers. One with waiting events and no pull request belongs to a process that does not run."""
    if not consumers:
        return Finding("consumers", "warning", "there is no consumer yet; is a worker running?")
    details, left = [], False
    for one in sorted(consumers, key=lambda one: one.name):
        waiting, under_way = one.num_pending or 0, one.num_ack_pending or 0
        alone = not one.num_waiting and waiting + under_way > 0
        left = left or alone
        details.append(
            f"{one.name}: {waiting} wait, {under_way} under way" + (", and no process pulls" if alone else "")
        )
    return Finding("consumers", "warning" if left else "ok", "; ".join(details))
