"""Downloads over a real HTTP server that breaks off, forgets ranges, changes its file, or never ends."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from node_agent.drivers.downloads import FRUITLESS_TRIES_MAX, Download

CONTENT = os.urandom(300_000)
OTHER = os.urandom(200_000)
BYTES_MAX = 1 << 20


@dataclass
class Server:
    """What the server sends to the nth request, and what it was asked for."""

    content: Callable[[int], bytes] = lambda _: CONTENT
    cut_after: Callable[[int], int | None] = lambda _: None
    ranges: bool = True
    status: int = 200
    etag: Callable[[int], str | None] = lambda _: '"one"'
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """The address of the file."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = len(server.asked)
            wanted, if_range = self.headers.get("range"), self.headers.get("if-range")
            server.asked.append((wanted, if_range))
            content, etag, start = server.content(number), server.etag(number), 0
            if wanted and server.ranges and if_range in (None, etag):
                start = int(wanted.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("content-range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(server.status)
            if etag:
                self.send_header("etag", etag)
            self.send_header("content-length", str(len(content) - start))
            self.end_headers()
            cut = server.cut_after(number)
            self.wfile.write(content[start:] if cut is None else content[start : start + cut])
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening, ThreadPoolExecutor(1) as pool:
        pool.submit(listening.serve_forever)
        try:
            yield f"http://127.0.0.1:{listening.server_address[1]}/image"
        finally:
            listening.shutdown()


def fetched(server: Server, target: Path, bytes_max: int = BYTES_MAX) -> str:
    """The hash of the downloaded file."""
    with serving(server) as url:
        return asyncio.run(Download(url, bytes_max, lambda _share, _detail: None).to(target))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_download_goes_on_where_it_broke_off(tmp_path: Path) -> None:
    server = Server(cut_after=lambda number: 100_000 if number < 2 else None)
    target = tmp_path / "image"
    assert fetched(server, target) == sha256(CONTENT)
    assert target.read_bytes() == CONTENT
    assert server.asked == [(None, None), ("bytes=100000-", '"one"'), ("bytes=200000-", '"one"')]


@pytest.mark.parametrize("etag", [None, 'W/"weak"'], ids=["no ETag", "a weak ETag"])
def test_without_a_strong_etag_no_condition_is_sent(tmp_path: Path, etag: str | None) -> None:
    server = Server(cut_after=lambda number: 100_000 if number == 0 else None, etag=lambda _: etag)
    assert fetched(server, tmp_path / "image") == sha256(CONTENT)
    assert server.asked[1] == ("bytes=100000-", None)


def test_a_server_without_ranges_is_asked_for_the_whole_again(tmp_path: Path) -> None:
    server = Server(cut_after=lambda number: 100_000 if number == 0 else None, ranges=False)
    target = tmp_path / "image"
    assert fetched(server, target) == sha256(CONTENT)
    assert target.read_bytes() == CONTENT


def test_a_file_that_changes_meanwhile_is_fetched_whole(tmp_path: Path) -> None:
    server = Server(
        content=lambda number: OTHER if number else CONTENT, etag=lambda number: f'"{number}"',
        cut_after=lambda number: None if number else 100_000,
    )  # fmt: skip
    target = tmp_path / "image"
    assert fetched(server, target) == sha256(OTHER)
    assert target.read_bytes() == OTHER, "nothing of the version before is left behind its end"


def test_a_file_that_became_shorter_is_fetched_again(tmp_path: Path) -> None:
    server = Server(
        content=lambda number: CONTENT[:50_000] if number else CONTENT, etag=lambda _: None,
        cut_after=lambda number: None if number else 100_000,
    )  # fmt: skip
    assert fetched(server, tmp_path / "image") == sha256(CONTENT[:50_000])


def test_a_server_that_sends_nothing_is_given_up(tmp_path: Path) -> None:
    server = Server(cut_after=lambda _: 0)
    with pytest.raises(httpx.TransportError):
        fetched(server, tmp_path / "image")
    assert len(server.asked) == FRUITLESS_TRIES_MAX


def test_a_file_that_is_too_large_is_not_asked_for_again(tmp_path: Path) -> None:
    server = Server()
    with pytest.raises(OSError, match="larger than 200000 bytes"):
        fetched(server, tmp_path / "image", bytes_max=200_000)
    assert len(server.asked) == 1


def test_a_refusal_is_not_repeated(tmp_path: Path) -> None:
    server = Server(status=404)
    with pytest.raises(httpx.HTTPStatusError):
        fetched(server, tmp_path / "image")
    assert len(server.asked) == 1
