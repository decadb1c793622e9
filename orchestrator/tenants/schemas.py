"""Tenants, their quotas, and API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.http.fields import INT32_MAX, WHOLE, Id, Printable, Request, Variant
from orchestrator.http.numbers import BigCount, Count
from orchestrator.http.paging import PageQuery

GpusLimit = Annotated[int, Field(ge=0, le=INT32_MAX), WHOLE]
SetTenantState = Literal["active", "suspended"]
TenantState = Literal["active", "suspended", "deleted"]


class CreateTenant(Request):
    """A new tenant; null limit: none."""

    name: Printable
    gpus_limit: GpusLimit | None = None


class ChangeTenant(Request):
    """Suspend a tenant, or let it go on."""

    state: SetTenantState


class SetQuota(Request):
    """How many GPUs the tenant may hold; null lifts the limit."""

    gpus_limit: GpusLimit | None


class Tenant(BaseModel):
    """A tenant: a customer that rents. A deleted one holds nothing, and its limit is 0."""

    id: UUID
    name: str
    state: TenantState
    gpus_limit: Count | None
    gpus_used: Count
    created_at: datetime
    deleted_at: datetime | None
    row_version: BigCount


class AccountTenant(BaseModel):
    """The tenant that a caller acts for."""

    id: UUID
    name: str
    state: SetTenantState


class AccountLimits(BaseModel):
    """Bounds of a tenant; `gpus_limit` null: none."""

    gpus_limit: Count | None
    gpus_used: Count
    subscribers_max: Count
    webhooks_max: Count
    hold_seconds_max: Annotated[float, Field(ge=1, le=3_600)]
    window_seconds_max: Annotated[float, Field(ge=60)]


class Account(BaseModel):
    """The caller. `tenant` and `limits` are null for an operator."""

    principal_id: UUID
    role: Literal["tenant", "admin"]
    tenant: AccountTenant | None
    limits: AccountLimits | None


class CreateTenantKey(Variant):
    """A key that acts for one tenant."""

    name: Printable
    role: Literal["tenant"]
    tenant_id: Id


class CreateAdminKey(Variant):
    """A key for an operator."""

    name: Printable
    role: Literal["admin"]
    tenant_id: None = None


CreateApiKey = Annotated[CreateTenantKey | CreateAdminKey, Field(discriminator="role")]


class ApiKey(BaseModel):
    """An API key without its secret."""

    id: UUID
    name: str
    role: Literal["tenant", "admin"]
    tenant_id: UUID | None
    prefix: str
    created_at: datetime
    revoked_at: datetime | None


class NewApiKey(BaseModel):
    """An API key as shown once."""

    id: UUID
    name: str
    role: Literal["tenant", "admin"]
    tenant_id: UUID | None
    prefix: str
    key: str
    created_at: datetime


class ApiKeyQuery(PageQuery):
    """Whose keys."""

    tenant_id: UUID | None = None
