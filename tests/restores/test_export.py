"""What a restore has lost is exported from NATS before the stream is rebuilt; ends and revocations of it are not undone."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from berth.cli.deployment.restore import gate
from berth.cli.deployment.restore.lost_kinds import CONSEQUENCE, UNKNOWN, End, end_of, kind_of
from berth.client.feed.event_types import EVENT_TYPES
from berth.local.servers import LocalPostgres
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.outcomes import Superseded
from orchestrator.http.audited.actions import ACTIONS
from orchestrator.operations.execution import Context
from orchestrator.problems import RestoreInProgress
from orchestrator.restores.queries import find_replays
from orchestrator.restores.store import Replay
from outbox_relay.rebuilding import Order
from tests.allocations.driving import clean_up, provision, row_of, rows_of, run_with
from tests.allocations.seeding import REGION, SLICE_SKU, Seeded, connect, create_allocation, seed
from tests.api.calling import Caller, insert_admin_key
from tests.api.processes import public_process
from tests.berth.commands import assert_one_sentence, berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from tests.support.rebuilding import run as rebuild
from worker.metering.meter import credit_of
from worker.restores.sweeping import sweep_replays


async def replays_found(context: Context) -> list[Replay]:
    """What the sweeper would replay."""
    return await find_replays(context, 10)


HOLD = {"holder_id": "h", "gpus": 1, "sku": SLICE_SKU, "region": REGION, "ttl_seconds": 3600}


@dataclass
class Scene:
    """A restored database, and NATS with what it has lost. The ids are of objects that both have, but for `lost`."""

    url: str
    nats_url: str
    seeded: Seeded
    active: uuid.UUID
    requested: uuid.UUID
    reservation: uuid.UUID
    key: uuid.UUID
    node: uuid.UUID
    lost: uuid.UUID
    head: int

    def berth(self, *arguments: str) -> CompletedProcess[str]:
        """A command of an operator on the restored database."""
        return berth(*arguments, BERTH_DATABASE_URL=self.url, BERTH_NATS_URL=self.nats_url)

    def sweep(self) -> None:
        """One round of the worker's sweeper."""
        run_with(self.url, lambda context: sweep_replays(context, 10))

    def states(self) -> dict[uuid.UUID, str]:
        """The states of what the lost interval ended."""
        found = rows_of(
            self.url, "select id, state from allocations union all select id, state from reservations order by 1"
        )
        return dict(found)


@contextmanager
def scene(server: LocalPostgres, url: str, nats_url: str, place: Path) -> Iterator[Scene]:
    """Things are made, the database is copied, and then they are ended in the one that goes on."""
    seeded = seed(url)
    active, requested = (create_allocation(url, seeded, gpus=1) for _ in range(2))
    run_with(url, lambda context: provision(context, url, active))
    key = insert_admin_key(url)
    with public_process(url, place / "before") as http:
        admin = Caller(http, key)
        made = admin.make("/admin/api-keys", {"name": "t", "role": "tenant", "tenant_id": str(seeded.tenant_id)})
        other = admin.make("/admin/api-keys", {"name": "u", "role": "tenant", "tenant_id": str(seeded.tenant_id)})
        tenant = Caller(http, made["key"], str(seeded.tenant_id))
        held = tenant.make("/reservations", HOLD)
    publish(url, nats_url)
    node = seeded.nodes[0].id
    with connect(url) as connection:
        # What the outbox has at the moment is published with another version, and is not lost.
        connection.execute(
            "insert into outbox (event_type, correlation_id, tenant_id, subject, payload) values"
            " ('resource.in_service', uuidv7(), null, 'resources/kept', '{}')"
        )
        connection.execute(
            "insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after)"
            " values ('01', %s, 1, %s, now(), now() + interval '1 day')",
            (node, b"k" * 32),
        )
        connection.execute(
            "insert into enrolment_tokens (node_id, token_hash, created_by, expires_at)"
            " values (%s, sha256('t'), gen_random_uuid(), now() + interval '1 day')",
            (node,),
        )
    with copied_database(server, url.rpartition("/")[2]) as past:
        with public_process(url, place / "after") as http:
            admin, tenant = Caller(http, key), Caller(http, made["key"], str(seeded.tenant_id))
            for allocation in (active, requested):
                tenant.make(f"/allocations/{allocation}/release")
            # It releases one twice: the first time counts.
            tenant.make(f"/allocations/{active}/release")
            lost = tenant.make(
                "/allocations", {"sku": SLICE_SKU, "gpus": 1, "region": REGION, "ssh_key_ids": [str(seeded.ssh_key_id)]}
            )
            tenant.make(f"/allocations/{lost['allocation_id']}/release")
            tenant.make(f"/reservations/{held['reservation_id']}/cancel", {"holder_id": "h"})
            assert admin.call("DELETE", f"/admin/api-keys/{other['id']}").status_code == 204
            admin.make("/admin/api-keys", {"name": "v", "role": "tenant", "tenant_id": str(seeded.tenant_id)})
            admin.make(f"/admin/tenants/{seeded.tenant_id}/top-ups", {"amount_micro_units": 5})
            admin.make(f"/admin/nodes/{node}/certificates/revoke", {"reason": "stolen"})
        publish(url, nats_url)
        ((head,),) = rows_of(url, "select version from log_head")
        yield Scene(
            past, nats_url, seeded, active, requested, uuid.UUID(held["reservation_id"]), uuid.UUID(other["id"]), node,
            uuid.UUID(lost["allocation_id"]), head,
        )  # fmt: skip


