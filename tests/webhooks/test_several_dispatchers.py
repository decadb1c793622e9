"""Any number of dispatchers: only a delivery that a dispatcher died with is sent twice, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from orchestrator.webhooks.commands.dispatch import enqueue_deliveries, lease_deliveries, record_attempt
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store.dispatch import LeasedDelivery
from tests.webhooks.receivers import Receiver, answers, receiving
from tests.webhooks.stage import WebhookStage
from worker.webhooks.dispatching import Dispatcher


async def _until(*dispatchers: Dispatcher, done: Callable[[], bool]) -> None:
    """All of them at it at the same time, as in as many workers."""

    async def work(dispatcher: Dispatcher) -> None:
        while not done():
            await dispatcher.round()
        await dispatcher.drain()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(dispatcher) for dispatcher in dispatchers))


def test_several_at_once_send_each_message_once(stage: WebhookStage) -> None:
    tenants = [stage.tenant() for _ in range(3)]
    with receiving(3) as receivers:
        made = [stage.webhook(tenant, one, types=["node.*"]) for tenant, one in zip(tenants, receivers, strict=True)]
        made.append(stage.webhook(stage.admin, receivers[0], types=["node.*"]))
        for _ in range(5):
            for tenant in tenants:
                stage.append(tenant, 4)

        def done() -> bool:
            return sum(len(one.received) for one in receivers) >= 120

        stage.run(lambda: _until(stage.dispatcher(), stage.dispatcher(), stage.dispatcher(), done=done))
        stage.dispatch()
        times = Counter(
            (message.message_id, message.headers["webhook-signature"]) for one in receivers for message in one.received
        )
        assert len(times) == 120
        assert set(times.values()) == {1}
        for webhook in made:
            states = stage.one(
                "select array_agg(distinct state) from webhook_deliveries where webhook_id = %s", webhook["id"]
            )
            assert states == ["succeeded"]
            numbered = stage.one("select numbered = (select count(*) from webhook_deliveries where webhook_id = w.id) "
                                "from webhooks w where id = %s", webhook["id"])  # fmt: skip
            assert numbered
        stage.admin.call("DELETE", f"/webhooks/{made[-1]['id']}")


def test_at_the_same_instant_each_is_written_and_taken_once(stage: WebhookStage, receiver: Receiver) -> None:
    tenants = [stage.tenant() for _ in range(3)]
    webhooks = [stage.webhook(tenant, receiver, types=["node.online"]) for tenant in tenants]
    context = stage.sending

    async def enqueue() -> None:
        await enqueue_deliveries(context, batch=500, pending_max=5_000, webhooks_max=200)

    async def lease() -> list[LeasedDelivery]:
        return await lease_deliveries(context, [], limit=64, webhook_max=3, tenant_max=64, lease_seconds=600.0)

    async def all_at_once() -> list[LeasedDelivery]:
        taken: list[LeasedDelivery] = []
        for _ in range(12):
            for tenant in tenants:
                stage.append(tenant, 3)
            await asyncio.gather(*(enqueue() for _ in range(4)))
            for several in await asyncio.gather(*(lease() for _ in range(4))):
                taken += several
        return taken

    taken = stage.run(all_at_once)
    assert len(taken) == len({(one.webhook_id, one.number) for one in taken}), "nothing is taken twice"
    for tenant, webhook in zip(tenants, webhooks, strict=True):
        assert [one["number"] for one in stage.deliveries(tenant, webhook)] == list(range(1, 37))


def test_a_lease_that_ends_is_anothers_and_a_late_outcome_changes_nothing(
    stage: WebhookStage, receiver: Receiver
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    stage.append(tenant)
    dead = stage.dispatcher()
    taken: list[LeasedDelivery] = []
    dead._begin = taken.append  # type: ignore[method-assign, assignment]  # it dies between the lease and the sending
    stage.run(dead.round)
    assert len(taken) == 1
    stage.dispatch()
    assert receiver.received == [], "another dispatcher leases it"
    stage.due_now(webhook["id"])
    stage.dispatch()
    assert len(receiver.received) == 1
    (told,) = stage.deliveries(tenant, webhook)
    assert (told["state"], told["attempts"]) == ("succeeded", 2)

    async def report_late() -> object:
        late = Attempt(1, 410)
        return await record_attempt(stage.sending, taken[0], late, pause_seconds=1.0, failing_seconds_max=0.0)

    assert stage.run(report_late) is None
    assert stage.deliveries(tenant, webhook) == [told]
    assert tenant.get(f"/webhooks/{webhook['id']}")["state"] == "enabled"


def test_what_is_changed_while_it_is_sent(stage: WebhookStage, receiver: Receiver) -> None:
    """Disabled and deleted meanwhile: what was under way ends by itself, and nothing follows."""
    tenant = stage.tenant()
    webhooks = [stage.webhook(tenant, receiver, types=["node.online"]) for _ in range(2)]
    receiver.will(answers(500))
    stage.append(tenant)
    dispatcher = stage.dispatcher()
    taken: list[LeasedDelivery] = []
    begin = dispatcher._begin
    dispatcher._begin = taken.append  # type: ignore[method-assign, assignment]
    stage.run(dispatcher.round)
    assert len(taken) == 2
    tenant.call("PATCH", f"/webhooks/{webhooks[0]['id']}", {"state": "disabled"})
    assert tenant.call("DELETE", f"/webhooks/{webhooks[1]['id']}").status_code == 204

    async def send() -> None:
        for one in taken:
            begin(one)
        await dispatcher.drain()

    stage.run(send)
    assert [(one["state"], one["response_status"]) for one in stage.deliveries(tenant, webhooks[0])] == [
        ("failed", 500)
    ]
    assert tenant.get(f"/webhooks/{webhooks[0]['id']}")["disabled_reason"] == "requested"
    states = stage.one("select array_agg(state) from webhook_deliveries where webhook_id = %s", webhooks[1]["id"])
    assert states == ["failed"]
