"""What webhooks keep of the log, what is kept of them, and what becomes of messages whose event is gone."""

from __future__ import annotations

from typing import Any

from orchestrator.webhooks.commands.dispatch import sweep_deliveries
from tests.api.calling import problem
from tests.webhooks.desk import Desk
from tests.webhooks.receivers import Receiver, answers


def needs(desk: Desk, webhook: Any) -> int | None:
    """From which version on it keeps the log."""
    rows = desk.database.execute(
        "select needs_from from log_cursors where kind = 'webhook' and name = %s", (webhook["id"],)
    ).fetchall()
    return rows[0][0] if rows else None


def sweep(desk: Desk, *, seconds: float = 1e6, kept: int = 1_000) -> int:
    """One sweep; how many deliveries are gone."""
    return int(desk.run(lambda: sweep_deliveries(desk.sending, seconds=seconds, kept=kept, limit=100)))


def test_what_is_not_delivered_yet_is_kept(desk: Desk, receiver: Receiver) -> None:
    tenant, other = desk.tenant(), desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    head = desk.append(other, 3)
    desk.dispatch()
    assert needs(desk, webhook) == head + 1, "it has come to all of its tenant's"
    receiver.will(answers(500))
    first = desk.append(tenant, 2) - 1
    assert needs(desk, webhook) is not None
    assert (needs(desk, webhook) or 0) <= first
    desk.dispatch()
    head = desk.append(other, 5)
    assert needs(desk, webhook) == first, "what is pending is read again"
    desk.database.execute("update webhooks set versions_max = 3 where id = %s", (webhook["id"],))
    assert needs(desk, webhook) == head - 3, "but within its bound"
    tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "disabled"})
    assert needs(desk, webhook) is None
    tenant.call("PATCH", f"/webhooks/{webhook['id']}", {"state": "enabled"})
    assert needs(desk, webhook) == desk.one("select version from log_head") + 1
    receiver.will(answers(204))
    desk.dispatch()
    of_operators = desk.webhook(desk.admin, receiver, types=["node.online"])
    head = desk.one("select version from log_head")
    assert needs(desk, of_operators) == head + 1
    desk.append(other)
    assert needs(desk, of_operators) == head + 1
    desk.dispatch()
    head = desk.sequence()
    assert needs(desk, of_operators) == head + 1
    desk.admin.call("DELETE", f"/webhooks/{of_operators['id']}")
    assert needs(desk, of_operators) is None


def test_what_is_gone_is_told(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    pending = desk.webhook(tenant, receiver, types=["node.online"])
    receiver.will(answers(500))
    desk.append(tenant, 2)
    desk.dispatch()
    late = desk.webhook(tenant, receiver, types=["node.online"])
    head = desk.append(tenant, 3)
    desk.database.execute("update log_first set version = %s", (head,))
    desk.database.execute("delete from log where version < %s", (head,))
    receiver.will(answers(204))
    try:
        desk.due_now(pending["id"])
        desk.dispatch()
        told = desk.deliveries(tenant, pending)
        assert [one["error"] for one in told] == ["event_truncated"] * 2 + [None]
        assert [one["state"] for one in told] == ["failed"] * 2 + ["succeeded"]
        for webhook in (pending, late):
            assert tenant.get(f"/webhooks/{webhook['id']}")["missed_before"] == head
        assert [one["version"] for one in desk.deliveries(tenant, late)] == [head]
        refused = tenant.call("POST", f"/webhooks/{pending['id']}/deliveries/1/replay")
        assert problem(refused, 410, "log_truncated")["first_version"] == head
        answer = tenant.make(f"/webhooks/{pending['id']}/replay", {"since": "2020-01-01T00:00:00Z"})
        assert answer == {"replayed": 0, "left": 0, "truncated": 2}
    finally:
        desk.database.execute("update log_first set version = 1")


def test_what_has_ended_is_forgotten(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    desk.append(tenant, 6)
    desk.dispatch()
    receiver.will(answers(500))
    desk.append(tenant, 1)
    desk.dispatch()
    sweep(desk)
    assert len(desk.deliveries(tenant, webhook)) == 7
    sweep(desk, kept=3)
    assert [one["number"] for one in desk.deliveries(tenant, webhook)] == [5, 6, 7]
    desk.database.execute(
        "update webhook_deliveries set ended_at = clock_timestamp() - interval '1 hour' where webhook_id = %s and number = 5",
        (webhook["id"],),
    )
    sweep(desk, seconds=1_800)
    assert [one["number"] for one in desk.deliveries(tenant, webhook)] == [6, 7]
    sweep(desk, seconds=0, kept=1)
    assert [one["state"] for one in desk.deliveries(tenant, webhook)] == ["pending"], "what waits is never swept"
    tenant.call("DELETE", f"/webhooks/{webhook['id']}")
    while sweep(desk):
        continue
    assert desk.one("select count(*) from webhooks where id = %s", webhook["id"]) == 0


def test_a_key_of_another_webhook_is_unreadable_until_a_rotation(desk: Desk, receiver: Receiver) -> None:
    tenant = desk.tenant()
    webhook = desk.webhook(tenant, receiver, types=["node.online"])
    other = desk.webhook(tenant, receiver, types=["node.offline"])
    desk.database.execute(
        "update webhooks set keys = (select keys from webhooks where id = %s) where id = %s",
        (other["id"], webhook["id"]),
    )
    desk.append(tenant)
    desk.dispatch()
    assert desk.deliveries(tenant, webhook)[0]["error"] == "key_unreadable", "nor does another webhook's key sign"
    assert receiver.received == []
    tenant.make(f"/webhooks/{webhook['id']}/rotate")
    desk.due_now(webhook["id"])
    desk.dispatch()
    assert len(receiver.received) == 1
