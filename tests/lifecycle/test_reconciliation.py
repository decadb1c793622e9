"""What nodes say they hold against what they should hold: found, told, decided by an admin, and never by silence."""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.verification.all_checks import run_checks
from node_agent.protocol import Envelope as WireEnvelope
from node_agent.protocol import FailureCode, Heartbeat, HeldAllocation, HeldInventory, TaskBody, open_envelope
from orchestrator.commands.accept_task_result import accept_task_result
from orchestrator.commands.adopt_orphan import adopt_orphan
from orchestrator.commands.advance_orphan import advance_orphan
from orchestrator.commands.begin_provisioning import begin_provisioning
from orchestrator.commands.destroy_orphan import destroy_orphan
from orchestrator.commands.end_absence import end_absence
from orchestrator.commands.note_absence import note_absence
from orchestrator.commands.record_heartbeat import record_heartbeat
from orchestrator.commands.report_orphan import report_orphan
from orchestrator.domain.orphans import DestroyStep, DestroyTask, OrphanState, next_step, slots_kept
from orchestrator.domain.states import LIVE_TASK_STATES, TaskState
from orchestrator.execution import Context, Limits
from orchestrator.queries.compare_inventories import compare_inventories, find_undecided_orphans
from orchestrator.store.operations import Operation
from tests.lifecycle.driving import (
    ADMIN,
    NOT_WIPED,
    WIPED,
    clean_up,
    completed,
    failed,
    provision,
    release,
    row_of,
    rows_of,
    run_with,
)
from tests.lifecycle.invariants import violations
from tests.lifecycle.seeding import SLOTS, Seeded, connect, create_allocation, seed, try_create

EVERYTHING = uuid.UUID(int=0)


def admin_operation() -> Operation:
    """A write of an admin's under a key of its own."""
    return Operation(uuid.uuid4(), uuid.uuid4().hex, b"\0" * 32, 3600.0)


async def beat(
    context: Context, node_id: uuid.UUID, *held: tuple[uuid.UUID, list[int]] | None, after: datetime | None = None
) -> datetime:
    """A heartbeat as an agent sends it; answers the server's time. `held` None: no inventory. `after`: now, as told."""
    inventory = None
    if None not in held:
        named = [HeldAllocation(allocation_id=a, slots=s, fence=7) for a, s in held if (a, s)]  # type: ignore[misc]
        told = after or await beat(context, node_id, None)
        inventory = HeldInventory(gathered_after=told, allocations=named)
    heartbeat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=inventory)
    return (await record_heartbeat(context, node_id, heartbeat)).server_time


async def reconcile(context: Context) -> list[uuid.UUID]:
    """One round of the reconciler's; the orphans it found."""
    found = await compare_inventories(context, EVERYTHING, nodes_max=10, refresh_seconds=0, limit=10)
    reported = [await report_orphan(context, one.node_id, one.allocation_id) for one in found.unexplained]
    for missed in found.missed:
        await note_absence(context, missed, 3)
    for over in found.over:
        await end_absence(context, over)
    for orphan in await find_undecided_orphans(context, 10):
        await advance_orphan(context, orphan)
    return [orphan for orphan in reported if orphan is not None]


def orphan_task(url: str) -> dict[str, Any]:
    """The row of the task issued last for an orphan."""
    return row_of(url, "select * from node_tasks where orphan_id is not null order by fence desc limit 1")


def slots_out_of_service(url: str) -> list[int]:
    """Indexes of slots that serve nobody."""
    return [row[0] for row in rows_of(url, "select slot_index from slots where state <> 'in_service' order by 1")]


def kept(url: str) -> list[str]:
    """What berth verify finds, besides what needs the relay."""
    return [str(broken) for broken in (*violations(url), *(v for v in run_checks(url) if not v.kept))]


async def end(context: Context, url: str, seeded: Seeded, allocation_id: uuid.UUID) -> None:
    """From requested to released, proven."""
    await provision(context, url, allocation_id)
    await release(context, seeded, allocation_id)
    await clean_up(context, url, allocation_id)


