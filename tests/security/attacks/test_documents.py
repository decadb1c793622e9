"""The API's descriptions need no key: they cost neither the event loop nor memory, however often they are asked."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from starlette.requests import Request

from berth.local.servers import LocalPostgres
from orchestrator.http.asgi import Message, Scope
from orchestrator.http.static_documents import PIECE_BYTES, StaticDocument
from tests.api.processes import metric_of, public_process
from tests.databases import copied_database
from tests.security.listener import get
from tests.support.waiting import WAIT_SECONDS_MAX

CONNECTIONS = 150
PIPELINED = 8
MEGABYTES = 2**20
RESIDENT = "process_resident_memory_bytes "


@pytest.fixture(scope="module")
def api(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    directory, settings = tmp_path_factory.mktemp("api"), {"BERTH_DOCS_UI": "true"}
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory, settings) as http,
    ):
        yield http


@pytest.mark.parametrize("path", ["/openapi.json", "/asyncapi.json", "/docs"])
def test_a_document_is_sent_compressed_and_only_if_it_changed(api: httpx.Client, path: str) -> None:
    plain = api.get(path, headers={"accept-encoding": "gzip;q=0, identity"})
    compressed = api.get(path, headers={"accept-encoding": "br, gzip"})
    assert plain.status_code == compressed.status_code == 200
    assert "content-encoding" not in plain.headers
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.content == plain.content, "httpx has decompressed it"
    assert int(compressed.headers["content-length"]) < len(plain.content)
    assert plain.headers["vary"] == compressed.headers["vary"] == "Accept-Encoding"
    assert plain.headers["etag"] != compressed.headers["etag"], "they are two representations"
    for found, coding in ((plain, "identity"), (compressed, "gzip")):
        same = api.get(path, headers={"accept-encoding": coding, "if-none-match": f'"x", W/{found.headers["etag"]}'})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == found.headers["etag"]
    assert api.get(path, headers={"if-none-match": '"another"'}).status_code == 200
    head = api.head(path, headers={"accept-encoding": "identity"})
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(plain.content)), b"")


def test_unread_documents_take_no_memory(api: httpx.Client) -> None:
    """A response that is not read waits in pieces that all share, and not as a copy of the document."""
    size = len(api.get("/openapi.json").content)
    assert size > MEGABYTES / 2
    request = get("/openapi.json") * PIPELINED
    with ExitStack() as held:
        before = metric_of(api, RESIDENT)
        for _ in range(CONNECTIONS):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            held.enter_context(connection)
            connection.settimeout(WAIT_SECONDS_MAX)
            connection.connect((api.base_url.host, api.base_url.port or 0))
            connection.sendall(request)
            assert connection.recv(1) == b"H", "the response has begun"
        assert api.get("/api/v1/skus").status_code == 401, "others are served"
        grown = metric_of(api, RESIDENT) - before
    assert grown < CONNECTIONS * size / 4, f"{grown / MEGABYTES:.0f} MiB"


def test_it_is_encoded_once_and_not_on_the_event_loop() -> None:
    made: list[threading.Thread] = []
    body = json.dumps(list(range(20_000))).encode()

    def make() -> bytes:
        made.append(threading.current_thread())
        return body

    async def scene() -> None:
        document = StaticDocument(make)
        pieces: list[bytes] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                pieces.append(message["body"])

        async def ask(coding: bytes) -> bytes:
            scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"accept-encoding", coding)]}
            pieces.clear()
            await (await document.answer(Request(scope)))(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
            return b"".join(pieces)

        await asyncio.gather(*(document.prepare() for _ in range(50)))
        assert await ask(b"") == body
        first = list(pieces)
        assert await ask(b"") == body
        assert max(map(len, first)) == PIECE_BYTES
        assert all(one is other for one, other in zip(first, pieces, strict=True)), "every response has the same bytes"
        assert gzip.decompress(await ask(b"gzip")) == body

    asyncio.run(scene())
    assert len(made) == 1
    assert made[0] is not threading.main_thread()
