"""A healthy, busy database: allocations in every kind of state, made and moved by the real commands, and reservations."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from node_agent.protocol import FailureCode
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.commands.force import force_release
from orchestrator.allocations.commands.provision import begin_provisioning, finish_provisioning
from orchestrator.allocations.commands.update import Changes, update_allocation
from orchestrator.allocations.commands.waits import fail_unstarted
from orchestrator.allocations.rules import NewEnd
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.maintenance.commands.windows import Bounds, Wanted, commit_maintenance
from orchestrator.maintenance.rules import Policies
from orchestrator.maintenance.states import Resolution
from orchestrator.operations.execution import Context, Limits
from orchestrator.operations.store.operations import Operation
from orchestrator.reservations.resource_names import parse_resources
from orchestrator.tenants.commands.tenants import delete_tenant
from tests.allocations.driving import (
    ADMIN,
    TENANT,
    clean_up,
    completed,
    failed,
    operation,
    provision,
    release,
    report,
    run_with,
    task_of,
)
from tests.allocations.driving import NOT_WIPED as NOT_WIPED_RESULT
from tests.allocations.seeding import Seeded, connect, create_allocation, seed
from tests.berth.reserved import make_reserved
from tests.consumers.metered import meter_all
from tests.wiping.sites import Site

FIRST = ("released", "early", "cancelled", "forced")
SECOND = ("heir", "active", "releasing", "stuck", "requested", "dirty", "cleaned", "longer", "longest")


def make_busy(url: str) -> Seeded:
    """Fill an empty migrated database: two nodes with allocations, one with reservations (tests/berth/reserved.py).

    Allocations are found by name, and say by it how they end. `heir` sits on the unit that `released` gave back; `early`
    gave back units that no later claim took. `longer` runs until another end, its third; `longest` is being released since.
    """
    seeded = seed(url, slice_nodes=3, metal_nodes=1)
    site = Site()
    for node in seeded.nodes:
        site.enrol(node.id, url)
    reserved = seeded.nodes[2]
    with connect(url) as connection:
        connection.execute("update nodes set state = 'cordoned' where id = %s", (reserved.id,))
        connection.execute("update nodes set agent_features = '{tenant_network}'")
    own = {name: create_allocation(url, seeded, name=name) for name in FIRST}

    async def first(context: Context) -> None:
        for name in ("released", "forced"):
            await provision(context, url, own[name])
        await release(context, seeded, own["released"])
        await clean_up(context, url, own["released"], site.release_result)
        await release(context, seeded, own["cancelled"])
        await clean_up(context, url, own["cancelled"], site.release_result)
        await force_release(context, operation(seeded), ADMIN, own["forced"], "the tenant is gone")
        await clean_up(context, url, own["forced"], site.release_result)

    run_with(url, first)
    own |= {name: create_allocation(url, seeded, name=name, gpus=1) for name in SECOND}
    own["unstarted"] = create_allocation(url, seeded, name="unstarted", start_seconds=-1)
    own["metal"] = create_allocation(url, seeded, name="metal", shape="baremetal")
    run_with(url, lambda context: _second(context, url, seeded, own), limits=Limits(release_attempts_max=1))
    with connect(url) as connection:
        connection.execute("update nodes set state = 'active' where id = %s", (reserved.id,))
        make_reserved(connection, reserved.id, reserved.unit_base)
        # Nodes report here without having asked; the checks of cleanup proof need a dispatched task.
        connection.execute("update node_tasks set dispatched_at = queued_at where finished_at is not null")
    run_with(url, lambda context: _delete_a_tenant(context, url))
    run_with(url, lambda context: _commit_maintenance(context, url, seeded))
    with connect(url) as connection:
        # An event for operators only: it belongs to no tenant's chain.
        connection.execute(
            "insert into outbox (event_type, correlation_id, subject, payload) values"
            " ('node.online', uuidv7(), 'nodes/1', '{}')"
        )
        # What an archived allocation leaves behind (tests/archive runs the real command).
        connection.execute(
            "insert into archive_segments (sequence, manifest_sha256, destination, deleted) values (1, repeat('0', 64), 'd', 1);"
            " insert into archived_allocations (allocation_id, segment) values (uuidv7(), 1)"
        )
    meter_all(url)
    return seeded


async def _second(context: Context, url: str, seeded: Seeded, own: dict[str, uuid.UUID]) -> None:
    for name in ("heir", "active", "releasing", "stuck", "early", "metal", "longer", "longest"):
        await provision(context, url, own[name])
    for days, name in ((1, "longer"), (2, "longer"), (3, "longest")):
        changes = Changes(end=NewEnd(datetime.now(UTC) + timedelta(days=days)))
        await update_allocation(context, operation(seeded), TENANT, seeded.tenant_id, own[name], changes)
    await release(context, seeded, own["longest"])
    await release(context, seeded, own["releasing"])
    await release(context, seeded, own["stuck"])
    await begin_release(context, own["stuck"], "stuck")
    task = task_of(url, own["stuck"])
    await report(context, task, completed(task, NOT_WIPED_RESULT))
    await finish_release(context, own["stuck"], "stuck")
    for name in ("dirty", "cleaned"):
        await begin_provisioning(context, own[name], name)
        task = task_of(url, own[name])
        await report(context, task, failed(task, FailureCode.IMAGE_CHECKSUM_MISMATCH))
        await finish_provisioning(context, own[name])
    await clean_up(context, url, own["cleaned"])
    assert await fail_unstarted(context, own["unstarted"])
    await clean_up(context, url, own["unstarted"])
    await release(context, seeded, own["early"])
    await clean_up(context, url, own["early"])
    # An operation that found nothing left to do, and one that was refused.
    await release(context, seeded, own["early"])
    await release(context, seeded, own["cleaned"])


async def _delete_a_tenant(context: Context, url: str) -> None:
    """One with an API key and an SSH key."""
    with connect(url) as connection:
        row = connection.execute(DELETED_TENANT).fetchone()
    assert row is not None
    fingerprint = b"\x03" * 32
    deletion = Operation(uuid.uuid4(), "delete-tenant", fingerprint, 3_600.0)
    assert (await delete_tenant(context, deletion, ADMIN, row[0])).status == 204


async def _commit_maintenance(context: Context, url: str, seeded: Seeded) -> None:
    """On free slots and on a node with an allocation, which keeps its units planned."""
    starts_at = datetime.now(UTC) + timedelta(days=300)
    with connect(url) as connection:
        slots = [name for (name,) in connection.execute(NEVER_CLAIMED, (seeded.nodes[0].id, seeded.nodes[1].id))]
    named = parse_resources([*slots, f"node:{seeded.nodes[3].id}"])
    policies = Policies(Resolution.NOTIFY, Resolution.REFUSE)
    wanted = Wanted(named, starts_at, starts_at + timedelta(hours=1), "firmware", policies)
    bounds = Bounds(1, CatalogueCache(context.database, 60.0))
    asked = Operation(uuid.uuid4(), "commit-maintenance", b"\x04" * 32, 3_600.0)
    assert (await commit_maintenance(context, asked, ADMIN, wanted, bounds)).status == 201


# No plant is about them, whichever units placement chose for the allocations.
NEVER_CLAIMED = """
select 'slot:' || s.node_id || ':' || s.slot_index from slots s
where s.node_id in (%s, %s) and not exists (select from claims c where c.units @> s.unit) order by s.unit desc limit 2
"""
DELETED_TENANT = """
with made as (insert into tenants (name) values ('left') returning id),
     quota as (insert into tenant_quotas (tenant_id) select id from made),
     key as (insert into api_keys (tenant_id, role, name, prefix, secret_hash)
             select id, 'tenant', 'old', 'old', decode(repeat('0a', 32), 'hex') from made),
     ssh as (insert into ssh_keys (tenant_id, name, public_key, fingerprint) select id, 'old', 'ssh-ed25519 AA', 'old' from made)
select id from made
"""
