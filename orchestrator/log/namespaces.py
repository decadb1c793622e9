"""The namespace of a caller: keys, retention policies and subscriptions belong to one. Pure."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from orchestrator.tenants.principals import Principal

OPERATORS_NAMESPACE: Final = UUID(int=0)
"""Shared by all operators; each tenant's namespace is its id."""


def namespace_of(caller: Principal) -> UUID:
    """Return the namespace of the caller's tenant, or that of the operators."""
    return OPERATORS_NAMESPACE if caller.tenant_id is None else caller.tenant_id
