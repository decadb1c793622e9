"""Each tenant receives what it has lost by a restore, in events of a bounded size, and nothing of another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from orchestrator.verification.all_checks import run_checks
from tests.allocations.driving import rows_of
from tests.allocations.seeding import connect
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.api.processes import public_process
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.restores.publishing import publish

MANY, PAGE = 250, 100
REPORTED = "control_plane.losses_reported"
_WRITE = """
insert into outbox (event_type, correlation_id, tenant_id, subject, operation_key, payload)
select 'operation.committed', uuidv7(), %(tenant)s::uuid, 'operations/' || n, 'key-' || n || '-' || %(tenant)s::text,
       jsonb_build_object('code', 'ok', 'status', 200, 'judged_at', rfc3339(clock_timestamp()), 'action', 'allocation.extend',
                          'object', 'allocations/' || %(tenant)s::text || '/' || n)
from generate_series(1, %(count)s) n
"""


@dataclass
class Scene:
    """A restored database, the key of an operator, and three tenants; the last one lost nothing."""

    url: str
    nats_url: str
    key: str
    tenants: list[Caller]
    head: int

    def berth(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)
        assert done.returncode == 0, done.stderr
        return done.stdout


def write(url: str, tenant: Caller, count: int) -> None:
    """Writes of a tenant that leave an event each and nothing else."""
    with connect(url) as connection:
        connection.execute(_WRITE, {"tenant": tenant.tenant_id, "count": count})


@pytest.fixture
def scene(postgres_server: LocalPostgres, database_url: str, nats_url: str, tmp_path: Path) -> Iterator[Scene]:
    """Two tenants write in the lost interval; an operator tops up the balance of the first one."""
    key = insert_admin_key(database_url)
    with public_process(database_url, tmp_path / "before") as http:
        tenants = [new_tenant(Caller(http, key)) for _ in range(3)]
    publish(database_url, nats_url)
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as past:
        write(database_url, tenants[0], MANY)
        write(database_url, tenants[1], 2)
        with public_process(database_url, tmp_path / "lost") as http:
            admin = Caller(http, key)
            admin.make(f"/admin/tenants/{tenants[0].tenant_id}/top-ups", {"amount_micro_units": 5})
            new_tenant(admin)  # the restored database does not have it
        publish(database_url, nats_url)
        ((head,),) = rows_of(database_url, "select version from log_head")
        yield Scene(past, nats_url, key, tenants, head)


def feeds_of(scene: Scene) -> list[list[dict[str, Any]]]:
    """What the log has for each tenant: the feed, webhooks and NATS deliver these events to it and to no other tenant."""
    with connect(scene.url) as connection:
        while connection.execute("select log_advance(1000)").fetchone() != (0,):
            continue
    query = "select event_type as type, payload from log where tenant_id = %s and version > (select skipped_to from log_stream)"
    return [
        [
            {"type": kind, "payload": payload}
            for kind, payload in rows_of(scene.url, f"{query} order by version", tenant.tenant_id)
        ]
        for tenant in scene.tenants
    ]


def test_each_tenant_receives_each_of_its_losses_and_none_of_another_tenant(scene: Scene, tmp_path: Path) -> None:
    scene.berth("restore", "begin")
    for _ in range(2):  # a repetition reports nothing twice
        scene.berth("restore", "export", "--to", str(tmp_path / "lost-interval"))
    scene.berth("events", "rebuild", "--accept-timeline")
    scene.berth("restore", "run")
    feeds = feeds_of(scene)
    for tenant, feed, writes, payments in zip(scene.tenants, feeds, (MANY, 2, 0), (1, 0, 0), strict=True):
        pages = [event["payload"] for event in feed if event["type"] == REPORTED]
        assert [page["part"] for page in pages] == list(range(1, len(pages) + 1))
        assert all(0 < len(page["lost"]) <= PAGE and page["missing"] == 0 for page in pages)
        lost = [loss for page in pages for loss in page["lost"]]
        own = {loss["subject"]: loss["operation_key"] for loss in lost if loss["kind"] == "allocation.extend"}
        assert own == {
            f"allocations/{tenant.tenant_id}/{n}": f"key-{n}-{tenant.tenant_id}" for n in range(1, writes + 1)
        }
        others = [loss for loss in lost if loss["kind"] != "allocation.extend"]
        assert [loss["kind"] for loss in others] == ["top_up"] * payments
        assert all("operation_key" not in loss and "event_id" not in loss for loss in others), "it is the operator's"
        (restored,) = [event["payload"] for event in feed if event["type"] == "control_plane.restored"]
        assert restored["losses"] == len(lost) == writes + payments
        for other in scene.tenants:
            assert other is tenant or str(other.tenant_id) not in str(feed)
    assert [verdict.violations for verdict in run_checks(scene.url) if not verdict.kept] == []


def test_a_tenant_learns_that_nothing_is_known_where_nats_is_lost_or_incomplete(scene: Scene, tmp_path: Path) -> None:
    with psycopg.connect(scene.url, autocommit=True) as connection:
        ((epoch,),) = [connection.execute("select epoch from restore_begin()").fetchone() or (None,)]
        connection.execute("select restore_report_losses(%s, true, 7, '[]')", (epoch,))
        reported = connection.execute(
            "select tenant_id, payload from outbox where event_type = %s", (REPORTED,)
        ).fetchall()
        assert {str(tenant) for tenant, _ in reported} == {str(tenant.tenant_id) for tenant in scene.tenants}
        assert [payload for _, payload in reported] == [{"part": 0, "lost": [], "missing": 7}] * 3
        connection.execute("select restore_report_losses(%s, true, 0, '[]')", (epoch,))
    scene.berth("restore", "run", "--without-export", NO_NATS)
    for feed in feeds_of(scene):
        (restored,) = [event["payload"] for event in feed if event["type"] == "control_plane.restored"]
        assert restored["losses"] is None
        assert not [event for event in feed if event["type"] == REPORTED]
