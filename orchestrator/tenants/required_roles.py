"""The roles that each endpoint requires, declared beside its route: `@requires` or `@without_roles`.

A route without a declaration cannot be served: `orchestrator/edge/routes.py` refuses to start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.problems import Forbidden, RoleRequired
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.roles import OperatorRoles, TenantRoles

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RequiredRoles:
    """The roles of tenants and of operators that may call an endpoint; an empty set: no principal of this kind."""

    tenant: TenantRoles
    operator: OperatorRoles

    def check(self, principal: Principal) -> None:
        """Raise `Forbidden` for a principal of the wrong kind, `RoleRequired` for one without a required role."""
        roles = self.operator if principal.tenant_id is None else self.tenant
        if principal.role in roles:
            return
        if not roles:
            raise Forbidden("this needs a tenant's key" if self.tenant else "this needs an operator's key")
        raise RoleRequired.of(principal.role, roles)


_REQUIRED: dict[Callable[..., Any], RequiredRoles | None] = {}


def requires(*, tenant: TenantRoles, operator: OperatorRoles) -> Callable[[Endpoint], Endpoint]:
    """Declare the roles that may call the decorated endpoint."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _REQUIRED[endpoint] = RequiredRoles(tenant, operator)
        return endpoint

    return declare


def without_roles(endpoint: Endpoint) -> Endpoint:
    """Declare that the decorated endpoint has no principal: it is open, or checks another credential itself."""
    _REQUIRED[endpoint] = None
    return endpoint


def required_roles(endpoint: Callable[..., Any]) -> RequiredRoles | None:
    """The declared roles; None: the endpoint has no principal. Raises LookupError if nothing is declared."""
    return _REQUIRED[endpoint]


def check_roles(endpoint: Callable[..., Any], principal: Principal) -> None:
    """Raise `Forbidden` or `RoleRequired` if the principal may not call the endpoint."""
    roles = required_roles(endpoint)
    assert roles is not None, "an endpoint without roles does not authenticate"
    roles.check(principal)
