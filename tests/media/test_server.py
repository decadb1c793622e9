"""The media server as BMCs meet it: ranges, HEAD, slow and many readers, requests that are no HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from node_agent.media.medium import CommonMedium
from node_agent.media.metrics import MediaMetrics
from node_agent.media.publications import Publications
from node_agent.media.server import MediaLimits, MediaServer
from tests.media.media_files import AT, SIZE_BYTES, common_medium, configuration, own, write_certificate
from tests.support.waiting import async_wait_for


@dataclass
class Served:
    """A server with one published medium."""

    port: int
    path: str
    content: bytes
    file: Path
    publications: Publications
    registry: CollectorRegistry

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def counted(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"berth_media_{name}", labels) or 0.0


@asynccontextmanager
async def serving(
    directory: Path, limits: MediaLimits | None = None, tls: ssl.SSLContext | None = None, size_bytes: int = SIZE_BYTES
) -> AsyncIterator[Served]:
    file = directory / "iso"
    content = common_medium(file, size_bytes)
    registry = CollectorRegistry()
    publications = Publications()
    server = MediaServer(publications, MediaMetrics(registry), limits or MediaLimits())
    with CommonMedium(file) as medium:
        port = await server.start("127.0.0.1", 0, tls)
        try:
            path = publications.publish(medium, configuration(), 600)
            yield Served(port, path, content, file, publications, registry)
        finally:
            await server.stop()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(bounded())


def test_a_whole_medium_ranges_and_head(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served, httpx.AsyncClient(trust_env=False) as client:
            wanted = own(served.content)
            whole = await client.get(served.url)
            assert (whole.status_code, whole.content == wanted) == (200, True)
            head = await client.head(served.url)
            assert (head.status_code, head.headers["content-length"]) == (200, str(SIZE_BYTES))
            assert (head.headers["accept-ranges"], head.content) == ("bytes", b"")
            part = await client.get(served.url, headers={"Range": f"bytes={AT - 5}-{AT + 20}"})
            assert (part.status_code, part.content) == (206, wanted[AT - 5 : AT + 21])
            assert part.headers["content-range"] == f"bytes {AT - 5}-{AT + 20}/{SIZE_BYTES}"
            huge = await client.get(served.url, headers={"Range": "bytes=0-9999999999999999999"})
            assert (huge.status_code, huge.content == wanted) == (206, True)
            behind = await client.get(served.url, headers={"Range": f"bytes={SIZE_BYTES}-"})
            assert (behind.status_code, behind.headers["content-range"]) == (416, f"bytes */{SIZE_BYTES}")
            stale = await client.get(served.url, headers={"Range": "bytes=0-1", "If-Range": '"other"'})
            assert (stale.status_code, len(stale.content)) == (200, SIZE_BYTES)
            same = await client.get(served.url, headers={"Range": "bytes=0-1", "If-Range": whole.headers["etag"]})
            assert (same.status_code, len(same.content)) == (206, 2)
            assert served.counted("answers_total", status="206") == 3

    run(scenario)


def test_a_medium_is_served_over_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    write_certificate(certificate, key)
    server, client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=str(certificate))
    server.load_cert_chain(certificate, key)

    async def scenario() -> None:
        async with (
            serving(tmp_path, tls=server) as served,
            httpx.AsyncClient(trust_env=False, verify=client_side) as client,
        ):
            whole = await client.get(served.url.replace("http:", "https:"))
            assert whole.content == own(served.content)
            with pytest.raises(httpx.HTTPError):
                await client.get(served.url)

    run(scenario)


def test_other_paths_and_methods_show_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served, httpx.AsyncClient(trust_env=False) as client:
            base = f"http://127.0.0.1:{served.port}"
            for path in ("/", "/media/", "/media/..%2f/deploy.iso", f"{served.path}x", "/metrics"):
                assert (await client.get(base + path)).status_code == 404
            posted = await client.post(served.url, content=b"x")
            assert (posted.status_code, posted.headers["allow"]) == (405, "GET, HEAD")
            served.publications.withdraw(served.path)
            assert (await client.get(served.url)).status_code == 404

    run(scenario)


@pytest.mark.parametrize(
    "sent", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, b"\x16\x03\x01\x00\xff"]
)
def test_what_is_no_http_ends_its_connection_alone(tmp_path: Path, sent: bytes) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, MediaLimits(head_seconds=1)) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(sent)
            answer = b""
            try:
                answer = await reader.read()
            except ConnectionError:
                pass
            assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
            writer.close()
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.head(served.url)).status_code == 200

    run(scenario)


def test_a_reader_that_takes_nothing_is_cut_off_and_others_are_served(tmp_path: Path) -> None:
    async def scenario() -> None:
        limits = MediaLimits(chunk_seconds=0.5)
        async with serving(tmp_path, limits, size_bytes=32 * 2**20) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET {served.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await async_wait_for(lambda: served.counted("connections") == 1, "the connection")
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.get(served.url, headers={"Range": "bytes=0-9"})).status_code == 206
            await async_wait_for(lambda: served.counted("connections") == 0, "the connections' end")
            assert served.counted("sent_bytes_total") < 32 * 2**20
            writer.close()
            del reader

    run(scenario)


def test_connections_are_bounded_for_each_source_and_given_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, MediaLimits(connections_per_source_max=3)) as served:
            held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
            await async_wait_for(lambda: served.counted("connections") == 3, "the connections")
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            try:
                assert await reader.read() == b""
            except ConnectionError:
                pass
            writer.close()
            assert served.counted("refused_connections_total") == 1
            for _, other in held:
                other.close()
            await async_wait_for(lambda: served.counted("connections") == 0, "the connections' end")
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.head(served.url)).status_code == 200

    run(scenario)


def test_many_machines_read_at_once_each_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, MediaLimits(connections_per_source_max=64)) as served:
            medium = served.publications.find(served.path)
            assert medium is not None
            words = [f"machine-{number}" for number in range(20)]
            paths = [served.publications.publish(medium.medium, configuration(word), 60) for word in words]
            async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
                answers = await asyncio.gather(*(client.get(f"http://127.0.0.1:{served.port}{path}") for path in paths))
            assert [
                answer.content == own(served.content, word) for answer, word in zip(answers, words, strict=True)
            ] == ([True] * 20)

    run(scenario)


def test_a_file_that_shrinks_while_it_is_served_breaks_the_answer_off(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served, httpx.AsyncClient(trust_env=False) as client:
            with served.file.open("r+b") as file:
                file.truncate(SIZE_BYTES // 2)
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get(served.url)
            assert (await client.get(served.url, headers={"Range": "bytes=0-9"})).status_code == 206

    run(scenario)


def test_stopping_ends_every_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            await async_wait_for(lambda: served.counted("connections") == 1, "the connection")
        try:
            assert await reader.read() == b""
        except ConnectionError:
            pass
        writer.close()

    run(scenario)
