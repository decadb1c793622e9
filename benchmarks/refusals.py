"""CPU time of an API process for each of the costliest bodies that it refuses, on every write route of both listeners."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence

import psutil

from benchmarks.figures import Figure
from benchmarks.hostile_bodies import Schema, hostile_values, write_bodies
from benchmarks.node_api.dispatch import issue_certificates
from benchmarks.running import Bench, bench, with_environment
from benchmarks.seeding import seed_operator
from berth.local.processes import ChildProcess, orchestrator_plan
from berth.local.servers import free_port
from orchestrator.app import build_services, node_application
from orchestrator.settings import Settings

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


OTHER_CERTIFICATES = ("/node/v1/site/", "/node/v1/deploy/")
"""Paths that refuse a node's certificate before they read a body."""


CHUNKED = b"1\r\n \r\n" * (BODY_BYTES_MAX - 1) + b"1\r\n1\r\n0\r\n\r\n"
"""A body of the largest size in chunks of one byte, as it is sent."""


def run(quick: bool) -> list[Figure]:
    """Each body is sent several times over one connection, by a caller whose role or certificate the route needs."""
    with bench() as servers:
        return [_public(servers, quick), _nodes(servers, quick)]


def _public(servers: Bench, quick: bool) -> Figure:
    url, tenants = servers.fleet(10)
    operator = seed_operator(url)
    endpoints = servers.endpoints(url)
    process = servers.api(endpoints)
    connection = http.client.HTTPConnection("127.0.0.1", endpoints.public_port)
    document = json.loads(_exchange(connection, "GET", "/openapi.json")[1])

    def headers(path: str) -> dict[str, str]:
        key = operator if path.startswith("/api/v1/admin") else tenants[0].api_key
        return {"authorization": f"Bearer {key}"}

    requests = [
        (method, path, body, headers(path)) for method, path, body in _requests(write_bodies(document), document, quick)
    ]
    return _figure("refusal_cpu_max", process, connection, requests, quick)


def _nodes(servers: Bench, quick: bool) -> Figure:
    url, _ = servers.fleet(1, "fleet_of_nodes")
    endpoints, metrics_port = servers.endpoints(url), free_port()
    # The rate of a certificate would refuse most of the requests before their bodies are read.
    plan = with_environment(
        orchestrator_plan("node", endpoints, servers.authority, metrics_port),
        BERTH_NODE_REQUESTS_PER_SECOND_MAX="1000000",
    )
    process = servers.start(plan)
    (identity, *_) = issue_certificates(servers.authority, servers.directory, url)
    context = ssl.create_default_context(cafile=str(servers.authority.ca_certificate))
    context.load_cert_chain(identity["certificate"], identity["key"])
    connection = http.client.HTTPSConnection("127.0.0.1", endpoints.node_port, context=context)
    document = node_application(build_services(Settings(database_url=url))).openapi()
    routes = [one for one in write_bodies(document) if not one[1].startswith(OTHER_CERTIFICATES)]
    requests: list[_Request] = [(*request, {}) for request in _requests(routes, document, quick)]
    return _figure("node_refusal_cpu_max", process, connection, requests, quick)


_Request = tuple[str, str, bytes, Mapping[str, str]]


def _figure(
    name: str, process: ChildProcess, connection: http.client.HTTPConnection, requests: Sequence[_Request], quick: bool
) -> Figure:
    """The most CPU time of one request, of those that are all refused."""
    assert requests, "no route was found"
    assert process.process is not None
    measured = psutil.Process(process.process.pid)
    repetitions = 10 if quick else 40
    worst: tuple[float, str] = (0.0, "")
    answered = 0
    for method, path, body, headers in requests:
        began = measured.cpu_times()
        for _ in range(repetitions):
            try:
                sent = {"content-type": "application/json", **headers}
                if body is CHUNKED:
                    sent["transfer-encoding"] = "chunked"
                status, _ = _exchange(connection, method, path, body, sent)
            except ConnectionError:
                # Refused before the body was read; the next request pays for a handshake.
                connection.close()
                continue
            assert 400 <= status < 500, (method, path, status)
            assert status != 429, (method, path)
            answered += 1
        ended = measured.cpu_times()
        spent = (ended.user + ended.system - began.user - began.system) * 1_000 / repetitions
        worst = max(worst, (spent, f"{method} {path} {body[:40]!r}"))
    assert answered >= len(requests), "most connections ended before their response"
    return Figure(name, worst[0], "ms", CPU_MS_MAX, note=f"the costliest of {len(requests)}: {worst[1]}")


def _requests(
    routes: Iterable[tuple[str, str, Schema]], document: Schema, quick: bool
) -> Iterator[tuple[str, str, bytes]]:
    """Hostile requests to these write routes; of each route a few if `quick`."""
    for method, path, schema in routes:
        at = re.sub(r"\{[^}]*\}", "00000000-0000-0000-0000-000000000000", path)
        values = itertools.chain(
            hostile_values(document, schema, SURPLUS), hostile_values(document, schema, MORE_SURPLUS)
        )
        texts = {json.dumps(value, separators=(",", ":")).encode() for value in values} | set(TEXTS)
        bodies = sorted((text for text in texts if len(text) <= BODY_BYTES_MAX), key=len, reverse=True)
        for body in (CHUNKED, *bodies[: 6 if quick else None]):
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
