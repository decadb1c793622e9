"""Tenants, their quotas, and API keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from berth.process.bounded_models import at_most
from berth.process.json_objects import JsonObject
from orchestrator.http.fields import INT32_MAX, WHOLE, Id, Printable, Request
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.moments import Moment
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.problems import Quota
from orchestrator.tenants.roles import OperatorRole, TenantRole
from orchestrator.tenants.scopes import KNOWN, SCOPES_MAX


def _known_scope(value: str) -> str:
    """Refuse a scope that no route has."""
    if value not in KNOWN:
        raise PydanticCustomError("scope", "is not a scope; docs/reference/access/roles.md lists those of the routes")
    return value


GpusLimit = Annotated[int, Field(ge=0, le=INT32_MAX), WHOLE]
QuotaLimit = Annotated[int, Field(ge=0, le=2**53), WHOLE]
NewLimits = Annotated[
    dict[Annotated[Quota, Field(strict=False)], QuotaLimit | None], Field(max_length=len(Quota)), at_most(len(Quota))
]
GrantedRole = Literal["viewer", "member", "admin", "billing", "support", "fleet", "finance"]
RoleOfTenant = Literal["viewer", "member", "admin", "billing"]
KeyRole = Literal["viewer", "member", "admin", "billing", "support", "fleet", "finance", "tenant"]
ScopeName = Annotated[str, AfterValidator(_known_scope), Field(json_schema_extra={"enum": list(KNOWN)})]
Scopes = Annotated[list[ScopeName], Field(min_length=1, max_length=SCOPES_MAX)]
SCOPES_DESCRIPTION = "what the key may do within its role; absent: everything that the role permits"
OVERLAP_SECONDS_MAX = 30 * 86_400
OVERLAP_SECONDS_DEFAULT = 86_400
SetTenantState = Literal["active", "suspended"]
TenantState = Literal["active", "suspended", "deleted"]


class CreateTenant(Request):
    """A new tenant. `gpus_limit` null: no limit; absent: the default of the operator's settings."""

    name: Printable
    gpus_limit: GpusLimit | None = None


class ChangeTenant(Request):
    """Suspend a tenant, or let it go on."""

    state: SetTenantState


class SetQuota(Request):
    """Limits of the tenant; what is not named stays. `gpus_limit` null: no limit; null of another quota: the default."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    gpus_limit: GpusLimit | None = None
    limits: NewLimits | None = None

    @model_validator(mode="after")
    def _require_any(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("name gpus_limit or limits")
        return self

    @model_serializer(mode="wrap")
    def _with_null(self, serialize: SerializerFunctionWrapHandler) -> JsonObject:
        """The content for the fingerprint of the request: a null `gpus_limit` is no default, unlike an absent one."""
        document: JsonObject = serialize(self)
        named = "gpus_limit" in self.model_fields_set
        return {**document, "gpus_limit": document.get("gpus_limit")} if named else document


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
    limits: dict[str, BigCount] = Field(
        description="limits that an operator has set, by quota; others are the defaults"
    )


class QuotaUse(BaseModel):
    """A quota of a tenant: its limit, and what counts in it."""

    quota: str
    limit: BigCount
    used: BigCount


class TenantQuotas(BaseModel):
    """A tenant's quotas beside GPUs."""

    tenant_id: UUID
    gpus_limit: Count | None
    gpus_used: Count
    quotas: list[QuotaUse]


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
    hold_seconds_max: Annotated[float, Field(ge=1, le=3_600)]
    webhooks_max: Count
    window_seconds_max: Annotated[float, Field(ge=60)]
    quotas: list[QuotaUse]


class Account(BaseModel):
    """The caller. `tenant` and `limits` are null for an operator."""

    principal_id: UUID
    role: GrantedRole
    scopes: list[str] | None = Field(description="what the API key may do within its role; null: everything")
    tenant: AccountTenant | None
    limits: AccountLimits | None


class CreateApiKey(Request):
    """A new key: of a tenant with `tenant_id`, of operators without."""

    name: Printable
    role: KeyRole = Field(description="`tenant` is the earlier name of a tenant's `admin`")
    tenant_id: Id | None = None
    expires_at: Moment | None = Field(
        None,
        description="the key is refused from then on; absent: as late as `BERTH_API_KEY_LIFETIME_SECONDS_MAX` allows",
    )
    owner: Printable | None = Field(None, description="the person or service account that uses the key")
    scopes: Scopes | None = Field(None, description=SCOPES_DESCRIPTION)
    break_glass: bool = Field(
        False,
        description="an operator's key for emergencies: each use is an event `key.break_glass_used`, one per minute",
    )

    @model_validator(mode="after")
    def _require_fitting_role(self) -> Self:
        if self.tenant_id is None and self.role not in tuple(OperatorRole):
            raise ValueError(f"an operator's role is one of {', '.join(OperatorRole)}; a tenant's key needs tenant_id")
        if self.tenant_id is not None and self.role not in (*TenantRole, "tenant"):
            raise ValueError(f"a tenant's role is one of {', '.join(TenantRole)}")
        if self.tenant_id is not None and self.break_glass:
            raise ValueError("break_glass is for operators' keys; leave out tenant_id")
        return self


class CreateOwnApiKey(Request):
    """A new key of the caller's tenant."""

    name: Printable
    role: RoleOfTenant
    expires_at: Moment | None = Field(
        None,
        description="the key is refused from then on; absent: as late as `BERTH_API_KEY_LIFETIME_SECONDS_MAX` allows",
    )
    owner: Printable | None = Field(None, description="the person or service account that uses the key")
    scopes: Scopes | None = Field(None, description=SCOPES_DESCRIPTION)


class RotateApiKey(Request):
    """How long the old key stays valid, and when the new one ends."""

    overlap_seconds: Annotated[int, Field(ge=0, le=OVERLAP_SECONDS_MAX), WHOLE] = OVERLAP_SECONDS_DEFAULT
    expires_at: Moment | None = Field(
        None, description="of the new key; absent: it has the length of life of the old one, within the setting"
    )


class ApiKey(BaseModel):
    """An API key without its secret."""

    id: UUID
    name: str
    role: GrantedRole
    tenant_id: UUID | None
    prefix: str
    created_at: datetime
    revoked_at: datetime | None
    expires_at: datetime | None
    owner: str | None
    last_used_at: datetime | None = Field(
        description="of the last request, or check of an open stream, within about two minutes; null: none yet"
    )
    replaced_by: UUID | None = Field(description="the key that a rotation made in its place")
    break_glass: bool
    scopes: list[str] | None = Field(description="what it may do within its role; null: everything")


class NewApiKey(BaseModel):
    """An API key as shown once."""

    id: UUID
    name: str
    role: GrantedRole
    tenant_id: UUID | None
    prefix: str
    key: str
    created_at: datetime
    expires_at: datetime | None
    owner: str | None
    break_glass: bool
    scopes: list[str] | None = Field(description="what it may do within its role; null: everything")


class RotatedApiKey(NewApiKey):
    """The new key, as shown once, and what becomes of the old one."""

    replaces: UUID
    replaced_expires_at: datetime = Field(description="the old key is refused from then on")


class ApiKeyQuery(PageQuery):
    """Whose keys."""

    tenant_id: UUID | None = None
