"""A small HTTPS server of an image that machines deploy: the test guest's disk, raw and compressed."""

from __future__ import annotations

import hashlib
import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from berth.local.authority import Authority
from berth.local.machines.networks import HOST


@dataclass(frozen=True)
class ServedImage:
    """Where machines reach the image, its SHA-256, and its size unpacked."""

    url: str
    sha256: str
    disk_bytes: int


@contextmanager
def image_served(authority: Authority, image: Path, directory: Path) -> Iterator[ServedImage]:
    """Serve this disk image (of any format of QEMU) as raw, compressed by zstd, with the listeners' certificate."""
    raw = directory / "image.raw"
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(image), str(raw)], check=True)
    disk_bytes = raw.stat().st_size
    content = subprocess.run(["zstd", "-q", "-c", str(raw)], capture_output=True, check=True).stdout
    raw.unlink()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(content))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.listener_certificate, authority.listener_key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        url = f"https://{HOST}:{server.server_address[1]}/image"
        yield ServedImage(url, hashlib.sha256(content).hexdigest(), disk_bytes)
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


def _handler(content: bytes) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """Answers every path with the image."""

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing."""

        def do_GET(self) -> None:
            """The image."""
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    return Handler
