"""After a restore to the past no create is placed on a node before the node has said what it holds.

The past is a copy of the database that is made while the first one goes on, as a restored server has it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime

import psycopg
import pytest

from berth.cli.deployment.restore.running import run_restore
from berth.local.servers import LocalPostgres
from orchestrator.allocations.commands.lost_in_restore import release_lost_in_restore
from orchestrator.nodes.commands.orphans import report_orphan
from orchestrator.nodes.commands.restored_nodes import open_restored_node
from orchestrator.operations.execution import Context
from tests.allocations.driving import clean_up, provision, row_of, rows_of, run_with
from tests.allocations.reconciling import beat, kept, slots_out_of_service
from tests.allocations.seeding import Seeded, connect, create_allocation, outcome_of_create, seed, try_create
from tests.berth.commands import berth
from tests.databases import copied_database
from tests.restores.conftest import NO_NATS
from worker.metering.meter import credit_of
from worker.sweepers.reconciliation import InventoryReconciler

_SLOTS = """
select array_agg(s.slot_index order by 1) from allocations a join claims c on c.id = a.claim_id
join slots s on s.node_id = a.node_id and c.units @> s.unit where a.id = %s
"""


class Past:
    """A restored database: `known` is active in it, `lost` was created and started after the moment, on the same node."""

    def __init__(
        self, url: str, seeded: Seeded, known: uuid.UUID, lost: uuid.UUID, slots: dict[uuid.UUID, list[int]]
    ) -> None:
        self.url, self.seeded, self.known, self.lost, self.slots = url, seeded, known, lost, slots
        self.node = seeded.nodes[0].id

    @property
    def held(self) -> list[tuple[uuid.UUID, list[int]]]:
        """What the node holds, which did not go back in time."""
        return list(self.slots.items())

    def create(self, gpus: int = 2) -> tuple[str, list[int]]:
        """The outcome of a create, and the slots that it got."""
        with connect(self.url) as connection:
            made = try_create(connection, self.seeded, gpus=gpus)
            if made is None:
                return outcome_of_create(connection, self.seeded, gpus=gpus), []
        return "created", slots_of(self.url, made)

    def restore(self) -> list[str]:
        """Run the restore; return its steps."""
        steps: list[str] = []
        run_restore(self.url, lambda step, _: steps.append(step), NO_NATS)
        return steps

    def reconcile(self) -> None:
        """One round of the worker's reconciler."""
        run_with(self.url, lambda context: reconciler(context).run())


def reconciler(context: Context) -> InventoryReconciler:
    """The worker's, for few nodes."""
    return InventoryReconciler(context, nodes_max=10, limit=10, inventories_min=3)


def slots_of(url: str, allocation_id: uuid.UUID) -> list[int]:
    """The slots that an allocation has a claim on."""
    ((slots,),) = rows_of(url, _SLOTS, allocation_id)
    return list(slots)


@pytest.fixture
def past(postgres_server: LocalPostgres, database_url: str) -> Iterator[Past]:
    """The database as it was before `lost` was created; the node holds both guests."""
    seeded = seed(database_url)
    known = create_allocation(database_url, seeded, gpus=2)
    run_with(database_url, lambda context: provision(context, database_url, known))
    with copied_database(postgres_server, database_url.rpartition("/")[2]) as url:
        lost = create_allocation(database_url, seeded, gpus=2)
        run_with(database_url, lambda context: provision(context, database_url, lost))
        slots = {each: slots_of(database_url, each) for each in (known, lost)}
        yield Past(url, seeded, known, lost, slots)


