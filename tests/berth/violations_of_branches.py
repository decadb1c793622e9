"""Violations that one operand alone of an `or` finds (tests/berth/test_every_branch.py)."""

from __future__ import annotations

from typing import NamedTuple

from tests.berth.violations import LAST_EVENT_OF_ACTIVE, planted
from tests.berth.violations_of_reservations import _claim
from tests.berth.violations_of_stories import OF_THE_METAL, ORPHAN, SLOT_OUT

# The checks are for the day on which the schema does not forbid these.
FREE = """
set local session_replication_role = replica;
do $do$ declare one record; begin
    for one in select conrelid::regclass as relation, conname from pg_constraint
               where contype in ('c', 'x', 'n') and conrelid in ('allocations'::regclass, 'claims'::regclass,
                   'reservations'::regclass, 'node_orphans'::regclass, 'log'::regclass)
                 and conname not like '%_id_not_null' and conname not like 'log_version%'
    loop execute 'alter table ' || one.relation || ' drop constraint ' || one.conname; end loop;
end $do$;
"""
OF_ACTIVE = "subject = 'allocations/' || {active}"
HELD = "where name = 'held'"
TRUNCATED = "delete from log where version <= 3; update log_first set version = 4; "
SKIPPED = "select log_skip_versions(version + 1, version, 100) from log_head; "


def _moved_to_outbox(event_type: str, payload: str) -> str:
    return (
        "insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, payload)"
        f" select event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, payload || '{payload}' from log"
        f" where event_type = '{event_type}' and {OF_ACTIVE};"
        f" delete from log where event_type = '{event_type}' and {OF_ACTIVE}"
    )


