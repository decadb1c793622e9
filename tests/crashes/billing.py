"""What goes on while a process dies that keeps a balance, or ends what nothing is left for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.client import BalanceDepleted
from tests.crashes.plays import create, new_key
from tests.crashes.stage import Stage

PAID = 10**15
TOLD = """
select event_type from (select event_type, tenant_id, version as place from log union all
                        select event_type, tenant_id, 2^62 + id from outbox) e
where tenant_id = %s and event_type like 'balance.%%' order by place
"""


def a_balance_is_used_up(stage: Stage) -> Iterator[None]:
    """One payment under one key, one event of each kind, one release by billing, a refusal, and a top-up."""
    tenant = stage.tenant()
    runs = create(stage, tenant)
    tenant.wait(runs, "active")
    yield
    key = new_key()
    lines = [stage.admin.top_up_balance(tenant.id, amount_micro_units=PAID, idempotency_key=key) for _ in range(2)]
    assert lines[0] == lines[1]
    assert stage.execute("select id from ledger where tenant_id = %s and kind = 'top_up'", tenant.id) == [
        (lines[0].id,)
    ]
    stage.admin.set_balance_policy(
        tenant.id, prepaid=True, low_threshold_micro_units=PAID + 1, idempotency_key=new_key()
    )
    stage.admin.withdraw_from_balance(
        tenant.id, amount_micro_units=PAID, reference="crash test", idempotency_key=new_key()
    )
    tenant.wait(runs, "released")
    assert stage.execute(TOLD, tenant.id) == [("balance.low",), ("balance.depleted",)]
    by = "select actor_kind from allocation_timeline where allocation_id = %s and to_state = 'releasing'"
    assert stage.execute(by, runs.allocation_id) == [("billing",)]
    with pytest.raises(BalanceDepleted):
        create(stage, tenant)
    stage.admin.top_up_balance(tenant.id, amount_micro_units=PAID, idempotency_key=new_key())
    assert tenant.client.get_balance().depleted_at is None
