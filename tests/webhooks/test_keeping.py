"""What webhooks keep of the log, what is kept of them, and what becomes of messages whose event is gone."""

from __future__ import annotations

from typing import Any

from orchestrator.webhooks.commands.dispatch import disable_expired_webhooks, record_attempt, sweep_deliveries
from orchestrator.webhooks.rules import Attempt
from orchestrator.webhooks.store.dispatch import LeasedDelivery, PendingWork, read_work
from tests.api.calling import problem
from tests.webhooks.receivers import Receiver, answers
from tests.webhooks.stage import WebhookStage


def needs(stage: WebhookStage, webhook: Any) -> int | None:
    """From which version on it keeps the log."""
    rows = stage.database.execute(
        "select needs_from from log_cursors where kind = 'webhook' and name = %s", (webhook["id"],)
    ).fetchall()
    return rows[0][0] if rows else None


def sweep(stage: WebhookStage, *, seconds: float = 1e6, kept: int = 1_000) -> int:
    """One sweep; how many deliveries are gone."""
    return int(stage.run(lambda: sweep_deliveries(stage.sending, seconds=seconds, kept=kept, limit=100)))


def test_what_is_not_delivered_yet_is_kept(stage: WebhookStage, receiver: Receiver) -> None:
    tenant, other = stage.tenant(), stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    head = stage.append(other, 3)
    stage.dispatch()
    assert needs(stage, webhook) == head + 1, "it has come to all of its tenant's"
    receiver.will(answers(500))
    first = stage.append(tenant, 2) - 1
    assert needs(stage, webhook) is not None
    assert (needs(stage, webhook) or 0) <= first
    stage.dispatch()
    head = stage.append(other, 5)
    assert needs(stage, webhook) == first, "what is pending is read again"
    stage.database.execute("update webhooks set versions_max = 3 where id = %s", (webhook["id"],))
    assert needs(stage, webhook) == head - 3, "but within its bound"
    tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "disabled"})
    assert needs(stage, webhook) is None
    tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"})
    assert needs(stage, webhook) == stage.one("select version from log_head") + 1
    receiver.will(answers(204))
    stage.dispatch()
    of_operators = stage.webhook(stage.admin, receiver, types=["node.online"])
    head = stage.one("select version from log_head")
    assert needs(stage, of_operators) == head + 1
    stage.append(other)
    assert needs(stage, of_operators) == head + 1
    stage.dispatch()
    head = stage.sequence()
    assert needs(stage, of_operators) == head + 1
    stage.admin.call("DELETE", f"/webhooks/{of_operators['id']}")
    assert needs(stage, of_operators) is None


