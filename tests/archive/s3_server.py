"""A small S3 server: verifies signatures (AWS4-HMAC-SHA256), lists, reads and creates objects, and fails where a test says so.

No server that installs from a package index verifies signatures and refuses a PUT by `If-None-Match` as well. What is verified is
written from the specification of the signature, and not with the library that signs.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3
"""Names in one page of a list, so that lists have several."""


class Fault(Enum):
    """What happens to a request instead of its answer."""

    UNAVAILABLE = "answered with 503"
    CUT = "the connection ends in the middle of the body"
    LOST = "carried out, and the connection ends before the answer"


@dataclass
class S3Server:
    """Buckets and keys of a running server. `fault` decides for each request, by method and path."""

    port: int = 0
    buckets: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"archive": {}})
    secrets: dict[str, str] = field(default_factory=lambda: {"AKIDTEST": "a-secret-of-forty-characters-0123456789+/"})
    token: str | None = None
    ignores_conditions: bool = False
    fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """A server on a free port of the loopback address."""
    state = S3Server()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"state": state}))
    server.daemon_threads = True
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: S3Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _serve(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.state.requests.append((self.command, path))
        fault = self.state.fault(self.command, path)
        length = int(self.headers.get("content-length", 0))
        if fault is Fault.CUT:
            self.rfile.read(length // 2)
            self._end()
            return
        body = self.rfile.read(length)
        if fault is Fault.UNAVAILABLE:
            self._answer(503, _error("SlowDown"))
            return
        refusal = self._refusal(body)
        status, content, tag = refusal or self._carry_out(path, body)
        if fault is Fault.LOST:
            self._end()
            return
        self._answer(status, content, tag)

    def _end(self) -> None:
        self.close_connection = True
        self.connection.close()

    def _answer(self, status: int, content: bytes, tag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if tag is not None:
            self.send_header("etag", tag)
        self.end_headers()
        self.wfile.write(content)

    def _carry_out(self, path: str, body: bytes) -> tuple[int, bytes, str | None]:
        bucket, _, key = path.lstrip("/").partition("/")
        with self.state.lock:
            objects = self.state.buckets.get(bucket)
            if objects is None:
                return 404, _error("NoSuchBucket"), None
            if self.command == "PUT":
                if key in objects and self.headers.get("if-none-match") == "*" and not self.state.ignores_conditions:
                    return 412, _error("PreconditionFailed"), None
                objects[key] = body
                return 200, b"", _tag(body)
            if key:
                found = objects.get(key)
                return (404, _error("NoSuchKey"), None) if found is None else (200, found, _tag(found))
            return 200, _listed(objects, dict(parse_qsl(urlsplit(self.path).query))), None

    def _refusal(self, body: bytes) -> tuple[int, bytes, None] | None:
        """What is wrong with the signature; None if it holds."""
        parts = dict(
            part.strip().split("=", 1)
            for part in self.headers.get("authorization", "").removeprefix("AWS4-HMAC-SHA256 ").split(",")
            if "=" in part
        )
        key, _, scope = parts.get("Credential", "").partition("/")
        secret = self.state.secrets.get(key)
        if secret is None:
            return 403, _error("InvalidAccessKeyId"), None
        digest = hashlib.sha256(body).hexdigest()
        if self.headers.get("x-amz-content-sha256") != digest:
            return 400, _error("XAmzContentSHA256Mismatch"), None
        if self.headers.get("x-amz-security-token") != self.state.token:
            return 403, _error("InvalidToken"), None
        signed = parts["SignedHeaders"].split(";")
        if self.headers.get("if-none-match") and not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(signed):
            return 403, _error("AccessDenied"), None
        wanted = _signature(secret, scope, self._canonical(signed, digest), cast(str, self.headers["x-amz-date"]))
        if not hmac.compare_digest(wanted, parts.get("Signature", "")):
            return 403, _error("SignatureDoesNotMatch"), None
        return None

    def _canonical(self, signed: list[str], digest: str) -> str:
        url = urlsplit(self.path)
        query = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(url.query, True))
        headers = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in signed)
        uri = quote(unquote(url.path), safe="/-_.~")
        return "\n".join([self.command, uri, "&".join(f"{k}={v}" for k, v in query), headers, ";".join(signed), digest])


def _signature(secret: str, scope: str, canonical: str, date: str) -> str:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    return hmac.new(key, text.encode(), "sha256").hexdigest()


def _listed(objects: dict[str, bytes], query: dict[str, str]) -> bytes:
    """A page of a list, version 2."""
    names = sorted(name for name in objects if name.startswith(query.get("prefix", "")))
    page = [name for name in names if name > query.get("continuation-token", "")][:PAGE]
    more = bool(page) and page[-1] != names[-1]
    items = "".join(
        f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(_tag(objects[name]))}</ETag><Size>{len(objects[name])}</Size></Contents>"
        for name in page
    )
    token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
    return (
        f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>'
        f"<KeyCount>{len(page)}</KeyCount>{items}{token}</ListBucketResult>"
    ).encode()


def _tag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code} in words</Message></Error>'.encode()
