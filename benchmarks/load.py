"""A cheap load generator: it shares the machine with what it measures, so it may cost next to nothing.

Its own process (`python -m benchmarks.load`, plan as JSON on standard input, `Outcome` as JSON on standard output).
Closed loop: each client is one kept-alive HTTP/1.1 connection with one request under way. Requests are bytes made
beforehand with an Idempotency-Key patched in; of an answer only the status and the length are looked at.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

import uvloop

from benchmarks.figures import percentile
from benchmarks.seeding import REGIONS, SLICE_MODELS, BenchTenant

RUN_SECONDS_MAX = 300.0
Kind = Literal["new", "unkeyed", "again", "ok", "given"]
"""Creates with a key each, creates without, the same few creates with their keys again and again, `GET /ok`, or what the
plan gives, each with a key and once."""


@dataclass(frozen=True)
class Plan:
    """So many clients, `warm` requests that do not count and `count` that do, spread over the API processes' ports."""

    ports: list[int]
    clients: int
    warm: int
    count: int
    tenants: list[dict[str, str]]
    kind: Kind = "new"
    given: list[list[str]] = field(default_factory=list)
    """Path, body and API key of each request."""
    per_second: float | None = None
    """Requests offered per second; latencies then count from when a request was due. None: as fast as they are answered."""
    judged: str | None = None
    """The status whose latencies are measured; None: all."""


@dataclass(frozen=True)
class Outcome:
    """Requests per second and their latencies; `statuses` counts every answer."""

    per_second: float
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]

    def note(self) -> str:
        """For a person."""
        return f"{self.per_second:,.0f}/s, p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"


def drive(ports: list[int], clients: int, count: int, tenants: list[BenchTenant], kind: Kind = "new") -> Outcome:
    """Run the load in a separate process. Raises RuntimeError if any request was not answered as it should be."""
    plan = Plan(ports, clients, max(200, 4 * clients, count // 5), count, [asdict(tenant) for tenant in tenants], kind)
    return _run(plan, {"200" if kind == "ok" else "201"})


def drive_given(
    port: int, clients: int, given: list[list[str]], statuses: set[str], *, per_second: float | None = None,
    judged: str | None = None,
) -> Outcome:  # fmt: skip
    """Send each request once, the first fifth without counting it. Raises RuntimeError for any status but `statuses`."""
    warm = len(given) // 5
    return _run(Plan([port], clients, warm, len(given) - warm, [], "given", given, per_second, judged), statuses)


def _run(plan: Plan, statuses: set[str]) -> Outcome:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"], input=json.dumps(asdict(plan)), stdout=subprocess.PIPE, text=True,
        check=True, timeout=RUN_SECONDS_MAX,
    )  # fmt: skip
    outcome = Outcome(**json.loads(done.stdout))
    if not set(outcome.statuses) <= statuses:
        raise RuntimeError(f"not every request was answered well: {outcome.statuses}")
    return outcome


def create_bodies(tenant: BenchTenant, count: int) -> list[list[str]]:
    """Path, body and API key of so many creates of one tenant."""
    kinds = [_create_body(region, model, tenant.ssh_key_id) for region in REGIONS for model in SLICE_MODELS]
    return [["/api/v1/allocations", kinds[number % len(kinds)], tenant.api_key] for number in range(count)]


def _create_body(region: str, model: str, ssh_key_id: str) -> str:
    return json.dumps(
        {
            "sku": f"{model.lower()}.slice",
            "gpus": 1,
            "region": region,
            "ssh_key_ids": [ssh_key_id],
            "name": "benchmark",
            "labels": {"team": "research"},
        }
    )


def _given_requests(given: list[list[str]]) -> list[tuple[bytes, bytes]]:
    """The bytes before and after the key of each request."""
    return [
        (
            (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {api_key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body.encode())}\r\nIdempotency-Key: "
            ).encode(),
            b"\r\n\r\n" + body.encode(),
        )
        for path, body, api_key in given
    ]


