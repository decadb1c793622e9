"""Documents that are the same for every caller, as the API's descriptions are: encoded once, and sent from shared bytes.

Such a document is large and needs no key. So it is neither encoded for a request, which would occupy the event loop, nor copied
for a response, which would occupy memory for as long as a client does not read: the response is sent in pieces that all share.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from starlette.datastructures import Headers

from orchestrator.http.asgi import Receive, Scope, Send

PIECE_BYTES: Final = 16 * 1024
"""Bytes handed to a connection at once; the next ones follow when it has taken them."""
GZIP: Final = "gzip"


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Pieces of the body, plain or compressed."""

    pieces: tuple[bytes, ...]
    size: int
    etag: str


class StaticDocument:
    """One document. `make` returns its bytes; it is called once, in a thread."""

    def __init__(self, make: Callable[[], bytes], media_type: str = "application/json") -> None:
        self._make = make
        self._media_type = media_type
        self._encoding: asyncio.Future[tuple[_Encoded, _Encoded]] | None = None
        self._encoded: tuple[_Encoded, _Encoded] | None = None

    async def prepare(self) -> tuple[_Encoded, _Encoded]:
        """Encode the document, plain and compressed, unless that is done. Raises what `make` raises."""
        if self._encoded is None:
            if self._encoding is None:
                self._encoding = asyncio.ensure_future(asyncio.to_thread(self._encode))
            self._encoded = await asyncio.shield(self._encoding)
        return self._encoded

    def _encode(self) -> tuple[_Encoded, _Encoded]:
        body = self._make()
        digest = hashlib.sha256(body).hexdigest()[:32]
        return _encoded(body, f'"{digest}"'), _encoded(gzip.compress(body, mtime=0), f'"{digest}-{GZIP}"')

    async def answer(self, request: Request) -> Response:
        """The response to a GET: compressed if the client accepts that, and 304 if it has the document."""
        plain, compressed = await self.prepare()
        is_compressed = _accepts_gzip(request.headers)
        found = compressed if is_compressed else plain
        headers = {"etag": found.etag, "vary": "Accept-Encoding", "cache-control": "no-cache"}
        known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
        if found.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        if is_compressed:
            headers["content-encoding"] = GZIP
        return _SharedResponse(found, headers, self._media_type)


class _SharedResponse(Response):
    """Sends the pieces one by one; each waits until the connection has taken the one before."""

    def __init__(self, encoded: _Encoded, headers: dict[str, str], media_type: str) -> None:
        super().__init__(headers={**headers, "content-length": str(encoded.size)}, media_type=media_type)
        self._encoded = encoded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send head and body."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._encoded.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _encoded(body: bytes, etag: str) -> _Encoded:
    pieces = tuple(body[begin : begin + PIECE_BYTES] for begin in range(0, len(body), PIECE_BYTES))
    return _Encoded(pieces, len(body), etag)


def _accepts_gzip(headers: Headers) -> bool:
    """Whether gzip is among the accepted codings, and not with a weight of zero."""
    for coding in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = coding.replace(" ", "").partition(";q=")
        if name == GZIP:
            return weight.strip("0.") != "" or not weight
    return False
