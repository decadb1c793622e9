"""Settings of the issuer whose tokens are accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from orchestrator.http.oidc.addresses import is_trustworthy_url
from orchestrator.tenants.roles import OperatorRole, TenantRole


class OidcSettings(BaseSettings):
    """The issuer, what its tokens must say, and the roles that their claims give."""

    model_config = SettingsConfigDict(env_prefix="BERTH_", extra="ignore")

    oidc_issuer: str | None = Field(
        None, description="exact `iss` of the tokens that are taken, an https:// address; default: API keys only"
    )
    oidc_audience: str | None = Field(
        None, min_length=1, validate_default=True, description="what a token's `aud` must hold; needed with an issuer"
    )
    oidc_jwks_url: str | None = Field(
        None, description="https:// address of the issuer's key set; default: as its discovery document says"
    )
    oidc_ca_certificate_file: Path | None = Field(
        None, description="PEM certificates that the issuer's TLS is held against; default: the public ones"
    )
    oidc_tenant_claim: str = Field(
        "berth_tenant", min_length=1, description="claim that holds a tenant's id: its name, or a JSON pointer `/a/b`"
    )
    oidc_role_claim: str = Field(
        "berth_role",
        min_length=1,
        description="claim that holds a role or a list of roles: its name, or a JSON pointer",
    )
    oidc_admin_role: str | None = Field(
        None,
        min_length=1,
        description="role that makes a token an operator's with the role `admin`; default: no token is",
    )
    oidc_operator_roles: dict[str, OperatorRole] = Field(
        {}, description='further roles that make a token an operator\'s (JSON): `{"<role of the issuer>": "fleet"}`'
    )
    oidc_roles: dict[str, TenantRole] = Field(
        {},
        description='roles of tenants\' tokens (JSON): `{"<role of the issuer>": "member"}`; empty: each has the role `admin`',
    )
    oidc_default_role: TenantRole | None = Field(
        None, description="with `BERTH_OIDC_ROLES`: role of a tenant's token that names none of them; default: refused"
    )
    oidc_leeway_seconds: float = Field(30.0, ge=0, le=300, description="how far the issuer's clock may be off")
    oidc_cache_seconds: float = Field(
        300.0,
        gt=0,
        le=86_400,
        description="how often the issuer's keys are fetched again; a withdrawn key stays valid so long",
    )
    oidc_refetch_seconds: float = Field(
        10.0, gt=0, le=3_600, description="least time between fetches, when tokens name unknown keys or fetching fails"
    )
    oidc_stale_seconds_max: float = Field(
        3_600.0, gt=0, le=604_800, description="how long the last keys serve while the issuer cannot be reached"
    )
    oidc_timeout_seconds: float = Field(
        3.0, gt=0, le=30, description="longest fetch of the issuer's keys, and so longest wait of a request for it"
    )
    oidc_document_bytes_max: int = Field(262_144, ge=1024, description="largest document taken from the issuer")

    @field_validator("oidc_issuer", "oidc_jwks_url")
    @classmethod
    def _require_trustworthy(cls, url: str | None) -> str | None:
        if url is not None and not is_trustworthy_url(url):
            raise ValueError("must be https://, or http:// on a loopback address")
        return url

    @field_validator("oidc_audience")
    @classmethod
    def _require_audience(cls, audience: str | None, info: ValidationInfo) -> str | None:
        if audience is None and info.data.get("oidc_issuer") is not None:
            raise ValueError("an issuer's tokens are for many; name the audience that is this deployment")
        return audience

    def oidc_operators(self) -> dict[str, OperatorRole]:
        """The roles of the issuer that make a token an operator's."""
        admin = {} if self.oidc_admin_role is None else {self.oidc_admin_role: OperatorRole.ADMIN}
        return {**self.oidc_operator_roles, **admin}

    @model_validator(mode="after")
    def _require_a_mapping(self) -> Self:
        if self.oidc_default_role is not None and not self.oidc_roles:
            raise ValueError(
                "BERTH_OIDC_DEFAULT_ROLE needs BERTH_OIDC_ROLES; without them every token has the role admin"
            )
        return self
