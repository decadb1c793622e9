"""The actors of webhooks, balances and quotas: their tenants, their clients, and the receiver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from uuid import UUID

from berth.client import AsyncClient
from tests.campaign.accounts import QuotaLimit, RateLimit
from tests.campaign.clients.accounts import crowding
from tests.campaign.clients.accounts.crowding import CrowdingClient
from tests.campaign.clients.accounts.owning import HookOwner
from tests.campaign.clients.accounts.receiving import HookReceiver
from tests.campaign.clients.accounts.spending import PRICES, SpendingClient, Treasurer, put_price
from tests.campaign.clients.accounts.suspending import SuspendedOwner
from tests.campaign.clients.holding import HoldingClient
from tests.campaign.clients.load import Renter
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.history import History

SPENDERS, CROWDERS = 2, 3
FIRST_SPENDER = 100
"""The number of the first client that spends; those of other tenants have lower ones."""
LOW_MICRO_UNITS = 2_000_000

OpenRenter = Callable[[str, UUID | None], Awaitable[Renter]]
"""Makes a tenant by its name, or takes the one with this id, with clients of every API process."""


@dataclass(frozen=True)
class AccountCast:
    """The clients to run; the owners of webhooks, and the tenants that reserve, which are asked again after the run."""

    clients: Sequence[HookReceiver | HookOwner | SpendingClient | Treasurer | LivingClient]
    owners: Sequence[HookOwner]
    reserving: Sequence[Renter]


async def open_accounts(
    opened: AsyncExitStack,
    history: History,
    renters: Sequence[Renter],
    admins: list[AsyncClient],
    open_renter: OpenRenter,
) -> AccountCast:
    """Make the tenants with a balance and with low quotas; webhooks are of the first two `renters`."""
    receiver = await opened.enter_async_context(HookReceiver(history))
    owners = [
        HookOwner(f"hooks {number}", renter.tenant_id, renter, receiver, history)
        for number, renter in enumerate(renters[:2])
        if renter.tenant_id is not None
    ]
    suspended = await open_renter("suspended", None)
    assert suspended.tenant_id is not None, "the tenant was made"
    owners.append(SuspendedOwner("hooks 2", suspended.tenant_id, suspended, receiver, history, admins))
    prepaid, spending = await _open_spending(history, admins, open_renter)
    crowded = await open_renter("crowded", crowding.TENANT_ID)
    await _limit(admins[0], history)
    crowders = [CrowdingClient(f"crowder {number}", crowded, receiver, history) for number in range(CROWDERS)]
    history.accounts.owners.update({client.name: crowding.TENANT_ID for client in crowders})
    history.accounts.rate = RateLimit(
        frozenset(client.name for client in crowders), crowding.WRITES_PER_SECOND,
        crowding.WRITES_PER_SECOND * crowding.BURST_SECONDS, len(admins),
    )  # fmt: skip
    return AccountCast([receiver, *owners, *spending, *crowders], owners, [prepaid, crowded])


async def _open_spending(
    history: History, admins: list[AsyncClient], open_renter: OpenRenter
) -> tuple[Renter, list[SpendingClient | Treasurer | LivingClient]]:
    renter = await open_renter("prepaid", None)
    assert renter.tenant_id is not None, "the tenant was made"
    await put_price(admins[0], PRICES[0], f"{history.seed}.first-price", history)
    async for sku in admins[0].iterate_skus():
        history.accounts.prices[sku.name, sku.price_version] = sku.price_micro_per_gpu_second
    await admins[0].set_balance_policy(renter.tenant_id, prepaid=True, low_threshold_micro_units=LOW_MICRO_UNITS)
    history.accounts.prepaid.add(renter.tenant_id)
    spenders = [SpendingClient(FIRST_SPENDER + number, renter, history) for number in range(SPENDERS)]
    holder = HoldingClient("spender", renter, history)
    names = [holder.name, *(client.name for client in spenders)]
    history.accounts.owners.update(dict.fromkeys(names, renter.tenant_id))
    return renter, [*spenders, holder, Treasurer(admins, renter.tenant_id, history)]


async def _limit(admin: AsyncClient, history: History) -> None:
    await admin.set_quota(crowding.TENANT_ID, gpus_limit=crowding.GPUS_MAX)
    await admin.set_limits(crowding.TENANT_ID, limits=crowding.LIMITS)
    history.accounts.quotas += [
        QuotaLimit(crowding.TENANT_ID, quota, limit)
        for quota, limit in {"gpus": crowding.GPUS_MAX, **crowding.LIMITS}.items()
    ]
