"""The whole restore: load, backup, load, a lost interval, a lost database, restore by the commands of the page, load again.

Quick guards of the same promises: test_gate.py (nothing serves), test_nodes.py (nothing is placed on a slot in use, what ended
is released), test_sequences.py (no number twice), tests/backup (what is restored), tests/outbox_relay/test_rebuilding.py.
"""

from __future__ import annotations

import getpass
import json
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from berth.cli.deployment.backup.directory import BackupDirectory
from berth.cli.deployment.backup.stream_status import read_status
from berth.client import ResourceOutOfService, SkuUnavailable
from berth.local.options import StackOptions
from berth.local.servers import LocalPostgres, postgres_user
from berth.local.stack import Stack
from tests.berth.commands import berth
from tests.restores.drill import Drill, FirstSweep, looking
from tests.support.waiting import wait_for
from tests.support.whole_stack import NODE_API, WORKER, Tenant

AGENT = {"BERTH_AGENT_HEARTBEAT_SECONDS": "1"}


@pytest.fixture
def drill(server_directory: Path) -> Iterator[Drill]:
    """A slice node in each region, and WAL that is streamed."""
    place = server_directory / "drill"
    place.mkdir(mode=0o755)
    agents = {f"agent {name}": AGENT for name in ("eu-1-slice-1", "us-1-slice-1")}
    environment = {"node-api": NODE_API, "worker": WORKER, **agents}
    options = StackOptions(
        place / "var", agents=2, wished_port=None, environment=environment, backup_directory=place / "backups"
    )
    with Stack(options) as stack:
        yield Drill(stack, place, place / "backups")
    shutil.rmtree(place)


def started(tenant: Tenant, gpus: int, region: str = "eu-1") -> UUID:
    """An allocation that is active."""
    made = tenant.wait(tenant.create(gpus=gpus, region=region), "active", "failed")
    assert made.status == "active"
    return made.allocation_id


def recovery_key(drill: Drill) -> str:
    """The public key to which the key files are encrypted."""
    return berth("backup", "new-recovery-key", str(drill.place / "recovery.pem")).stdout.strip()


def wait_streamed(drill: Drill) -> None:
    """Return when everything that was committed before the call is in the backup directory."""
    flushed = int(drill.row("select pg_current_wal_flush_lsn() - '0/0' as at")["at"])

    def is_there() -> bool:
        query = "select coalesce(max(restart_lsn - '0/0'), 0) as at from pg_replication_slots where active"
        return int(drill.row(query)["at"]) >= flushed

    wait_for(is_there, "the stream has the WAL")
    assert read_status(BackupDirectory(drill.backups)) is not None


@pytest.mark.full
@pytest.mark.timeout(600)
def test_after_a_restore_no_slot_has_two_guests_and_no_bill_is_without_a_guest(drill: Drill) -> None:
    tenant, other = drill.whole.tenant(), drill.whole.tenant()
    # Before the backup.
    ended, kept, early = started(tenant, 2), started(other, 1), started(tenant, 1, "us-1")
    held = tenant.client.create_reservation(holder_id="h", sku="h100.slice", gpus=2, region="us-1", ttl_seconds=3600)
    drill.run("backup", recovery_public_key=recovery_key(drill))
    # After the backup, still before the moment.
    streamed = started(other, 1, "us-1")
    tenant.client.release_allocation(early)
    tenant.client.wait_for(early, {"released"}, 60)
    slow = {"berth.fault/agent_silent": "2"}
    overtaken, told = (tenant.create(gpus=1, labels=slow) for _ in range(2))
    for each in (overtaken, told):
        tenant.wait(each, "provisioning")
    in_flight, withdrawn = (tenant.create(gpus=1, region=region) for region in ("eu-1", "us-1"))
    moment = drill.row("select clock_timestamp() as at")["at"]
    # The lost interval: the slots of `ended` have another guest at its end.
    drill.whole.tenant()
    for each in (in_flight, withdrawn, overtaken, told):
        tenant.wait(each, "active")
    # Its tenant withdraws what was only asked for at the moment.
    tenant.client.release_allocation(withdrawn.allocation_id)
    tenant.wait(withdrawn, "released")
    tenant.client.release_allocation(overtaken.allocation_id)
    tenant.wait(overtaken, "released")
    tenant.client.release_allocation(ended)
    ended_at = drill.row("select clock_timestamp() as at")["at"]
    tenant.client.wait_for(ended, {"released"}, 60)
    lost = [started(other, 2), started(tenant, 1, "us-1"), started(tenant, 2)]
    confirmed = tenant.client.create_allocation(
        reservation_id=held.reservation_id, holder_id="h", ssh_key_ids=[tenant.ssh_key_id]
    )
    lost.append(tenant.wait(confirmed, "active").allocation_id)
    guests = drill.watch.look()
    lost_slots = {guest.allocation_id: (guest.node, guest.slots) for guest in guests if guest.allocation_id in lost}
    assert len(lost_slots) == len(lost)
    wait_for(lambda: drill.whole.waiting_events() == 0, "every event is published")
    wait_streamed(drill)
    sweep = FirstSweep(drill, set(lost_slots))
    with looking(drill.watch.look):
        restore(drill, moment.isoformat(), sweep)
        go_on(drill, tenant, lost_slots, sweep)
    assert drill.watch.double == set()
    assert drill.watch.looks > 100
    with pytest.raises(ResourceOutOfService, match="an orphan is on it"):
        tenant.client.create_allocation(
            reservation_id=held.reservation_id, holder_id="h", ssh_key_ids=[tenant.ssh_key_id]
        )
    for each in (overtaken, withdrawn):
        assert tenant.client.get_allocation(each.allocation_id).status == "released"
    assert {kept, streamed, in_flight.allocation_id, told.allocation_id} <= {
        guest.allocation_id for guest in drill.watch.look()
    }
    judge(drill, lost_slots, ended, ended_at)