def test_what_ended_and_was_proven_is_an_orphan_where_it_still_is(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    ended, unknown = create_allocation(database_url, seeded, gpus=2), uuid.uuid4()

    async def way(context: Context) -> None:
        await end(context, database_url, seeded, ended)
        await beat(context, node, (ended, [0, 1]), (unknown, [5]))
        assert len(await reconcile(context)) == 2
        assert await reconcile(context) == [], "each is found once"

    run_with(database_url, way)
    found = rows_of(
        database_url, "select allocation_id, slots, fence, state, waits_for from node_orphans order by slots"
    )
    assert found == [(ended, [0, 1], 7, "reported", "operator"), (unknown, [5], 7, "reported", "operator")]
    assert slots_out_of_service(database_url) == [0, 1, 5]
    events = rows_of(
        database_url, "select payload ->> 'allocation_id' from outbox where event_type = 'node.orphan_found'"
    )
    assert {event[0] for event in events} == {str(ended), str(unknown)}
    assert rows_of(database_url, "select count(*) from audit where action = 'node.orphan_found'") == [(2,)]
    told = rows_of(database_url, "select allocation_id from allocation_timeline where code = 'orphan_found'")
    assert told == [(ended,)]
    assert kept(database_url) == []
    with connect(database_url) as connection:
        assert try_create(connection, seeded, gpus=8) is None, "the whole node is no longer to be had"
        assert try_create(connection, seeded, gpus=4) is not None
        held = connection.execute("select units from claims where closed_at is null").fetchone()
        assert held is not None
    assert kept(database_url) == []


def test_no_inventory_and_no_live_allocation_make_no_orphan(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    ended, failing, live = (create_allocation(database_url, seeded) for _ in range(3))

    async def way(context: Context) -> None:
        await provision(context, database_url, live)
        await provision(context, database_url, ended)
        await provision(context, database_url, failing)
        await release(context, seeded, failing)
        told = await beat(context, node, None)
        await release(context, seeded, ended)
        await clean_up(context, database_url, ended)
        assert await reconcile(context) == []
        # Gathered before the proof, whatever it arrived after.
        await beat(context, node, (ended, [0]), (live, [1]), (failing, [2]), after=told)
        assert await reconcile(context) == []
        # A time that the server never told.
        await beat(context, node, (ended, [0]), after=told + timedelta(days=1))
        assert await reconcile(context) == []
        await beat(context, node, None)
        assert await reconcile(context) == []
        await beat(context, node, (live, [1]), (failing, [2]))
        assert await reconcile(context) == []

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []


def test_a_later_report_of_an_older_look_moves_nothing_back(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        earlier = await beat(context, node, None)
        await beat(context, node)
        before = row_of(database_url, "select inventory, inventory_after from nodes")
        await beat(context, node, (uuid.uuid4(), [0]), after=earlier)
        assert row_of(database_url, "select inventory, inventory_after from nodes") == before
        assert await reconcile(context) == []

    run_with(database_url, way)


def test_an_orphan_without_known_slots_keeps_the_whole_node(database_url: str) -> None:
    seeded = seed(database_url)

    async def way(context: Context) -> None:
        await beat(context, seeded.nodes[0].id, (uuid.uuid4(), []))
        await reconcile(context)

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == list(range(SLOTS))
    with connect(database_url) as connection:
        assert try_create(connection, seeded) is None


def test_destroyed_by_proof_alone_and_under_a_newer_fence(database_url: str) -> None:
    """Failed and expired attempts are followed by others; the node's proof gives the slots back."""
    seeded = seed(database_url)
    node, unknown = seeded.nodes[0].id, uuid.uuid4()

    async def way(context: Context) -> None:
        await beat(context, node, (unknown, [3]))
        (orphan,) = await reconcile(context)
        ordered = admin_operation()
        answer = await destroy_orphan(context, ordered, ADMIN, node, orphan, reason="it is nobody's")
        assert (answer.status, json.loads(answer.body)["state"]) == (202, "destroying")
        assert (await destroy_orphan(context, ordered, ADMIN, node, orphan, reason="it is nobody's")).replayed
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
        assert await advance_orphan(context, orphan) is None, "it waits for the node"
        first = orphan_task(database_url)
        trusted = {context.signer.key_id: context.signer._key.public_key()}  # type: ignore[union-attr]
        body: TaskBody = open_envelope(WireEnvelope.model_validate(first["envelope"]), trusted)
        assert (body.allocation_id, body.parameters["slots"], body.type) == (unknown, [3], "slice.vm_release")
        assert first["allocation_id"] is None
        assert first["fence"] > row_of(database_url, "select coalesce(max(fence), 0) as fence from claims")["fence"]

        await accept_task_result(context, node, 1, first["id"], failed(first, FailureCode.CLEANUP_FAILED))
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
        second = orphan_task(database_url)
        assert second["fence"] > first["fence"]
        with connect(database_url) as connection:
            connection.execute("update node_tasks set expires_at = clock_timestamp() where id = %s", (second["id"],))
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
        late = await accept_task_result(context, node, 1, second["id"], completed(second, WIPED))
        assert (late.applied, late.reason) == (False, "superseded")
        assert slots_out_of_service(database_url) == [3]

        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
        third = orphan_task(database_url)
        assert (await accept_task_result(context, node, 1, third["id"], completed(third, WIPED))).applied
        assert slots_out_of_service(database_url) == [3], "the proof is weighed by the worker"
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYED
        assert slots_out_of_service(database_url) == []
        again = await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="again")
        assert again.status == 409
        assert await reconcile(context) == [], "the inventory is older than the proof"
        await beat(context, node, (unknown, [3]))
        assert len(await reconcile(context)) == 1, "and what is there after the proof is another orphan"

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == [3]
    assert rows_of(database_url, "select count(*) from audit where action = 'node.orphan_destroy'") == [(1,)]
    assert kept(database_url) == []


def test_when_every_attempt_failed_an_operator_is_asked_again(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await beat(context, node, (uuid.uuid4(), [3]))
        (orphan,) = await reconcile(context)
        for _ in range(2):
            await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="it is nobody's")
            for _ in range(2):
                assert await advance_orphan(context, orphan) is OrphanState.DESTROYING
                task = orphan_task(database_url)
                unproven = failed(task) if task["attempt"] == 1 else completed(task, NOT_WIPED)
                assert (await accept_task_result(context, node, 1, task["id"], unproven)).applied
            assert await advance_orphan(context, orphan) is OrphanState.REPORTED
            found = row_of(database_url, "select failure_code, waits_for from node_orphans")
            assert found == {"failure_code": "destroy_exhausted", "waits_for": "operator"}

    run_with(database_url, way, limits=Limits(release_attempts_max=2))
    assert slots_out_of_service(database_url) == [3]


def test_a_task_under_way_on_the_same_slots_goes_first(database_url: str) -> None:
    """The newer fence of a destruction would end a live allocation's provision of that slot."""
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    live = create_allocation(database_url, seeded)

    async def way(context: Context) -> None:
        await begin_provisioning(context, live, "wf")
        (slot,) = [
            row[0]
            for row in rows_of(
                database_url,
                """select lower(part) - n.unit_base from claims c
            join nodes n on n.id = c.node_id, unnest(c.units) part""",
            )
        ]
        await beat(context, node, (uuid.uuid4(), [slot]))
        (orphan,) = await reconcile(context)
        await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="it is nobody's")
        assert await advance_orphan(context, orphan) is None
        with connect(database_url) as connection:
            connection.execute("update node_tasks set state = 'superseded', finished_at = clock_timestamp()")
        assert await advance_orphan(context, orphan) is OrphanState.DESTROYING

    run_with(database_url, way)


def test_adopted_it_is_left_alone_until_its_allocation_is_over(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=2)

    async def way(context: Context) -> None:
        live = create_allocation(database_url, seeded)
        home = row_of(database_url, "select node_id from allocations where id = %s", live)["node_id"]
        elsewhere = next(n.id for n in seeded.nodes if n.id != home)
        await provision(context, database_url, live)
        await beat(context, home, (live, [0]), (uuid.uuid4(), [6]))
        (orphan,) = await reconcile(context)
        for allocation_id in (uuid.uuid4(), live):
            where = elsewhere if allocation_id == live else home
            refused = await adopt_orphan(
                context, admin_operation(), ADMIN, where, orphan, reason="r", allocation_id=allocation_id
            )
            assert refused.status == (404 if where == elsewhere else 409)
        answer = await adopt_orphan(
            context, admin_operation(), ADMIN, home, orphan, reason="its second disk", allocation_id=live
        )
        adopted = json.loads(answer.body)
        assert (adopted["state"], adopted["adopted_for"], adopted["decided_by"]) == (
            "adopted", str(live), f"admin:{ADMIN.id}",
        )  # fmt: skip
        assert await reconcile(context) == []
        assert row_of(database_url, "select state from node_orphans")["state"] == "adopted"
        await release(context, seeded, live)
        await clean_up(context, database_url, live)
        await reconcile(context)
        found = row_of(database_url, "select state, failure_code from node_orphans")
        assert found == {"state": "reported", "failure_code": "adopter_over"}
        await adopt_orphan(context, admin_operation(), ADMIN, home, orphan, reason="leave it", allocation_id=None)
        await reconcile(context)
        assert row_of(database_url, "select state from node_orphans")["state"] == "adopted"
        await destroy_orphan(context, admin_operation(), ADMIN, home, orphan, reason="no more")
        refused = await adopt_orphan(context, admin_operation(), ADMIN, home, orphan, reason="r", allocation_id=None)
        assert refused.status == 409

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == [6]
    assert kept(database_url) == []


def test_what_is_missing_on_its_node_is_told_and_nothing_else_happens(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id
    missing, there = create_allocation(database_url, seeded), create_allocation(database_url, seeded)

    def codes() -> list[str]:
        found = rows_of(database_url, "select code from allocation_timeline where code like '%%on_node' order by id")
        return [row[0] for row in found]

    async def way(context: Context) -> None:
        before_active = await beat(context, node, None)
        for allocation_id in (missing, there):
            await provision(context, database_url, allocation_id)
        await beat(context, node, after=before_active)
        await reconcile(context)
        assert rows_of(database_url, "select from allocation_absences") == [], "the node looked before it was active"
        states = rows_of(database_url, "select * from allocations order by id")
        for inventories in (1, 2, 3, 4):
            await beat(context, node, (there, [1]))
            for _ in range(2):
                await reconcile(context)
            assert codes() == (["missing_on_node"] if inventories >= 3 else [])
            counted = row_of(database_url, "select allocation_id, inventories from allocation_absences")
            assert counted == {"allocation_id": missing, "inventories": inventories}
        for _ in range(2):
            await beat(context, node, None)
            await reconcile(context)
        assert rows_of(database_url, "select * from allocations order by id") == states
        await beat(context, node, (there, [1]), (missing, [0]))
        await reconcile(context)
        assert codes() == ["missing_on_node", "back_on_node"]
        assert rows_of(database_url, "select from allocation_absences") == []
        for _ in range(3):
            await beat(context, node, (there, [1]))
            await reconcile(context)
        assert codes()[2:] == ["missing_on_node"]
        await release(context, seeded, missing)
        await reconcile(context)
        assert rows_of(database_url, "select from allocation_absences") == []

    run_with(database_url, way)
    assert slots_out_of_service(database_url) == []
    assert kept(database_url) == []


@given(
    state=st.sampled_from(TaskState), overdue=st.booleans(), proven=st.booleans(), attempts=st.integers(1, 5),
    attempts_max=st.integers(1, 5), disturbs=st.booleans(),
)  # fmt: skip
def test_every_standing_of_a_destruction_has_a_next_step(
    state: TaskState, overdue: bool, proven: bool, attempts: int, attempts_max: int, disturbs: bool
) -> None:
    task = DestroyTask(state, overdue, (WIPED if proven else NOT_WIPED) if state is TaskState.COMPLETED else None)
    step = next_step(task, attempts, attempts_max, disturbs=disturbs)
    assert (step is DestroyStep.CONCLUDE) == (state is TaskState.COMPLETED and proven)
    assert (step is DestroyStep.EXPIRE) == (state in LIVE_TASK_STATES and overdue)
    if step is DestroyStep.ISSUE:
        assert attempts < attempts_max
        assert not disturbs
        assert state not in LIVE_TASK_STATES
    if step is DestroyStep.GIVE_UP:
        assert attempts >= attempts_max
        assert state not in LIVE_TASK_STATES


@given(reported=st.lists(st.integers(-2, 70)), known=st.lists(st.integers(0, 7)), count=st.integers(1, 62))
def test_an_orphan_never_keeps_fewer_slots_than_it_may_be_on(reported: list[int], known: list[int], count: int) -> None:
    found = slots_kept(reported, known, count)
    assert found
    assert set(found) <= set(range(count))
    assert set(found) >= {slot for slot in reported + known if 0 <= slot < count}
