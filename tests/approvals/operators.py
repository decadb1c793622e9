"""The public application with four eyes, and operators with separate keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from starlette.testclient import TestClient

from orchestrator.app import build_services, public_listener
from orchestrator.tenants.key_secrets import Secret
from tests.api.calling import Caller, fresh, insert_admin_key, new_place, new_tenant, rent
from tests.support.public_api import ISSUER_SECONDS_MAX, PublicApi, issuing, settings_over

STATEMENT = {"runtime_verified_absent": True, "reason": "the node was scrapped"}
_INSERT = """
insert into api_keys (role, access_role, name, prefix, secret_hash, owner, break_glass)
values ('admin', %s, %s, %s, %s, %s, %s) returning id
"""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator's key that a test inserted."""

    caller: Caller
    id: str

    def decide(self, verb: str, approval_id: str, body: Any = None, *, key: str | None = None) -> Any:
        """The response to `approve`, `reject` or `withdraw`."""
        return self.caller.call("POST", f"/admin/approvals/{approval_id}/{verb}", body, key=key)


@contextmanager
def four_eyes_api(url: str, directory: Path, **changes: Any) -> Iterator[PublicApi]:
    """The application over this database; `admin` has a key without an owner."""
    settings = settings_over(url, directory, ISSUER_SECONDS_MAX).model_copy(update={"four_eyes": True, **changes})
    services = build_services(settings)
    with TestClient(public_listener(services), raise_server_exceptions=False) as http:
        with issuing(url, directory, http), psycopg.connect(url, autocommit=True) as database:
            yield PublicApi(Caller(http, insert_admin_key(url)), database, services)
        assert http.portal is not None
        http.portal.call(services.context.database.close)


def new_operator(
    api: PublicApi, owner: str | None = None, role: str = "admin", *, break_glass: bool = False
) -> Operator:
    """A live key of an operator."""
    secret = Secret()
    values = (role, fresh("operator"), secret.prefix, secret.stored.sha256, owner, break_glass)
    row = api.database.execute(_INSERT, values).fetchone()
    assert row is not None
    return Operator(Caller(api.admin.http, secret.key), str(row[0]))


def forget_operators(api: PublicApi) -> None:
    """Revoke every operator's key but the first: each test begins with one operator."""
    api.database.execute(
        "update api_keys set revoked_at = clock_timestamp() where tenant_id is null and name <> 'first' and revoked_at is null"
    )


def stuck_allocation(api: PublicApi) -> str:
    """An allocation that is releasing and whose node will not return."""
    made: str = rent(new_tenant(api.admin), new_place(api.admin, api.database))["allocation_id"]
    api.admin.make(f"/admin/allocations/{made}/force-release", {"reason": "stuck"})
    return made


def digest_of(key: str) -> bytes:
    """The SHA-256 of a key, as it is stored."""
    return hashlib.sha256(key.encode()).digest()
