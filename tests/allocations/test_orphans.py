"""What an admin decides about an orphan: destroyed by proof alone, or adopted, and nothing by silence."""

from __future__ import annotations

import json
import uuid

from hypothesis import given
from hypothesis import strategies as st

from migrations.roles import Role
from node_agent.protocol import Envelope as WireEnvelope
from node_agent.protocol import FailureCode, TaskBody, open_envelope
from orchestrator.allocations.commands.provision import begin_provisioning
from orchestrator.allocations.commands.task_results import accept_task_result
from orchestrator.nodes.commands.orphan_progress import advance_orphan
from orchestrator.nodes.commands.orphans import adopt_orphan, destroy_orphan
from orchestrator.nodes.orphan_states import DestroyStep, DestroyTask, OrphanState, next_step, slots_kept
from orchestrator.operations.execution import Context, Limits
from orchestrator.tasks.states import LIVE_TASK_STATES, TaskState
from tests.allocations.driving import (
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
from tests.allocations.reconciling import admin_operation, beat, kept, orphan_task, reconcile, slots_out_of_service
from tests.allocations.seeding import connect, create_allocation, seed
from tests.databases import as_role


def test_destroyed_by_proof_alone_and_under_a_newer_fence(database_url: str) -> None:
    """Failed and expired attempts are followed by others; the node's proof gives the slots back."""
    seeded = seed(database_url)
    node, unknown = seeded.nodes[0].id, uuid.uuid4()

    async def way(context: Context) -> None:
        await beat(context, node, (unknown, [3]))
        (orphan,) = await reconcile(context)
        ordered = admin_operation()
        answer = await destroy_orphan(context, ordered, ADMIN, node, orphan, reason="no allocation owns it")
        assert (answer.status, json.loads(answer.body)["state"]) == (202, "destroying")
        assert (await destroy_orphan(context, ordered, ADMIN, node, orphan, reason="no allocation owns it")).replayed
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


def test_each_process_does_its_part_under_its_own_role(database_url: str) -> None:
    node, unknown = seed(database_url).nodes[0].id, uuid.uuid4()
    worker, node_api, public_api = (as_role(database_url, r) for r in (Role.WORKER, Role.NODE_API, Role.PUBLIC_API))
    run_with(node_api, lambda context: beat(context, node, (unknown, [3])))
    (orphan,) = run_with(worker, reconcile)
    assert slots_out_of_service(database_url) == [3]
    run_with(node_api, lambda context: beat(context, node, (unknown, [3, 4])))
    assert run_with(worker, reconcile) == []
    assert slots_out_of_service(database_url) == [3, 4]
    run_with(
        public_api,
        lambda context: destroy_orphan(
            context.for_platform(), admin_operation(), ADMIN, node, orphan, reason="no allocation owns it"
        ),
    )
    assert run_with(worker, lambda context: advance_orphan(context, orphan)) is OrphanState.DESTROYING
    task = orphan_task(database_url)
    run_with(node_api, lambda context: accept_task_result(context, node, 1, task["id"], completed(task, WIPED)))
    assert run_with(worker, lambda context: advance_orphan(context, orphan)) is OrphanState.DESTROYED
    assert slots_out_of_service(database_url) == []


def test_when_every_attempt_failed_an_operator_is_asked_again(database_url: str) -> None:
    seeded = seed(database_url)
    node = seeded.nodes[0].id

    async def way(context: Context) -> None:
        await beat(context, node, (uuid.uuid4(), [3]))
        (orphan,) = await reconcile(context)
        for _ in range(2):
            await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="no allocation owns it")
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
        await destroy_orphan(context, admin_operation(), ADMIN, node, orphan, reason="no allocation owns it")
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
