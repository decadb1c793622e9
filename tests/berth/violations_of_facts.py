"""Ways in which two facts that are stored apart can contradict each other, planted by hand (tests/berth/violations.py)."""

from __future__ import annotations

from tests.berth.violations import LAST_EVENT_OF_ACTIVE, planted

_APPROVAL = (
    "insert into approvals (action, subject_id, requested_by, requested_role, requested_break_glass, waits_for, waits_since,"
    " waits_until) values ('allocation.force_cleanup', {stuck}, uuidv7(), 'admin', false, "
)
_BURN_IN = (
    "insert into node_burn_ins (node_id, slots, requested_by, waits_for, waits_since, waits_until)"
    " select (select node_id from slots limit 1), array[0]::smallint[], 'admin:a', 'node', clock_timestamp(), "
)
_GPU_RESET = (
    "insert into node_gpu_resets (node_id, slots, gpus, requested_by, waits_for, waits_since, waits_until)"
    " select (select node_id from slots limit 1), array[0]::smallint[], array['p'], 'admin:a', 'node', clock_timestamp(), "
)
_ATTESTATION = (
    "insert into node_attestations (node_id, nonce, requested_by, waits_for, waits_since, waits_until)"
    " select (select id from nodes limit 1), decode(repeat('00', 32), 'hex'), 'admin:a', 'node', clock_timestamp(), "
)
_BMC_TASK = (
    "with site as (insert into sites (name, recovery_key) values ('s', decode(repeat('00', 32), 'hex')) returning id),"
    " made as (insert into node_bmcs (node_id, site_id, url, certificate_sha256, username, generation, changed_by)"
    " select (select node_id from slots limit 1), id, 'https://b', decode(repeat('00', 32), 'hex'), 'u', 1, 'admin:a' from site"
    " returning node_id, site_id)"
    " insert into bmc_tasks (node_id, site_id, kind, requested_by, waits_for, waits_since, waits_until)"
    " select node_id, site_id, 'look', 'admin:a', 'lease', clock_timestamp(), "
)
_DEPLOY_RUN = (
    "insert into deploy_runs (node_id, site_id, kind, medium, requested_by, bmc_task_id, waits_for, waits_since, waits_until)"
    " select (select node_id from slots limit 1), uuidv7(), 'inspect', '{}', 'admin:a', uuidv7(), 'site_agent',"
    " clock_timestamp(), "
)
_FREE = "alter table approvals drop constraint approval_waits_while_pending; "
DEGRADED = (
    "update allocations set health = 'degraded', health_cause = 'guest_down', health_since = clock_timestamp(),"
    " proof_of_life_at = clock_timestamp(), health_until = "
)

# The first slot of a node whose slots are all taken, so that no sum changes.
_METAL = "(select node_id from allocations where name = 'metal')"
_DRIFT = (
    "insert into node_topologies (node_id, task_id, epoch, next_at, drifted_slots, drifted_since, differences)"
    f" select {_METAL}, uuidv7(), 1, clock_timestamp(), array[0]::smallint[], clock_timestamp(), "
)
_OUT = (
    " update slots set state = 'out_of_service', reason = 'its hardware differs from the approved topology; see berth node"
    f" topology' where slot_index = 0 and node_id = {_METAL}"
)

