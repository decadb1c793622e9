"""Any number of dispatchers: only a delivery that a dispatcher died with is sent twice, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from orchestrator.webhooks.commands.dispatch import enqueue_deliveries, lease_deliveries, record_attempt
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store.dispatch import LeasedDelivery
from tests.webhooks.desk import Desk
from tests.webhooks.receivers import Receiver, answers, receiving
from worker.webhooks.dispatching import Dispatcher


async def _until(*dispatchers: Dispatcher, done: Callable[[], bool]) -> None:
    """All of them at it at the same time, as in as many workers."""

    async def work(dispatcher: Dispatcher) -> None:
        while not done():
            await dispatcher.round()
        await dispatcher.drain()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(dispatcher) for dispatcher in dispatchers))


def test_several_at_once_send_each_message_once(desk: Desk) -> None:
    tenants = [desk.tenant() for _ in range(3)]
    with receiving(3) as receivers:
        made = [desk.webhook(tenant, one, types=["node.*"]) for tenant, one in zip(tenants, receivers, strict=True)]
        made.append(desk.webhook(desk.admin, receivers[0], types=["node.*"]))
        for _ in range(5):
            for tenant in tenants:
                desk.append(tenant, 4)

        def done() -> bool:
            return sum(len(one.received) for one in receivers) >= 120

        desk.run(lambda: _until(desk.dispatcher(), desk.dispatcher(), desk.dispatcher(), done=done))
        desk.dispatch()
        times = Counter(
            (message.message_id, message.headers["webhook-signature"]) for one in receivers for message in one.received
        )
        assert len(times) == 120
        assert set(times.values()) == {1}
        for webhook in made:
            states = desk.one(
                "select array_agg(distinct state) from webhook_deliveries where webhook_id = %s", webhook["id"]
            )
            assert states == ["succeeded"]
            numbered = desk.one("select numbered = (select count(*) from webhook_deliveries where webhook_id = w.id) "
                                "from webhooks w where id = %s", webhook["id"])  # fmt: skip
            assert numbered
        desk.admin.call("DELETE", f"/webhooks/{made[-1]['id']}")


def test_at_the_same_instant_each_is_written_and_taken_once(desk: Desk, receiver: Receiver) -> None:
    tenants = [desk.tenant() for _ in range(3)]
    webhooks = [desk.webhook(tenant, receiver, types=["node.online"]) for tenant in tenants]
    context = desk.sending

    async def enqueue() -> None:
        await enqueue_deliveries(context, batch=500, pending_max=5_000, webhooks_max=200)

    async def lease() -> list[LeasedDelivery]:
        return await lease_deliveries(context, [], limit=64, webhook_max=3, tenant_max=64, lease_seconds=600.0)

    async def all_at_once() -> list[LeasedDelivery]:
        taken: list[LeasedDelivery] = []
        for _ in range(12):
            for tenant in tenants:
                desk.append(tenant, 3)
            await asyncio.gather(*(enqueue() for _ in range(4)))
            for several in await asyncio.gather(*(lease() for _ in range(4))):
                taken += several
        return taken

    taken = desk.run(all_at_once)
    assert len(taken) == len({(one.webhook_id, one.number) for one in taken}), "nothing is taken twice"
    for tenant, webhook in zip(tenants, webhooks, strict=True):
        assert [one["number"] for one in desk.deliveries(tenant, webhook)] == list(range(1, 37))


def test_a_lease_that_ends_is_anothers_and_a_late_outcome_changes_nothing(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    desk.append(tenant)
    dead = desk.dispatcher()
    taken: list[LeasedDelivery] = []
    dead._begin = taken.append  # type: ignore[method-assign, assignment]  # it dies between the lease and the sending
    desk.run(dead.round)
    assert len(taken) == 1
    desk.dispatch()
    assert receiver.received == [], "another dispatcher leases it"
    desk.due_now(webhook["id"])
    desk.dispatch()
    assert len(receiver.received) == 1
    (told,) = desk.deliveries(tenant, webhook)
    assert (told["state"], told["attempts"]) == ("succeeded", 2)

    async def report_late() -> object:
        late = Attempt(1, 410)
        return await record_attempt(desk.sending, taken[0], late, pause_seconds=1.0, failing_seconds_max=0.0)

    assert desk.run(report_late) is None
    assert desk.deliveries(tenant, webhook) == [told]
    assert tenant.get(f"/webhooks/{webhook['id']}")["state"] == "enabled"


def test_what_is_changed_while_it_is_sent(desk: Desk, receiver: Receiver) -> None:
    """Disabled and deleted meanwhile: what was under way ends by itself, and nothing follows."""
    tenant = desk.tenant()
    webhooks = [desk.webhook(tenant, receiver, types=["node.online"]) for _ in range(2)]
    receiver.will(answers(500))
    desk.append(tenant)
    dispatcher = desk.dispatcher()
    taken: list[LeasedDelivery] = []
    begin = dispatcher._begin
    dispatcher._begin = taken.append  # type: ignore[method-assign, assignment]
    desk.run(dispatcher.round)
    assert len(taken) == 2
    tenant.call("PATCH", f"/webhooks/{webhooks[0]['id']}", {"state": "disabled"})
    assert tenant.call("DELETE", f"/webhooks/{webhooks[1]['id']}").status_code == 204

    async def send() -> None:
        for one in taken:
            begin(one)
        await dispatcher.drain()

    desk.run(send)
    assert [(one["state"], one["response_status"]) for one in desk.deliveries(tenant, webhooks[0])] == [("failed", 500)]
    assert tenant.get(f"/webhooks/{webhooks[0]['id']}")["disabled_reason"] == "requested"
    states = desk.one("select array_agg(state) from webhook_deliveries where webhook_id = %s", webhooks[1]["id"])
    assert states == ["failed"]
