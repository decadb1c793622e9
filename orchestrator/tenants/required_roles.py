"""The roles that each endpoint requires, declared beside its route by `@requires` or `@without_roles`, and its scope.

The scope follows from the route's tag and method (orchestrator/tenants/scopes.py); `@requires(..., writes=True)` declares a route
that changes something although its method reads. A route without declared roles or without a scope cannot be served:
`orchestrator/edge/routes.py` refuses to start.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from orchestrator.problems import Forbidden, RoleRequired
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.refusals import ScopeRequired
from orchestrator.tenants.roles import OperatorRoles, TenantRoles
from orchestrator.tenants.scopes import Scope, covers, scope_of

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RequiredRoles:
    """The roles of tenants and of operators that may call an endpoint; an empty set: no principal of this kind.

    `writes`: a key needs the scope of a write, whatever the method.
    """

    tenant: TenantRoles
    operator: OperatorRoles
    writes: bool = False

    def check(self, principal: Principal) -> None:
        """Raise `Forbidden` for a principal of the wrong kind, `RoleRequired` for one without a required role."""
        roles = self.operator if principal.tenant_id is None else self.tenant
        if principal.role in roles:
            return
        if not roles:
            raise Forbidden("this needs a tenant's key" if self.tenant else "this needs an operator's key")
        raise RoleRequired.of(principal.role, roles)


_REQUIRED: dict[Callable[..., Any], RequiredRoles | None] = {}
_SCOPES: dict[Callable[..., Any], Scope | None] = {}


def requires(*, tenant: TenantRoles, operator: OperatorRoles, writes: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Declare the roles that may call the decorated endpoint, and whether it writes although its method reads."""

    def declare(endpoint: Endpoint) -> Endpoint:
        _REQUIRED[endpoint] = RequiredRoles(tenant, operator, writes)
        return endpoint

    return declare


def without_roles(endpoint: Endpoint) -> Endpoint:
    """Declare that the decorated endpoint has no principal: it is open, or checks another credential itself."""
    _REQUIRED[endpoint] = None
    return endpoint


def required_roles(endpoint: Callable[..., Any]) -> RequiredRoles | None:
    """The declared roles; None: the endpoint has no principal. Raises LookupError if nothing is declared."""
    return _REQUIRED[endpoint]


def declare_scope(endpoint: Callable[..., Any], tag: str, method: str) -> None:
    """Derive the scope of an endpoint with roles from its route. Raises LookupError for a tag without a noun of scopes.

    An endpoint of several routes has one scope; ValueError if they say otherwise.
    """
    roles = required_roles(endpoint)
    scope = scope_of(tag, method, writes=roles is not None and roles.writes)
    if _SCOPES.setdefault(endpoint, scope) != scope:
        raise ValueError(f"{endpoint.__qualname__} needs both {_SCOPES[endpoint]} and {scope}")


def required_scope(endpoint: Callable[..., Any]) -> Scope | None:
    """The scope that a key with scopes needs; None: none. Raises LookupError if no route declares it."""
    return _SCOPES[endpoint]


def check_roles(endpoint: Callable[..., Any], principal: Principal) -> None:
    """Raise `Forbidden`, `RoleRequired` or `ScopeRequired` if the principal may not call the endpoint."""
    roles = required_roles(endpoint)
    assert roles is not None, "an endpoint without roles does not authenticate"
    roles.check(principal)
    if principal.scopes is not None:
        scope = required_scope(endpoint)
        if scope is not None and not covers(principal.scopes, str(scope)):
            raise ScopeRequired.of(scope.sufficient)
