"""Limits of each node certificate, before anything of its request is read."""

from __future__ import annotations

from uuid import UUID

from orchestrator.http.asgi import App, Receive, Scope, Send
from orchestrator.http.principal_limits import PrincipalLimits
from orchestrator.http.problem_documents import problem_response
from orchestrator.nodes.certificates import node_identity
from orchestrator.nodes.deploy_systems.identity import DEPLOY_PATHS, PEER, deploy_identity, require_chain
from orchestrator.problems import ConcurrencyLimited, RateLimited

SITE_PATHS = "/site/"
"""Paths of agents of sites: their certificates name no node, and those of nodes name no site."""


class NodeLimits:
    """Wraps the node application, inside the edge. Raises `Unauthenticated` for a certificate without an identity."""

    def __init__(self, app: App, limits: PrincipalLimits, trust_domain: str, open_paths: frozenset[str]) -> None:
        self._app = app
        self._limits = limits
        self._trust_domain = trust_domain
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the request to its certificate's node and pass it on."""
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            try:
                await self._limits.admit(scope, self._principal(scope))
            except (RateLimited, ConcurrencyLimited) as refusal:
                # The next connection waits for its turn of a handshake, so a flood is as slow as those turns.
                await problem_response(refusal, scope["state"], {"connection": "close"})(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _principal(self, scope: Scope) -> UUID:
        """The node, deploy system or agent of a site that the certificate names."""
        require_chain(scope["path"], scope["state"])
        if scope["path"].startswith(DEPLOY_PATHS):
            return deploy_identity(scope["state"], self._trust_domain).principal
        kind = "site" if scope["path"].startswith(SITE_PATHS) else "node"
        return node_identity(scope["state"].get(PEER), self._trust_domain, kind).node_id