def test_what_is_gone_is_reported(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    pending = stage.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    stage.append(tenant, 2)
    stage.dispatch()
    late = stage.webhook(tenant, receiver, types=["node.online"])
    head = stage.append(tenant, 3)
    stage.database.execute("update log_first set version = %s", (head,))
    stage.database.execute("delete from log where version < %s", (head,))
    receiver.will(answers(204))
    try:
        stage.due_now(pending["id"])
        stage.dispatch()
        told = stage.deliveries(tenant, pending)
        assert [one["error"] for one in told] == ["event_truncated"] * 2 + [None]
        assert [one["state"] for one in told] == ["failed"] * 2 + ["succeeded"]
        for webhook in (pending, late):
            assert tenant.get(f"/webhooks/{webhook['id']}")["missed_before"] == head
        assert [one["version"] for one in stage.deliveries(tenant, late)] == [head]
        refused = tenant.call("POST", f"/webhooks/{pending['id']}/deliveries/1/replay")
        assert problem(refused, 410, "log_truncated")["first_version"] == head
        answer = tenant.make(f"/webhooks/{pending['id']}/replay", {"since": "2020-01-01T00:00:00Z"})
        assert answer == {"replayed": 0, "left": 0, "truncated": 2}
    finally:
        stage.database.execute("update log_first set version = 1")


def test_what_has_ended_is_forgotten(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    stage.append(tenant, 6)
    stage.dispatch()
    receiver.will(answers(500))
    stage.append(tenant, 1)
    stage.dispatch()
    sweep(stage)
    assert len(stage.deliveries(tenant, webhook)) == 7
    sweep(stage, kept=3)
    assert [one["number"] for one in stage.deliveries(tenant, webhook)] == [5, 6, 7]
    stage.database.execute(
        "update webhook_deliveries set ended_at = clock_timestamp() - interval '1 hour' where webhook_id = %s and number = 5",
        (webhook["id"],),
    )
    sweep(stage, seconds=1_800)
    assert [one["number"] for one in stage.deliveries(tenant, webhook)] == [6, 7]
    sweep(stage, seconds=0, kept=1)
    assert [one["state"] for one in stage.deliveries(tenant, webhook)] == ["pending"], "what waits is never swept"
    tenant.call("DELETE", f"/webhooks/{webhook['id']}")
    while sweep(stage):
        continue
    assert stage.one("select count(*) from webhooks where id = %s", webhook["id"]) == 0


def lease_and_die(stage: WebhookStage) -> list[LeasedDelivery]:
    """A dispatcher leases what is due, and is killed before it sends anything."""
    dead = stage.dispatcher()
    taken: list[LeasedDelivery] = []
    dead._begin = taken.append  # type: ignore[method-assign, assignment]
    stage.run(dead.round)
    return taken


def work(stage: WebhookStage) -> PendingWork:
    """What a dispatcher finds to do."""

    async def find() -> PendingWork:
        async with stage.sending.database.read_one() as reading:
            return await read_work(reading)

    found: PendingWork = stage.run(find)
    return found


def test_a_delivery_left_leased_by_a_dead_dispatcher_ends_with_its_deleted_webhook(
    stage: WebhookStage, receiver: Receiver
) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    stage.append(tenant)
    (taken,) = lease_and_die(stage)
    assert tenant.call("DELETE", f"/webhooks/{webhook['id']}").status_code == 204
    state = "select array_agg(state) from webhook_deliveries where webhook_id = %s"
    sweep(stage)
    assert stage.one(state, webhook["id"]) == ["pending"], "its dispatcher may still be sending it"
    stage.due_now(webhook["id"])
    assert work(stage).due
    stage.dispatch()
    assert receiver.received == []

    async def report_late() -> object:
        return await record_attempt(
            stage.sending, taken, Attempt(1, 500), pause_seconds=1.0, failing_seconds_max=1_000.0
        )

    sweep(stage, kept=0)
    assert not work(stage).due
    assert stage.run(report_late) is None, "a report after the lease changes nothing"
    while sweep(stage):
        continue
    assert stage.one("select count(*) from webhooks where id = %s", webhook["id"]) == 0


def test_a_delivery_left_leased_by_a_dead_dispatcher_ends_when_the_key_of_its_webhook_has_expired(
    stage: WebhookStage, receiver: Receiver
) -> None:
    own, waiting = (stage.webhook(stage.admin, receiver, types=["node.online"]) for _ in range(2))
    stage.append(stage.tenant())
    assert len(lease_and_die(stage)) == 2
    stage.database.execute("update webhooks set key_expires_at = clock_timestamp() where id = %s", (own["id"],))
    assert stage.run(lambda: disable_expired_webhooks(stage.sending, 10)) == 1
    for webhook in (own, waiting):
        stage.due_now(webhook["id"])
    sweep(stage)
    ended = [(one["state"], one["error"]) for one in stage.deliveries(stage.admin, own)]
    assert ended == [("failed", "webhook_disabled")]
    assert [one["state"] for one in stage.deliveries(stage.admin, waiting)] == ["pending"], "it is leased again"
    stage.dispatch()
    assert len(receiver.received) == 1


def test_a_key_of_another_webhook_is_unreadable_until_a_rotation(stage: WebhookStage, receiver: Receiver) -> None:
    tenant = stage.tenant()
    webhook = stage.webhook(tenant, receiver, types=["node.online"])
    other = stage.webhook(tenant, receiver, types=["node.offline"])
    stage.database.execute(
        "update webhooks set keys = (select keys from webhooks where id = %s) where id = %s",
        (other["id"], webhook["id"]),
    )
    stage.append(tenant)
    stage.dispatch()
    assert stage.deliveries(tenant, webhook)[0]["error"] == "key_unreadable", "nor does another webhook's key sign"
    assert receiver.received == []
    tenant.make(f"/webhooks/{webhook['id']}/rotate")
    stage.due_now(webhook["id"])
    stage.dispatch()
    assert len(receiver.received) == 1
