"""Ways to break what is promised of reservations (tests/berth/reserved.py has them, each by its name)."""

from __future__ import annotations

from tests.berth.violations import planted

NO_RULES = (
    "alter table reservations disable trigger all;"
    " alter table reservations drop constraint reservation_waits_while_live,"
    " drop constraint hold_has_deadline, drop constraint confirmed_has_no_deadline,"
    " drop constraint reservation_ended_is_complete; "
)
TOLD = "(select 'reservations/' || id from reservations where name = '{}')"


def _told(name: str) -> str:
    return TOLD.replace("{}", name)


def _claim(name: str) -> str:
    return f"owner_kind = 'reservation' and owner_id = (select id from reservations where name = '{name}')"


RESERVED = [
    planted(
        "a hold without its claim", "P2?reservations quota fit units", "has 0 open claims",
        f"delete from claims where {_claim('held')}",
    ),
    planted(
        "a window whose right was dropped", "P2?reservations", "0 of them booked",
        f"update claims set booked = false, occupied = true, occupied_from = now() where {_claim('window')}",
    ),
    planted(
        "a claim that outlives its reservation", "P2?reservations claims quota fit units", "which is expired",
        "update claims c set booked = true, closed_at = null, during = tstzrange('2090-01-01', null), units ="
        " (select int8multirange(int8range(unit_base, unit_base + 1)) from nodes n where n.id = c.node_id)"
        f" where {_claim('late')}",
    ),
    planted(
        "a claim of another window", "P2?reservations", "is not what reservation",
        f"update claims set during = tstzrange('2090-01-01', null) where {_claim('held')}",
    ),
    planted(
        "another tenant's claim", "P2?reservations quota", "is not what reservation",
        f"update claims set tenant_id = uuidv7() where {_claim('held')}",
    ),
    planted(
        "GPUs that no claim holds", "P2?reservations", "counts 2 GPUs",
        "update reservations set gpus_held = 2 where name = 'held'",
    ),
    planted(
        "a claim of no reservation", "P2?reservations claims", "which does not exist",
        "update claims set owner_id = reservation_id(0, 99) where resource_id = 'seat-21A'",
    ),
    planted(
        "another content under a reservation's key", "P2?reservations", "disagree",
        "update operations set fingerprint = decode(repeat('11', 32), 'hex') where key = 'hold held'",
    ),
    planted(
        "a reservation without its operation", "P2?reservations", "has no operation record",
        "delete from operations where key = 'hold held'",
    ),
    planted(
        "a hold without its event", "P2?reservations", "has no event reservation.held",
        f"update log set event_type = 'other' where event_type = 'reservation.held' and subject = {_told('held')};"
        f" update log set subject = 'x/1' where event_type = 'other' and subject = {_told('held')}",
    ),
    planted(
        "an end with the event of another", "P2?reservations P8?reservations", "has no event reservation.cancelled",
        "update log set event_type = 'reservation.released'"
        f" where event_type = 'reservation.cancelled' and subject = {_told('given_up')}",
    ),
    planted(
        "a reservation that vanished", "P2?reservations", "neither exists nor is retired",
        "delete from reservations where name = 'late'",
    ),
    planted(
        "two reservations under a key", "P4 P2?reservations", "reservations under the key",
        "alter table reservations drop constraint reservation_runs_once;"
        " update reservations set operation_key = 'hold held' where name = 'late'",
    ),
    planted(
        "an answer that names another key's reservation", "P2 P4", "which was made under the key",
        "insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after)"
        " select scope, 'other', fingerprint, status, code, body, subject_id, retire_after from operations"
        " where key = 'hold held'",
    ),
    planted(
        "expired before its deadline", "P5", "expired at",
        "update reservations set ended_at = hold_until - interval '1 microsecond' where name = 'late'",
    ),
    planted(
        "an expiry judged before the deadline", "P5", "the deadline was",
        "update log set payload = payload || '{\"judged_at\": \"2001-01-01T00:00:00Z\"}'"
        f" where event_type = 'reservation.expired' and subject = {_told('late')}",
    ),
    planted(
        "confirmed after its deadline", "P5", "was confirmed at",
        "update reservations set confirmed_at = hold_until where name = 'window'",
    ),
    planted(
        "a confirm judged after the deadline", "P5", "the deadline was",
        "update log set payload = payload || '{\"judged_at\": \"2090-01-01T00:00:00Z\"}'"
        f" where event_type = 'reservation.confirmed' and subject = {_told('window')}",
    ),
    planted(
        "confirmed and expired", "P5 P8?reservations P2?reservations", "confirmed and expired",
        "update log set event_type = 'reservation.expired', payload = payload || '{\"judged_at\": \"2090-01-01\"}'"
        f" where event_type = 'reservation.cancelled' and subject = {_told('given_up')}",
    ),
    planted(
        "used after its deadline", "P5 P8?reservations P2?reservations", "was used at",
        "alter table reservations disable trigger all; update reservations set state = 'consumed' where name = 'late'",
    ),
    planted(
        "a hold of two hours", "P5 P9", "no legal deadline",
        "update reservations set hold_until = held_at + interval '2 hours' where name = 'held'",
    ),
    planted(
        "held for longer than its window", "P5", "no legal deadline",
        "update reservations set hold_until = ends_at + interval '1 microsecond', held_at = ends_at - interval '1 minute'"
        " where name = 'unused'",
    ),
    planted(
        "a window cut short", "P5", "was released at",
        "update reservations set ended_at = ends_at - interval '1 microsecond' where name = 'unused'",
    ),
    planted(
        "an open window released", "P5 P2?reservations", "its window ends at no end",
        "update reservations set ends_at = null where name = 'unused'",
    ),
    planted(
        "back from a final state", "P8?reservations", "from cancelled to consumed",
        "insert into outbox (event_type, correlation_id, tenant_id, subject, payload)"
        f" values ('reservation.consumed', uuidv7(), {{tenant}}, {_told('given_up')}, '{{}}'); select log_advance(10)",
    ),
    planted(
        "confirmed without a hold", "P8?reservations P2?reservations", "to confirmed",
        f"update log set event_type = 'other' where event_type = 'reservation.held' and subject = {_told('window')}",
    ),
    planted(
        "the row of a reservation went on alone", "P8?reservations P9 counts", "its events end with hold",
        NO_RULES + "update reservations set state = 'confirmed', confirmed_at = held_at, expires_at = null"
        " where name = 'seat'; update reservations set waits_for = null where name = 'seat'",
    ),
    planted(
        "an id that may come again", "P8?reservations", "the sequence is at 1",
        "select setval('reservation_positions', 1)",
    ),
    planted(
        "a position that is not its id's", "P8?reservations", "has the position 77",
        "update reservations set position = 77 where name = 'held'; select setval('reservation_positions', 100)",
    ),
    planted(
        "a watermark ahead of all ids", "P8?reservations", "the watermark is at 1000",
        "update reservation_watermark set position = 1000",
    ),
    planted("no watermark", "P8?reservations", "0 watermarks", "delete from reservation_watermark"),
    planted(
        "a hold that waits for nothing", "P9", "is hold and waits for nothing",
        NO_RULES + "update reservations set waits_for = null where name = 'held'",
    ),
    planted(
        "a hold that waits beyond its deadline", "P9", "is hold and waits for holder",
        "update reservations set waits_until = hold_until + interval '1 second' where name = 'held'",
    ),
    planted(
        "an ended one that waits", "P9", "is expired and waits for holder",
        NO_RULES + "update reservations set waits_for = 'holder', waits_since = now() where name = 'late'",
    ),
    planted(
        "a hold that was not expired", "P9", "(hold) waits for holder and is overdue",
        "update reservations set held_at = held_at - interval '1 hour', hold_until = hold_until - interval '1 hour',"
        " expires_at = hold_until - interval '1 hour', waits_until = hold_until - interval '1 hour' where name = 'held'",
    ),
    planted(
        "an ended one kept for ever", "P13", "reservations are kept past their time",
        "update reservations set retire_after = clock_timestamp() - interval '2 hours' where name = 'late'",
    ),
    planted(
        "a resource's claim on another unit", "P1", "not the resource seat-21A's",
        f"update claims set units = '{{[9000,9001)}}' where {_claim('seat')}",
    ),
    planted(
        "a resource on a slot's unit", "P1", "which is a slot of node",
        "insert into resources (id, unit) select 'another', max(unit) from slots",
    ),
    planted(
        "a held slot that looks free", "fit units", "says mask",
        "update nodes n set free_mask = free_mask | (1::bigint << (lower(units) - unit_base)::integer)"
        f" from claims c where {_claim('held').replace('owner', 'c.owner')} and n.id = c.node_id",
    ),
    planted(
        "a reservation that is not paid for", "quota", "is charged",
        "update tenant_quotas set gpus_used = gpus_used - 2",
    ),
]  # fmt: skip
