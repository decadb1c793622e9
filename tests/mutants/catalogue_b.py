"""Mutants of the schema, of saved positions, of the agent's at-most-once rules and of deadlines after locks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CHECKS = "tests/schema/test_checks.py"
UNIQUENESS = "tests/schema/test_uniqueness.py"
REFERENCES = "tests/schema/test_references.py"
TRIGGERS = "tests/schema/test_triggers.py"

SQL = "migrations/sql/"

SCHEMA = [
    Mutant("allocations leave a final state", "allocations", SQL + "0001_allocations.sql",
           "('release_failed', 'releasing')\n", "('release_failed', 'releasing'), ('released', 'releasing')\n", (TRIGGERS,)),
    Mutant("an allocation's state changes without its guard", "allocations", SQL + "0001_allocations.sql",
           "new.row_version <> old.row_version + 1", "new.row_version < old.row_version", (TRIGGERS,)),
    Mutant("an allocation begins in any state", "allocations", SQL + "0001_allocations.sql",
           "for each row when (new.state <> 'requested')", "for each row when (false)", (TRIGGERS,)),
    Mutant("a create runs twice", "allocations", SQL + "0005_history.sql",
           "creation_runs_once unique (operation_key, tenant_id)", "creation_runs_once unique (operation_key, id)",
           (UNIQUENESS,)),
    Mutant("a create's key counts for all tenants", "tenants", SQL + "0005_history.sql",
           "creation_runs_once unique (operation_key, tenant_id)", "creation_runs_once unique (operation_key)", (UNIQUENESS,)),
    Mutant("a version has two transitions", "allocations", SQL + "0001_allocations.sql",
           "create unique index timeline_transition_once", "create index timeline_transition_once", (UNIQUENESS,)),
    Mutant("a state waits for nothing", "allocations", SQL + "0001_allocations.sql",
           "constraint final_waits_for_nothing check (", "constraint final_waits_for_nothing check (true or ", (CHECKS,)),
    Mutant("a release has no deadline", "allocations", SQL + "0001_allocations.sql",
           "or waits_until is not null)),", "or true)),", (CHECKS,)),
    Mutant("an operation's key counts for all scopes", "operations", SQL + "0001_allocations.sql",
           "operation_runs_once primary key (scope, key)", "operation_runs_once primary key (key)", (UNIQUENESS,)),
    Mutant("an operation's key has no bound", "operations", SQL + "0001_allocations.sql",
           "length(key) between 1 and 255", "length(key) >= 1", (CHECKS,)),
    Mutant("a tombstone is any answer", "operations", SQL + "0003_operations.sql",
           "code is not null and code = 'operation_fenced'", "code is not null", (CHECKS,)),
    Mutant("operations have no bound", "operations", SQL + "0003_operations.sql",
           "room_left('operations', bound) < 0", "room_left('operations', bound) < -1", (TRIGGERS,)),
    Mutant("deleted operations stay counted", "operations", SQL + "0003_operations.sql",
           "select -count(*) into changed", "select 0 into changed", (TRIGGERS,)),
    Mutant("ended holds stay counted", "reservations", SQL + "0003_operations.sql",
           "holds := holds - more.holds", "holds := holds", (TRIGGERS,)),
    Mutant("rights overlap in time", "placement", SQL + "0001_claims.sql",
           "during with &&) where (booked)", "during with =) where (booked)", (UNIQUENESS,)),
    Mutant("a unit has two occupants", "placement", SQL + "0001_claims.sql",
           "(units with &&) where (occupied)", "(units with &&) where (occupied and booked)", (UNIQUENESS,)),
    Mutant("a claim includes its end", "placement", SQL + "0001_claims.sql",
           "and not upper_inc(during)", "", (CHECKS,)),
    Mutant("a closed claim is occupied", "placement", SQL + "0001_claims.sql",
           "= not (booked or occupied)", "= not booked", (CHECKS,)),
    Mutant("a claim is on a node and a resource", "placement", SQL + "0003_reservations.sql",
           "node_id is null or resource_id is null", "true", (CHECKS,)),
    Mutant("a blocked claim leaves the node's version", "nodes", SQL + "0003_holding.sql",
           "set row_version = row_version + 1 where id = new.node_id", "set row_version = row_version where id = new.node_id",
           (TRIGGERS,)),
    Mutant("two live tasks of an allocation", "tasks", SQL + "0001_tasks.sql",
           "one_live_task on node_tasks (allocation_id) where state in ('queued', 'dispatched')",
           "one_live_task on node_tasks (allocation_id) where state in ('dispatched')", (UNIQUENESS,)),
    Mutant("a completed task has no result", "tasks", SQL + "0001_tasks.sql",
           "state <> 'completed' or result is not null", "true", (CHECKS,)),
    Mutant("a free mask beyond the node", "nodes", SQL + "0001_fleet.sql",
           "free_mask < (1::bigint << slot_count)", "true", (CHECKS,)),
    Mutant("two nodes share units", "nodes", SQL + "0001_fleet.sql",
           "constraint node_units_unique unique,", ",", (UNIQUENESS,)),
    Mutant("a slot belongs to no node", "nodes", SQL + "0001_fleet.sql",
           "node_id    uuid not null references nodes,\n    slot_index", "node_id    uuid not null,\n    slot_index",
           (REFERENCES,)),
    Mutant("a reservation leaves a final state", "reservations", SQL + "0003_reservations.sql",
           "('confirmed', 'released')\n", "('confirmed', 'released'), ('expired', 'confirmed')\n", (TRIGGERS,)),
    Mutant("a hold has no deadline", "reservations", SQL + "0003_reservations.sql",
           "(state = 'hold') <= (expires_at is not null)", "true", (CHECKS,)),
    Mutant("a reservation begins confirmed", "reservations", SQL + "0003_reservations.sql",
           "when (new.state <> 'hold')", "when (new.state not in ('hold', 'confirmed'))", (TRIGGERS,)),
    Mutant("a hold runs twice", "reservations", SQL + "0005_history.sql",
           "reservation_runs_once unique (operation_key, tenant_id)", "reservation_runs_once unique (operation_key, id)",
           (UNIQUENESS,)),
    Mutant("the ledger is emptied", "billing", SQL + "0005_billing.sql",
           "before truncate on ledger for each statement execute",
           "before truncate on ledger for each statement when (false) execute", (TRIGGERS,)),
    Mutant("a usage line is written twice", "billing", SQL + "0005_billing.sql",
           "create unique index ledger_usage_once on ledger (allocation_id)",
           "create unique index ledger_usage_once on ledger (allocation_id, id)", (UNIQUENESS,)),
    Mutant("a ledger line is changed", "billing", SQL + "0005_billing.sql",
           "before update or delete on ledger", "before delete on ledger", (TRIGGERS,)),
    Mutant("a price is changed", "catalogue", SQL + "0005_billing.sql",
           "before update or delete on sku_prices", "before delete on sku_prices", (TRIGGERS,)),
    Mutant("a new price version is not kept", "catalogue", SQL + "0005_billing.sql",
           "after insert or update of price_version on skus", "after insert on skus", (TRIGGERS,)),
    Mutant("an interval is closed twice", "billing", SQL + "0005_billing.sql",
           "if old.ended_at is not null\n       or ", "if ", (TRIGGERS,)),
    Mutant("a payment runs twice", "billing", SQL + "0006_prepaid.sql",
           "create unique index ledger_payment_once", "create index ledger_payment_once", (UNIQUENESS,)),
    Mutant("a withdrawal gives", "billing", SQL + "0006_prepaid.sql",
           "when 'top_up' then 1 else -1", "when 'usage' then -1 else 1", (TRIGGERS,)),
    Mutant("a ledger line leaves the balance", "billing", SQL + "0006_prepaid.sql",
           "on ledger referencing new table as written\n    for each statement",
           "on ledger referencing new table as written\n    for each statement when (false)", (TRIGGERS,)),
]  # fmt: skip

FORGOTTEN = "tests/node_agent/test_journal_memory.py"
AT_MOST_ONCE = "tests/node_agent/test_at_most_once.py"
REVOKED = "tests/node_api/test_revoked_while_waiting.py"
STATE = "node_agent/journal_state.py"
EXECUTOR = "node_agent/executor.py"
DISPATCH = "orchestrator/tasks/store/dispatch.py"

AGENT = [
    Mutant("a task handed out again runs again", "agent", EXECUTOR,
           "if journaled is not None and journaled.body is not None:", "if False:", (AT_MOST_ONCE,)),
    Mutant("an expired task begins when its turn comes", "agent", EXECUTOR,
           "objection = None if run.began_before else time_objection(run.body, self._clock)", "objection = None",
           (AT_MOST_ONCE,)),
    Mutant("a forgotten completed task runs again", "agent", STATE,
           "if newest.completed or (newest.task_id", "if (newest.task_id", (FORGOTTEN,)),
    Mutant("a running task's fence is used by another", "agent", STATE,
           "(newest.task_id != body.task_id and other is not None and other.report is None)", "False", (FORGOTTEN,)),
    Mutant("compaction drops fences", "agent", STATE,
           "yield from self.newest.values()", "yield from ()", (FORGOTTEN,)),
    Mutant("compaction drops that a task began", "agent", STATE,
           "            if task.started:", "            if False:", (FORGOTTEN,)),
    Mutant("compaction drops reports", "agent", STATE,
           "            if task.report is not None:", "            if False:", (FORGOTTEN,)),
    Mutant("unreported tasks are forgotten", "agent", STATE,
           "if task.reported]\n        for old", "if task.report]\n        for old", (FORGOTTEN,)),
    Mutant("the newest reports are forgotten", "agent", STATE,
           "for old in reported[: max(0, len(reported) - REPORTED_KEPT)]:", "for old in reported[REPORTED_KEPT:]:", (FORGOTTEN,)),
    Mutant("reports are kept without bound", "agent", STATE,
           "            del self.tasks[old]", "            pass", (FORGOTTEN,)),
    Mutant("a revoked certificate is served", "nodes", DISPATCH, " and c.revoked_at is null", "", (REVOKED,)),
    Mutant("a certificate of an earlier epoch is served", "nodes", DISPATCH, " and c.node_epoch = n.epoch", "", (REVOKED,)),
    Mutant("a retired node is served", "nodes", DISPATCH, " and n.state <> 'retired'\n    join node_certificates",
           "\n    join node_certificates", (REVOKED,)),
    Mutant("a task of an earlier epoch is served", "tasks", DISPATCH, " and n.epoch = t.node_epoch", "", (REVOKED,)),
]  # fmt: skip

WORKER_POSITIONS = "tests/worker/test_saved_positions.py"
RELAY_POSITION = "tests/outbox_relay/test_saved_position.py"
DURABLE = "worker/consumers/durable.py"
CONSUMING = "worker/consumers/consumer.py"
GIVING_UP = "worker/consumers/giving_up.py"
PUBLISHING = "outbox_relay/publishing.py"

POSITIONS = [
    Mutant("an event is acknowledged before its effect", "worker", CONSUMING,
           "        reach(CrashPoint.EVENT_BEFORE_DISPATCH)\n",
           "        await message.ack()\n        reach(CrashPoint.EVENT_BEFORE_DISPATCH)\n", (WORKER_POSITIONS,)),
    Mutant("the position is what was delivered", "worker", DURABLE,
           "floor = info.ack_floor.stream_seq if info.ack_floor else 0",
           "floor = info.delivered.stream_seq if info.delivered else 0", (WORKER_POSITIONS,)),
    Mutant("the position passes unacknowledged events", "worker", DURABLE,
           "if info.num_pending == 0 and info.num_ack_pending == 0:", "if info.num_pending == 0:", (WORKER_POSITIONS,)),
    Mutant("the position passes events that were not delivered", "worker", DURABLE,
           "if info.num_pending == 0 and info.num_ack_pending == 0:", "if info.num_ack_pending == 0:", (WORKER_POSITIONS,)),
    Mutant("a new consumer skips an event", "worker", DURABLE,
           "opt_start_seq=position + 1 if position", "opt_start_seq=position + 2 if position", (WORKER_POSITIONS,)),
    Mutant("a new consumer begins at the stream's end", "worker", DURABLE,
           "DeliverPolicy.BY_START_SEQUENCE if position else DeliverPolicy.ALL",
           "DeliverPolicy.NEW", (WORKER_POSITIONS,)),
    Mutant("a message whose burial failed is ended", "worker", GIVING_UP,
           "            await message.nak(delay=self._pause_seconds)\n            return\n        self._tries",
           "            await message.term()\n            return\n        self._tries", (WORKER_POSITIONS,)),
    Mutant("a message is ended before it is buried", "worker", GIVING_UP,
           "        try:\n            fresh = await bury_event",
           "        await message.term()\n        try:\n            fresh = await bury_event",
           (WORKER_POSITIONS,)),
    Mutant("a failed burial forgets its tries", "worker", GIVING_UP,
           "self._remember(version, tries - 1, time.monotonic() - trying_seconds)", "self._tries.pop(version, None)",
           (WORKER_POSITIONS,)),
    Mutant("a failed burial counts as a try", "worker", GIVING_UP,
           "self._remember(version, tries - 1,", "self._remember(version, tries,", (WORKER_POSITIONS,)),
    Mutant("the relay saves what it sent", "relay", PUBLISHING,
           "                await self._save_position(stored)", "                await self._save_position(self._feed.cursor)",
           (RELAY_POSITION,)),
    Mutant("the relay saves the log's head", "relay", PUBLISHING,
           "await self._reader.save_position(stored)", "await self._reader.save_position(self._publisher.head.version)",
           (RELAY_POSITION,)),
    Mutant("the relay goes on where its position is", "relay", PUBLISHING,
           "        return found.state.last_seq\n",
           "        async with self._reader._connection.cursor() as c:\n"
           "            await c.execute(\"select version from consumer_positions where consumer = 'berth-relay'\")\n"
           "            row = await c.fetchone()\n        return row[0] if row else 0\n", (RELAY_POSITION,)),
]  # fmt: skip

CLOCKS = "tests/reservations/test_clock_after_locks.py"
LOCKS = "tests/placement/test_lock_order.py"

CLOCK = [
    Mutant("a create waits for a locked node", "placement", SQL + "0003_windows.sql",
           "order by placement_rank, id limit 1 for no key update skip locked",
           "order by placement_rank, id limit 1 for no key update", (LOCKS + "::test_a_create_passes_a_locked_node",)),
    Mutant("a create is placed after its end", "placement", SQL + "0003_windows.sql",
           "if soonest <= stamp_ then", "if false then",
           (CLOCKS + "::test_a_create_whose_end_passes_during_the_wait_is_not_placed",)),
    Mutant("a create expires holds by the clock before its locks", "reservations", SQL + "0003_windows.sql",
           "            stamp := clock_timestamp();\n", "",
           (CLOCKS + "::test_overdue_holds_in_the_way_expire_by_the_clock_after_the_wait",)),
    Mutant("a hold is evaluated by the clock before its locks", "reservations", SQL + "0003_holding.sql",
           "        stamp := clock_timestamp();\n        starts",
           "        if look = 1 then stamp := clock_timestamp(); end if;\n        starts", (CLOCKS,)),
    Mutant("a hold of chosen GPUs is evaluated by the clock before its nodes' locks", "reservations", SQL + "0003_holding.sql",
           "stamp := clock_timestamp();              -- it may", "-- it may", (CLOCKS,)),
]  # fmt: skip

MUTANTS = [*SCHEMA, *AGENT, *POSITIONS, *CLOCK]