def test_no_create_is_placed_on_a_slot_with_a_guest_of_the_lost_interval(past: Past) -> None:
    assert past.restore() == [
        "gate", "export", "versions", "raise", "revoke", "adopt", "renew", "runs", "nodes", "verify", "close",
    ]  # fmt: skip
    # Free slots are not used either: which ones those are is not known yet.
    assert past.create() == ("no_room", []), "no inventory has arrived"
    run_with(past.url, lambda context: beat(context, past.node, None))
    past.reconcile()
    assert past.create() == ("no_room", []), "the node is online and has sent no inventory"
    run_with(past.url, lambda context: beat(context, past.node, *past.held))
    assert past.create() == ("no_room", []), "its inventory is not explained yet"
    past.reconcile()
    orphan = row_of(past.url, "select allocation_id, slots, state from node_orphans")
    assert orphan == {"allocation_id": past.lost, "slots": past.slots[past.lost], "state": "reported"}
    assert slots_out_of_service(past.url) == past.slots[past.lost]
    taken = [slot for slots in past.slots.values() for slot in slots]
    for _ in range(2):
        outcome, slots = past.create()
        assert outcome == "created"
        assert not set(slots) & set(taken)
        taken += slots
    assert past.create(gpus=1) == ("no_room", [])
    assert kept(past.url) == []
    assert rows_of(past.url, "select action from audit where action ~ 'restore' order by id") == [
        ("restore.begin",), ("restore.waive_export",), ("restore.close",), ("node.restored",),
    ]  # fmt: skip


def test_an_allocation_that_ended_in_the_lost_interval_is_released_and_credited(past: Past) -> None:
    past.restore()

    async def way(context: Context) -> bool:
        await beat(context, past.node, (past.lost, past.slots[past.lost]))
        await report_orphan(context, past.node, past.lost)
        assert not await open_restored_node(context, past.node), "its end is not ordered yet"
        await reconciler(context).run()
        return await release_lost_in_restore(context, past.known)

    assert not run_with(past.url, way), "it was released by the reconciler"
    assert row_of(past.url, "select state, waits_for from allocations where id = %s", past.known) == {
        "state": "releasing", "waits_for": "worker",
    }  # fmt: skip
    ended = row_of(past.url, "select payload from outbox where event_type = 'provisioning.releasing.requested'")[
        "payload"
    ]
    assert (ended["reason"], ended["actor_kind"]) == ("lost_in_restore", "admin")
    # What metering credits: the time since the last proof of life.
    credited = credit_of("provisioning.releasing.requested", ended, 1, "last_proof_of_life")
    assert credited is not None
    assert (credited.starts_at, credited.ends_at) == (ended["last_proof_of_life_at"], ended["releasing_at"])
    assert past.slots[past.known] not in [past.create()[1] for _ in range(2)], "its cleanup is not proven"
    run_with(past.url, lambda context: clean_up(context, past.url, past.known))
    assert row_of(past.url, "select state from allocations where id = %s", past.known) == {"state": "released"}
    assert past.create() == ("created", past.slots[past.known])
    assert kept(past.url) == []


@pytest.mark.full
def test_an_allocation_is_not_released_for_an_inventory_of_before(past: Past) -> None:
    run_with(past.url, lambda context: beat(context, past.node, (past.lost, past.slots[past.lost])))
    past.restore()

    async def way(context: Context) -> bool:
        await reconciler(context).run()
        return await release_lost_in_restore(context, past.known)

    assert not run_with(past.url, way)
    assert row_of(past.url, "select state from allocations where id = %s", past.known) == {"state": "active"}


@pytest.mark.full
def test_an_allocation_that_becomes_active_without_a_guest_is_released(past: Past) -> None:
    """Its node answers the task that it had carried out in the lost interval, although a release followed there."""
    starting = create_allocation(past.url, past.seeded, gpus=1)
    past.restore()

    async def way(context: Context) -> list[str]:
        states = []
        await beat(context, past.node, *past.held)
        await reconciler(context).run()
        assert slots_out_of_service(past.url) == list(range(8)), "it may have a guest or none"
        await provision(context, past.url, starting)
        for _ in range(2):
            await reconciler(context).run()
            states.append(row_of(past.url, "select state from allocations where id = %s", starting)["state"])
            await beat(context, past.node, *past.held)
        return states

    assert run_with(past.url, way) == ["active", "releasing"]
    run_with(past.url, lambda context: clean_up(context, past.url, starting))
    assert slots_out_of_service(past.url) == past.slots[past.lost]


