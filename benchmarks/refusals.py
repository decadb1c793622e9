"""CPU time of an API process for each of the costliest bodies that it refuses on every write route."""

from __future__ import annotations

import http.client
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.figures import Figure
from benchmarks.hostile_bodies import hostile_values, write_bodies
from benchmarks.running import bench
from benchmarks.seeding import seed_operator

BODY_BYTES_MAX = 262_144
CPU_MS_MAX = 20.0
SURPLUS = 9_900
"""Values of a body: as many as are parsed."""
MORE_SURPLUS = 60_000
"""Values of a body that is refused for their number."""
TEXTS = (
    b"[" * BODY_BYTES_MAX,
    b'"' + b'\\"' * 131_000,
    b'["' + b'",' * 131_000,
    b"1" * BODY_BYTES_MAX,
    b'{"a":' * 52_000,
)
"""Bodies that are no JSON, or hardly."""


def run(quick: bool) -> list[Figure]:
    """Each body is sent several times over one connection, by a caller whose role the route needs."""
    repetitions = 10 if quick else 40
    worst: tuple[float, str] = (0.0, "")
    count = 0
    with bench() as servers:
        url, tenants = servers.fleet(10)
        operator = seed_operator(url)
        endpoints = servers.endpoints(url)
        process = servers.api(endpoints)
        assert process.process is not None
        measured = psutil.Process(process.process.pid)
        connection = http.client.HTTPConnection("127.0.0.1", endpoints.public_port)
        document = json.loads(_exchange(connection, "GET", "/openapi.json")[1])
        for method, path, body in _requests(document, quick):
            key = operator if path.startswith("/api/v1/admin") else tenants[0].api_key
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            began = measured.cpu_times()
            for _ in range(repetitions):
                status, _ = _exchange(connection, method, path, body, headers)
                assert 400 <= status < 500, (method, path, status)
            ended = measured.cpu_times()
            spent = (ended.user + ended.system - began.user - began.system) * 1_000 / repetitions
            worst = max(worst, (spent, f"{method} {path} {body[:40]!r}"))
            count += 1
    note = f"the costliest of {count}: {worst[1]}"
    return [Figure("refusal_cpu_max", worst[0], "ms", CPU_MS_MAX, note=note)]


def _requests(document: dict[str, Any], quick: bool) -> Iterator[tuple[str, str, bytes]]:
    """Hostile requests to every write route; of each route a few if `quick`."""
    for method, path, schema in write_bodies(document):
        at = re.sub(r"\{[^}]*\}", "00000000-0000-0000-0000-000000000000", path)
        values = itertools.chain(
            hostile_values(document, schema, SURPLUS), hostile_values(document, schema, MORE_SURPLUS)
        )
        texts = {json.dumps(value, separators=(",", ":")).encode() for value in values} | set(TEXTS)
        bodies = sorted((text for text in texts if len(text) <= BODY_BYTES_MAX), key=len, reverse=True)
        for body in bodies[: 6 if quick else None]:
            yield method, at, body


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    return response.status, response.read()
