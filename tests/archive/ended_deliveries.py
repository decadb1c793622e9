"""Webhooks with deliveries of some age, and what is left of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from migrations.roles import Role
from orchestrator.operations.execution import Context
from orchestrator.webhooks.commands.dispatch import sweep_deliveries
from tests.allocations.driving import rows_of, run_with
from tests.allocations.seeding import connect
from tests.databases import as_role

SECRET, EXCERPT, HOST = "sealed-signing-key", "excerpt-of-a-body", "receiver.example"
_WEBHOOK = """
insert into webhooks (id, url, signing, keys, position, versions_max, numbered)
values (%s, 'https://receiver.example/hook', 'hmac', jsonb_build_array(jsonb_build_object('sealed', %s::text)), 0, 100, 100)
"""
_DELIVERY = """
insert into webhook_deliveries (webhook_id, number, version, event_id, event_type, state, created_at, next_attempt_at, attempts,
    attempted_at, response_status, response_excerpt, ended_at)
select %(webhook)s, n, n, uuidv7(), 'node.online', %(state)s, e.at, case when %(state)s = 'pending' then e.at end, 2, e.at,
    204, %(excerpt)s, case when %(state)s <> 'pending' then e.at end
from generate_series(%(first)s::bigint, %(last)s::bigint) n
cross join (select clock_timestamp() - make_interval(days => %(days)s) as at) e
"""


@dataclass(frozen=True)
class Webhook:
    """A webhook of the operators in the database at `url`."""

    url: str
    id: uuid.UUID

    def deliver(self, first: int, last: int, days: int, state: str = "succeeded") -> None:
        """Deliveries with these numbers that ended, or were made, so many days ago."""
        with connect(self.url) as connection:
            values = {
                "webhook": self.id,
                "first": first,
                "last": last,
                "days": days,
                "state": state,
                "excerpt": EXCERPT,
            }
            connection.execute(_DELIVERY, values)

    def numbers(self) -> list[int]:
        """Its deliveries in the database."""
        statement = "select number from webhook_deliveries where webhook_id = %s order by number"
        return [row[0] for row in rows_of(self.url, statement, self.id)]


def new_webhook(url: str) -> Webhook:
    """A webhook without deliveries."""
    made = Webhook(url, uuid.uuid4())
    with connect(url) as connection:
        connection.execute(_WEBHOOK, (made.id, SECRET))
    return made


def sweep(url: str, days: float = 0.5, kept: int = 1_000) -> int:
    """One sweep of the webhook sender, with its rights; how many deliveries it deleted."""
    deleted: list[int] = []

    async def sweeping(context: Context) -> None:
        seconds = days * 86_400
        deleted.append(await sweep_deliveries(context.for_platform(), seconds=seconds, kept=kept, limit=1_000))

    run_with(as_role(url, Role.WEBHOOKS), sweeping)
    return deleted[0]
