"""The public and node listeners' routes, gathered from the nouns by trust zone: tenant, admin, log, node."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

from fastapi import APIRouter
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute

from orchestrator.allocations import device_endpoints, fault_endpoints
from orchestrator.allocations import endpoints as allocations
from orchestrator.approvals import endpoints as approvals
from orchestrator.audit import endpoints as audit
from orchestrator.billing import endpoints as billing
from orchestrator.catalogue import admin_endpoints as admin_catalogue
from orchestrator.catalogue import endpoints as catalogue
from orchestrator.consoles import endpoints as consoles
from orchestrator.edge import health_endpoints as health
from orchestrator.edge.write_endpoints import WriteEndpoints
from orchestrator.keyvalue import commit_endpoints as commits
from orchestrator.keyvalue import endpoints as keys
from orchestrator.log import admin_endpoints as admin_log
from orchestrator.log import asyncapi, feed_endpoints
from orchestrator.log import endpoints as log
from orchestrator.maintenance import endpoints as maintenance
from orchestrator.nodes import certificate_endpoints, enrolment_endpoints, orphan_endpoints, quarantine_endpoints
from orchestrator.nodes import endpoints as nodes
from orchestrator.nodes.attestation import endpoints as pools
from orchestrator.nodes.burn_ins import endpoints as burn_ins
from orchestrator.nodes.deploy_systems import endpoints as deploy_systems
from orchestrator.nodes.deploy_systems import enrolment_endpoints as deploy_enrolment
from orchestrator.nodes.deploy_systems import node_endpoints as of_deploy_systems
from orchestrator.nodes.firmware import endpoints as firmware_lists
from orchestrator.nodes.gpu_resets import endpoints as gpu_resets
from orchestrator.nodes.hardware import endpoints as hardware
from orchestrator.nodes.probes import endpoints as probes
from orchestrator.nodes.topology import endpoints as topologies
from orchestrator.notifications import endpoints as notifications
from orchestrator.operations import endpoints as operations
from orchestrator.placement import endpoints as availability
from orchestrator.reservations import endpoints as reservations
from orchestrator.reservations import resource_endpoints as resources
from orchestrator.sites import adoption_endpoints, attestation_endpoints
from orchestrator.sites import agent_endpoints as site_agents
from orchestrator.sites import bmc_endpoints as bmcs
from orchestrator.sites import endpoints as sites
from orchestrator.sites import enrolment_endpoints as site_enrolment
from orchestrator.sites import port_endpoints as switch_ports
from orchestrator.sites import run_endpoints as deploy_runs
from orchestrator.tasks import endpoints as tasks
from orchestrator.tenants import account_endpoints, api_key_endpoints, member_endpoints, ssh_key_endpoints
from orchestrator.tenants import admin_endpoints as tenants
from orchestrator.tenants.required_roles import declare_scope, required_roles
from orchestrator.webhooks import endpoints as webhooks

PUBLIC = {
    "/api/v1": (
        allocations.router,
        fault_endpoints.router,
        fault_endpoints.own_router,
        consoles.router,
        reservations.router,
        resources.router,
        catalogue.router,
        availability.router,
        account_endpoints.router,
        ssh_key_endpoints.router,
        api_key_endpoints.own_router,
        member_endpoints.router,
        billing.router,
        webhooks.router,
        audit.own_router,
    ),
    "/api/v1/admin": (
        tenants.router,
        billing.admin_router,
        api_key_endpoints.router,
        admin_catalogue.router,
        nodes.router,
        resources.admin_router,
        orphan_endpoints.router,
        topologies.router,
        probes.router,
        burn_ins.router,
        deploy_systems.router,
        gpu_resets.router,
        quarantine_endpoints.router,
        pools.router,
        hardware.router,
        hardware.repairs_router,
        allocations.admin_router,
        device_endpoints.router,
        fault_endpoints.admin_router,
        approvals.router,
        maintenance.router,
        sites.router,
        firmware_lists.router,
        bmcs.router,
        deploy_runs.router,
        adoption_endpoints.router,
        attestation_endpoints.router,
        switch_ports.router,
        audit.router,
        admin_log.dead_letters,
        admin_log.consumers,
    ),
    "/v1": (
        log.router,
        feed_endpoints.router,
        commits.router,
        keys.router,
    ),
    "": (
        notifications.router,
        operations.router,
        enrolment_endpoints.router,
        site_enrolment.router,
        deploy_enrolment.router,
        asyncapi.router,
        health.router,
    ),
}
"""The public listener's routers by prefix: tenant, admin, log, operations, enrolment, AsyncAPI, health."""


def _routes(routers: Mapping[str, Sequence[APIRouter]], *tags: str) -> list[BaseRoute]:
    joined = APIRouter()
    for prefix, each in routers.items():
        for router in each:
            joined.include_router(router, prefix=prefix, tags=list(tags))
    # FastAPI analyses an included endpoint at the first use of its route; no request has to wait for that.
    collections.deque(iter_route_contexts(joined.routes), maxlen=0)
    return joined.routes


def require_declared_roles(routes: Sequence[BaseRoute]) -> None:
    """Raise LookupError if an endpoint of the routes declares no roles."""
    for route in iter_route_contexts(routes):
        assert route.endpoint is not None
        try:
            required_roles(route.endpoint)
        except LookupError as error:
            raise LookupError(f"{route.path} declares no roles; decorate its endpoint with @requires") from error


def declare_scopes(routes: Sequence[BaseRoute]) -> None:
    """Derive the scope of each endpoint with roles. Raises LookupError for a route without a tag that names a noun of scopes.

    A WebSocket has no tags; it has those of the request without an upgrade, which each of them has at its path.
    """
    found = list(iter_route_contexts(routes))
    tags: dict[str | None, str] = {route.path: route.tags[0] for route in found if route.methods and route.tags}
    for route in found:
        assert route.endpoint is not None
        if required_roles(route.endpoint) is None:
            continue
        tag = tags.get(route.path)
        if tag is None:
            raise LookupError(f"{route.path} has no tag, so it has no scope; give its router one")
        for method in route.methods or {"WS"}:
            declare_scope(route.endpoint, tag, method)


# One level deep and shared by all applications: FastAPI analyses every endpoint again for each level and each application.
PUBLIC_ROUTES = _routes(PUBLIC)
"""What the public listener routes."""
require_declared_roles(PUBLIC_ROUTES)
declare_scopes(PUBLIC_ROUTES)

PUBLIC_WRITES = WriteEndpoints(iter_route_contexts(PUBLIC_ROUTES))
"""The endpoints of the public listener's writes by method and path."""

NODE_ROUTES = [
    *_routes({"/node/v1": (tasks.router, certificate_endpoints.router)}, "node"),
    *_routes({"/site/v1": (site_agents.router,)}, "site"),
    *_routes({"/deploy/v1": (of_deploy_systems.router,)}, "deploy system"),
    *_routes({"": (health.router,)}),
]
"""What the node listener routes: mTLS only; the certificate identifies the caller (DESIGN §8)."""

METRICS_ROUTES = _routes({"": (health.router, health.metrics_router)})
"""What the metrics and health listener routes."""
