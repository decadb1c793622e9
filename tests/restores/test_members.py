"""Members after a restore: one that was removed in the lost interval is removed again, and what it had invited ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from berth.cli.deployment.restore.lost_kinds import end_of
from berth.local.servers import LocalPostgres
from tests.allocations.driving import rows_of
from tests.api.calling import Caller, fresh, new_tenant
from tests.api.tenants.issuer import running_issuer
from tests.api.tenants.token_api import TokenApi, token_api
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish


@dataclass(frozen=True)
class Past:
    """The database of before a member was removed and an invitation was revoked."""

    url: str
    nats_url: str
    removed: str
    stays: str

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def members(self) -> set[str]:
        """Those that the database has."""
        return {str(member) for (member,) in rows_of(self.url, "select id from tenant_members")}

    def open_invitations(self) -> set[str]:
        """The names of those by which a user may join."""
        still = "select name from tenant_invitations where accepted_at is null and revoked_at is null"
        return {str(name) for (name,) in rows_of(self.url, still)}


def joined(api: TokenApi, tenant: Caller, role: str) -> tuple[Caller, str]:
    """A user that has become a member, and the member's id."""
    user = api.with_token(api.issuer.token("first", sub=fresh("user")))
    answer = user.call("POST", "/invitations/accept", {"token": invited(tenant, "used", role)["token"]})
    assert answer.status_code == 200, answer.text
    return user, str(answer.json()["id"])


def invited(caller: Caller, name: str, role: str = "viewer") -> Any:
    """A new invitation."""
    return caller.make("/invitations", {"role": role, "name": name})


@pytest.fixture
def past(postgres_server: LocalPostgres, database_url: str, nats_url: str) -> Iterator[Past]:
    with running_issuer() as issuer:
        with token_api(database_url, issuer) as api:
            tenant = new_tenant(api.admin)
            admin, removed = joined(api, tenant, "admin")
            stays = joined(api, tenant, "viewer")[1]
            invited(admin, "of the removed one")
            revoked = invited(tenant, "revoked")["id"]
            invited(tenant, "open")
        publish(database_url, nats_url)
        with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
            with token_api(database_url, issuer) as api:
                again = Caller(api.admin.http, tenant.key)
                assert again.call("DELETE", f"/members/{removed}").status_code == 204
                assert again.call("DELETE", f"/invitations/{revoked}").status_code == 204
            publish(database_url, nats_url)
            yield Past(url, nats_url, removed, stays)


def test_a_member_removed_in_the_lost_interval_is_removed_again(past: Past, tmp_path: Path) -> None:
    assert past.members() == {past.removed, past.stays}
    past.berth("restore", "begin")
    past.berth("restore", "export", "--to", str(tmp_path / "lost"))
    assert "2 API keys, nodes, members and invitations" in past.berth("restore", "run")
    assert past.members() == {past.stays}
    assert past.open_invitations() == {"open"}
    audited = rows_of(past.url, "select action, subject from audit where principal_id = 'berth restore'")
    assert ("member.remove", f"members/{past.removed}") in audited
    report = [json.loads(line) for line in (tmp_path / "lost/report.ndjson").read_text().splitlines()]
    replayed = {line["kind"]: line["replayed"] for line in report}
    assert replayed["member.remove"] is replayed["invitation.revoke"] is True


def test_without_an_export_a_removed_member_is_back(past: Past) -> None:
    past.berth("restore", "run", "--without-export", NO_NATS)
    assert past.members() == {past.removed, past.stays}


def test_only_what_ends_is_replayed() -> None:
    for action in ("member.set_role", "invitation.create"):
        data = {"code": "ok", "action": action, "object": "members/0197f3a0-0000-7000-8000-000000000001"}
        assert end_of("operation.committed", "operations/x", data) is None