def _requests(tenants: list[dict[str, str]], kind: Kind) -> list[tuple[bytes, bytes]]:
    """The bytes before and after the key, for every kind of create."""
    if kind == "ok":
        return [(b"GET /ok HTTP/1.1\r\nHost: localhost", b"\r\n\r\n")]
    key_header = "" if kind == "unkeyed" else "\r\nIdempotency-Key: "
    made = []
    for tenant in tenants:
        for region in REGIONS:
            for model in SLICE_MODELS:
                body = _create_body(region, model, tenant["ssh_key_id"]).encode()
                head = (
                    f"POST /api/v1/allocations HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {tenant['api_key']}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {len(body)}{key_header}"
                ).encode()
                made.append((head, b"\r\n\r\n" + body))
    random.shuffle(made)
    return made


class _Run:
    """What all clients share."""

    def __init__(self, plan: Plan) -> None:
        self.requests = _given_requests(plan.given) if plan.kind == "given" else _requests(plan.tenants, plan.kind)
        self.judged = plan.judged
        self._per_second = plan.per_second
        self._opened = time.perf_counter()
        self._kind = plan.kind
        self.total = plan.warm + plan.count
        self.warm = plan.warm
        self._prefix = uuid.uuid4().hex.encode()
        self.sent = 0
        self.answered = 0
        self.statuses: Counter[str] = Counter()
        self.latencies: list[float] = []
        self.began = 0.0
        self.ended = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def due(self, number: int) -> float | None:
        """When the request of this number is to be sent; None: at once."""
        return None if self._per_second is None else self._opened + number / self._per_second

    def message(self, number: int) -> bytes:
        """The request of this number; those that are sent again are as many as there are kinds of create."""
        which = number % len(self.requests)
        head, tail = self.requests[which]
        if self._kind in ("ok", "unkeyed"):
            return head + tail
        return b"%s%s-%d%s" % (head, self._prefix, which if self._kind == "again" else number, tail)


class _Client(asyncio.Protocol):
    """One connection with one request under way."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._buffer = b""
        self._sent_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods, not by its class
        self._send()

    def _send(self) -> None:
        run, transport = self._run, self._transport
        assert transport is not None
        if run.sent >= run.total:
            transport.close()
            return
        run.sent += 1
        message, due, now = run.message(run.sent), run.due(run.sent), time.perf_counter()
        self._sent_at = now if due is None else due
        if due is None or due <= now:
            transport.write(message)
        else:
            asyncio.get_running_loop().call_later(due - now, transport.write, message)

    def data_received(self, data: bytes) -> None:
        """Count a whole answer and send the next request."""
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        at = buffer.find(b"content-length: ")
        if end < 0 or at < 0 or len(buffer) < end + 4 + int(buffer[at + 16 : buffer.index(b"\r", at)]):
            self._buffer = buffer
            return
        self._buffer = b""
        run, now = self._run, time.perf_counter()
        run.answered += 1
        status = buffer[9:12].decode()
        run.statuses[status] += 1
        if run.answered == run.warm:
            run.began = now
        elif run.answered > run.warm and run.judged in (None, status):
            run.latencies.append(now - self._sent_at)
        if run.answered == run.total:
            run.ended = now
            run.done.set_result(None)
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        """A connection that the server ends early ends the run."""
        del error
        if self._run.sent < self._run.total and not self._run.done.done():
            self._run.done.set_exception(ConnectionError("the server closed a connection"))


async def _drive(plan: Plan) -> Outcome:
    run = _Run(plan)
    loop = asyncio.get_running_loop()
    for number in range(plan.clients):
        port = plan.ports[number % len(plan.ports)]
        await loop.create_connection(lambda: _Client(run), "127.0.0.1", port)
    await run.done
    milliseconds = [seconds * 1_000 for seconds in run.latencies]
    return Outcome(
        per_second=plan.count / (run.ended - run.began),
        p50_ms=percentile(milliseconds, 0.5),
        p99_ms=percentile(milliseconds, 0.99),
        statuses=dict(run.statuses),
    )


def main() -> None:
    """Read the plan, run it, write the outcome."""
    given: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(asdict(uvloop.run(_drive(Plan(**given))))))


if __name__ == "__main__":
    main()
