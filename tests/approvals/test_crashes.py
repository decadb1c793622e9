"""API and sweeper of four eyes are killed between request, approval, execution and expiry: an action is done once, or not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from migrations.roles import Role
from orchestrator.crash_points import CrashPoint
from orchestrator.tenants.key_secrets import Secret
from tests.databases import as_role, as_roles
from tests.support.waiting import WAIT_SECONDS_MAX
from tests.testbuild.killing import REACHED

INSERT = """
insert into api_keys (role, access_role, name, prefix, secret_hash, owner) values ('admin', 'admin', %s, 'p', %s, %s) returning id
"""
REQUEST = [CrashPoint.REQUEST_APPROVAL_BEFORE_COMMIT, CrashPoint.REQUEST_APPROVAL_AFTER_COMMIT]
EXPIRE = [CrashPoint.EXPIRE_APPROVAL_BEFORE_COMMIT, CrashPoint.EXPIRE_APPROVAL_AFTER_COMMIT]
APPROVE = [CrashPoint.APPROVE_REQUEST_BEFORE_COMMIT, CrashPoint.APPROVE_REQUEST_AFTER_COMMIT]
AFTER = {CrashPoint.REQUEST_APPROVAL_AFTER_COMMIT, CrashPoint.APPROVE_REQUEST_AFTER_COMMIT}


@dataclass
class Scene:
    """Three operators, the key of a fourth one that is to be revoked, and their API."""

    url: str
    directory: Path
    database: psycopg.Connection[Any]
    secrets: dict[str, str]
    victim: str
    http: httpx.Client

    def call(self, who: str, method: str, path: str, body: Any = None, *, key: str) -> httpx.Response:
        """One request of an operator under an idempotency key."""
        headers = {"Authorization": f"Bearer {self.secrets[who]}", "Idempotency-Key": key}
        return self.http.request(method, f"/api/v1/admin{path}", json=body, headers=headers)

    def request(self, key: str = "request") -> httpx.Response:
        """Ann wants the key revoked."""
        return self.call("ann", "DELETE", f"/api-keys/{self.victim}", key=key)

    def approve(self, who: str, approval: str, key: str) -> httpx.Response:
        """An operator approves."""
        return self.call(who, "POST", f"/approvals/{approval}/approve", {}, key=key)

    def one(self, query: str, *values: object) -> Any:
        """The one value that a query answers."""
        row = self.database.execute(query.encode(), values).fetchone()
        assert row is not None
        return row[0]

    def is_revoked(self) -> bool:
        """Whether the action was done."""
        return bool(self.one("select revoked_at is not null from api_keys where id = %s", self.victim))

    def events(self, kind: str) -> int:
        """Events of a kind, in the log or on their way."""
        both = "select event_type from outbox union all select event_type from log"
        return int(self.one(f"select count(*) from ({both}) e where event_type = %s", kind))

    @contextmanager
    def api(self, crash_at: CrashPoint | None = None) -> Iterator[ChildProcess]:
        """The API as a process, of the test build if it is to die."""
        endpoints = Endpoints(self.url, "", "", free_port(), free_port(), as_roles(self.url))
        plan = orchestrator_plan("public", endpoints, ensure_authority(self.directory, "berth.local"), free_port())
        plan = replace(plan, launcher=None if crash_at is None else "tests.testbuild")
        process = ChildProcess(plan, self.directory / "api.log")
        process.spawn({"BERTH_FOUR_EYES": "true", **({} if crash_at is None else {"BERTH_CRASH_AT": f"{crash_at}:1"})})
        try:
            process.wait_ready()
            with httpx.Client(base_url=endpoints.api_url, timeout=WAIT_SECONDS_MAX) as self.http:
                yield process
        finally:
            process.terminate()
            process.wait_ended()

    @contextmanager
    def dying(self, crash_at: CrashPoint) -> Iterator[None]:
        """An API that dies at the point, in the request of the block."""
        with self.api(crash_at) as process:
            with pytest.raises(httpx.TransportError):
                yield
            assert process.process is not None
            assert process.process.wait(WAIT_SECONDS_MAX) == -signal.SIGKILL
        assert REACHED.format(f"{crash_at}:1") in (self.directory / "api.log").read_text()


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    with psycopg.connect(database_url, autocommit=True) as database:
        secrets, ids = {}, {}
        for owner in ("ann", "ben", "cat", "dan"):
            secret = Secret()
            row = database.execute(INSERT, (owner, secret.stored.sha256, owner)).fetchone()
            assert row is not None
            secrets[owner], ids[owner] = secret.key, str(row[0])
        yield Scene(database_url, tmp_path, database, secrets, ids["dan"], httpx.Client())


@pytest.mark.quick("request_approval.after_commit")
@pytest.mark.parametrize("point", REQUEST)
def test_a_request_is_recorded_once_and_has_no_effect(scene: Scene, point: CrashPoint) -> None:
    with scene.dying(point):
        scene.request()
    assert scene.one("select count(*) from approvals") == int(point in AFTER)
    with scene.api():
        first, again = scene.request(), scene.request()
        assert (first.status_code, first.json()) == (202, again.json())
        approval = first.json()["approval_id"]
        assert (scene.one("select count(*) from approvals"), scene.events("approval.requested")) == (1, 1)
        own = scene.approve("ann", approval, "own")
        assert (own.status_code, own.json()["code"]) == (403, "second_operator_required")
        assert not scene.is_revoked()
        assert scene.approve("ben", approval, "ben").status_code == 200
        assert scene.is_revoked()


@pytest.mark.quick("approve_request.before_commit")
@pytest.mark.parametrize("point", APPROVE)
def test_an_approval_and_its_action_are_one(scene: Scene, point: CrashPoint) -> None:
    with scene.api():
        approval = scene.request().json()["approval_id"]
    with scene.dying(point):
        scene.approve("ben", approval, "ben")
    assert scene.one("select state from approvals") == ("approved" if point in AFTER else "pending")
    assert scene.is_revoked() == (point in AFTER)
    with scene.api(), ThreadPoolExecutor(2) as hands:
        # Ben repeats the approval while Cat approves as well.
        both = [hands.submit(scene.approve, who, approval, who) for who in ("ben", "cat")]
        ben, cat = (future.result(WAIT_SECONDS_MAX) for future in both)
        assert sorted([ben.status_code, cat.status_code]) == [200, 409]
        if point in AFTER:
            assert ben.status_code == 200, "the first answer"
        winner = ben if ben.status_code == 200 else cat
        assert winner.json()["decided_by"]["owner"] == ("ben" if winner is ben else "cat")
    assert scene.is_revoked()
    assert scene.events("approval.approved") == 1
    done = "select count(*) from audit where action = 'api_key.revoke' and code = 'ok' and subject = %s"
    assert scene.one(done, f"api-keys/{scene.victim}") == 1


@pytest.mark.parametrize("point", REQUEST)
def test_an_overdue_request_expires_once_and_is_never_approved(scene: Scene, point: CrashPoint) -> None:
    """The request for the same object ends it, before a sweeper does, in its own transaction."""
    with scene.api():
        overdue = scene.request("early").json()["approval_id"]
    scene.database.execute(
        "update approvals set waits_since = waits_since - interval '3 days', waits_until = waits_until - interval '3 days'"
    )
    with scene.dying(point):
        scene.request("late")
    state = scene.one("select state from approvals where id = %s", overdue)
    assert state == ("expired" if point in AFTER else "pending")
    with scene.api():
        late = scene.approve("ben", overdue, "late approval")
        assert (late.status_code, late.json()["code"]) == (409, "invalid_state")
        assert not scene.is_revoked()
        approval = scene.request("late").json()["approval_id"]
        assert scene.events("approval.expired") == 1
        assert scene.approve("ben", approval, "ben").status_code == 200
    assert scene.is_revoked()


def sweep(scene: Scene, *crash_at: str) -> subprocess.CompletedProcess[str]:
    """One sweep in another process, as the worker's role."""
    command = [sys.executable, "-m", "tests.approvals.sweeping", as_role(scene.url, Role.WORKER), *crash_at]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS_MAX, check=False)