BRANCHES = [
    planted(
        "a node that is not there", "P1", "that are not node",
        FREE + "update claims set node_id = uuidv7() where id = {early.claim}",
    ),
    planted(
        "a resource that is not there", "P1", "the resource no-seat's",
        FREE + "update claims set resource_id = 'no-seat' where resource_id = 'seat-21A'",
    ),
    planted(
        "an old allocation without a key", "P2", "has no operation record (key )",
        FREE + "update allocations set operation_key = '', requested_at = requested_at - interval '2 days'"
        " where name = 'early'",
    ),
    planted(
        "an old allocation without a fingerprint", "P2", "(key swept)",
        FREE + "update allocations set operation_key = 'swept', operation_fingerprint = '\\x00',"
        " requested_at = requested_at - interval '2 days' where name = 'early'",
    ),
    planted(
        "an event of another tenant", "P2", "names another allocation, tenant",
        FREE + f"update log set tenant_id = uuidv7() where version = {LAST_EVENT_OF_ACTIVE}",
    ),
    planted(
        "an operation without event behind a truncated log", "P2", "operation untold of",
        FREE + TRUNCATED + "insert into operations (scope, key, fingerprint, status, code, body, created_at, retire_after)"
        " values ({tenant}, 'untold', decode(repeat('ab', 32), 'hex'), 200, 'ok', '{}',"
        " clock_timestamp() + interval '1 hour', clock_timestamp() + interval '2 hours')",
    ),
    planted(
        "a hold whose claim is closed", "P2?reservations", "is not what reservation",
        FREE + f"update claims set closed_at = clock_timestamp() where {_claim('held')}",
    ),
    planted(
        "a hold whose units are occupied", "P2?reservations", "is not what reservation",
        FREE + f"update claims set occupied = true where {_claim('held')}",
    ),
    planted(
        "a hold whose units were occupied", "P2?reservations", "is not what reservation",
        FREE + f"update claims set occupied_from = clock_timestamp() where {_claim('held')}",
    ),
    planted(
        "a refusal under a reservation's key", "P2?reservations", "disagree",
        "update operations set status = 409 where key = 'hold held'",
    ),
    planted(
        "an old reservation without a key", "P2?reservations", "has no operation record (key )",
        FREE + "update reservations set operation_key = '', held_at = held_at - interval '2 days' where name = 'late'",
    ),
    planted(
        "an old reservation without a fingerprint", "P2?reservations", "(key swept)",
        FREE + "update reservations set operation_key = 'swept', operation_fingerprint = '\\x00',"
        " held_at = held_at - interval '2 days' where name = 'late'",
    ),
    planted(
        "a hold's event about another reservation", "P2?reservations", "has no event reservation.held",
        "update log set subject = (select 'reservations/' || id from reservations where name = 'late')"
        f" where event_id = (select held_event from reservations {HELD})",
    ),
    planted(
        "a chain that begins with a version that is kept", "P3", "previous version",
        FREE + TRUNCATED + "update log set prev_version = 5 where version ="
        " (select min(version) from log where tenant_id is not null)",
    ),
    planted(
        "skipped versions that are not all named", "P3", "jumps from version",
        SKIPPED + """update log set payload = payload || '{"first": 1000000}' where event_type = 'log.versions_skipped'""",
    ),
    planted(
        "skipped versions beyond their event", "P3", "jumps from version",
        SKIPPED + """update log set payload = payload || '{"last": 1}' where event_type = 'log.versions_skipped'""",
    ),
    planted(
        "a predecessor of skipped versions", "P3", "previous version",
        SKIPPED + "update log set prev_version = 0 where event_type = 'log.versions_skipped'",
    ),
    planted(
        "a chain that begins before a whole log", "P3", "previous version",
        FREE + "update log set prev_version = -1 where version ="
        " (select min(version) from log where tenant_id is not null)",
    ),
    planted(
        "a newest version of a tenant without events", "P3", "newest version",
        FREE + "insert into log_tenants (tenant_id, version) values (uuidv7(), 3)",
    ),
    planted(
        "a hold that ends when it begins", "P5", "no legal deadline",
        FREE + f"update reservations set hold_until = held_at {HELD}",
    ),
    planted(
        "an active allocation whose claim is closed", "P6", "gave its units away",
        FREE + "update claims set closed_at = clock_timestamp() where id = {active.claim}",
    ),
    planted(
        "an active allocation that occupies nothing", "P6", "gave its units away",
        FREE + "update claims set occupied = false where id = {active.claim}",
    ),
    planted(
        "closed and occupied", "claims", "which is released", FREE + "update claims set occupied = true where id = {early.claim}",
    ),
    planted(
        "a step noted as from another state", "P8", "noted as",
        "update allocation_timeline set from_state = 'active'"
        " where allocation_id = {early} and to_state = 'provisioning'",
    ),
    planted(
        "a release begun again by the row alone", "P8", "timeline ends with release_failed",
        FREE + "update allocations set state = 'releasing' where state = 'release_failed'",
    ),
    planted(
        "a row version behind its story's", "P8", "timeline ends with",
        FREE + "update allocations set row_version = row_version - 1 where name = 'early'",
    ),
    planted(
        "back from a final state behind a truncated log", "P8?reservations", "from cancelled to consumed",
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload) values ('reservation.consumed',"
        " uuidv7(), {tenant}, (select 'reservations/' || id from reservations where name = 'given_up'), '{}');"
        " select log_advance(10); delete from log where version = 1",
    ),
    planted(
        "a sequence that gave out nothing", "P8?reservations", "the sequence is at 1000",
        "select setval('reservation_positions', 1000, false)",
    ),
    planted(
        "an allocation that waits for nothing", "P9", "requested and waits for nothing",
        FREE + "update allocations set waits_for = null where name = 'requested'",
    ),
    planted(
        "an allocation that waits since no time", "P9", "requested and waits for worker",
        FREE + "update allocations set waits_since = null where name = 'requested'",
    ),
    planted(
        "a verb that waits for the tenant", "P9", "active and waits for tenant",
        FREE + "update allocations set guest_verb = 'reboot', waits_until = now() + interval '1 hour' where state = 'active'",
    ),
    planted(
        "a verb without a deadline", "P9", "active and waits for node",
        FREE + "update allocations set guest_verb = 'reboot', waits_for = 'node' where state = 'active'",
    ),
    planted(
        "failed units that wait for nothing", "P9", "waits for nothing",
        FREE + "update claims set waits_for = null where id = {dirty.claim}",
    ),
    planted(
        "failed units that wait since no time", "P9", "waits for cleanup",
        FREE + "update claims set waits_since = null where id = {dirty.claim}",
    ),
    planted(
        "an orphan that waits for nothing until a time", "P9", "is destroying and waits for nothing",
        FREE + SLOT_OUT + ORPHAN + "'destroying', null, now(), now() + interval '1 hour', null, null" + OF_THE_METAL,
    ),
    planted(
        "an orphan that waits since no time", "P9", "is destroying and waits for worker",
        FREE + SLOT_OUT + ORPHAN + "'destroying', 'worker', null, now() + interval '1 hour', null, null" + OF_THE_METAL,
    ),
    planted(
        "a hold that waits since no time", "P9", "is hold and waits for holder",
        FREE + f"update reservations set waits_since = null {HELD}",
    ),
    planted(
        "a hold that is shown another deadline", "P9", "is hold and waits for holder",
        FREE + f"update reservations set expires_at = hold_until + interval '1 second' {HELD}",
    ),
    planted(
        "a window that waits for ever", "P9", "is confirmed and waits for window",
        FREE + "update reservations set waits_until = null where name = 'window'",
    ),
    planted("a ledger without a balance", "billing", "the balance of tenant None", FREE + "delete from balances"),
]  # fmt: skip


class Kept(NamedTuple):
    """A change that no statement may report, and that one would report if an operand were missing."""

    name: str
    plant: str


KEPT = [
    Kept("skipped versions", SKIPPED),
    Kept(
        "skipped versions that a truncated log begins with",
        FREE + SKIPPED + "delete from log where event_type <> 'log.versions_skipped'; delete from log_tenants;"
        " update log_first set version = (select version - 1 from log)",
    ),
    Kept(
        "an activation that says that nothing was turned over",
        f"update log set payload = payload || '{{\"turned_over\": false}}' where event_type = 'provisioning.active'"
        f" and {OF_ACTIVE}",
    ),
    Kept(
        "an activation in the outbox that says that nothing was turned over",
        FREE + _moved_to_outbox("provisioning.active", '{"turned_over": false}'),
    ),
    Kept("a request in the outbox", FREE + _moved_to_outbox("provisioning.requested", "{}")),
    Kept(
        "an operator's operation",
        "with asked as (select uuidv7() as scope), done as (insert into operations (scope, key, fingerprint, status, code,"
        " body, retire_after) select scope, 'by-operator', decode(repeat('ab', 32), 'hex'), 200, 'ok', '{}',"
        " clock_timestamp() + interval '1 hour' from asked)"
        " insert into outbox (event_type, correlation_id, subject, operation_key, payload)"
        " values ('node.online', uuidv7(), 'nodes/1', 'by-operator', '{}')",
    ),
]