def restore(drill: Drill, moment: str, sweep: FirstSweep) -> None:
    """The disaster, and the page from its first step to its last."""
    postgres = drill.whole.server("postgres")
    assert isinstance(postgres, LocalPostgres)
    user = postgres_user(postgres.directory, Path(postgres.program("postgres")).parent.parent) or getpass.getuser()
    drill.lose_the_database()
    for name in drill.processes:
        drill.whole.kill(name)
    drill.run("restore", data=postgres.directory, moment=moment, postgres_user=user)
    postgres.start()
    wait_for(lambda: not drill.row("select pg_is_in_recovery() as it")["it"], "the end of the recovery")
    for block in ("begin", "export", "rebuild", "finish"):
        drill.run(block)
    drill.empty_temporal()
    drill.whole.start(*drill.processes)
    with looking(sweep.look):
        drill.run("check")
        drill.run("again")


def go_on(drill: Drill, tenant: Tenant, lost: dict[UUID, tuple[str, tuple[int, ...]]], sweep: FirstSweep) -> None:
    """Nodes are opened; every free GPU is given out, none with a guest of the lost interval."""

    def is_known() -> bool:
        sweep.look()
        return not drill.rows("select from awaited_inventories")

    wait_for(is_known, "every inventory is here")
    sweep.look()
    assert sweep.late == set()
    assert sweep.recorded == lost.keys()
    require_known_before_served(drill)
    wait_for(lambda: not drill.rows("select from allocations where state in ('requested', 'provisioning', 'releasing')"),
             "everything settles")  # fmt: skip
    made = []
    for region in ("eu-1", "us-1"):
        while True:
            try:
                made.append(tenant.create(gpus=1, region=region))
            except SkuUnavailable:
                break
    for allocation in made:
        assert tenant.wait(allocation, "active", "failed", "released").status == "active"
    assert made
    taken = {(node, slot) for node, slots in lost.values() for slot in slots}
    for allocation in made:
        node, slots = drill.slots(allocation.allocation_id)
        assert not taken & {(node, slot) for slot in slots}


def require_known_before_served(drill: Drill) -> None:
    """By the database's stamps: a node serves again after all that was unknown on it was recorded."""
    late = drill.rows(
        "select o.allocation_id from node_orphans o left join audit a on a.action = 'node.restored' and a.subject = 'nodes/' ||"
        " o.node_id where a.at is null or o.first_seen_at > a.at"
    )
    assert late == []


def judge(drill: Drill, lost: dict[UUID, tuple[str, tuple[int, ...]]], ended: UUID, ended_at: datetime) -> None:
    """Every checker, at the end."""
    orphans = {row["allocation_id"]: (row["name"], tuple(row["slots"])) for row in drill.rows(
        "select o.allocation_id, n.name, o.slots from node_orphans o join nodes n on n.id = o.node_id")}  # fmt: skip
    assert orphans == lost
    guests = {guest.allocation_id: (guest.node, guest.slots) for guest in drill.watch.look()}
    for row in drill.rows("select id from allocations where state = 'active'"):
        assert guests[row["id"]] == drill.slots(row["id"])
    assert lost.items() <= guests.items()
    billed = {
        row["allocation_id"]
        for row in drill.rows("select allocation_id from metering_intervals where ended_at is null")
    }
    assert billed <= guests.keys() - lost.keys()
    credited = drill.row(
        "select c.starts_at <= %s and c.ends_at = u.ends_at as whole from ledger u join ledger c using (allocation_id)"
        " where u.allocation_id = %s and u.kind = 'usage' and c.kind = 'credit'", ended_at, ended
    )  # fmt: skip
    assert credited["whole"], "nothing is billed after the release that was lost"
    require_notified(drill)
    told = [json.loads(line) for line in (drill.place / "lost-interval/events.ndjson").read_text().splitlines()]
    assert {f"allocations/{allocation}" for allocation in (*lost, ended)} <= {event["subject"] for event in told}
    wait_for(lambda: drill.whole.waiting_events() == 0, "every event is published")
    assert drill.whole.violations() == []
    drill.run("verify")


def require_notified(drill: Drill) -> None:
    """Every tenant has its event, and the log's versions are whole but for one jump."""
    wait_for(lambda: drill.whole.waiting_events() == 0, "every event is published")
    notified = drill.rows("select tenant_id from log where event_type = 'control_plane.restored'")
    assert {row["tenant_id"] for row in notified} == {
        None, *(row["id"] for row in drill.rows("select id from tenants where state <> 'deleted'")),
    }  # fmt: skip
    jump = drill.row("select version, prev_version, payload from log where event_type = 'log.versions_skipped'")
    assert jump["payload"] == {"first": jump["prev_version"] + 1, "last": jump["version"]}
    # In one statement: the log goes on.
    whole = "select (select count(*) from log where version >= %s) = h.version - %s + 1 as it from log_head h"
    assert drill.row(whole, jump["version"], jump["version"])["it"]
