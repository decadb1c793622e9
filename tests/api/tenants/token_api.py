"""The public application that takes an issuer's tokens, and callers with tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient

from migrations.roles import Role
from orchestrator.app import build_services, public_listener
from orchestrator.settings import Settings
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.api.tenants.issuer import ADMIN_ROLE, AUDIENCE, Issuer
from tests.databases import as_role

NEVER_SECONDS = 3_600.0


@dataclass(frozen=True)
class TokenApi:
    """The application, an operator with an API key, a tenant, and the issuer."""

    admin: Caller
    tenant: Caller
    issuer: Issuer

    def with_token(self, token: str) -> Caller:
        """A client that sends this token."""
        return Caller(self.admin.http, token)

    def tenant_token(self, key_id: str = "first", **changes: Any) -> str:
        """A good token for the tenant."""
        return self.issuer.token(key_id, **{"berth_tenant": self.tenant.tenant_id, **changes})

    def admin_token(self, key_id: str = "first", **changes: Any) -> str:
        """A good token for an operator."""
        return self.issuer.token(key_id, **{"berth_role": ADMIN_ROLE, **changes})

    def status(self, token: str) -> int:
        """What a read with this token is answered."""
        return self.with_token(token).call("GET", "/skus").status_code


@contextmanager
def token_api(database_url: str, issuer: Issuer, **settings: Any) -> Iterator[TokenApi]:
    """The application over this database. Fetches of keys come one right after the other, unless settings say otherwise."""
    chosen = {
        "oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_admin_role": ADMIN_ROLE,
        "oidc_refetch_seconds": 0.02, "oidc_timeout_seconds": 20.0, **settings,
    }  # fmt: skip
    services = build_services(Settings(database_url=as_role(database_url, Role.PUBLIC_API), **chosen))
    with TestClient(public_listener(services), raise_server_exceptions=False) as http:
        admin = Caller(http, insert_admin_key(database_url))
        yield TokenApi(admin, new_tenant(admin), issuer)
        assert http.portal is not None
        http.portal.call(services.context.database.close)
