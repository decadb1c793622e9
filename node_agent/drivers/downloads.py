"""Download of a file that goes on where it broke off (RFC 9110 §14, range requests).

What was received is hashed as it is written: the caller compares the hash, so a server that mixes versions is found out.
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from pathlib import Path
from typing import BinaryIO

import httpx
import structlog

from berth.process.backoff import Backoff
from node_agent.drivers.contract import Progress
from node_agent.drivers.threads import in_thread

log = structlog.get_logger("node_agent.images")

CHUNK_BYTES = 1 << 20
READ_SECONDS_MAX = 30.0
FRUITLESS_TRIES_MAX = 4
"""Connections in a row that brought not a byte."""


class Download:
    """One file on its way. `received` counts its bytes; `digest` is their SHA-256 so far."""

    def __init__(self, url: str, bytes_max: int, progress: Progress) -> None:
        self.received = 0
        self.digest = hashlib.sha256()
        self._url = url
        self._bytes_max = bytes_max
        self._progress = progress
        self._validator: str | None = None
        self._total = 0

    async def to(self, target: Path) -> str:
        """Write the file to `target`; its SHA-256. Raises OSError, httpx.HTTPError, httpx.InvalidURL."""
        fruitless, backoff = 0, Backoff(first_seconds=0.2, most_seconds=5.0)
        async with httpx.AsyncClient(timeout=READ_SECONDS_MAX, follow_redirects=True) as client:
            with target.open("wb") as file:
                while True:
                    before = self.received
                    try:
                        await self._receive(client, file)
                        return self.digest.hexdigest()
                    except httpx.TransportError as error:
                        fruitless = 0 if self.received > before else fruitless + 1
                        if fruitless >= FRUITLESS_TRIES_MAX:
                            raise
                        log.warning("download_broke_off", url=self._url, received=self.received, why=str(error))
                        await asyncio.sleep(backoff.next_seconds())

    async def _receive(self, client: httpx.AsyncClient, file: BinaryIO) -> None:
        async with client.stream("GET", self._url, headers=self._headers()) as response:
            if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE and self.received:
                self._start_over(file)
                raise httpx.ReadError("the server has no such range any more")
            response.raise_for_status()
            if self.received and not self._continues(response):
                self._start_over(file)
            self._validator = _strong_validator(response)
            self._total = self.received + int(response.headers.get("content-length", 0))
            pending = bytearray()
            try:
                async for piece in response.aiter_raw():
                    pending += piece
                    if len(pending) >= CHUNK_BYTES:
                        await self._keep(file, pending)
            finally:
                # Also of a connection that broke: the next one goes on behind it.
                await self._keep(file, pending)

    async def _keep(self, file: BinaryIO, pending: bytearray) -> None:
        received = bytes(pending)
        pending.clear()
        if self.received + len(received) > self._bytes_max:
            raise OSError(f"it is larger than {self._bytes_max} bytes")
        await in_thread(partial(file.write, received))
        self.digest.update(received)
        self.received += len(received)
        share = min(1.0, self.received / self._total) if self._total else 0.0
        self._progress(share, f"{self.received} of {self._total or '?'} bytes")

    def _headers(self) -> dict[str, str]:
        # Compressed, a range would be one of the compressed bytes.
        headers = {"accept-encoding": "identity"}
        if self.received:
            headers["range"] = f"bytes={self.received}-"
            if self._validator is not None:
                headers["if-range"] = self._validator
        return headers

    def _continues(self, response: httpx.Response) -> bool:
        """Whether the response begins where the file ends."""
        said = response.headers.get("content-range", "")
        return response.status_code == httpx.codes.PARTIAL_CONTENT and said.startswith(f"bytes {self.received}-")

    def _start_over(self, file: BinaryIO) -> None:
        file.seek(0)
        file.truncate()
        self.received, self.digest, self._validator = 0, hashlib.sha256(), None


def _strong_validator(response: httpx.Response) -> str | None:
    """What `If-Range` may carry: a strong ETag (RFC 9110 §13.1.5); None if there is none."""
    etag: str | None = response.headers.get("etag")
    return etag if etag is not None and not etag.startswith("W/") else None