FACTS = [
    planted(
        "a drifted slot in service", "claims", "and is in service",
        _DRIFT + "jsonb_build_array(jsonb_build_object('slots', jsonb_build_array(0)))",
    ),
    planted("a slot out of service for no drift", "claims", "a drift that is not there", _OUT),
    planted(
        "a drift that no difference names", "claims", "are not those of its differences",
        _DRIFT + "jsonb_build_array();" + _OUT,
    ),
    planted(
        "a burn-in that does not end", "P9", "(open) waits for node and is overdue",
        _BURN_IN + "clock_timestamp() - interval '1 day'",
    ),
    planted(
        "a drain whose deadline is not announced", "P9", "(open) waits for claims and is overdue",
        f"update nodes set state = 'draining' where id = {_METAL}; insert into node_drains (node_id, begun_by, deadline,"
        f" waits_for, waits_since, waits_until) select {_METAL}, 'admin:a', now() - interval '1 day', 'claims',"
        " now() - interval '2 days', now() - interval '1 day'",
    ),
    planted("a burn-in without a deadline", "P9", "(open) waits since", _BURN_IN + "'infinity'"),
    planted(
        "a GPU reset that does not end", "P9", "(open) waits for node and is overdue",
        _GPU_RESET + "clock_timestamp() - interval '1 day'",
    ),
    planted("an attestation without a deadline", "P9", "(open) waits since", _ATTESTATION + "'infinity'"),
    planted("a GPU reset without a deadline", "P9", "(open) waits since", _GPU_RESET + "'infinity'"),
    planted("a run without a deadline", "P9", "(power_off) waits since", _DEPLOY_RUN + "'infinity'"),
    planted(
        "a run that no sweeper moved", "P9", "(power_off) waits for site_agent and is overdue",
        _DEPLOY_RUN + "clock_timestamp() - interval '1 day'",
    ),
    planted("a task about a BMC without a deadline", "P9", "(look) waits since", _BMC_TASK + "'infinity' from made"),
    planted(
        "a task about a BMC that no sweeper ended", "P9", "(look) waits for lease and is overdue",
        _BMC_TASK + "clock_timestamp() - interval '1 day' from made",
    ),
    planted(
        "an approval that waits for nothing", "P9", "is pending and waits for nothing",
        _FREE + _APPROVAL + "null, clock_timestamp(), clock_timestamp() + interval '1 day')",
    ),
    planted(
        "an approval that waits since no time", "P9", "is pending and waits for approval",
        _FREE + _APPROVAL + "'approval', null, clock_timestamp() + interval '1 day')",
    ),
    planted(
        "an approval without a deadline", "P9", "is pending and waits for approval",
        _FREE + _APPROVAL + "'approval', clock_timestamp(), null)",
    ),
    planted(
        "an ended approval that waits", "P9", "is expired and waits for approval",
        _FREE + _APPROVAL + "'approval', clock_timestamp(), clock_timestamp() + interval '1 day');"
        " update approvals set state = 'expired', ended_at = clock_timestamp()",
    ),
    planted(
        "an approval whose deadline never comes", "P9", "that is no deadline",
        _APPROVAL + "'approval', clock_timestamp(), 'infinity')",
    ),
    planted(
        "an approval that was not expired", "P9", "(pending) waits for approval and is overdue",
        _APPROVAL + "'approval', clock_timestamp() - interval '2 days', clock_timestamp() - interval '1 day')",
    ),
    planted(
        "a unit that a maintenance window left free", "maintenance fit units", "which another owner leaves free",
        "delete from claims where owner_kind = 'maintenance'",
    ),
    planted(
        "a unit that a maintenance window forgot", "maintenance", "which another owner holds",
        "update maintenance_units set planned = '{}' where not isempty(planned)",
    ),
    planted(
        "a maintenance window on a claim of other units", "maintenance", "is not within the units and the time",
        "update maintenance_units set units = units - int8multirange(int8range(upper(units) - 1, upper(units))),"
        " planned = '{}' where isempty(planned)",
    ),
    planted(
        "a maintenance window that occupies units", "maintenance", "occupies units, and no task of it runs there",
        "update claims set occupied = true, occupied_from = now() where owner_kind = 'maintenance'",
    ),
    planted(
        "a task of a maintenance window that is not guarded", "maintenance", "is running, and the window occupies the units {}",
        "insert into maintenance_tasks (window_id, node_id, kind, seconds_max, begins_at, state, task_id, begun_at, waits_for,"
        " waits_since, waits_until) select window_id, node_id, 'health_probe', 600, now(), 'running', uuidv7(), now(), 'node',"
        " now(), now() + interval '1 h' from maintenance_units limit 1",
    ),
    planted(
        "a maintenance window that ended before its task", "maintenance", "while its task runs on node",
        "insert into maintenance_tasks (window_id, node_id, kind, seconds_max, begins_at, state, task_id, begun_at, waits_for,"
        " waits_since, waits_until) select window_id, node_id, 'health_probe', 600, now(), 'running', uuidv7(), now(), 'node',"
        " now(), now() + interval '1 h' from maintenance_units limit 1",
    ),
    planted(
        "a claim outside of its maintenance window", "maintenance", "is not within the units and the time",
        "update claims set during = tstzrange(lower(during), upper(during) + interval '1 s') where owner_kind = 'maintenance'",
    ),
    planted(
        "a claim of a maintenance window that is over", "claims", "which is cancelled",
        "update maintenance_windows set state = 'cancelled', ended_at = now(), waits_for = null, waits_since = null,"
        " waits_until = null",
    ),
    planted(
        "a maintenance window that did not start", "P9 maintenance", "(scheduled) waits for start and is overdue",
        "update maintenance_windows set starts_at = starts_at - interval '301 days',"
        " waits_until = waits_until - interval '301 days'",
    ),
    planted(
        "user data of a cleaned-up allocation", "login?data", "still has user data or SSH keys",
        "update allocations set user_data = 'x' where name = 'released'",
    ),
    planted(
        "an SSH key of a cleaned-up allocation", "login?data", "still has user data or SSH keys",
        "update allocations set ssh_public_keys = '{x}' where name = 'early'".replace("{x}", "{\"x\"}"),
    ),
    planted(
        "a task with the user data of a cleaned-up allocation", "login?data", "still contains what was signed",
        "update node_tasks set envelope = envelope - 'payload_sha256' where allocation_id = {released}",
    ),
    planted(
        "user data of an ended reservation", "login?data", "still has user data",
        "update reservations set template = '{\"user_data\": null}' where ended_at is not null",
    ),
    planted(
        "an audit row that was changed", "audit", "its hash is not that of the row before",
        "select audit_advance(10000); alter table audit_chain disable trigger audit_chain_keeps;"
        " update audit_chain set action = 'another' where sequence = 2",
    ),
    planted(
        "a deadline that never comes", "P9", "that is no deadline",
        "update allocations set waits_until = 'infinity' where name = 'releasing'",
    ),
    planted(
        "a degraded allocation without a deadline", "P9", "is degraded (guest_down) without a deadline",
        DEGRADED + "null where name = 'active'",
    ),
    planted(
        "an unreachable allocation with a deadline", "P9", "is degraded (guest_unreachable) with the deadline",
        DEGRADED.replace("guest_down", "guest_unreachable") + "clock_timestamp() + interval '1 day' where name = 'active'",
    ),
    planted(
        "a degraded allocation that never becomes lost", "P9", "that is no deadline",
        DEGRADED + "'infinity' where name = 'active'",
    ),
    planted(
        "a degraded allocation that did not become lost", "P9", "(degraded) waits for guest_down and is overdue",
        DEGRADED + "clock_timestamp() - interval '300 days' where name = 'active'",
    ),
    planted(
        "a task that never expires", "P9", "that is no deadline",
        "update node_tasks set expires_at = 'infinity', state = 'queued', finished_at = null, result = null,"
        " failure_code = null where id = (select id from node_tasks where allocation_id = {stuck} order by fence desc limit 1)",
    ),
    planted(
        "an answer that names another allocation", "P4", "does not name",
        "update operations set body = replace(body, subject_id::text, uuidv7()::text)"
        " where subject_id = {early} and status = 201",
    ),
    planted(
        "a fence that was set back", "P7", "although",
        "update claims set fence = (select min(fence) from node_tasks where allocation_id = {released})"
        " where id = {released.claim}",
    ),
    planted(
        "a claim that accepts the tasks of another allocation", "P7", "which no earlier claim",
        "update claims set inherited_fence = (select fence from claims where id = {heir.claim}) where id = {longer.claim}",
    ),
    planted(
        "a claim that accepts tasks newer than itself", "P7", "accepts tasks with the fence",
        "update claims c set fence = n.fence from (select nextval('fences') as fence) n where owner_id = {longer} and id ="
        " (select min(id) from claims where owner_id = {longer});"
        " update claims set inherited_fence = (select fence from claims where owner_id = {longer} order by id limit 1)"
        " where id = {longer.claim}",
    ),
    planted(
        "a claim that accepts tasks from before its release", "P7", "its right has ended",
        "update claims c set inherited_fence = n.fence from (select fence from claims where owner_id = {longest}"
        " order by id limit 1) n where id = {longest.claim}",
    ),
    planted(
        "a claim of an allocation that holds another", "P2", "does not exist or holds another",
        "update claims set closed_at = closed_at - interval '1 microsecond' where owner_id = {longer} and id <> {longer.claim}"
        " and id > (select min(id) from claims where owner_id = {longer})",
    ),
    planted(
        "units freed between a claim and its successor", "P6", "nothing proves the cleanup",
        "update claims set occupied_from = occupied_from + interval '1 microsecond' where id = {longer.claim}",
    ),
    planted(
        "a task of another node", "P7", "its allocation",
        "update node_tasks set node_id = (select node_id from allocations where name = 'metal')"
        " where allocation_id = {early}",
    ),
    planted(
        "released, and its node said otherwise", "P7", "by no task's result",
        "update node_tasks set result = result || '{\"wiped\": false}' where allocation_id = {released}"
        " and type = 'slice.vm_release'",
    ),
    planted(
        "a consumer ahead of the log", "P3", "the log ends at",
        "insert into consumer_positions (consumer, version) select 'ahead', version + 1 from log_head",
    ),
    planted(
        "an event that names another allocation", "P2", "names another allocation",
        "update log set payload = payload || jsonb_build_object('allocation_id', uuidv7())"
        f" where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "an event of another correlation", "P2", "names another allocation",
        f"update log set correlation_id = uuidv7() where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "fewer units than GPUs", "P2 billing", "and holds",
        "update allocations set gpus = gpus + 1 where name = 'early'",
    ),
    planted(
        "a slot kept for an orphan that is not there", "claims", "an orphan that is not there",
        "update slots set state = 'out_of_service', reason = 'an orphan is on it; see berth node orphans'"
        " where unit = (select lower(units) from claims where id = {metal.claim})",
    ),
    planted(
        "a retired node in use", "claims", "which is retired",
        "update nodes set state = 'retired' where id = (select node_id from allocations where name = 'metal')",
    ),
    planted(
        "a cleanup without an operator's statement", "P6", "without a release result",
        "update allocations set release_result = null where name = 'early';"
        " insert into audit (principal_kind, principal_id, action, subject)"
        " values ('admin', 'operator-2', 'allocation.force_cleanup_refused', 'allocations/' || {early})",
    ),
]  # fmt: skip
