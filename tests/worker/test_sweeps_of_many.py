"""Sweepers with more to do than one batch holds."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from migrations.roles import Role
from node_agent.protocol import Heartbeat, HeldAllocation, HeldInventory
from orchestrator.nodes.commands.heartbeat import record_heartbeat
from orchestrator.operations.execution import Context
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import connect, create_allocation, seed
from tests.databases import as_role
from tests.reservations.holding import ReservationClient, as_client, seed_with_seats
from worker.sweepers import retention
from worker.sweepers.lost_workflows import WorkflowRescuer
from worker.sweepers.offline_nodes import mark_silent_nodes_offline
from worker.sweepers.reconciliation import InventoryReconciler
from worker.sweepers.reservations import sweep_overdue_holds, sweep_retired_reservations
from worker.sweepers.retention import sweep_deleted_keys, sweep_operations
from worker.webhooks import deliveries
from worker.webhooks.deliveries import sweep_webhook_deliveries
from worker.workflows.starting import WorkflowStarter, WorkflowStatus

MANY = 5
BATCH = 2
ROUNDS = 3


def test_one_sweep_retires_several_batches_of_operations(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", BATCH)
    with connect(database_url) as connection:
        connection.execute(
            "insert into operations (scope, key, fingerprint, status, code, body, retire_after)"
            " select uuidv7(), 'k' || n, decode(repeat('00', 32), 'hex'), 201, 'ok', '', clock_timestamp() - interval '1 s'"
            " from generate_series(1, %s) n",
            (MANY,),
        )
    run_with(as_role(database_url, Role.WORKER), sweep_operations)
    assert rows_of(database_url, "select key from operations") == []


def test_one_sweep_retires_several_batches_of_reservations_and_leaves_the_others(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def sweep(client: ReservationClient) -> None:
        held = [await client.held(f"slot:{seeded.nodes[0].id}:{number}") for number in range(MANY + 1)]
        for one in held[:MANY]:
            await client.cancel(one)
        with connect(database_url) as connection:
            connection.execute("update reservations set retire_after = clock_timestamp() where state = 'cancelled'")
        await sweep_retired_reservations(client.context, BATCH)
        assert rows_of(database_url, "select id from reservations") == [(held[-1],)]

    as_client(database_url, seeded, sweep)


def test_overdue_holds_are_expired_in_as_many_rounds_as_their_number_needs(database_url: str) -> None:
    seeded = seed_with_seats(database_url)

    async def sweep(client: ReservationClient) -> None:
        held = [await client.held(f"slot:{seeded.nodes[0].id}:{number}") for number in range(MANY)]
        with connect(database_url) as connection:
            connection.execute(
                "update reservations set expires_at = clock_timestamp() - interval '1 ms',"
                " hold_until = clock_timestamp() - interval '1 ms'"
            )
        for rounds in range(1, ROUNDS + 1):
            await sweep_overdue_holds(client.context, BATCH)
            ended = [client.state(one) for one in held].count("expired")
            assert ended == min(MANY, rounds * BATCH)

    as_client(database_url, seeded, sweep)


def test_one_sweep_forgets_several_batches_of_deliveries(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "BATCH_MAX", BATCH)
    with connect(database_url) as connection:
        connection.execute(
            """with made as (
                insert into webhooks (id, url, types, signing, keys, position, versions_max, numbered)
                values (uuidv7(), 'https://hooks.example.com', '{}', 'hmac', '[]', 0, 1000, 5) returning id)
            insert into webhook_deliveries (webhook_id, number, event_id, event_type, state, ended_at, next_attempt_at)
            select id, n, uuidv7(), 'node.online', 'succeeded', clock_timestamp() - interval '1 h', null
            from made, generate_series(1, 5) n"""
        )
    run_with(as_role(database_url, Role.WEBHOOKS), lambda context: sweep_webhook_deliveries(context, 60.0, 100))
    assert rows_of(database_url, "select number from webhook_deliveries") == []


def test_silent_nodes_are_marked_in_as_many_rounds_as_their_number_needs(database_url: str) -> None:
    seed(database_url, slice_nodes=MANY)
    with connect(database_url) as connection:
        connection.execute("update nodes set last_seen_at = clock_timestamp() - interval '1 min'")

    async def sweep(context: Context) -> None:
        for rounds in range(1, ROUNDS + 1):
            await mark_silent_nodes_offline(context, 30.0, BATCH)
            found = rows_of(database_url, "select count(*) from nodes where not online")
            assert found == [(min(MANY, rounds * BATCH),)]

    run_with(as_role(database_url, Role.WORKER), sweep)


def test_the_reconciler_continues_behind_the_last_node_and_begins_again(database_url: str) -> None:
    seeded = seed(database_url, slice_nodes=MANY)

    async def sweep(context: Context) -> None:
        reconciler = InventoryReconciler(context, nodes_max=BATCH, limit=10, inventories_min=3)
        for expected in (MANY, 2 * MANY):
            for node in seeded.nodes:
                beat = Heartbeat(agent_version="1", driver="noop", allocations=[], inventory=None)
                after = (await record_heartbeat(context, node.id, beat, sandbox_allowed=True)).server_time
                held = [HeldAllocation(allocation_id=uuid.uuid4(), slots=[1], fence=7)]
                inventory = HeldInventory(gathered_after=after, allocations=held)
                await record_heartbeat(
                    context, node.id, beat.model_copy(update={"inventory": inventory}), sandbox_allowed=True
                )
            for _ in range(ROUNDS):
                await reconciler.run()
            assert rows_of(database_url, "select count(*) from node_orphans") == [(expected,)]

    run_with(as_role(database_url, Role.WORKER), sweep)


class AskedTemporal:
    """In the place of a `WorkflowStarter`: records which workflows are asked about, and answers that they run."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def status(self, workflow_id: str) -> WorkflowStatus:
        """They run."""
        self.asked.append(workflow_id)
        return WorkflowStatus.RUNNING

    async def signal_task_finished(self, workflow_id: str, task_id: uuid.UUID) -> bool:
        """They are there."""
        return True


