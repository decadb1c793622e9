"""Ways to break the promises by hand, as SQL on the busy database, and which promise each breaks.

`{name}` is replaced by the id of the allocation called so (tests/berth/busy.py), `{name.claim}` for its claim's row and
`{tenant}` for the tenant, `{gone}` for the deleted one. What the schema itself forbids has its constraint or trigger
dropped first: the check finds a violation after a constraint was dropped or a backup was restored without it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Violation(NamedTuple):
    """How to plant it, which promises it breaks (and no other), and words that the report must contain."""

    name: str
    plant: str
    broken: frozenset[str]
    words: str


def sql_of(plant: str) -> bytes:
    """The plant with its placeholders filled."""
    filled = plant.replace("{tenant}", "(select id from tenants where state = 'active')")
    filled = filled.replace("{gone}", "(select id from tenants where state = 'deleted')")
    filled = re.sub(r"\{(\w+)\.claim\}", r"(select claim_id from allocations where name = '\1')", filled)
    return re.sub(r"\{(\w+)\}", r"(select id from allocations where name = '\1')", filled).encode()


def planted(name: str, broken: str, words: str, plant: str) -> Violation:
    """One way; `broken` are the promises' labels, `?` for a blank within one."""
    return Violation(name, plant, frozenset(label.replace("?", " ") for label in broken.split()), words)


OTHER_CLAIM = (
    "insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, booked, occupied, closed_at,"
    " occupied_from, occupied_until, fence) "
)
LAST_EVENT_OF_ACTIVE = "(select max(version) from log where subject = 'allocations/' || {active})"
NO_TRIGGERS = "alter table allocations disable trigger all; "

