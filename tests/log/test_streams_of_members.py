"""Streams of users of the issuer end once their credential would open no such stream: removed, moved, another role, expired."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, fresh, insert_admin_key, new_tenant
from tests.api.processes import public_process
from tests.api.tenants.issuer import AUDIENCE, Issuer, running_issuer
from tests.databases import copied_database
from tests.log.streaming import StreamedEvent, subscribed


@dataclass(frozen=True)
class Members:
    """A running API that takes tokens of an issuer."""

    http: httpx.Client
    admin: Caller
    issuer: Issuer

    def user(self, **claims: Any) -> Caller:
        """A user whose token names no tenant, unless the claims do."""
        return Caller(self.http, self.issuer.token("first", **{"sub": fresh("user"), **claims}))

    def joined(self, tenant: Caller) -> tuple[Caller, str]:
        """A user that has become a viewer of the tenant, and the id of the member."""
        user, invitation = self.user(), tenant.make("/invitations", {"role": "viewer"})
        answer = user.call("POST", "/invitations/accept", {"token": invitation["token"]})
        assert answer.status_code == 200, answer.text
        return user, str(answer.json()["id"])


@pytest.fixture(scope="module")
def members(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Members]:
    with copied_database(postgres_server, migrated_template) as url, running_issuer() as issuer:
        settings = {
            "BERTH_OIDC_ISSUER": issuer.url, "BERTH_OIDC_AUDIENCE": AUDIENCE, "BERTH_OIDC_LEEWAY_SECONDS": "0",
            "BERTH_FEED_KEEPALIVE_SECONDS": "0.2", "BERTH_CREDENTIAL_CACHE_SECONDS": "0.2",
        }  # fmt: skip
        directory: Path = tmp_path_factory.mktemp("members")
        with public_process(url, directory, settings) as http:
            yield Members(http, Caller(http, insert_admin_key(url)), issuer)


def last_of(stream: Iterator[StreamedEvent | str]) -> tuple[str, str]:
    """What ends the stream, and why."""
    last = [one for one in stream if isinstance(one, StreamedEvent)][-1]
    return last.event, last.data["reason"]


def removed(members: Members, tenant: Caller, member: str) -> None:
    assert tenant.call("DELETE", f"/members/{member}").status_code == 204


def without_the_role(members: Members, tenant: Caller, member: str) -> None:
    assert tenant.call("PATCH", f"/members/{member}", {"role": "billing"}).status_code == 200


def suspended(members: Members, tenant: Caller, member: str) -> None:
    assert members.admin.call("PATCH", f"/admin/tenants/{tenant.tenant_id}", {"state": "suspended"}).status_code == 200


@pytest.mark.parametrize("change", [removed, without_the_role, suspended])
def test_the_stream_of_a_member_ends(members: Members, change: Callable[[Members, Caller, str], None]) -> None:
    tenant = new_tenant(members.admin)
    user, member = members.joined(tenant)
    with subscribed(user) as stream:
        change(members, tenant, member)
        assert last_of(stream) == ("end", "unauthenticated")


def test_the_stream_of_a_member_ends_when_it_joins_another_tenant(members: Members) -> None:
    first, second = new_tenant(members.admin), new_tenant(members.admin)
    user, member = members.joined(first)
    with subscribed(user) as stream:
        removed(members, first, member)
        answer = user.call(
            "POST", "/invitations/accept", {"token": second.make("/invitations", {"role": "viewer"})["token"]}
        )
        assert answer.status_code == 200, answer.text
        assert last_of(stream) == ("end", "unauthenticated")


def test_the_stream_of_an_expired_token_ends(members: Members) -> None:
    tenant = new_tenant(members.admin)
    user = members.user(berth_tenant=tenant.tenant_id, exp=int(time.time()) + 10)
    with subscribed(user) as stream:
        assert last_of(stream) == ("end", "unauthenticated")
