"""Webhooks further behind the log than one transaction scans."""

from __future__ import annotations

import pytest

from tests.webhooks.desk import Desk
from tests.webhooks.receivers import Receiver
from worker.webhooks import dispatching
from worker.webhooks.dispatching import BATCH


@pytest.mark.parametrize("whose", ["tenant", "operator"])
def test_a_webhook_more_than_one_scan_behind_skips_nothing(desk: Desk, receiver: Receiver, whose: str) -> None:
    owner = desk.tenant() if whose == "tenant" else desk.admin
    tenant = owner if whose == "tenant" else None
    made = desk.webhook(owner, receiver, types=["node.offline"])
    wanted = []
    for others in (BATCH - 1, BATCH - 1, 1, BATCH):  # the wanted ones end a scan, begin one, and lie in the last
        desk.append(tenant, others)
        wanted.append(desk.append(tenant, 1, "node.offline"))
    desk.dispatch()
    assert [one["version"] for one in desk.deliveries(owner, made)] == wanted
    assert {one["state"] for one in desk.deliveries(owner, made)} == {"succeeded"}
    assert owner.get(f"/webhooks/{made['id']}")["position"] >= wanted[-1]
    owner.call("DELETE", f"/webhooks/{made['id']}")


def test_one_round_says_that_more_webhooks_are_behind_than_one_transaction_moves(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "WEBHOOKS_MAX", 2)
    tenant = desk.tenant()
    made = [desk.webhook(tenant, receiver, types=["node.online"]) for _ in range(5)]
    desk.append(tenant)
    desk.dispatch()
    assert [len(desk.deliveries(tenant, one)) for one in made] == [1] * 5