P1 = [
    planted(
        "two live rights", "P1 P2?reservations claims quota", "has the right to unit",
        "alter table claims drop constraint one_right; " + OTHER_CLAIM
        + "select node_id, tenant_id, 'reservation', uuidv7(), units, tstzrange(clock_timestamp(), null),"
        " true, false, null, null, null, 0 from claims where id = {active.claim}",
    ),
    planted(
        "two live rights in the future", "P1 P2?reservations claims quota", "has the right to unit",
        "alter table claims drop constraint one_right; " + OTHER_CLAIM
        + "select node_id, tenant_id, 'reservation', uuidv7(), units, tstzrange('2090-01-01', '2090-01-02'),"
        " true, false, null, null, null, 0 from claims where id = {metal.claim}",
    ),
    planted(
        "two rights in history, both closed", "P1", "has the right to unit",
        OTHER_CLAIM + "select node_id, tenant_id, 'reservation', uuidv7(), units,"
        " tstzrange(lower(during) - interval '1 hour', lower(during) + interval '1 microsecond'),"
        " false, false, clock_timestamp(), null, null, 0 from claims where id = {early.claim}",
    ),
    planted(
        "a right hidden behind a longer one in history", "P1", "from 2003-01-01",
        # Sorted by start, the short one lies between: only the running maximum remembers the end of the long one.
        OTHER_CLAIM + "select node_id, tenant_id, 'reservation', uuidv7(), units, d, false, false,"
        " timestamptz '2005-01-01', null, null, -f from claims, (values (1, tstzrange('2001-01-01', '2004-01-01')),"
        " (2, tstzrange('2001-02-01', '2001-03-01')), (3, tstzrange('2003-01-01', '2003-02-01'))) w(f, d)"
        " where id = {early.claim}",
    ),
    planted(
        "two occupants in history", "P1 P6", "occupies unit",
        OTHER_CLAIM + "select node_id, tenant_id, 'reservation', uuidv7(), units, tstzrange('2090-01-01', '2090-01-02'),"
        " false, false, clock_timestamp(), occupied_until - interval '1 microsecond', clock_timestamp(), 0"
        " from claims where id = {early.claim}",
    ),
    planted(
        "two live occupants", "P1 P2?reservations P6 claims quota", "occupies unit",
        "alter table claims drop constraint one_occupant; " + OTHER_CLAIM
        + "select node_id, tenant_id, 'reservation', uuidv7(), units, tstzrange('2001-01-01', '2001-01-02'),"
        " false, true, null, clock_timestamp(), null, 0 from claims where id = {active.claim}",
    ),
    planted(
        "units beyond the node", "P1", "not node",
        OTHER_CLAIM + "select node_id, tenant_id, 'reservation', uuidv7(), '{[9000,9001)}',"
        " tstzrange('2001-01-01', '2001-01-02'), false, false, clock_timestamp(), null, null, 0"
        " from claims where id = {active.claim}",
    ),
    planted(
        "units of two nodes", "P1", "not node",
        OTHER_CLAIM + "select node_id, tenant_id, 'reservation', uuidv7(), '{[8,10)}',"
        " tstzrange('2001-01-01', '2001-01-02'), false, false, clock_timestamp(), null, null, 0"
        " from claims where id = {active.claim}",
    ),
]  # fmt: skip
P2 = [
    planted("no claim", "P2", "has no claim", "delete from claims where id = {early.claim}"),
    planted(
        "a key of an adoption of what was not adopted", "P2 P4", "has no operation record",
        "update allocations set operation_key = 'adopts:x' where id = {active}",
    ),
    planted("a failed one without claim", "P2 fit units", "has no claim", "delete from claims where id = {dirty.claim}"),
    planted(
        "the claim is another tenant's", "P2", "has no claim",
        "update claims set tenant_id = uuidv7() where id = {early.claim}",
    ),
    planted(
        "another content under the key", "P2", "disagree",
        "update operations set fingerprint = decode(repeat('11', 32), 'hex') where subject_id = {active}",
    ),
    planted(
        "another answer under the key", "P2", "disagree",
        "update operations set status = 409 where subject_id = {active} and status = 201",
    ),
    planted(
        "no operation record", "P2", "has no operation record",
        "delete from operations where subject_id = {active} and status = 201",
    ),
    planted(
        "no event", "P2", "1 transitions and 0 events provisioning.requested",
        "update log set event_type = 'other' where event_type = 'provisioning.requested'"
        " and subject = 'allocations/' || {active}",
    ),
    planted(
        "an event of nothing", "P2", "which does not exist",
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload)"
        " values ('provisioning.requested', uuidv7(), {tenant}, 'allocations/' || uuidv7(), '{}');"
        " select log_advance(10)",
    ),
    planted(
        "a claim without an owner", "P2", "does not exist or holds another",
        OTHER_CLAIM + "select node_id, tenant_id, 'allocation', uuidv7(), units, tstzrange('2001-01-01', '2001-01-02'),"
        " false, false, clock_timestamp(), null, null, 0 from claims where id = {active.claim}",
    ),
    planted(
        "a second claim of an allocation", "P2", "does not exist or holds another",
        OTHER_CLAIM + "select node_id, tenant_id, owner_kind, owner_id, units, tstzrange('2001-01-01', '2001-01-02'),"
        " false, false, clock_timestamp(), null, null, 0 from claims where id = {active.claim}",
    ),
    planted(
        "an answer without its effect", "P2", "answers with allocation",
        "insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after) select scope,"
        " 'another', fingerprint, status, code, body, uuidv7(), retire_after from operations"
        " where subject_id = {active} and status = 201",
    ),
    planted(
        "an operation without an answer", "P2", "without an answer",
        "insert into operations (scope, key, fingerprint, retire_after)"
        " values ({tenant}, 'half', decode(repeat('00', 32), 'hex'), clock_timestamp())",
    ),
    planted(
        "an operation that the log does not tell of", "P2", "has no event in the log",
        "update log set operation_key = null where event_type = 'operation.committed'",
    ),
    planted(
        "an operation that names an event of another tenant", "P2", "has no event in the log",
        "with other as (insert into tenants (name) values ('other') returning id), quota as (insert into tenant_quotas"
        " (tenant_id) select id from other) insert into operations (scope, key, fingerprint, status, code, body,"
        " retire_after) select other.id, key, fingerprint, status, code, body, retire_after from operations, other"
        " where code = 'invalid_state' limit 1",
    ),
    planted("an allocation vanished", "P2 billing", "does not exist", "delete from allocations where name = 'early'"),
]  # fmt: skip
P3 = [
    planted("a gap", "P3 P2", "jumps from version", f"delete from log where version = {LAST_EVENT_OF_ACTIVE}"),
    planted("the head is ahead", "P3", "head says", "update log_head set version = version + 1"),
    planted("the newest is lost", "P3", "head says", "delete from log where version = (select version from log_head)"),
    planted(
        "a wrong previous version", "P3", "previous version",
        f"update log set prev_version = prev_version - 1 where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "a first version with a previous one", "P3", "previous version",
        "update log set prev_version = 1 where version = (select min(version) from log)",
    ),
    planted(
        "an operators' event in a chain", "P3", "previous version",
        "update log set prev_version = 1 where tenant_id is null",
    ),
    planted("a tenant's newest is wrong", "P3", "newest version", "update log_tenants set version = version - 1"),
    planted("a tenant's newest is not noted", "P3", "newest version", "delete from log_tenants"),
    planted(
        "an event twice", "P3", "times",
        f"update log set event_id = (select event_id from log where version = 1) where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "an effect before its cause", "P3", "before the one it follows",
        f"update log set outbox_id = 0 where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "an event left in the outbox", "P3", "wait for their version",
        "insert into outbox (event_type, occurred_at, correlation_id, subject, payload)"
        " values ('other', clock_timestamp() - interval '2 minutes', uuidv7(), 'x/1', '{}')",
    ),
]  # fmt: skip
P6 = [
    planted(
        "freed while it runs", "P6 login?data networks fit units", "gave its units away",
        "update claims set booked = false, occupied = false, closed_at = clock_timestamp(),"
        " occupied_until = clock_timestamp() where id = {active.claim}",
    ),
    planted(
        "freed without proof after a failure", "P6", "nothing proves the cleanup",
        "update node_tasks set result = '{}' where allocation_id = {cleaned} and state = 'completed'",
    ),
    planted(
        "released without proof", "P6", "without a release result",
        "update allocations set release_result = null where name = 'early'",
    ),
    planted(
        "released without proof by anyone", "P6 P7", "nothing proves the cleanup",
        "update allocations set release_result = null where name = 'early';"
        " update node_tasks set result = '{}' where allocation_id = {early} and state = 'completed'",
    ),
    planted(
        "released with every trace of proof swept", "P6", "nothing proves the cleanup",
        "update allocations set release_result = null where name = 'early';"
        " delete from node_tasks where allocation_id = {early}",
    ),
    planted(
        "freed, and its allocation and tasks are gone", "P6 P2 billing", "nothing proves the cleanup",
        "delete from node_tasks where allocation_id = {early}; delete from allocations where name = 'early'",
    ),
    planted(
        "released, not wiped", "P6", "without a release result",
        "update allocations set release_result = release_result || '{\"wiped\": false}' where name = 'forced'",
    ),
    planted(
        "released, a device not wiped", "P6", "without a release result",
        "update allocations set release_result = release_result ||"
        " '{\"evidence\": {\"devices\": [{\"proven\": true}, {\"proven\": false}]}}' where name = 'released'",
    ),
    planted(
        "released, leases kept", "P6", "without a release result",
        "update allocations set release_result = release_result - 'leases_released' where name = 'released'",
    ),
    planted(
        "released and still held", "claims fit units", "which is released",
        "update claims set occupied = true, closed_at = null, occupied_until = null where id = {early.claim}",
    ),
    planted(
        "taken before the cleanup ended", "P6 P1", "before the cleanup of an earlier claim",
        "update claims set occupied_until = (select occupied_from + interval '1 microsecond' from claims"
        " where id = {heir.claim}) where id = {released.claim}",
    ),
]  # fmt: skip
P8 = [
    planted(
        "a step is missing", "P8", "noted as",
        "delete from allocation_timeline where allocation_id = {early} and to_state = 'provisioning'",
    ),
    planted(
        "an illegal step", "P8", "to active",
        "delete from allocation_timeline where allocation_id = {active} and to_state = 'provisioning';"
        " update allocation_timeline set from_state = 'requested'"
        " where allocation_id = {active} and to_state = 'active'",
    ),
    planted(
        "a step after a final state", "P8 P2", "went from released",
        "insert into allocation_timeline (allocation_id, kind, from_state, to_state, row_version, actor_kind)"
        " select id, 'transition', f, t, row_version + n, 'system' from allocations,"
        " (values (1, 'released', 'releasing'), (2, 'releasing', 'released')) s(n, f, t) where name = 'early';"
        " update allocations set row_version = row_version + 2 where name = 'early'",
    ),
    planted(
        "a failed one came back", "P8 P2", "went from failed",
        "insert into allocation_timeline (allocation_id, kind, from_state, to_state, row_version, actor_kind)"
        " select id, 'transition', 'failed', 'failed', row_version + 1, 'system' from allocations"
        " where name = 'cleaned'; update allocations set row_version = row_version + 1 where name = 'cleaned'",
    ),
    planted(
        "the timeline ends elsewhere", "P8 P2", "timeline ends with provisioning",
        "delete from allocation_timeline where allocation_id = {active} and to_state = 'active'",
    ),
    planted(
        "the row went on alone", "P8 P2 claims billing", "timeline ends with provisioning",
        NO_TRIGGERS + "update allocations set state = 'releasing', releasing_at = active_at, waits_for = 'worker',"
        " waits_until = waits_since where name = 'active';"
        " delete from allocation_timeline where allocation_id = {active} and to_state = 'active'",
    ),
    planted("no timeline", "P8 P2", "ends with nothing", "delete from allocation_timeline where allocation_id = {requested}"),
    planted(
        "a timeline that begins later", "P8 P2", "from nothing",
        "delete from allocation_timeline where allocation_id = {active} and to_state in ('requested', 'provisioning')",
    ),
    planted(
        "active before it was asked for", "P8 billing", "contradict",
        "update allocations set active_at = requested_at - interval '1 second' where name = 'active'",
    ),
]  # fmt: skip
DERIVED = [
    planted(
        "a taken slot looks free", "fit units", "says mask",
        "update nodes n set free_mask = free_mask | (1::bigint << (lower(units) - unit_base)::integer)"
        " from claims c where c.id = {active.claim} and n.id = c.node_id",
    ),
    planted("a free slot looks taken", "fit units", "says mask", "update nodes set free_mask = free_mask & (free_mask - 1)"),
    planted("another class", "fit", "class", "update nodes set fit_class = fit_class + 1 where shape = 'gpu_slice'"),
    planted(
        "out of service unnoticed", "fit units", "says mask",
        "update slots set state = 'out_of_service' where unit = (select max(unit_base) - 1 from nodes)",
    ),
    planted("charged too much", "quota", "is charged", "update tenant_quotas set gpus_used = gpus_used + 1"),
    planted("charged too little", "quota", "is charged", "update tenant_quotas set gpus_used = gpus_used - 1"),
    planted("not charged at all", "quota", "is charged", "delete from tenant_quotas"),
    planted(
        "charged for nothing", "quota", "is charged",
        "with made as (insert into tenants (name) values ('idle') returning id)"
        " insert into tenant_quotas (tenant_id, gpus_used) select id, 1 from made",
    ),
]  # fmt: skip
VIOLATIONS_OF_ROWS = [*P1, *P2, *P3, *P6, *P8, *DERIVED]