@pytest.mark.full
def test_an_inventory_of_before_the_restore_opens_nothing(past: Past) -> None:
    """Also one that arrives late, and one that the restored rows had."""
    before: list[datetime] = []

    async def look(context: Context) -> None:
        before.append(await beat(context, past.node, (past.known, past.slots[past.known])))

    run_with(past.url, look)
    past.restore()
    past.reconcile()
    run_with(past.url, lambda context: beat(context, past.node, (past.known, past.slots[past.known]), after=before[0]))
    past.reconcile()
    assert not run_with(past.url, lambda context: open_restored_node(context, past.node))
    assert past.create() == ("no_room", [])
    assert slots_out_of_service(past.url) == list(range(8))


def test_a_node_is_not_opened_before_all_that_is_unknown_on_it_is_recorded(past: Past) -> None:
    past.restore()

    async def way(context: Context) -> tuple[bool, bool]:
        await beat(context, past.node, *past.held)
        early = await open_restored_node(context, past.node)
        await reconciler(context).run()
        return early, await open_restored_node(context, past.node)

    assert run_with(past.url, way) == (False, False), "the second time it was open already"
    assert slots_out_of_service(past.url) == past.slots[past.lost]


@pytest.mark.full
def test_what_else_keeps_a_slot_out_of_service_keeps_it_afterwards(past: Past) -> None:
    with connect(past.url) as connection:
        unit = row_of(past.url, "select unit from slots where slot_index = 7")["unit"]
        connection.execute(
            "insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by) values (%s, 7, %s, 'hot', 'a')",
            (past.node, unit),
        )
        connection.execute("select keep_slots_v2(%s)", (past.node,))
        connection.execute("update slots set state = 'out_of_service', reason = 'by hand' where slot_index = 6")
        connection.execute("select refresh_node_fit(%s)", (past.node,))
    past.restore()
    with connect(past.url) as connection:
        # The quarantine is lifted while the inventory is awaited: the slot stays out of service all the same.
        connection.execute("update slot_quarantines set returned_at = clock_timestamp(), returned_by = 'a', note = 'n'")
        connection.execute("select keep_slots_v2(%s)", (past.node,))
    assert slots_out_of_service(past.url) == list(range(8))
    run_with(past.url, lambda context: beat(context, past.node, *past.held))
    past.reconcile()
    assert slots_out_of_service(past.url) == sorted({*past.slots[past.lost], 6})


@pytest.mark.full
def test_silent_nodes_stay_closed_and_are_listed(past: Past) -> None:
    past.restore()
    listed = berth("restore", "nodes", "-o", "json", BERTH_DATABASE_URL=past.url)
    assert listed.returncode == 0, listed.stderr
    assert [node["id"] for node in json.loads(listed.stdout)] == [str(past.node)]
    assert "slice" in berth("restore", "nodes", BERTH_DATABASE_URL=past.url).stdout
    # A second restore, in which nothing changed, awaits the same inventory anew.
    past.restore()
    ((epochs, awaited),) = rows_of(
        past.url, "select (select count(*) from restores), count(*) from awaited_inventories w join restores r using (epoch)"
        " where r.begun_at = (select max(begun_at) from restores)"
    )  # fmt: skip
    assert (epochs, awaited) == (2, 1)
    run_with(past.url, lambda context: beat(context, past.node, *past.held))
    past.reconcile()
    assert "no node is awaited" in berth("restore", "nodes", BERTH_DATABASE_URL=past.url).stdout


def test_nodes_are_closed_only_while_a_restore_is_open(past: Past) -> None:
    with connect(past.url) as connection, pytest.raises(psycopg.DatabaseError, match="is not open") as refused:
        connection.execute("select restore_close_nodes(%s)", (uuid.uuid4(),))
    assert refused.value.sqlstate == "BR001"
