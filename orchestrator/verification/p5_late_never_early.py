"""P5: a hold expires late, never early, and of confirm and expiry only one happens.

The instants compared are all the database's: each was read after the locks of the transaction that it judged. The log is
looked at as well as the rows, because rows are retired and a row shows its last word only.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

HOLD_SECONDS_MAX = 3600
"""The product's maximum; a deployment may only lower it."""

EARLY = "select id, ended_at, hold_until from reservations where state = 'expired' and ended_at < hold_until"
LATE = """
select id, coalesce(confirmed_at, ended_at), hold_until,
       case when confirmed_at is not null then 'confirmed' else 'used' end
from reservations
where confirmed_at >= hold_until or (state = 'consumed' and confirmed_at is null and ended_at >= hold_until)
"""
HELD_TOO_LONG = """
select id, held_at, hold_until, ends_at::text from reservations
where hold_until > held_at + make_interval(secs => %(seconds)s) or hold_until <= held_at or hold_until > ends_at
"""
WINDOW_CUT = """
select id, ended_at, coalesce(ends_at::text, 'no end') from reservations
where state = 'released' and (ends_at is null or ended_at < ends_at)
"""
# Confirmed and expired, or judged on the wrong side of the deadline that was emitted with the hold.
TOLD_BOTH = """
select subject from log where event_type in ('reservation.confirmed', 'reservation.expired')
group by subject having count(distinct event_type) > 1
"""
TOLD_WRONG = """
with emitted as (
    select subject, event_type, case event_type when 'reservation.expired'
               then least((payload ->> 'judged_at')::timestamptz, occurred_at)
               else (payload ->> 'judged_at')::timestamptz end as judged_at,
           max((payload ->> 'hold_until')::timestamptz) filter (where event_type = 'reservation.held')
               over (partition by subject) as hold_until
    from log where event_type in ('reservation.held', 'reservation.confirmed', 'reservation.expired')
)
select subject, event_type, judged_at, hold_until from emitted
where (event_type = 'reservation.expired' and judged_at < hold_until)
   or (event_type = 'reservation.confirmed' and judged_at >= hold_until)
"""


def check_late_never_early(connection: Connection, _: Bounds) -> Verdict:
    """No hold ended for want of time before its deadline, none was confirmed or used after it, no window was cut short."""
    verdict = Verdict("P5", "a hold expires late, never early")
    verdict.count(connection, "select count(*) from reservations")
    verdict.scan(connection, EARLY, "reservation {0} expired at {1}, but was held until {2}")
    verdict.scan(connection, LATE, "reservation {0} was {3} at {1}, after its deadline {2}")
    verdict.scan(
        connection,
        HELD_TOO_LONG,
        "reservation {0}, made at {1}, is held until {2}: no legal deadline for a window that ends at {3}",
        seconds=HOLD_SECONDS_MAX,
    )
    verdict.scan(connection, WINDOW_CUT, "reservation {0} was released at {1}, but its window ends at {2}")
    verdict.scan(connection, TOLD_BOTH, "{0} was emitted confirmed and expired")
    verdict.scan(connection, TOLD_WRONG, "{0}: {1} was judged at {2}, the deadline was {3}")
    return verdict
