"""Real relay processes, events to relay, and the judgement whether the stream is the log."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import psycopg
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy
from psycopg.rows import dict_row

from berth.local.servers import free_port
from migrations.roles import Role
from tests.databases import as_role
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for

STREAM = "BERTH_LOG"


class RelayProcess:
    """`python -m outbox_relay` against given servers."""

    def __init__(self, database_url: str, nats_url: str, directory: Path, **settings: str) -> None:
        self.port = free_port()
        self.log = directory / f"relay-{uuid.uuid4().hex[:8]}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")} | {
            "BERTH_DATABASE_URL": as_role(database_url, Role.RELAY),
            "BERTH_NATS_URL": nats_url,
            "BERTH_METRICS_PORT": str(self.port),
            "BERTH_RELAY_STEP_BACK_SECONDS": "0.4",
            **settings,
        }
        with self.log.open("wb") as output:
            command = [sys.executable, "-m", "outbox_relay"]
            self.process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def ok(self) -> dict[str, Any]:
        """The document of /ok; empty while the relay does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ok", timeout=5) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            return dict(json.load(error))
        except OSError:
            return {}

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def wait_until_ok(self) -> None:
        """Return when both steps run."""
        wait_for(lambda: self.process.poll() is not None or bool(self.ok().get("ok")), "the relay is ok")
        assert self.process.poll() is None, self.log.read_text()

    def wait_until_ended(self) -> str:
        """What the relay wrote, once it has ended by itself."""
        wait_for(lambda: self.process.poll() is not None, "the relay ends")
        return self.log.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; answers the exit status."""
        self.process.terminate()
        return self.process.wait(WAIT_SECONDS_MAX)


def leave_events(
    database: psycopg.Connection, payloads: Sequence[object], event_type: str = "test.happened", tenants: int = 3
) -> None:
    """Commit one event for each payload, spread over tenants and operators."""
    with database.transaction(), database.cursor() as cursor:
        cursor.executemany(
            "insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)"
            " values (%s, uuidv7(), %s, %s, %s, %s, %s)",
            [
                (
                    event_type,
                    uuid.UUID(int=number % tenants + 1) if number % (tenants + 1) else None,
                    f'things/{number} "é\n',
                    f"key-{number}" if number % 2 else None,
                    None if number % 3 else f"request-{number}",
                    json.dumps(payload),
                )
                for number, payload in enumerate(payloads)
            ],
        )


@contextmanager
def events_all_the_time(database_url: str) -> Iterator[None]:
    """Commits events, a few at a time, for the length of the context."""
    enough = threading.Event()

    def leave() -> None:
        with psycopg.connect(database_url, autocommit=True) as connection:
            sizes = itertools.cycle((1, 30, 1, 7))
            while not enough.is_set():
                leave_events(connection, [{"number": number} for number in range(next(sizes))])
                enough.wait(0.01)

    writer = threading.Thread(target=leave)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()


def log_rows(database: psycopg.Connection) -> list[dict[str, Any]]:
    """The log, in order."""
    return database.cursor(row_factory=dict_row).execute("select * from log order by version").fetchall()


def outbox_is_empty(database: psycopg.Connection) -> bool:
    """Whether everything committed has its version."""
    return database.execute("select from outbox limit 1").fetchone() is None


def head_version(database: psycopg.Connection) -> int:
    """The newest version."""
    row = database.execute("select version from log_head").fetchone()
    assert row is not None
    return int(row[0])


def asked(nats_url: str, ask: Callable[[Client], Any]) -> Any:
    """The result of the coroutine `ask` over a new connection. Raises at once if no server accepts it."""

    async def silent(_: Exception) -> None:
        """The client logs a trace of each attempt otherwise."""

    async def run() -> Any:
        client = await nats.connect(
            nats_url,
            allow_reconnect=False,
            connect_timeout=2,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=silent,
        )
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


def stream_end(nats_url: str) -> int:
    """The stream's last sequence, 0 if there is no stream or no server."""

    async def ask(client: Client) -> int:
        return int((await client.jetstream().stream_info(STREAM)).state.last_seq)

    try:
        return int(asked(nats_url, ask))
    except (nats.errors.Error, OSError):
        return 0


def stream_messages(nats_url: str) -> list[Msg]:
    """Every message of the stream, in order."""

    async def ask(client: Client) -> list[Msg]:
        stream = client.jetstream()
        wanted = (await stream.stream_info(STREAM)).state.messages
        config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)
        subscription = await stream.subscribe("berth.events.>", ordered_consumer=True, config=config)
        return [await subscription.next_msg(timeout=5) for _ in range(wanted)]

    return list(asked(nats_url, ask))


def require_stream_is_log(nats_url: str, database: psycopg.Connection) -> list[dict[str, Any]]:
    """Wait until NATS has all of the log, then require that each message is the log's row of that number."""
    wait_for(lambda: outbox_is_empty(database), "the outbox is sequenced")
    rows = log_rows(database)
    # Nothing before a jump of versions can be in the stream.
    jumps = [place for place, row in enumerate(rows) if row["event_type"] == "log.versions_skipped"]
    rows = rows[jumps[-1] if jumps else 0 :]
    wait_for(lambda: stream_end(nats_url) >= rows[-1]["version"], "NATS has the log")
    messages = stream_messages(nats_url)
    assert [message.metadata.sequence.stream for message in messages] == [row["version"] for row in rows]
    assert [row["version"] for row in rows] == list(range(rows[0]["version"], rows[-1]["version"] + 1))
    documents = []
    for message, row in zip(messages, rows, strict=True):
        document = json.loads(message.data)
        documents.append(document)
        assert (document["version"], document["id"]) == (str(row["version"]), str(row["event_id"]))
        if not (isinstance(document["data"], dict) and document["data"].get("stub")):
            assert document["data"] == row["payload"]
            assert message.headers is not None
            assert message.headers["Nats-Msg-Id"] == str(row["event_id"])
            assert message.subject == f"berth.events.{row['tenant_id'] or 'operator'}.{row['event_type']}"
    return documents
