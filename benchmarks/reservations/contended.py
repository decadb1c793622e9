"""Holds, refusals and cancels of 60 clients on one node of 8 slots, and beside them a quiet tenant's holds on another node.

Closed loops: a client asks for a random slot of the node; it cancels what it gets and asks again. The quiet tenant asks at a
steady rate, alone first.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections import defaultdict
from itertools import count

import psycopg
import uvloop

from benchmarks.figures import Figure, percentile
from benchmarks.reserving import HOLDER
from benchmarks.running import bench
from benchmarks.seeding import BenchTenant

NODES = 2_000
CLIENTS = 60
SECONDS = 12.0
WARM_SECONDS = 2.0
QUIET_PER_SECOND = 20.0
HOLD_P50_MS_MAX = 100.0
REFUSAL_P99_MS_MAX = 150.0
CANCEL_P99_MS_MAX = 150.0
QUIET_RATIO_MAX = 2.0
ANSWERS = {"hold 201", "hold 409", "cancel 200", "quiet 201", "quiet cancel 200"}
Latencies = dict[str, list[float]]
"""Milliseconds by what was asked and the status of its answer."""


def run(quick: bool) -> list[Figure]:
    """The quiet tenant alone, then beside the others."""
    seconds = SECONDS / 2 if quick else SECONDS
    with bench() as servers:
        url, tenants = servers.fleet(NODES)
        endpoints = servers.endpoints(url)
        servers.api(endpoints)
        contended, quiet = _slots_of_two_nodes(url)
        port = endpoints.public_port
        alone = uvloop.run(_load(port, [], contended, quiet, tenants, seconds))
        beside = uvloop.run(_load(port, list(range(CLIENTS)), contended, quiet, tenants, seconds))
    alone_ms, beside_ms = percentile(alone["quiet 201"], 0.99), percentile(beside["quiet 201"], 0.99)
    held, refused, cancelled = beside["hold 201"], beside["hold 409"], beside["cancel 200"]
    unexpected = set(beside) - {"hold 201", "hold 409", "cancel 200", "quiet 201", "quiet cancel 200"}
    if unexpected:
        raise RuntimeError(f"not every request was answered well: { ({key: len(beside[key]) for key in unexpected}) }")
    return [
        Figure(
            "contended_hold_p50", percentile(held, 0.5), "ms", HOLD_P50_MS_MAX,
            note=f"{len(held) / seconds:,.0f} holds/s, p99 {percentile(held, 0.99):.0f} ms",
        ),
        Figure(
            "contended_refusal_p99", percentile(refused, 0.99), "ms", REFUSAL_P99_MS_MAX,
            note=f"{len(refused) / seconds:,.0f} refusals/s, p50 {percentile(refused, 0.5):.0f} ms",
        ),
        Figure(
            "contended_cancel_p99", percentile(cancelled, 0.99), "ms", CANCEL_P99_MS_MAX,
            note=f"p50 {percentile(cancelled, 0.5):.0f} ms",
        ),
        Figure(
            "quiet_hold_p99_beside_contended", beside_ms / alone_ms, "ratio", QUIET_RATIO_MAX,
            over=f"{beside_ms:.1f} ms over {alone_ms:.1f} ms alone;",
            note=f"p50 {percentile(beside['quiet 201'], 0.5):.1f} over {percentile(alone['quiet 201'], 0.5):.1f} ms",
        ),
    ]  # fmt: skip


def _slots_of_two_nodes(url: str) -> tuple[list[str], list[str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select array_agg('slot:' || node_id || ':' || slot_index) from slots group by node_id order by min(unit) limit 2"
        ).fetchall()
    return rows[0][0], rows[1][0]


async def _load(
    port: int, clients: list[int], contended: list[str], quiet: list[str], tenants: list[BenchTenant], seconds: float
) -> Latencies:
    """Latencies of what was answered after the warm seconds."""
    found: Latencies = defaultdict(list)
    begins = time.perf_counter() + WARM_SECONDS
    ends = begins + seconds
    loops = [
        _hold_and_cancel(_Client(port, tenants[1 + number % (len(tenants) - 1)], found, begins), contended, ends)
        for number in clients
    ]
    await asyncio.gather(_be_quiet(_Client(port, tenants[0], found, begins), quiet, ends), *loops)
    return found


async def _hold_and_cancel(client: _Client, slots: list[str], ends: float) -> None:
    while time.perf_counter() < ends:
        held = await client.hold("hold", random.choice(slots))
        if held is not None:
            await client.cancel("cancel", held)


async def _be_quiet(client: _Client, slots: list[str], ends: float) -> None:
    for number in count():
        if time.perf_counter() >= ends:
            return
        due = asyncio.create_task(asyncio.sleep(1 / QUIET_PER_SECOND))
        held = await client.hold("quiet", slots[number % len(slots)])
        if held is not None:
            await client.cancel("quiet cancel", held)
        await due


class _Client:
    """One kept-alive connection of a tenant with one request under way."""

    def __init__(self, port: int, tenant: BenchTenant, found: Latencies, begins: float) -> None:
        self._port = port
        self._api_key = tenant.api_key
        self._found = found
        self._begins = begins
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def hold(self, what: str, slot: str) -> str | None:
        """The id of the reservation; None if it was refused."""
        body = {"resources": [slot], "holder_id": HOLDER, "ttl_seconds": 600}
        status, answer = await self._post(what, "/api/v1/reservations", body)
        return str(json.loads(answer)["reservation_id"]) if status == "201" else None

    async def cancel(self, what: str, reservation_id: str) -> None:
        """Cancel a reservation."""
        await self._post(what, f"/api/v1/reservations/{reservation_id}/cancel", {"holder_id": HOLDER})

    async def _post(self, what: str, path: str, body: dict[str, object]) -> tuple[str, bytes]:
        if self._stream is None:
            self._stream = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._stream
        content = json.dumps(body)
        began = time.perf_counter()
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self._api_key}\r\nIdempotency-Key: {uuid.uuid4()}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.index(b"content-length: ") + 16
        answer = await reader.readexactly(int(head[at : head.index(b"\r", at)]))
        ended, status = time.perf_counter(), head[9:12].decode()
        if ended > self._begins:
            self._found[f"{what} {status}"].append((ended - began) * 1_000)
        return status, answer
