"""A tenant's creates and releases beside 2,000 hostile connections from another address, and the memory of the process."""

from __future__ import annotations

import http.client
import json
import ssl
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, percentile
from benchmarks.hostile_connections import HERE, attacked
from benchmarks.load import create_bodies
from benchmarks.running import bench, memory_megabytes, with_environment
from benchmarks.seeding import BenchTenant
from berth.local.processes import orchestrator_plan
from berth.local.servers import free_port

CONNECTIONS = 2_000
ATTACKER, TENANT = "127.0.0.2", "127.0.0.3"
P99_MS_MAX = 1_000.0
MEGABYTES_MAX = 400.0
PAIRS = 200


@dataclass(frozen=True)
class Served:
    """One request of the tenant."""

    status: int
    seconds: float


def create_and_release(port: int, ca_certificate: Path, tenant: BenchTenant, pairs: int) -> Iterator[Served]:
    """So many creates, each with its release, one after another over TLS from the tenant's address."""
    context = ssl.create_default_context(cafile=str(ca_certificate))
    connection = http.client.HTTPSConnection(HERE, port, timeout=60, source_address=(TENANT, 0), context=context)
    for path, body, key in create_bodies(tenant, pairs):
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        made, answer = _timed(connection, path, body, headers)
        yield made
        if made.status == 201:
            yield _timed(connection, f"{path}/{answer['allocation_id']}/release", "{}", headers)[0]


def _timed(
    connection: http.client.HTTPSConnection, path: str, body: str, headers: dict[str, str]
) -> tuple[Served, dict[str, str]]:
    began = time.perf_counter()
    connection.request("POST", path, body, {**headers, "idempotency-key": uuid.uuid4().hex})
    response = connection.getresponse()
    answer = json.loads(response.read())
    return Served(response.status, time.perf_counter() - began), answer


def run(quick: bool) -> list[Figure]:
    """One listener with TLS; the tenant alone, then beside the attack."""
    pairs = PAIRS // 4 if quick else PAIRS
    with bench() as servers:
        url, tenants = servers.fleet(100)
        endpoints = servers.endpoints(url)
        authority = servers.authority
        tls = {
            "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(authority.listener_certificate),
            "BERTH_PUBLIC_TLS_KEY_FILE": str(authority.listener_key),
        }
        process = servers.start(with_environment(orchestrator_plan("public", endpoints, authority, free_port()), **tls))
        port, ca = endpoints.public_port, authority.ca_certificate
        alone = list(create_and_release(port, ca, tenants[0], pairs))
        with attacked(port, CONNECTIONS, ATTACKER):
            beside = list(create_and_release(port, ca, tenants[0], pairs))
            megabytes = memory_megabytes(process)
    failed = sum(one.status >= 500 for one in beside)
    p99_alone, p99_beside = (percentile([one.seconds for one in each], 0.99) * 1_000 for each in (alone, beside))
    note = f"{len(beside)} creates and releases beside {CONNECTIONS:,} hostile connections; alone {p99_alone:.0f} ms"
    return [
        Figure("attacked_tenant_p99", p99_beside, "ms", P99_MS_MAX, note=note),
        Figure("attacked_tenant_failures", float(failed), "5xx", 0.0),
        Figure("attacked_memory", megabytes, "MB", MEGABYTES_MAX),
    ]