def seed_waits(url: str) -> None:
    """Allocations whose event was handed over, so that their workflows are asked about."""
    seeded = seed(url)
    for seconds in (30, 10, 20, 40, 15):
        create_allocation(url, seeded, start_seconds=seconds)
    with connect(url) as connection:
        connection.execute("select log_advance(1000)")
        connection.execute("insert into consumer_positions (consumer, version) values ('berth-worker', 1000)")


def lost_workflows(context: Context, starter: Any, limit: int) -> WorkflowRescuer:
    """A rescuer without patience."""
    return WorkflowRescuer(
        context, cast(WorkflowStarter, starter), consumer="berth-worker", patience_seconds=0.0, limit=limit
    )


def test_lost_workflows_are_looked_for_behind_the_last_one_and_from_the_beginning_again(database_url: str) -> None:
    seed_waits(database_url)

    async def sweep(context: Context) -> None:
        temporal = AskedTemporal()
        sweeper = lost_workflows(context, temporal, BATCH)
        for _ in range(ROUNDS):
            await sweeper.run()
        first = list(temporal.asked)
        assert len(set(first)) == MANY == len(first)
        for _ in range(ROUNDS):
            await sweeper.run()
        assert temporal.asked == first * 2

    run_with(as_role(database_url, Role.WORKER), sweep)


class FailingClient:
    """In the place of Temporal's client: every call ends with this status."""

    def __init__(self, status: RPCStatusCode, message: str = "no") -> None:
        self._error = RPCError(message, status, b"")

    def get_workflow_handle(self, workflow_id: str) -> FailingClient:
        """A handle whose calls fail."""
        return self

    async def describe(self, rpc_timeout: timedelta) -> WorkflowExecutionStatus:
        """Fails."""
        raise self._error

    async def signal(self, name: str, argument: str, rpc_timeout: timedelta) -> None:
        """Fails."""
        raise self._error


def starter_over(client: FailingClient) -> WorkflowStarter:
    """A starter whose Temporal fails."""
    return WorkflowStarter(cast(Client, client), "queue", 10.0, str)


@pytest.mark.parametrize("status", [status for status in RPCStatusCode if status is not RPCStatusCode.OK])
def test_only_not_found_means_that_a_workflow_is_absent(status: RPCStatusCode) -> None:
    starter = starter_over(FailingClient(status))
    if status is RPCStatusCode.NOT_FOUND:
        assert asyncio.run(starter.status("one")) is WorkflowStatus.UNKNOWN
        assert not asyncio.run(starter.signal_task_finished("one", uuid.uuid4()))
        return
    with pytest.raises(RPCError):
        asyncio.run(starter.status("one"))
    with pytest.raises(RPCError):
        asyncio.run(starter.signal_task_finished("one", uuid.uuid4()))


def test_a_missing_namespace_does_not_mean_that_a_workflow_is_absent() -> None:
    starter = starter_over(FailingClient(RPCStatusCode.NOT_FOUND, "Namespace default is not found."))
    with pytest.raises(RPCError):
        asyncio.run(starter.status("one"))


def test_a_wait_is_not_taken_over_while_temporal_is_unavailable(database_url: str) -> None:
    seed_waits(database_url)
    before = rows_of(database_url, "select id, state, row_version, waits_until from allocations order by id")

    async def sweep(context: Context) -> None:
        sweeper = lost_workflows(context, starter_over(FailingClient(RPCStatusCode.UNAVAILABLE)), BATCH)
        with pytest.raises(RPCError):
            await sweeper.run()

    run_with(as_role(database_url, Role.WORKER), sweep)
    assert rows_of(database_url, "select id, state, row_version, waits_until from allocations order by id") == before


def test_deleted_keys_are_forgotten_in_batches(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", BATCH)
    seeded = seed(database_url)
    with connect(database_url) as connection:
        connection.execute(
            "insert into kv_keys (namespace, key, value, event_id, mark) select %s, ('k' || n)::bytea, null, uuidv7(), 0"
            " from generate_series(1, %s) n",
            (seeded.tenant_id, MANY),
        )

    async def sweep(context: Context) -> None:
        for _ in range(MANY):
            await sweep_deleted_keys(context)

    run_with(as_role(database_url, Role.WORKER), sweep)
    assert rows_of(database_url, "select key from kv_keys") == []
