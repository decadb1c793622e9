"""Time that passes for the reservations and allocations of a database at once, so that no test must be quicker than a clock.

The times of the events stay what they were, but for when they were judged: `berth verify` finds that they do not match.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import psycopg

ALMOST = timedelta(seconds=20)
"""So long before its time nothing may happen: enough for a slow machine, and less than a deadline that is wrong by a minute."""
# Earlier windows first: no two that follow each other overlap in between.
_PASS = """
do $$
declare
    passed interval := current_setting('test.passed')::interval;
    one record;
begin
    for one in select id from claims where closed_at is null order by lower(during), id loop
        update claims set during = tstzrange(lower(during) - passed, upper(during) - passed), waits_until = waits_until - passed
         where id = one.id;
    end loop;
    update reservations set starts_at = starts_at - passed, ends_at = ends_at - passed, hold_until = hold_until - passed,
           expires_at = expires_at - passed, waits_until = waits_until - passed;
    update allocations set ends_at = ends_at - passed, waits_until = waits_until - passed;
    update outbox set payload = payload || jsonb_build_object(
        'judged_at', rfc3339((payload ->> 'judged_at')::timestamptz - passed)) where payload ? 'judged_at';
end $$
"""


def let_pass(url: str, passed: timedelta) -> None:
    """Every time of a window, a deadline and a decision that is stored lies so much further back."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select set_config('test.passed', %s::interval::text, false)", (passed,))
        connection.execute(_PASS)


def let_come(url: str, instant: datetime, *, left: timedelta = timedelta(0)) -> datetime:
    """Let so much time pass that a stored instant of the future is over, or that so much is left until it; where it lies then."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select %s - clock_timestamp()", (instant,)).fetchone()
    assert row is not None
    passed: timedelta = row[0] - left
    assert passed > timedelta(0), "its time came before the test let it come"
    let_pass(url, passed)
    return instant - passed