# Long; the quicker test: test_an_overdue_request_expires_once_and_is_never_approved.
@pytest.mark.full
@pytest.mark.quick("expire_approval.before_commit")
@pytest.mark.parametrize("point", EXPIRE)
def test_a_killed_sweeper_expires_a_request_once(scene: Scene, point: CrashPoint) -> None:
    with scene.api():
        overdue = scene.request().json()["approval_id"]
    scene.database.execute(
        "update approvals set waits_since = waits_since - interval '3 days', waits_until = waits_until - interval '3 days'"
    )
    died = sweep(scene, f"{point}:1")
    assert (died.returncode, REACHED.format(f"{point}:1") in died.stderr) == (-signal.SIGKILL, True)
    committed = point is CrashPoint.EXPIRE_APPROVAL_AFTER_COMMIT
    assert scene.one("select state from approvals") == ("expired" if committed else "pending")
    with scene.api():
        late = scene.approve("ben", overdue, "late approval")
        assert (late.status_code, late.json()["code"]) == (409, "invalid_state")
    assert [sweep(scene).returncode for _ in range(2)] == [0, 0]
    assert scene.one("select state from approvals") == "expired"
    assert (scene.events("approval.expired"), scene.is_revoked()) == (1, False)
    assert scene.one("select count(*) from audit_pending where action = 'approval.expire'") == 1
