"""A tenant that creates and releases over TLS, one request after another, and notes each response and its time."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.attacks.loopback import QUIET_SOURCE
from benchmarks.figures import percentile
from benchmarks.load import create_bodies
from benchmarks.seeding import BenchTenant

RESPONSE_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Exchange:
    """A response's status and the seconds from before the request, and its connection if that is new, to its end."""

    status: int
    seconds: float


def create_and_release(
    port: int, ca_certificate: Path, tenant: BenchTenant, cycles: int, *, clients: int = 2
) -> list[Exchange]:
    """Run so many creates and releases by each of some clients: every second one opens a connection for each request.

    Raises OSError or `http.client.HTTPException` if a request gets no response.
    """
    context = ssl.create_default_context(cafile=str(ca_certificate))

    def run(number: int) -> list[Exchange]:
        client = _Client(port, context, tenant.api_key, keeps_connection=number % 2 == 0)
        done: list[Exchange] = []
        for path, body, _ in create_bodies(tenant, cycles):
            created, document = client.post(path, body)
            done.append(created)
            if created.status == http.client.CREATED:
                done.append(client.post(f"{path}/{document['allocation_id']}/release", "")[0])
        client.close()
        return done

    with ThreadPoolExecutor(clients) as pool:
        return [exchange for each in pool.map(run, range(clients)) for exchange in each]


def statuses(exchanges: Sequence[Exchange]) -> dict[int, int]:
    """How often each status was received."""
    return dict(Counter(exchange.status for exchange in exchanges))


def p99_ms(exchanges: Sequence[Exchange]) -> float:
    """The 99th percentile of the times, in milliseconds."""
    return percentile([exchange.seconds * 1_000 for exchange in exchanges], 0.99)


class _Client:
    """A client from `QUIET_SOURCE`."""

    def __init__(self, port: int, context: ssl.SSLContext, api_key: str, *, keeps_connection: bool) -> None:
        self._connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=RESPONSE_SECONDS_MAX, source_address=(QUIET_SOURCE, 0), context=context
        )
        self._headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
        self._keeps_connection = keeps_connection

    def post(self, path: str, body: str) -> tuple[Exchange, dict[str, Any]]:
        """Send one write with a key."""
        began = time.perf_counter()
        if not self._keeps_connection:
            self.close()
        headers = {**self._headers, "idempotency-key": uuid.uuid4().hex}
        self._connection.request("POST", path, body.encode(), headers)
        response = self._connection.getresponse()
        document: dict[str, Any] = json.loads(response.read())
        return Exchange(response.status, time.perf_counter() - began), document

    def close(self) -> None:
        """End the connection; the next request opens another."""
        self._connection.close()
