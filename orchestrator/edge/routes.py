"""The public and node listeners' routes, gathered from the nouns by trust zone: tenant, admin, log, node."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.allocations import endpoints as allocations
from orchestrator.audit import endpoints as audit
from orchestrator.billing import endpoints as billing
from orchestrator.catalogue import admin_endpoints as admin_catalogue
from orchestrator.catalogue import endpoints as catalogue
from orchestrator.keyvalue import commit_endpoints as commits
from orchestrator.keyvalue import endpoints as keys
from orchestrator.log import admin_endpoints as admin_log
from orchestrator.log import asyncapi, feed_endpoints
from orchestrator.log import endpoints as log
from orchestrator.nodes import certificate_endpoints, enrolment_endpoints, orphan_endpoints
from orchestrator.nodes import endpoints as nodes
from orchestrator.notifications import endpoints as notifications
from orchestrator.operations import endpoints as operations
from orchestrator.placement import endpoints as availability
from orchestrator.reservations import endpoints as reservations
from orchestrator.reservations import resource_endpoints as resources
from orchestrator.tasks import endpoints as tasks
from orchestrator.tenants import account_endpoints, api_key_endpoints, ssh_key_endpoints
from orchestrator.tenants import admin_endpoints as tenants
from orchestrator.webhooks import endpoints as webhooks


def _joined(prefix: str, *routers: APIRouter, tags: list[str] | None = None) -> APIRouter:
    joined = APIRouter(prefix=prefix, tags=list(tags or ()))
    for router in routers:
        joined.include_router(router)
    return joined


def public_routers() -> list[APIRouter]:
    """The public listener's routers: tenant, admin, log, operations, enrolment, AsyncAPI."""
    return [
        _joined(
            "/api/v1",
            allocations.router,
            reservations.router,
            resources.router,
            catalogue.router,
            availability.router,
            account_endpoints.router,
            ssh_key_endpoints.router,
            billing.router,
            webhooks.router,
        ),
        _joined(
            "/api/v1/admin",
            tenants.router,
            billing.admin_router,
            api_key_endpoints.router,
            admin_catalogue.router,
            nodes.router,
            resources.admin_router,
            orphan_endpoints.router,
            allocations.admin_router,
            audit.router,
            admin_log.dead_letters,
            admin_log.consumers,
        ),
        _joined(
            "/v1",
            log.router,
            feed_endpoints.router,
            commits.router,
            keys.router,
        ),
        notifications.router,
        operations.router,
        enrolment_endpoints.router,
        asyncapi.router,
    ]


def node_router() -> APIRouter:
    """The node listener's routes: mTLS only; the certificate identifies the caller (DESIGN §8)."""
    return _joined("/node/v1", tasks.router, certificate_endpoints.router, tags=["node"])
