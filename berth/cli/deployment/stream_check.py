"""P3 on the other side: the JetStream stream holds what the log holds, each event at its version."""

from __future__ import annotations

import asyncio
import random
import time

import nats
import psycopg
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from berth.cli.deployment.stream_headers import read_event_ids
from berth.cli.settings import Settings
from berth.process.nats_connections import nats_options
from berth.process.server_addresses import without_password
from orchestrator.verification.verdict import Verdict

STREAM = "BERTH_LOG"
COMPARED_MAX = 100_000
BLOCK = 1_000
CATCH_UP_SECONDS = 5.0
CONNECT_SECONDS = 3.0


class StreamUnreachable(Exception):
    """NATS cannot be asked; the message says why."""


def check_stream(database_url: str, nats_url: str) -> Verdict:
    """The stream's last sequence is the log's head, and each message carries the event id of its version.

    So every event is there, and first occurrences come in the order of versions. The stream may begin later than the
    log, by its age limit, and the log later than the stream, where it was truncated. Up to 100,000 messages are all
    compared, by their headers; of more, both ends and random blocks of 1,000, 100,000 in all. Publishing follows
    sequencing, so the stream gets five seconds to catch up. Raises `StreamUnreachable`.
    """
    began = time.monotonic()
    verdict = Verdict("P3 on NATS", "the stream's sequence is the log's version")
    try:
        asyncio.run(_compare(database_url, nats_url, verdict))
    except (NatsError, JetStreamError, OSError, TimeoutError) as error:
        raise StreamUnreachable(
            f"cannot ask NATS at {without_password(nats_url)}: {error or type(error).__name__}"
        ) from error
    verdict.seconds = time.monotonic() - began
    return verdict


async def connect_nats(nats_url: str) -> NatsClient:
    """A connection to NATS, or `StreamUnreachable` after three seconds. Later losses are mended for a minute."""

    async def quiet(_: Exception) -> None:
        """Ignore errors here: the caller gets an exception, and the library would also print a traceback."""

    try:
        # The library retries a first connection too; the bound on it is ours.
        connecting = nats.connect(
            **nats_options(nats_url, "berth-operator", Settings().nats_ca_file),
            connect_timeout=2,
            reconnect_time_wait=1,
            max_reconnect_attempts=60,
            error_cb=quiet,
        )
        return await asyncio.wait_for(connecting, CONNECT_SECONDS)
    except (NatsError, OSError, TimeoutError) as error:
        raise StreamUnreachable(f"cannot reach NATS at {without_password(nats_url)}; is it running?") from error


async def _compare(database_url: str, nats_url: str, verdict: Verdict) -> None:
    client = await connect_nats(nats_url)
    try:
        stream = client.jetstream()
        with psycopg.connect(database_url, autocommit=True) as connection:
            first, last = await _caught_up(stream, connection, verdict)
            first = max(first, _log_first(connection))
            verdict.checked_through = last
            if verdict.kept and last >= first > 0:
                verdict.note = f"versions {first} to {last}"
                for versions in chosen_versions(range(first, last + 1)):
                    await _compare_ids(stream, connection, versions, verdict)
    finally:
        await client.close()


async def _caught_up(
    stream: JetStreamContext, connection: psycopg.Connection[tuple[int]], verdict: Verdict
) -> tuple[int, int]:
    until = time.monotonic() + CATCH_UP_SECONDS
    while True:
        row = connection.execute("select version from log_head").fetchone()
        head = row[0] if row else 0
        try:
            state = (await stream.stream_info(STREAM)).state
            first, last = state.first_seq, state.last_seq
        except NotFoundError:
            first, last = 0, 0
        if last >= head or time.monotonic() > until:
            break
        await asyncio.sleep(0.05)
    if last < head:
        verdict.violations.append(f"the stream ends at {last}, the log's head is {head}; is the relay running?")
    row = connection.execute("select version from log_head").fetchone()
    if row and last > row[0]:
        verdict.violations.append(f"the stream is at {last}, ahead of the log's head {row[0]}")
    return first, last


def _log_first(connection: psycopg.Connection[tuple[int]]) -> int:
    """The lowest version that the log keeps."""
    row = connection.execute("select version from log_first").fetchone()
    return row[0] if row else 1


def chosen_versions(versions: range) -> list[range]:
    """All of them, if they are few; else both ends and random blocks between, none twice."""
    if len(versions) <= COMPARED_MAX:
        return [versions]
    blocks = len(versions) // BLOCK
    inner = random.sample(range(1, blocks - 1), min(COMPARED_MAX // BLOCK - 2, blocks - 2))
    starts = [versions.start + place * BLOCK for place in sorted([0, *inner])]
    last = range(versions.stop - BLOCK, versions.stop)
    return [*(range(start, start + BLOCK) for start in starts), last]


async def _compare_ids(
    stream: JetStreamContext, connection: psycopg.Connection[tuple[int]], versions: range, verdict: Verdict
) -> None:
    following = versions.start
    async for found in read_event_ids(stream, STREAM, versions):
        if found:
            through = max(found)
            await _judge(stream, connection, range(following, through + 1), found, verdict)
            following = through + 1
    await _judge(stream, connection, range(following, versions.stop), {}, verdict)


async def _judge(
    stream: JetStreamContext,
    connection: psycopg.Connection[tuple[int]],
    versions: range,
    found: dict[int, str | None],
    verdict: Verdict,
) -> None:
    query = "select version, event_id::text from log where version between %s and %s"
    expected: dict[int, str] = dict(connection.execute(query, (versions.start, versions.stop - 1)).fetchall())  # type: ignore[arg-type]
    missing = [version for version in versions if version not in found]
    # What was truncated since the reading began cannot be compared.
    kept = _log_first(connection) if len(expected) < len(versions) else 0
    versions = range(max(versions.start, kept), versions.stop)
    # What has grown too old since the reading began is not missing.
    first = (await stream.stream_info(STREAM)).state.first_seq if missing else 0
    verdict.checked += len(versions)
    for version in versions:
        if version not in found and version >= first:
            verdict.add(f"version {version} is event {expected.get(version)}, which is not in the stream")
        elif version in found and found[version] != expected.get(version):
            verdict.add(f"version {version} is event {expected.get(version)}, its message {found[version]}")
