"""Members of tenants and invitations in requests and responses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from orchestrator.http.fields import WHOLE, Printable, Request
from orchestrator.tenants.schemas import RoleOfTenant

INVITATION_SECONDS_DEFAULT: Final = 7 * 86_400
INVITATION_SECONDS_MAX: Final = 30 * 86_400


class CreateInvitation(Request):
    """An invitation of one user to the caller's tenant."""

    role: RoleOfTenant
    name: Printable | None = Field(None, description="of the person, for the lists of invitations and members")
    expires_in_seconds: Annotated[int, Field(ge=60, le=INVITATION_SECONDS_MAX), WHOLE] = INVITATION_SECONDS_DEFAULT


class AcceptInvitation(Request):
    """The token of an invitation, as its admin has passed it on."""

    token: Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,200}$")]


class SetMemberRole(Request):
    """Another role of a member."""

    role: RoleOfTenant


class Member(BaseModel):
    """A user of the OIDC issuer that acts for a tenant."""

    id: UUID = Field(description="the principal: a UUIDv5 of issuer and subject")
    tenant_id: UUID
    subject: str = Field(description="`sub` of its tokens")
    role: RoleOfTenant
    name: str | None
    invited_by: str = Field(description="the principal that invited it")
    joined_at: datetime


class Invitation(BaseModel):
    """An invitation without its token; it is open while it is neither accepted nor revoked nor expired."""

    id: UUID
    tenant_id: UUID
    role: RoleOfTenant
    name: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    accepted_by: UUID | None = Field(description="the member")
    revoked_at: datetime | None


class NewInvitation(Invitation):
    """An invitation as shown once."""

    token: str
