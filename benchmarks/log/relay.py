"""The relay's speed: `python -m benchmarks.log.relay` prints one line per measure with figure and limit (DESIGN §10).

Throughput: a burst of committed outbox rows until the last one is durable in JetStream, by the real process, against raw
durable JetStream in the same run: atomic batches of 500 by nats-py with nothing but the headers of the batch, messages as
large as the relay's with theirs. The median of several alternating rounds, because the machine is shared.
Latency: from the return of COMMIT to the arrival at a subscriber, one event at a time, at odds with the relay's polling.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import nats
import psycopg
from nats.aio.client import Client
from nats.aio.msg import Msg

import migrations
from berth.local.servers import LocalNats, LocalPostgres, free_port, new_password

ROUNDS = 5
EVENTS = 40_000
BATCH = 500
LATENCY_SAMPLES = 400
RATIO_MIN = 0.7
LATENCY_MS_MAX = 25.0
TENANTS = 50
STREAM = "BERTH_LOG"

FILL = """
    insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select 'provisioning.requested', uuidv7(), lpad(to_hex(n %% %(tenants)s), 32, '0')::uuid,
           'allocations/' || uuidv7(), 'key-' || n, 'request-' || n,
           jsonb_build_object('allocation_id', uuidv7(), 'sku', 'h100-slice', 'shape', 'gpu_slice', 'gpus', n %% 8 + 1,
                              'region', 'eu-1', 'node_id', uuidv7(), 'fence', n)
    from generate_series(1, %(events)s) n"""


async def wait_for_version(client: Client, version: int) -> None:
    """Return when the stream ends at `version`."""
    stream = client.jetstream()
    while (await stream.stream_info(STREAM)).state.last_seq < version:
        await asyncio.sleep(0.005)


async def relay_rate(database: psycopg.Connection, client: Client, events: int) -> float:
    """Events per second from their commit to their being durable in JetStream."""
    found = database.execute("select version from log_head").fetchone()
    assert found is not None
    with database.transaction():
        database.execute(FILL, {"events": events, "tenants": TENANTS})
    began = time.perf_counter()
    await wait_for_version(client, found[0] + events)
    return events / (time.perf_counter() - began)


async def message_bytes(client: Client) -> int:
    """The size of the relay's messages, headers included."""
    message = await client.jetstream().get_msg(STREAM, seq=1, direct=True)
    headers = sum(len(f"{name}:{value}\r\n") for name, value in (message.headers or {}).items())
    return len(message.data or b"") + len("NATS/1.0\r\n\r\n") + headers


async def raw_rate(client: Client, events: int, size: int) -> float:
    """Messages per second of nats-py's own atomic batches, each answered before the next."""
    last = (await client.jetstream().stream_info("RAW")).state.last_seq
    body = b"x" * (
        size - len("NATS/1.0\r\n\r\n") - len(f"Nats-Batch-Id:{uuid.uuid4().hex}\r\nNats-Batch-Sequence:100\r\n")
    )
    began = time.perf_counter()
    for _ in range(events // BATCH):
        batch = uuid.uuid4().hex
        for number in range(1, BATCH + 1):
            headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == 1:
                headers["Nats-Expected-Last-Sequence"] = str(last)
            if number < BATCH:
                await client.publish("raw.events", body, headers=headers)
                continue
            headers["Nats-Batch-Commit"] = "1"
            answer = json.loads((await client.request("raw.events", body, headers=headers, timeout=10)).data)
            last += BATCH
            assert answer.get("seq") == last, answer
    return events / (time.perf_counter() - began)


async def latencies_ms(database: psycopg.Connection, client: Client) -> list[float]:
    """Milliseconds from COMMIT to a subscriber, for single events on an idle system."""
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def note(message: Msg) -> None:
        del message
        arrived.put_nowait(time.perf_counter())

    subscription = await client.subscribe("berth.events.>", cb=note)
    await client.flush()
    found = []
    for _ in range(LATENCY_SAMPLES):
        await asyncio.sleep(random.uniform(0.01, 0.03))
        await asyncio.to_thread(database.execute, FILL, {"events": 1, "tenants": TENANTS})
        committed = time.perf_counter()
        found.append((await arrived.get() - committed) * 1_000)
    await subscription.unsubscribe()
    return found


async def measure(database_url: str, nats_url: str) -> bool:
    """Print the figures; whether all are within their limits."""
    client = await nats.connect(nats_url)
    await client.jetstream().add_stream(name="RAW", subjects=["raw.>"], allow_atomic=True)
    with psycopg.connect(database_url, autocommit=True) as database:
        await relay_rate_when_up(database, client)
        size = await message_bytes(client)
        relay, raw = [], []
        for _ in range(ROUNDS):
            raw.append(await raw_rate(client, EVENTS, size))
            relay.append(await relay_rate(database, client, EVENTS))
        waits = sorted(await latencies_ms(database, client))
    await client.close()
    rate, bare = statistics.median(relay), statistics.median(raw)
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"relay_events_per_s {rate:.0f} raw {bare:.0f} ratio {rate / bare:.2f} limit {RATIO_MIN} bytes {size}")
    print(f"commit_to_delivery_p99_ms {p99:.1f} limit {LATENCY_MS_MAX:.0f} p50 {p50:.1f}")
    return rate / bare >= RATIO_MIN and p99 <= LATENCY_MS_MAX


async def relay_rate_when_up(database: psycopg.Connection, client: Client) -> None:
    """Wait until the relay publishes, and warm it up."""
    while True:
        try:
            await client.jetstream().stream_info(STREAM)
            break
        except nats.js.errors.NotFoundError:
            await asyncio.sleep(0.05)
    await relay_rate(database, client, EVENTS // 4)


def main() -> int:
    """Run on new servers; exit status 1 if a limit is missed."""
    with tempfile.TemporaryDirectory() as directory:
        postgres = LocalPostgres(Path(directory) / "servers" / "postgres", free_port(), new_password())
        server = LocalNats(Path(directory) / "servers" / "nats", free_port(), free_port())
        postgres.start()
        server.start()
        migrations.upgrade(postgres.url())
        environment = os.environ | {"BERTH_DATABASE_URL": postgres.url(), "BERTH_NATS_URL": server.url}
        relay = subprocess.Popen([sys.executable, "-m", "outbox_relay"], env=environment, stderr=subprocess.DEVNULL)
        try:
            kept = asyncio.run(measure(postgres.url(), server.url))
            memory = Path(f"/proc/{relay.pid}/status").read_text().split("VmHWM:")[1].split()[0]
            print(f"relay_memory_mb {int(memory) / 1024:.0f} limit 300")
        finally:
            relay.terminate()
            relay.wait()
            server.stop()
            postgres.stop()
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
