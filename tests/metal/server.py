"""A small TLS server: hands orders to the driver in the deploy system, one after another, and serves the image."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from berth.local.machines.networks import HOST

TOKEN = "deploy1." + "t" * 43


@dataclass
class Orders:
    """What one boot is to do, and what came of it."""

    image: bytes = b""
    waiting: list[dict[str, Any]] = field(default_factory=list)
    hello: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)

    def give(self, *orders: dict[str, Any]) -> None:
        """The orders of the next boot."""
        self.waiting, self.results, self.hello = list(orders), [], {}

    def answer(self, path: str, document: dict[str, Any]) -> dict[str, Any] | None:
        """The next order."""
        if path == "/hello":
            self.hello = document
        else:
            self.results.append(document["result"])
        return self.waiting.pop(0) if self.waiting else None


@contextmanager
def serving(directory: Path, orders: Orders) -> Iterator[tuple[int, str]]:
    """The port, and the CA (PEM) that its certificate comes from."""
    ca_pem = _certificates(directory)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

        def do_GET(self) -> None:
            """The image."""
            self._send(orders.image)

        def do_POST(self) -> None:
            """The next order."""
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert document.pop("token") == TOKEN
            self._send(json.dumps(orders.answer(self.path, document)).encode())

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], ca_pem
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _certificates(directory: Path) -> str:
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test CA")])
    ca = _signed(ca_name, ca_key, ca_name, ca_key, now, [(x509.BasicConstraints(True, 0), True)])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    leaf = _signed(x509.Name([]), key, ca_name, ca_key, now, [(names, True)])
    (directory / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    (directory / "server.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return ca.public_bytes(serialization.Encoding.PEM).decode()


def _signed(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime, extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:  # fmt: skip
    day = datetime.timedelta(days=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256())
