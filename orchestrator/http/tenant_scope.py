"""The tenant that a request is about: the caller's, or the one that an operator names in `?tenant_id=`."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.problems import Forbidden, NotFound
from orchestrator.tenants.principals import Principal


class TenantQuery(BaseModel):
    """The tenant, for operators' keys."""

    model_config = ConfigDict(extra="forbid")

    tenant_id: UUID | None = Field(None, description="for operators' keys")


def scoped_tenant(caller: Principal, named: UUID | None) -> UUID:
    """The caller's tenant, or for an operator the named one.

    Raises `Forbidden` if an operator names none, `NotFound` if a tenant names another.
    """
    if caller.tenant_id is None:
        if named is None:
            raise Forbidden("an operator's key must name the tenant; add ?tenant_id=")
        return named
    if named not in (None, caller.tenant_id):
        raise NotFound(f"there is no tenant {named}")
    return caller.tenant_id
