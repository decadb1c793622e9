"""More ways to break the promises by hand: keys, owners, fences, actors, waits, bounds, sums (see `violations`)."""

from __future__ import annotations

from tests.berth.violations import NO_TRIGGERS, OTHER_CLAIM, planted

# An orphan on the first slot of the last node, whose slots are all taken, so that no sum changes.
ORPHAN = (
    "insert into node_orphans (node_id, allocation_id, slots, state, waits_for, waits_since, waits_until, destroyed_at,"
    " proof) select node_id, uuidv7(), array[0], "
)
OF_THE_METAL = " from allocations where name = 'metal'; "
SLOT_OUT = "update slots set state = 'out_of_service' where unit = (select lower(units) from claims where id = {metal.claim}); "
NO_ORPHAN_RULES = (
    "alter table node_orphans drop constraint orphan_waits_unless_destroyed,"
    " drop constraint orphan_destroyed_by_proof; "
)
NO_TASK_RULE = "drop index one_live_task; "
ANOTHER_TASK = (
    "insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, attempt, state, envelope, not_before,"
    " expires_at, queued_at, dispatched_at, finished_at, result) select uuidv7(), node_id, node_epoch, type,"
    " allocation_id, "
)

P4 = [
    planted(
        "a key stored twice", "P4", "is stored 2 times",
        "alter table operations drop constraint operation_runs_once; insert into operations select * from operations"
        " where subject_id = {active} and status = 201",
    ),
    planted(
        "two allocations under a key", "P4 P2", "2 allocations under the key",
        "alter table allocations drop constraint creation_runs_once; update allocations set operation_key ="
        " (select operation_key from allocations where name = 'active') where name = 'heir'",
    ),
    planted(
        "two keys made one allocation", "P2 P4", "was created under the key",
        "insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after) select scope,"
        " 'another', fingerprint, status, code, body, subject_id, retire_after from operations"
        " where subject_id = {active} and status = 201",
    ),
]  # fmt: skip
CLAIMS = [
    planted(
        "units kept by a released one", "claims fit units", "which is released",
        "update claims set occupied = true, closed_at = null, occupied_until = null where id = {early.claim}",
    ),
    planted(
        "units claimed without an owner", "claims P2 fit units", "which is nothing",
        OTHER_CLAIM + "select node_id, tenant_id, 'allocation', uuidv7(),"
        " int8multirange(int8range(unit_base + 7, unit_base + 8)), tstzrange('2090-01-01', null), true, false, null, null,"
        " null, 0 from claims c join nodes n on n.id = c.node_id where c.id = {active.claim}",
    ),
    planted(
        "units kept a second time", "claims P2 fit units", "for allocation",
        OTHER_CLAIM + "select node_id, tenant_id, 'allocation', owner_id,"
        " int8multirange(int8range(unit_base + 7, unit_base + 8)), tstzrange('2090-01-01', null), true, false, null, null,"
        " null, 0 from claims c join nodes n on n.id = c.node_id where c.id = {active.claim}",
    ),
    planted(
        "units that went to a reservation", "claims P2 P2?reservations quota", "for reservation",
        "update claims set owner_kind = 'reservation' where id = {active.claim}",
    ),
    planted(
        "a right that outlived its allocation", "claims", "keeps the right",
        "update claims set booked = true where id = {stuck.claim}",
    ),
    planted(
        "closed and still booked", "claims", "booked True",
        "alter table claims drop constraint claim_closed_is_over; alter table claims drop constraint one_right;"
        " update claims set booked = true where id = {released.claim}",
    ),
    planted(
        "nothing left and still open", "claims", "closed at None",
        "alter table claims drop constraint claim_closed_is_over;"
        " update claims set closed_at = null where id = {released.claim}",
    ),
    planted(
        "an orphan on a slot in service", "claims", "which is in service",
        ORPHAN + "'reported', 'operator', now(), null, null, null" + OF_THE_METAL,
    ),
    planted(
        "a slot in quarantine that is in service", "claims", "is in service despite quarantine",
        "insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by) select node_id, slot_index, unit,"
        " 'x', 'y' from slots where unit = (select min(unit) from slots)",
    ),
    planted(
        "a slot out of service for a quarantine that ended", "claims", "for a quarantine that is not open",
        SLOT_OUT + "update slots set reason = 'quarantined: x' where state = 'out_of_service'",
    ),
    planted(
        "units released despite a fault report", "claims", "despite the open fault report",
        "insert into fault_reports (tenant_id, allocation_id, node_id, slots, symptom, evidence, replace, reported_by)"
        " select tenant_id, id, node_id, array[0]::smallint[], 'slow', 'e', false, 't' from allocations where name = 'early'",
    ),
    planted(
        "an orphan gone without proof", "claims", "nothing proves it",
        ORPHAN + "'destroyed', null, null, null, now(), '{\"released\": true, \"wiped\": false}'" + OF_THE_METAL,
    ),
]  # fmt: skip
P7 = [
    planted(
        "an attempt with an older fence", "P7", "the one before it",
        ANOTHER_TASK + "fence - 1, attempt + 1, 'superseded', envelope, not_before, expires_at,"
        " queued_at + interval '1 second', null, clock_timestamp(), null from node_tasks where allocation_id = {active}",
    ),
    planted(
        "two attempts with one fence", "P7", "the one before it",
        ANOTHER_TASK + "fence, attempt + 1, 'superseded', envelope, not_before, expires_at,"
        " queued_at + interval '1 second', null, clock_timestamp(), null from node_tasks where allocation_id = {active}",
    ),
    planted(
        "two attempts at an orphan with one fence", "P7", "the one before it",
        ANOTHER_TASK.removesuffix("allocation_id, ") + "null, fence, 1, 'superseded', envelope, not_before,"
        " expires_at, queued_at + s.late, null, clock_timestamp(), null"
        " from node_tasks, (values (interval '1 second'), (interval '2 seconds')) s(late) where allocation_id = {active};"
        " update node_tasks set orphan_id = '00000000-0000-7000-8000-000000000001' where allocation_id is null",
    ),
    planted(
        "a result after a release was asked for", "P7", "after",
        "update node_tasks set finished_at = clock_timestamp() where allocation_id = {forced}"
        " and type = 'slice.vm_provision'",
    ),
    planted(
        "activated by a task of another fence", "P7", "became active by no task's result",
        "update node_tasks set fence = 0 where allocation_id = {active}",
    ),
    planted(
        "activated before its task had ended", "P7", "became active by no task's result",
        "update node_tasks set finished_at = clock_timestamp() where allocation_id = {active}",
    ),
    planted(
        "released by a task that does not release", "P7 login?data", "became released by no task's result",
        "update node_tasks set type = 'slice.vm_provision' where allocation_id = {early} and type = 'slice.vm_release'",
    ),
    planted(
        "a live task with an old fence", "P7", "is unfinished with the fence",
        "update claims set fence = nextval('fences') where id = {active.claim};"
        " update node_tasks set state = 'dispatched', finished_at = null where allocation_id = {active}",
    ),
    planted(
        "a live task of a closed claim", "P7", "or closed",
        ANOTHER_TASK + "fence, attempt + 1, 'queued', envelope, not_before, clock_timestamp() + interval '1 hour',"
        " clock_timestamp(), null, null, null from node_tasks where allocation_id = {early} and type = 'slice.vm_release'",
    ),
    planted(
        "two claims with one fence", "P7", "belongs to 2 claims",
        "update claims set fence = (select fence from claims where id = {unstarted.claim}) where id = {requested.claim}",
    ),
    planted(
        "a sequence that was set back", "P7", "the sequence of fences is at 1",
        "alter sequence fences restart with 1",
    ),
]  # fmt: skip
P8 = [
    planted(
        "activated by its tenant", "P8", "was made active by tenant",
        "update allocation_timeline set actor_kind = 'tenant' where allocation_id = {active} and to_state = 'active'",
    ),
    planted(
        "activated by an operator without an adoption", "P8", "was made active by admin",
        "update allocation_timeline set actor_kind = 'admin' where allocation_id = {active} and to_state = 'active'",
    ),
    planted(
        "released by its worker", "P8", "was made releasing by worker",
        "update allocation_timeline set actor_kind = 'worker' where allocation_id = {early} and to_state = 'releasing'",
    ),
    planted(
        "row versions that go back", "P8", "with row version",
        "drop index timeline_transition_once; update allocation_timeline set row_version = 1"
        " where allocation_id = {active} and to_state = 'provisioning'",
    ),
    planted(
        "a step before the one it follows", "P8 P2 P7", "before the step that precedes it",
        "update allocation_timeline set at = at - interval '1 day' where allocation_id = {early} and to_state = 'released'",
    ),
    planted(
        "metered from another time", "P8 billing", "contradict",
        "update allocations set active_at = active_at - interval '1 microsecond' where name = 'active'",
    ),
    planted(
        "metered time reopened", "P8 billing", "contradict",
        "update allocations set releasing_at = releasing_at + interval '1 second' where name = 'stuck'",
    ),
]  # fmt: skip
P2 = [
    planted(
        "an activation without an event", "P2", "1 transitions and 0 events provisioning.active",
        "update log set event_type = 'other' where event_type = 'provisioning.active'"
        " and subject = 'allocations/' || {active}",
    ),
    planted(
        "an activation with two events", "P2", "1 transitions and 2 events provisioning.active",
        "insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)"
        " select event_type, occurred_at, correlation_id, tenant_id, subject, payload from log"
        " where event_type = 'provisioning.active' and subject = 'allocations/' || {active}; select log_advance(10)",
    ),
    planted(
        "a release with two events", "P2", "1 transitions and 2 events provisioning.releasing.requested",
        "insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)"
        " select event_type, occurred_at, correlation_id, tenant_id, subject, payload from log"
        " where event_type = 'provisioning.releasing.requested' and subject = 'allocations/' || {early};"
        " select log_advance(10)",
    ),
    planted(
        "a failure that did not happen", "P2", "0 transitions and 1 events provisioning.failed",
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload)"
        " values ('provisioning.failed', uuidv7(), {tenant}, 'allocations/' || {active}, '{}')",
    ),
]  # fmt: skip
P6 = [
    planted(
        "proven after the next one began", "P6 P2", "proven at",
        NO_TRIGGERS + "update node_tasks set finished_at = clock_timestamp()"
        " where allocation_id = {released} and type = 'slice.vm_release';"
        " update allocations set released_at = clock_timestamp() where name = 'released';"
        " update allocation_timeline set at = (select released_at from allocations where name = 'released')"
        " where allocation_id = {released} and to_state = 'released'",
    ),
    planted(
        "proven under an older fence", "P6", "nothing proves the cleanup",
        "update claims set fence = nextval('fences') where id = {cleaned.claim}",
    ),
    planted("ended before it began", "P1", "which is earlier",
        "update claims set occupied_until = occupied_from - interval '1 microsecond' where id = {cancelled.claim}"),
]  # fmt: skip
P9 = [
    planted(
        "waits for nothing", "P9", "requested and waits for nothing",
        "alter table allocations drop constraint final_waits_for_nothing; update allocations"
        " set waits_for = null, waits_since = null, waits_until = null where name = 'requested'",
    ),
    planted(
        "waits for ever", "P9", "waits for worker",
        "alter table allocations drop constraint waiting_is_complete;"
        " update allocations set waits_until = null where name = 'requested'",
    ),
    planted(
        "is over and waits", "P9", "released and waits for node",
        "alter table allocations drop constraint final_waits_for_nothing; update allocations set waits_for = 'node',"
        " waits_since = clock_timestamp(), waits_until = clock_timestamp() + interval '1 hour' where name = 'early'",
    ),
    planted(
        "failed units without a cleanup", "P9", "waits for nothing",
        "update claims set waits_for = null, waits_since = null, waits_until = null where id = {dirty.claim}",
    ),
    planted(
        "failed units that wait for ever", "P9", "waits for cleanup",
        "update claims set waits_until = null where id = {dirty.claim}",
    ),
    planted(
        "free units that wait", "P9", "waits for operator",
        "update claims set waits_for = 'operator', waits_since = clock_timestamp() where id = {early.claim}",
    ),
    planted(
        "an allocation past its deadline", "P9", "overdue by",
        "update allocations set waits_until = clock_timestamp() - interval '10 minutes' where name = 'requested'",
    ),
    planted(
        "a cleanup past its deadline", "P9", "(cleanup of failed) waits for cleanup",
        "update claims set waits_until = clock_timestamp() - interval '10 minutes' where id = {dirty.claim}",
    ),
    planted(
        "a task past its expiry", "P9", "(queued) waits for node",
        ANOTHER_TASK + "fence, 1, 'queued', envelope, not_before, clock_timestamp() - interval '10 minutes',"
        " queued_at, null, null, null from node_tasks where allocation_id = {active};"
        " update node_tasks set allocation_id = null where state = 'queued'",
    ),
    planted(
        "an orphan that waits for nothing", "P9", "orphan",
        NO_ORPHAN_RULES + SLOT_OUT + ORPHAN + "'destroying', 'node', now(), null, null, null" + OF_THE_METAL,
    ),
    planted(
        "an orphan past its deadline", "P9", "(destroying) waits for worker and is overdue",
        SLOT_OUT + ORPHAN + "'destroying', 'worker', now(), now() - interval '10 minutes', null, null" + OF_THE_METAL,
    ),
]  # fmt: skip
P13 = [
    planted(
        "an agent that reported too much", "P13", "progress entries",
        "insert into allocation_timeline (allocation_id, kind, phase, actor_kind, fence) select {active}, 'progress',"
        " 'boot', 'node', 1 from generate_series(1, 65)",
    ),
    planted(
        "two live tasks", "P13 P7", "has 2 live tasks",
        NO_TASK_RULE + "update node_tasks set state = 'queued', finished_at = null where allocation_id = {active}; "
        + ANOTHER_TASK + "fence, 1, 'queued', envelope, not_before, expires_at, queued_at, null, null, null"
        " from node_tasks where allocation_id = {active}",
    ),
    planted(
        "an event too large for NATS", "P13", "bytes",
        "update log set payload = payload || jsonb_build_object('p', repeat('x', 300000)) where version = 1",
    ),
    planted(
        "answers kept for ever", "P13", "kept past their time",
        "update operations set retire_after = clock_timestamp() - interval '2 hours' where subject_id = {active}",
    ),
]  # fmt: skip
UNITS = [
    planted(
        "a slot was lost", "units", "says 8 slots",
        "delete from slots where unit = (select max(unit) from slots)",
    ),
    planted(
        "a slot outside its block", "units fit", "not on its block",
        "update slots set unit = 9999 where unit = (select lower(units) from claims where id = {active.claim})",
    ),
]  # fmt: skip
COUNTS = [
    planted(
        "operations written past their counters", "P2 counts", "operations are counted as",
        "alter table operations disable trigger operations_added; insert into operations (scope, key, fingerprint, status,"
        " code, body, retire_after) values ({tenant}, 'uncounted', decode(repeat('ab', 32), 'hex'), 200, 'ok', '{}',"
        " clock_timestamp() + interval '1 hour')",
    ),
    planted(
        "a count that was lost", "counts", "operations are counted as 0",
        "delete from live_rows where kind = 'operations'",
    ),
    planted(
        "a count of what is not there", "counts", "holds are counted as 33 and are",
        "delete from live_rows where kind = 'holds'; insert into live_rows values ('holds', 1, 33)",
    ),
]  # fmt: skip
VIOLATIONS_OF_STORIES = [*P2, *P4, *P6, *CLAIMS, *P7, *P8, *P9, *P13, *UNITS, *COUNTS]
