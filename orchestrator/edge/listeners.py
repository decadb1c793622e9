"""Listeners: uvicorn with the client certificate's identity put where the application can read it.

uvicorn does not hand the certificate over (TRAPS, TLS), so a small subclass of its protocol reads it once a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from orchestrator.edge.accepting import AcceptingServer
from orchestrator.edge.connection_counts import ConnectionCounts
from orchestrator.edge.connections import BoundedHttpProtocol
from orchestrator.edge.counting.connection_bounds import connection_bounds
from orchestrator.edge.socket_listener import BoundedWebSocketProtocol
from orchestrator.edge.sources import TrustedProxies
from orchestrator.edge.tls import ReloadedContext
from orchestrator.http.asgi import App
from orchestrator.nodes.deploy_systems.chain import DeployChain
from orchestrator.nodes.deploy_systems.identity import DEPLOY_CHAIN, PEER
from orchestrator.settings import Settings

IDLE_SECONDS_MAX = 30
"""How long a served connection may send nothing."""
LAST_ANSWERS_SECONDS = 1
"""Between the end of the statements that are not answered and that of the requests, when a process stops."""
NODE_IDLE_SECONDS_MAX = 90
"""The same of a node's, which would pay for another handshake."""


PEER_MEMBERS = ("subjectAltName", "serialNumber")
"""Members of a certificate that are kept with its connection (orchestrator/nodes/certificates.py)."""


class NodeProtocol(BoundedHttpProtocol):
    """HTTP over mTLS: every request's scope state carries `peer`, two members of the verified certificate as `ssl` returns it.

    `certificates`: the listener's connections by the names in their certificates. `deploy_chain`: recognises certificates of
    deploy systems; None: there are none.
    """

    def __init__(
        self, *args: Any, certificates: ConnectionCounts, deploy_chain: DeployChain | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._certificates = certificates
        self._deploy_chain = deploy_chain

    def connection_made(self, transport: Any) -> None:
        """Read the peer certificate once; without one there is no identity and every request is refused."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        # As long as the connection lasts: of a certificate's members those that say which node it is of.
        peer = {name: certificate[name] for name in PEER_MEMBERS if name in certificate} if certificate else None
        is_deploy = (
            self._deploy_chain is not None and tls is not None and self._deploy_chain.signed(tls.getpeercert(True))
        )
        self.app_state = {**self.app_state, PEER: peer, DEPLOY_CHAIN: is_deploy}
        uncount_source = self._uncount
        if uncount_source is None:
            return
        uncount_certificate = self._certificates.add(str((peer or {}).get("subjectAltName")))
        if uncount_certificate is None:
            self._refuse_connection("too many connections of this certificate are open here; close some")
            if self._accepted is not None:
                self._accepted.slow_down()
            return
        self._uncount = partial(_end_both, uncount_source, uncount_certificate)


def _end_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


def trusted_proxies(settings: Settings) -> TrustedProxies:
    """The proxies before the public listener."""
    return TrustedProxies(settings.trusted_proxies, settings.proxy_header)


def public_server(app: App, settings: Settings) -> uvicorn.Server:
    """The public listener, which speaks WebSocket as well. Raises ValueError or OSError for unusable TLS files."""
    proxies = trusted_proxies(settings)
    bounds = connection_bounds(settings, settings.connections_per_source_max, "public")
    counts = ConnectionCounts(*bounds, is_shared=proxies.trusts)
    config = _config(
        app, settings, settings.public_host, settings.public_port, partial(BoundedHttpProtocol, counts=counts)
    )
    socket_protocol: Any = partial(
        BoundedWebSocketProtocol, control_frames_max=settings.notifications_messages_per_second_max
    )
    config.ws = config.ws_protocol_class = socket_protocol
    config.ws_max_size = settings.notifications_message_bytes_max
    config.ws_ping_interval = settings.feed_keepalive_seconds
    config.ws_ping_timeout = settings.feed_stall_seconds
    config.ws_per_message_deflate = False  # memory for each socket, and what is secret beside what a tenant wrote
    certificate, key = settings.public_tls_certificate_file, settings.public_tls_key_file
    if (certificate is None) != (key is None):
        raise ValueError("BERTH_PUBLIC_TLS_CERTIFICATE_FILE and BERTH_PUBLIC_TLS_KEY_FILE go together")
    tls = ReloadedContext(certificate, key) if certificate is not None and key is not None else None
    return AcceptingServer(config, counts, tls=tls, header_from=proxies if settings.proxy_protocol else None)


def metrics_server(app: App, settings: Settings, port: int) -> uvicorn.Server:
    """The metrics and health listener."""
    counts = ConnectionCounts(*connection_bounds(settings, 0, "metrics"))
    protocol = partial(BoundedHttpProtocol, counts=counts)
    return uvicorn.Server(_config(app, settings, settings.metrics_host, port, protocol))


def node_server(app: App, settings: Settings) -> uvicorn.Server:
    """The node listener: a client certificate of a node CA is required by TLS itself. Its files are read again when they change.

    Raises ValueError without its files, OSError for unusable ones.
    """
    certificate, key = settings.node_tls_certificate_file, settings.node_tls_key_file
    client_cas = settings.node_ca_certificate_file
    if certificate is None or key is None or client_cas is None:
        raise ValueError(
            "the node listener needs BERTH_NODE_TLS_CERTIFICATE_FILE, BERTH_NODE_TLS_KEY_FILE and BERTH_NODE_CA_CERTIFICATE_FILE"
        )
    bounds = connection_bounds(settings, settings.node_connections_per_source_max, "node")
    counts = ConnectionCounts(*bounds)
    certificates = ConnectionCounts(bounds.total, settings.node_connections_max)
    deploy_cas = [] if settings.deploy_ca_certificate_file is None else [settings.deploy_ca_certificate_file]
    chain = DeployChain(deploy_cas[0], client_cas) if deploy_cas else None
    protocol = partial(NodeProtocol, counts=counts, certificates=certificates, deploy_chain=chain)
    config = _config(app, settings, settings.node_host, settings.node_port, protocol)
    config.timeout_keep_alive = NODE_IDLE_SECONDS_MAX
    return AcceptingServer(
        config, counts, tls=ReloadedContext(certificate, key, client_cas, *deploy_cas), header_from=None
    )


def _config(app: App, settings: Settings, host: str, port: int, protocol: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=host, port=port, log_config=None, access_log=False, server_header=False, date_header=True,
        loop="uvloop", http=protocol, lifespan="auto",
        timeout_graceful_shutdown=settings.graceful_stop_seconds + LAST_ANSWERS_SECONDS,
        backlog=4096, timeout_keep_alive=IDLE_SECONDS_MAX, proxy_headers=False, ws="none",
    )  # fmt: skip
