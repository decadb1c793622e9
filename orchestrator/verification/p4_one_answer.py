"""P4: an operation key has one answer and one effect. The unique constraints say so; this looks without them."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

ANSWERED_TWICE = """
select scope, key, count(*), count(distinct subject_id) from operations group by scope, key having count(*) > 1
"""
CREATED_TWICE = """
select tenant_id, operation_key, count(*) from allocations group by tenant_id, operation_key having count(*) > 1
"""
ANOTHER_KEYS_ALLOCATION = """
select o.scope, o.key, a.id, a.operation_key from operations o join allocations a on a.id = o.subject_id
where o.status = 201 and (o.scope, o.key) is distinct from (a.tenant_id, a.operation_key)
"""
ANSWERS_WITH_ANOTHER = """
select o.scope, o.key, a.id from operations o join allocations a on a.id = o.subject_id
where o.status = 201 and strpos(o.body, a.id::text) = 0
"""
HELD_TWICE = """
select tenant_id, operation_key, count(*) from reservations group by tenant_id, operation_key having count(*) > 1
"""
ANOTHER_KEYS_RESERVATION = """
select o.scope, o.key, r.id, r.operation_key from operations o join reservations r on r.id = o.subject_id
where o.status = 201 and (o.scope, o.key) is distinct from (r.tenant_id, r.operation_key)
"""


def check_one_answer(connection: Connection, _: Bounds) -> Verdict:
    """Each (scope, key) is stored once, no two creations share tenant and key, no answer is another key's creation."""
    verdict = Verdict("P4", "an operation key has one answer and one effect")
    verdict.count(connection, "select count(*) from operations")
    verdict.scan(connection, ANSWERED_TWICE, "operation {1} of {0} is stored {2} times, with {3} subjects")
    verdict.scan(connection, CREATED_TWICE, "tenant {0} has {2} allocations under the key {1}")
    verdict.scan(
        connection,
        ANOTHER_KEYS_ALLOCATION,
        "operation {1} of {0} says that it created allocation {2}, which was created under the key {3}",
    )
    verdict.scan(
        connection, ANSWERS_WITH_ANOTHER, "operation {1} of {0} created allocation {2}, which its answer does not name"
    )
    verdict.scan(connection, HELD_TWICE, "tenant {0} has {2} reservations under the key {1}")
    verdict.scan(
        connection,
        ANOTHER_KEYS_RESERVATION,
        "operation {1} of {0} says that it made reservation {2}, which was made under the key {3}",
    )
    return verdict
