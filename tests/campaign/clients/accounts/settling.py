"""After the run: every message is delivered, and ledger, balances and quotas are read when nothing runs any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from berth.client import AsyncClient, BerthError, Webhook
from berth.client import Delivery as ListedDelivery
from tests.campaign.accounts import EVENT_TRUNCATED, Books, Hook, HookDelivery, LedgerLine, UsageSeen
from tests.campaign.clients.accounts.owning import HookOwner
from tests.campaign.history import History
from tests.support.waiting import pause, read_until

HOOKS_SECONDS_MAX = 120.0
"""Longer than a lease of a sender that was killed: the timeout of an attempt and 40 s."""
BOOKS_SECONDS_MAX = 60.0
LOOK_SECONDS = 1.0
AGAIN_SECONDS = 8.0
SOON_SECONDS = 3.0
PAGE = 500

_LINES = """
select tenant_id, kind, amount_micro_units, allocation_id, starts_at, ends_at, operation_key from ledger order by id
"""
_METERED = """
select h.version, (select count(*) from outbox), coalesce(c.version, 0)
from log_head h left join consumer_positions c on c.consumer = 'metering'
"""


async def settle_hooks(
    owners: Sequence[HookOwner], history: History, cursor: Callable[[], int], database_url: str
) -> list[str]:
    """Wait until every webhook has delivered every event that the log has; a sentence for each that has not in time.

    `cursor`: the last version that the subscriber has seen. A delivery whose next attempt is minutes away is sent again at once:
    its owner disables the webhook, which fails it, enables it again, and replays what failed.
    """
    found = await asyncio.gather(
        *(_Settling(owner, hook, history, cursor, database_url).run() for owner, hook in _live(owners))
    )
    return [sentence for sentence in found if sentence is not None]


def _live(owners: Iterable[HookOwner]) -> list[tuple[HookOwner, Hook]]:
    return [
        (owner, hook) for owner in owners for hook in owner.hooks if hook is not None and hook.webhook_id is not None
    ]


class _Settling:
    """One webhook on its way to having delivered everything."""

    def __init__(
        self, owner: HookOwner, hook: Hook, history: History, cursor: Callable[[], int], database_url: str
    ) -> None:
        self._database_url = database_url
        self._owner = owner
        self._hook = hook
        self._history = history
        self._cursor = cursor
        self._pushed_at = -AGAIN_SECONDS

    async def run(self) -> str | None:
        """Return None, or what is missing when the time is up."""
        until = time.monotonic() + HOOKS_SECONDS_MAX
        self._owner.give_up_at(until)
        while (missing := await self._missing()) is not None and time.monotonic() < until:
            await pause(LOOK_SECONDS)  # the pace of reads and replays
        return missing

    async def _missing(self) -> str | None:
        hook = self._hook
        shown = await self._owner.see(hook)
        listed = None if shown is None else await self._owner.deliveries(hook)
        if shown is None or listed is None:
            return f"webhook {hook.name} cannot be read"
        hook.position = shown.position
        hook.deliveries = [_delivery(one) for one in listed]
        # A delivery that failed while its webhook was disabled is not sent again once its event is gone.
        first = _first_version(self._database_url)
        gone = [one for one in listed if one.state == "failed" and (one.version or first) < first]
        waiting = [
            one for one in listed if one.state != "succeeded" and one.error != EVENT_TRUNCATED and one not in gone
        ]
        if waiting:
            await self._push(waiting)
            return f"webhook {hook.name}: {len(waiting)} deliveries, delivery {waiting[0].number} is {waiting[0].state}"
        return self._behind(shown)

    async def _push(self, waiting: Sequence[ListedDelivery]) -> None:
        soon = datetime.now(UTC) + timedelta(seconds=SOON_SECONDS)
        is_far = any(one.next_attempt_at is not None and one.next_attempt_at > soon for one in waiting)
        if time.monotonic() < self._pushed_at + AGAIN_SECONDS:
            return
        self._pushed_at = time.monotonic()
        if is_far:
            await self._owner.set_state(self._hook, "disabled")
            await self._owner.set_state(self._hook, "enabled")
        if is_far or any(one.state == "failed" for one in waiting):
            await self._owner.replay_failed(self._hook)

    def _behind(self, shown: Webhook) -> str | None:
        tenant = str(self._hook.tenant_id)
        last = max((event.version for event in self._history.events().values() if event.tenant_id == tenant), default=0)
        if shown.position < last:
            return f"webhook {self._hook.name} is at version {shown.position}, and its tenant's last event is {last}"
        if self._cursor() < shown.position:
            return f"webhook {self._hook.name} is at version {shown.position}, and the subscriber at {self._cursor()}"
        return None


def _first_version(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select version from log_first").fetchone()
    return 1 if row is None else int(row[0])


def _delivery(listed: ListedDelivery) -> HookDelivery:
    return HookDelivery(
        listed.number, listed.version, str(listed.event_id), listed.state, listed.attempts, listed.error,
        listed.response_status,
    )  # fmt: skip


async def read_books(admin: AsyncClient, database_url: str, history: History) -> list[str]:
    """Read ledger, balances, usage and quotas once metering has reached the end of the log; a sentence if it does not."""

    async def behind() -> str | None:
        with psycopg.connect(database_url) as connection:
            row = connection.execute(_METERED).fetchone()
        head, waiting, metered = row or (0, 0, 0)
        return f"metering is at version {metered}, and the log ends at {head}" if waiting or metered < head else None

    late = await read_until(behind, lambda sentence: sentence is None, BOOKS_SECONDS_MAX)
    if late is not None:
        return [late]
    found = await read_until(
        lambda: _read(admin, database_url, history), lambda error: error is None, BOOKS_SECONDS_MAX
    )
    return [] if found is None else [f"balances, usage or quotas cannot be read: {found}"]


async def _read(admin: AsyncClient, database_url: str, history: History) -> str | None:
    accounts, books = history.accounts, Books()
    begin = history.moment(history.began) - timedelta(hours=1)
    try:
        # What was read before an error is not read again.
        for tenant in sorted(accounts.tenants - accounts.used.keys()):
            quotas = await admin.get_quotas(tenant)
            accounts.used[tenant] = {"gpus": quotas.gpus_used} | {one.quota: one.used for one in quotas.quotas}
        for tenant in accounts.tenants:
            books.settled[tenant] = (await admin.get_balance_of(tenant)).settled_micro_units
        now = datetime.now(UTC)
        async for one in admin.iterate_usage(by="allocation", begin=begin, end=now, limit=PAGE):
            if one.allocation_id is not None and one.starts_at is not None and one.ends_at is not None:
                books.usage.append(UsageSeen(one.allocation_id, one.starts_at, one.ends_at, one.amount_micro_units))
    except BerthError as error:
        return f"{error.code}: {error.detail}"
    books.lines = read_ledger(database_url)
    accounts.books = books
    return None


def read_ledger(database_url: str) -> list[LedgerLine]:
    """Every line of the ledger, in the order in which they were written."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(_LINES).fetchall()
    return [LedgerLine(tenant, kind, int(amount), *rest) for tenant, kind, amount, *rest in rows]
