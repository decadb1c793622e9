"""What goes on with a webhook while a process dies that delivers to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from standardwebhooks.webhooks import Webhook

from berth.client.calls.keyvalue import write_key
from tests.crashes.plays import new_key
from tests.crashes.stage import Stage
from tests.support.waiting import wait_for
from tests.webhooks.receivers import receiving

MESSAGES = 4


def messages_to_a_webhook(stage: Stage) -> Iterator[None]:
    """Every event comes, signed; more than once only what was under way when the sender died, and then as it was."""
    tenant = stage.tenant()
    with receiving() as (receiver,):
        made = tenant.client.create_webhook(url=receiver.url, types=["transaction"])
        yield
        told = {
            str(tenant.client.commit_transaction(operations=[write_key(b"k", b"v")], idempotency_key=new_key()).version)
            for _ in range(MESSAGES)
        }

        def come() -> bool:
            # The lease of the dead dispatcher is shortened instead of awaited.
            stage.execute(
                "update webhook_deliveries set next_attempt_at = clock_timestamp() where state = 'pending' "
                "and attempted_at < clock_timestamp() - interval '2 s'"
            )
            states = stage.execute("select state from webhook_deliveries where webhook_id = %s", made.id)
            return states == [("succeeded",)] * MESSAGES

        wait_for(come, "every message is delivered")
        assert {message.document["version"] for message in receiver.received} == told
        assert made.secret is not None
        for message in receiver.received:
            Webhook(made.secret).verify(message.body, dict(message.headers))
        times = Counter((message.message_id, message.body) for message in receiver.received)
        assert len(times) == MESSAGES
        assert max(times.values()) <= 2
        tenant.client.delete_webhook(made.id)
