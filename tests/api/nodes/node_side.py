"""The node listener without its TLS layer: a test names the certificate of each connection, and renews it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from anyio.from_thread import BlockingPortal
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.testclient import TestClient

from migrations.roles import Role
from node_agent.protocol import Heartbeat
from orchestrator.app import build_services, node_listener
from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context
from orchestrator.settings import Settings
from tests.api.calling import signing_request
from tests.support.public_api import ISSUER_SECONDS_MAX, PublicApi, settings_over

Key = ec.EllipticCurvePrivateKey
_HEARTBEAT = Heartbeat(agent_version="1", driver="of a real node", allocations=[])


def new_key() -> Key:
    """A key that no certificate has."""
    return ec.generate_private_key(ec.SECP256R1())


class PeerOf:
    """Replaces the TLS layer: names the certificate of the connection."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.peer: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["peer"] = self.peer
        await self.app(scope, receive, send)

    def present(self, pem: str | None) -> None:
        """The next connections come with this certificate."""
        if pem is None:
            self.peer = None
            return
        certificate = x509.load_pem_x509_certificate(pem.encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = tuple(("URI", uri) for uri in names.get_values_for_type(x509.UniformResourceIdentifier))
        self.peer = {"subjectAltName": uris, "serialNumber": f"{certificate.serial_number:040X}"}


class NodeSide:
    """The node listener, and how to renew at it."""

    def __init__(self, http: httpx.Client, portal: BlockingPortal, peer: PeerOf, context: Context) -> None:
        self.http = http
        self._portal = portal
        self.peer = peer
        self._context = context

    def renew(self, pem: str | None, behind: str = "", key: Key | None = None) -> httpx.Response:
        """Ask for a new certificate with this one, for a key (default: a new one); `behind` is sent after the request."""
        self.peer.present(pem)
        return self.http.post("/node/v1/certificate", json={"csr_pem": signing_request(key) + behind})

    def wait_for_tasks(self, pem: str) -> httpx.Response:
        """Ask for tasks without waiting."""
        self.peer.present(pem)
        return self.http.get("/node/v1/tasks/wait", params={"timeout_seconds": 0})

    def heartbeat(self, pem: str) -> httpx.Response:
        """Send a heartbeat."""
        self.peer.present(pem)
        return self.http.post("/node/v1/heartbeat", json=_HEARTBEAT.model_dump(mode="json"))

    def record_heartbeat(self, node_id: UUID) -> None:
        """Write a heartbeat of a node that the listener has admitted."""
        self._portal.call(partial(record_heartbeat, sandbox_allowed=True), self._context, node_id, _HEARTBEAT)


@contextmanager
def node_listener_over(api: PublicApi, directory: Path, settings: Settings | None = None) -> Iterator[NodeSide]:
    """The node listener over the same database."""
    parameters = api.database.info.get_parameters()
    url = f"postgresql://{parameters['user']}:{api.database.info.password}@127.0.0.1:{api.database.info.port}/{parameters['dbname']}"
    services = build_services(settings or settings_over(url, directory, ISSUER_SECONDS_MAX, Role.NODE_API))
    peer = PeerOf(node_listener(services))
    with TestClient(peer, raise_server_exceptions=False) as http:
        assert http.portal is not None
        yield NodeSide(http, http.portal, peer, services.context)
        http.portal.call(services.context.database.close)
