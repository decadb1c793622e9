"""P6, the other way round: whatever holds units is somebody who may. Otherwise units are lost, or kept by the dead.

An open claim belongs to an allocation that is not final, or to a failed one that is not cleaned up. Reservations do not
exist yet, so none of their claims may be open.
"""

from __future__ import annotations

from berth.verification.verdict import Bounds, Connection, Verdict

OF_NOBODY = """
select c.id, c.owner_kind, c.owner_id, coalesce(a.state, 'nothing') from claims c
    left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id and a.claim_id = c.id
where (c.closed_at is null or c.booked or c.occupied) and coalesce(a.state, 'released') = 'released'
"""
HALF_CLOSED = """
select id, closed_at::text, booked, occupied from claims where (closed_at is not null) = (booked or occupied)
"""
RIGHT_WITHOUT_LIFE = """
select c.id, a.id, a.state from claims c join allocations a on a.claim_id = c.id
where c.booked and a.state not in ('requested', 'provisioning', 'active')
"""


def check_owned_claims(connection: Connection, _: Bounds) -> Verdict:
    """Every open claim has a living owner, and is closed exactly when nothing of it is left."""
    verdict = Verdict("claims", "an open claim belongs to somebody who may hold it")
    verdict.count(connection, "select count(*) from claims where closed_at is null or booked or occupied")
    verdict.scan(connection, OF_NOBODY, "claim {0} still holds its units for {1} {2}, which is {3}")
    verdict.scan(connection, HALF_CLOSED, "claim {0} is closed at {1}, booked {2}, occupied {3}")
    verdict.scan(connection, RIGHT_WITHOUT_LIFE, "claim {0} keeps the right of allocation {1}, which is {2}")
    return verdict