def publish(url: str, nats_url: str) -> None:
    """Give every event its version, and publish it."""
    with connect(url) as connection:
        while connection.execute("select log_advance(1000)").fetchone() != (0,):
            continue
    rebuild(url, nats_url)


@pytest.fixture
def restored(postgres_server: LocalPostgres, database_url: str, nats_url: str, tmp_path: Path) -> Iterator[Scene]:
    """The scene, with a restore that is open."""
    with scene(postgres_server, database_url, nats_url, tmp_path) as made:
        assert made.berth("restore", "begin").returncode == 0
        yield made


def lines(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of one document a line."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.full
def test_what_was_ended_or_revoked_in_the_lost_interval_is_so_after_the_restore(
    restored: Scene, tmp_path: Path
) -> None:
    place = tmp_path / "lost"
    assert_one_sentence(restored.berth("restore", "run"), 1, "is not exported, and NATS is its only witness")
    assert_one_sentence(restored.berth("events", "rebuild", "--accept-timeline"), 1, "run `berth restore export` first")
    manifests = []
    for _ in range(2):  # a repetition makes the same
        done = restored.berth("restore", "export", "--to", str(place), "-o", "json")
        assert done.returncode == 0, done.stderr
        manifests.append(json.loads(done.stdout))
    require_exported(restored, place, manifests)
    assert restored.berth("events", "rebuild", "--accept-timeline").returncode == 0
    refused = json.loads(restored.berth("restore", "export", "--to", str(place), "-o", "json").stdout)
    assert refused["error"]["code"] == "stream_rebuilt"
    assert len(lines(place / "events.ndjson")) == manifests[0]["events"]
    key = "select revoked_at is not null as it from api_keys where id = %s"
    assert row_of(restored.url, key, restored.key) == {"it": False}
    finished = restored.berth("restore", "run")
    assert finished.returncode == 0, finished.stderr
    assert "revoke   2 API keys, nodes, members and invitations" in finished.stdout
    assert "renew    0 allocations" in finished.stdout, "what is released is not provisioned anew"
    assert "runs     0 runs" in finished.stdout
    assert row_of(restored.url, key, restored.key) == {"it": True}
    assert rows_of(restored.url, "select revoked_reason ~ 'lost interval' from node_certificates") == [(True,)]
    assert rows_of(restored.url, "select count(*) from enrolment_tokens") == [(0,)], (
        "one of the lost interval is unused"
    )
    require_replayed(restored)


def require_exported(restored: Scene, place: Path, manifests: list[dict[str, Any]]) -> None:
    """Files, digests and numbers agree, and what is lost is reported with its next step."""
    first, second = ({name: value for name, value in each.items() if name != "exported_at"} for each in manifests)
    assert first == second
    events, report = lines(place / "events.ndjson"), lines(place / "report.ndjson")
    assert json.loads((place / "manifest.json").read_text()) == manifests[1]
    assert first["sha256"] == hashlib.sha256((place / "events.ndjson").read_bytes()).hexdigest()
    assert first["report_sha256"] == hashlib.sha256((place / "report.ndjson").read_bytes()).hexdigest()
    versions = [int(event["version"]) for event in events]
    assert versions == list(range(first["first_version"], restored.head + 1))
    assert (first["events"], first["missing"], first["kept"], first["replayed"]) == (len(events), 0, 2, 5)
    assert "resources/kept" in {event["subject"] for event in events}
    assert "resources/kept" not in {line["subject"] for line in report}
    tenant = str(restored.seeded.tenant_id)
    of_tenant, of_operators = (first["tenants"][name]["lost"] for name in (tenant, "operator"))
    assert of_tenant == {
        "allocation_created": 1, "allocation_released": 1, "allocation_released (replayed)": 2,
        "reservation_cancelled (replayed)": 1, "top_up": 1,
    }  # fmt: skip
    assert of_operators == {"api_key_created": 1, "api_key_revoked (replayed)": 1, "certificates_revoked (replayed)": 1}
    replayed = {uuid.UUID(line["subject"].rpartition("/")[2]) for line in report if line["replayed"]}
    assert replayed == {restored.active, restored.requested, restored.reservation, restored.key, restored.node}
    (created,) = [line for line in report if line["kind"] == "allocation_created"]
    assert created["subject"] == f"allocations/{restored.lost}"
    assert "tell the tenant" in created["next_step"]
    shown = json.loads(restored.berth("restore", "show", "-o", "json").stdout)
    assert (shown["export_events"], shown["replays_left"], shown["replays_done"]) == (len(events), 5, 0)


def require_replayed(restored: Scene) -> None:
    """Once the restore is closed the worker ends what had been ended, once, and nothing of it starts before."""
    url, requested = restored.url, restored.requested
    begun = run_with(url, lambda context: begin_provisioning(context, requested, "provisioning-1"))
    assert begun == Superseded(begun.state), "its task would start a guest that its tenant has released"  # type: ignore[union-attr]
    assert rows_of(url, "select id from node_tasks where allocation_id = %s", requested) == []
    for _ in range(2):
        restored.sweep()
        assert restored.states() == {
            restored.active: "releasing", requested: "releasing", restored.reservation: "cancelled",
        }  # fmt: skip
    payload = row_of(
        url, "select payload from outbox where event_type = 'provisioning.releasing.requested' and subject = %s",
        f"allocations/{restored.active}",
    )["payload"]  # fmt: skip
    ended = row_of(url, "select ended_at from restore_replays where subject_id = %s", restored.active)["ended_at"]
    credited = credit_of("provisioning.releasing.requested", payload, 1, "last_proof_of_life")
    assert credited is not None
    assert (credited.starts_at, credited.ends_at) == (payload["outage_since"], payload["releasing_at"])
    assert payload["outage_since"].startswith(ended.strftime("%Y-%m-%dT%H:%M:%S"))
    run_with(url, lambda context: clean_up(context, url, requested))
    assert restored.states()[requested] == "released"
    assert rows_of(url, "select kind, outcome from restore_replays order by kind, subject_id") == [
        ("api_key", "done"), ("cancel", "done"), ("certificates", "done"), ("release", "done"), ("release", "done"),
    ]  # fmt: skip
    actions = rows_of(
        url, "select action, principal_id from audit where principal_id ~ '^(policy|berth restore)' order by id"
    )
    assert {
        ("allocation.release", "policy:released_before_restore"), ("reservation.cancel", "policy:cancelled_before_restore"),
        ("api_key.revoke", "berth restore"), ("node.revoke_certificates", "berth restore"),
    } <= set(actions)  # fmt: skip


def test_nothing_is_replayed_before_the_restore_is_closed(database_url: str, database: psycopg.Connection) -> None:
    seeded = seed(database_url)
    requested = create_allocation(database_url, seeded, gpus=1)
    restore, _ = gate.begin(database)
    end = {"kind": "release", "subject_id": str(requested), "version": 1, "ended_at": "2026-01-01T00:00:00Z"}
    for _ in range(2):  # the second time nothing is new
        found = database.execute(
            "select kind from restore_note_ends(%s, %s)", (restore.epoch, Jsonb([end, end]))
        ).fetchall()
        assert found == [("release",)]
    with psycopg.connect(database_url, autocommit=True) as connection:
        reading = connection.execute("select count(*) from restore_replays").fetchone()
    assert reading == (1,)
    with pytest.raises(RestoreInProgress):
        run_with(database_url, replays_found)
    gate.waive_export(database, restore.epoch, NO_NATS)
    gate.close(database, restore.epoch)
    assert [each.subject_id for each in run_with(database_url, replays_found)] == [requested]


@pytest.mark.full
def test_a_restore_whose_nats_is_lost_too_needs_a_reason(
    database: psycopg.Connection, database_url: str, nats_url: str, tmp_path: Path
) -> None:
    servers = {"BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": nats_url}
    refused = json.loads(berth("restore", "export", "-o", "json", **servers).stdout)
    assert refused["error"]["code"] == "restore_not_open"
    restore, _ = gate.begin(database)
    with pytest.raises(psycopg.DatabaseError, match="is not exported"):
        gate.close(database, restore.epoch)
    database.execute("select pg_advisory_unlock_all()")
    refused = json.loads(berth("restore", "export", "--to", str(tmp_path / "a"), "-o", "json", **servers).stdout)
    assert refused["error"]["code"] == "no_stream"
    nowhere = {**servers, "BERTH_NATS_URL": "nats://127.0.0.1:9"}
    refused = json.loads(berth("restore", "export", "--to", str(tmp_path / "a"), "-o", "json", **nowhere).stdout)
    assert refused["error"]["code"] == "nats_unreachable"
    assert not (tmp_path / "a").exists()
    assert_one_sentence(berth("restore", "run", "--without-export", " ", **servers), 2, "needs a reason")
    done = berth("restore", "run", "--without-export", "the disks of NATS burnt", **servers)
    assert done.returncode == 0, done.stderr
    shown = berth("restore", "show", **servers).stdout
    assert "not exported: the disks of NATS burnt" in shown
    reasons = rows_of(database_url, "select detail ->> 'reason' from audit where action = 'restore.waive_export'")
    assert reasons == [("the disks of NATS burnt",)]


def test_a_stream_without_anything_lost_is_exported_as_empty(
    database: psycopg.Connection, database_url: str, nats_url: str, tmp_path: Path
) -> None:
    servers = {"BERTH_DATABASE_URL": database_url, "BERTH_NATS_URL": nats_url}
    database.execute(
        "insert into outbox (event_type, correlation_id, subject, payload) values ('test.a', uuidv7(), 's', '{}')"
    )
    publish(database_url, nats_url)
    assert berth("restore", "begin", **servers).returncode == 0
    done = berth("restore", "export", "--to", str(tmp_path / "a"), **servers)
    assert done.returncode == 0, done.stderr
    assert "0 events of the lost interval" in done.stdout
    assert berth("restore", "run", **servers).returncode == 0
    assert rebuild(database_url, nats_url, Order(anew=True)).published == 1


def test_every_event_and_action_has_a_kind() -> None:
    for event_type in EVENT_TYPES:
        if event_type != "operation.committed":
            assert kind_of(event_type, {}) is not UNKNOWN, event_type
    for action in ACTIONS.values():
        kind = kind_of("operation.committed", {"code": "ok", "action": action})
        assert kind.next_step or kind is CONSEQUENCE, action
    rotated = kind_of("operation.committed", {"code": "ok", "action": "node.bmc_rotate"})
    assert "adopts a password that was stored" in str(rotated.next_step), "rotating once more alone would not help"
    assert kind_of("operation.committed", {"code": "ok"}) is UNKNOWN, "it was written by an earlier version"
    assert kind_of("operation.committed", {"code": "noop", "action": "api_key.revoke"}) is CONSEQUENCE
    assert kind_of("provisioning.active", {"stub": True, "reason": "too_large"}) is UNKNOWN
    assert kind_of("of.tomorrow", {}) is UNKNOWN


def test_only_ends_and_revocations_are_replayed() -> None:
    one = uuid.UUID(int=1)
    assert end_of("provisioning.releasing.requested", f"allocations/{one}", {}) == End("release", one)
    assert end_of("reservation.cancelled", f"reservations/{one}", {}) == End("cancel", one)
    for event_type in ("node.certificates_revoked", "node.identity_conflict", "node.retired", "node.enrolled"):
        assert end_of(event_type, f"nodes/{one}", {}) == End("certificates", one)
    revoked = {"code": "ok", "action": "api_key.revoke", "object": f"api-keys/{one}"}
    assert end_of("operation.committed", "operations/x", revoked) == End("api_key", one)
    for action in set(ACTIONS.values()) - {"api_key.revoke", "member.remove", "invitation.revoke"}:
        assert end_of("operation.committed", "operations/x", {**revoked, "action": action}) is None
    ends = {"provisioning.releasing.requested", "reservation.cancelled", "node.certificates_revoked",
            "node.identity_conflict", "node.retired", "node.enrolled", "site.agent_revoked", "site.identity_conflict",
            "site.agent_enrolled"}  # fmt: skip
    assert {each for each in EVENT_TYPES if end_of(each, f"nodes/{one}", {}) is not None} == ends
    assert end_of("provisioning.releasing.requested", "allocations/none", {}) is None
