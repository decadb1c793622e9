"""Endpoints that are slow, oversized, invalid or missing: the message is retried, and other webhooks are unaffected."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.waiting import async_wait_for
from tests.webhooks.receivers import Receiver, answers, closes, closes_midway, receiving, talks_nonsense
from tests.webhooks.stage import WebhookStage


def test_what_endpoints_do_that_is_no_answer(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    cases: list[tuple[Any, str | None, int | None]] = [
        (closes, "not_http", None),
        (closes_midway, "not_http", None),
        (talks_nonsense, "not_http", None),
        (answers(301, headers={"location": receiver.url}), None, 301),
        (answers(307, headers={"location": receiver.url}), None, 307),
        (answers(404), None, 404),
        (answers(199 + 100), None, 299),
    ]
    for place, (behaviour, error, status) in enumerate(cases):
        receiver.will(behaviour)
        stage.append(tenant)
        stage.dispatch()
        told = stage.deliveries(tenant, webhook)[-1]
        assert (told["error"], told["response_status"]) == (error, status), behaviour
        assert told["state"] == ("succeeded" if status == 299 else "pending")
        assert len(receiver.received) == place + 1, "redirects are not followed"


@pytest.mark.full
def test_slow_and_large_endpoints_harm_no_other(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    with receiving(4) as bad:
        behaviours = [bad[0].hangs, bad[1].trickles, bad[2].trickles_body, bad[3].floods]
        webhooks = []
        for one, behaviour in zip(bad, behaviours, strict=True):
            one.will(behaviour)
            webhooks.append(stage.webhook(stage.tenant(), one, types=["node.online"]))
        stage.database.execute(
            "update webhooks set tenant_id = %s where id = any(%s)", (tenant.tenant_id, [w["id"] for w in webhooks])
        )
        good = stage.webhook(tenant, receiver, types=["node.online"])
        stage.append(tenant, 10)
        dispatcher = stage.dispatcher(timeout_seconds=3.0, tenant_attempts_max=64)

        async def until_good_is_done() -> None:
            async def done() -> bool:
                await dispatcher.round()
                return len(receiver.received) >= 10

            await async_wait_for(done, "the good endpoint to have received everything", 60)
            assert not bad[0].stopping.is_set()
            assert sum(dispatcher._busy.values()) > 0, "the others are still at it"
            await dispatcher.drain()

        stage.run(until_good_is_done)
        assert {one["state"] for one in stage.deliveries(tenant, good)} == {"succeeded"}
        told = [stage.deliveries(tenant, webhook)[0] for webhook in webhooks]
        assert [(one["error"], one["response_status"]) for one in told] == [
            ("timeout", None), ("timeout", None), (None, 500), (None, 500)
        ]  # fmt: skip
        assert all(one["duration_ms"] < 10_000 for one in told)
        assert len(told[3]["response_excerpt"]) <= 1_000
        assert bad[3].taken < 10_000_000 * len(bad[3].received), "the dispatcher does not read the whole body"
        assert all(one.most_at_once <= 4 for one in bad)
        for webhook in webhooks:
            assert tenant.call("DELETE", f"/webhooks/{webhook['id']}").status_code == 204


@pytest.mark.full
def test_an_answer_in_time_counts_however_long_its_body_takes(
    stage: WebhookStage, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    monkeypatch.setattr("worker.webhooks.sending.EXCERPT_SECONDS", 3.0)
    receiver.will(receiver.trickles_body)
    stage.append(tenant)
    stage.dispatch(stage.dispatcher(timeout_seconds=2.0))
    (told,) = stage.deliveries(tenant, webhook)
    assert (told["error"], told["response_status"]) == (None, 500)


def test_a_head_without_end_is_not_read(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    for behaviour in (receiver.floods_heads, receiver.floods_fields):
        receiver.will(behaviour)
        stage.append(tenant)
        stage.dispatch(stage.dispatcher(timeout_seconds=60.0))
        told = stage.deliveries(tenant, webhook)[-1]
        assert (told["error"], told["state"]) == ("answer_too_long", "pending")
    assert receiver.taken < 50_000_000, "sockets' buffers hold some of it"
