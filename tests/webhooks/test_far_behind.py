"""Webhooks further behind the log than one transaction scans."""

from __future__ import annotations

import pytest

from tests.webhooks.receivers import Receiver
from tests.webhooks.stage import WebhookStage
from worker.webhooks import dispatching
from worker.webhooks.dispatching import BATCH


@pytest.mark.parametrize("whose", ["tenant", "operator"])
def test_a_webhook_more_than_one_scan_behind_skips_nothing(stage: WebhookStage, receiver: Receiver, whose: str) -> None:
    owner = stage.tenant() if whose == "tenant" else stage.admin
    tenant = owner if whose == "tenant" else None
    made = stage.webhook(owner, receiver, types=["node.offline"])
    wanted = []
    for others in (BATCH - 1, BATCH - 1, 1, BATCH):  # the wanted ones end a scan, begin one, and lie in the last
        stage.append(tenant, others)
        wanted.append(stage.append(tenant, 1, "node.offline"))
    stage.dispatch()
    assert [one["version"] for one in stage.deliveries(owner, made)] == wanted
    assert {one["state"] for one in stage.deliveries(owner, made)} == {"succeeded"}
    assert owner.get(f"/webhooks/{made['id']}")["position"] >= wanted[-1]
    owner.call("DELETE", f"/webhooks/{made['id']}")


def test_one_round_says_that_more_webhooks_are_behind_than_one_transaction_moves(
    stage: WebhookStage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "WEBHOOKS_MAX", 2)
    tenant = stage.tenant()
    made = [stage.webhook(tenant, receiver, types=["node.online"]) for _ in range(5)]
    stage.append(tenant)
    stage.dispatch()
    assert [len(stage.deliveries(tenant, one)) for one in made] == [1] * 5
