"""Roles of tenants' and operators' principals, and the sets of roles that routes require. Pure.

docs/reference/access/roles.md lists the roles of each route; it is generated from the routes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TenantRole(StrEnum):
    """What a principal of a tenant may do."""

    VIEWER = "viewer"
    MEMBER = "member"
    ADMIN = "admin"
    BILLING = "billing"


class OperatorRole(StrEnum):
    """What an operator may do."""

    VIEWER = "viewer"
    SUPPORT = "support"
    FLEET = "fleet"
    FINANCE = "finance"
    ADMIN = "admin"


TenantRoles = frozenset[TenantRole]
OperatorRoles = frozenset[OperatorRole]

NO_TENANT: Final[TenantRoles] = frozenset()
TENANT_READERS: Final[TenantRoles] = frozenset({TenantRole.VIEWER, TenantRole.MEMBER, TenantRole.ADMIN})
TENANT_WRITERS: Final[TenantRoles] = frozenset({TenantRole.MEMBER, TenantRole.ADMIN})
TENANT_ADMINS: Final[TenantRoles] = frozenset({TenantRole.ADMIN})
EVERY_TENANT_ROLE: Final[TenantRoles] = frozenset(TenantRole)

NO_OPERATOR: Final[OperatorRoles] = frozenset()
EVERY_OPERATOR: Final[OperatorRoles] = frozenset(OperatorRole)
SUPPORT: Final[OperatorRoles] = frozenset({OperatorRole.SUPPORT, OperatorRole.ADMIN})
FLEET: Final[OperatorRoles] = frozenset({OperatorRole.FLEET, OperatorRole.ADMIN})
FINANCE: Final[OperatorRoles] = frozenset({OperatorRole.FINANCE, OperatorRole.ADMIN})
OPERATOR_ADMINS: Final[OperatorRoles] = frozenset({OperatorRole.ADMIN})
