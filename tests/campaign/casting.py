"""The campaign's actors: tenants, their clients, each using every API process, and an operator."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from berth.client import AsyncClient, Client
from tests.campaign.clients.holding import SEATS, HoldingClient
from tests.campaign.clients.load import Renter, RentingClient
from tests.campaign.clients.operating import Operator
from tests.campaign.clients.quiet import QuietClient
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.clients.starting import StartingClient
from tests.campaign.clients.windows import WindowClient
from tests.campaign.history import History
from tests.campaign.stage import Stage

AnyClient = RentingClient | LivingClient | Operator
RENTERS = 3
RESERVERS = 2
HELD_GPUS_MAX = 24
"""The quota of the first tenant that reserves; the others have none."""
PATIENT_SECONDS = 6.0
"""How long the library repeats for the clients that leave it to do so."""
SLOTS_AT_WINDOW = (0, 1)
"""Of each node at which windows are taken, these slots are."""


@dataclass(frozen=True)
class CampaignOptions:
    """What to run. `directory` must not exist or be an earlier campaign's."""

    directory: Path
    seconds: float
    seed: int
    plant: str | None = None
    agents: int = 6
    clients: int = 6
    fault_every_seconds: float = 2.5
    settle_seconds: float = 150.0
    holders: int = 3
    window_clients: int = 6
    starters: int = 2
    ha: bool = False
    """Three PostgreSQL and three NATS servers."""


@dataclass(frozen=True)
class Cast:
    """All actors. `tenants` are one client of each tenant that reserves."""

    clients: Sequence[AnyClient]
    tenants: Sequence[AsyncClient]
    admin: AsyncClient
    quiet: QuietClient


@asynccontextmanager
async def open_cast(stage: Stage, options: CampaignOptions, history: History) -> AsyncIterator[Cast]:
    """Make tenants, seats and clients; close the clients in the end."""
    async with AsyncExitStack() as opened:

        async def open_all(key: str, retry_seconds: float = 0.0) -> list[AsyncClient]:
            made = [AsyncClient(url, key, retry_seconds=retry_seconds) for url in stage.api_urls]
            return [await opened.enter_async_context(client) for client in made]

        admins = await open_all(stage.admin_key)
        renters, reservers, patient = [], [], []
        for number in range(RENTERS):
            ssh_key, key = _tenant(stage, None)
            renters.append(Renter(f"renter {number}", [ssh_key], await open_all(key), admins))
        for number in range(RESERVERS):
            ssh_key, key = _tenant(stage, HELD_GPUS_MAX if number == 0 else None)
            reservers.append(Renter(f"reserver {number}", [ssh_key], await open_all(key), admins))
            patient.append(Renter(f"patient {number}", [ssh_key], await open_all(key, PATIENT_SECONDS), admins))
        _look_at_fleet(stage, history)
        clients: list[AnyClient] = [RentingClient(n, renters[n % RENTERS], history) for n in range(options.clients)]
        for number in range(options.holders):
            is_patient = number == options.holders - 1
            tenant = (patient if is_patient else reservers)[number % RESERVERS]
            clients.append(HoldingClient(f"holder {number}", tenant, history, patient=is_patient))
        clients += _at_windows(options, reservers, history)
        for number in range(options.starters):
            clients.append(StartingClient(f"starter {number}", reservers[number % RESERVERS], history))
        clients.append(Operator(admins, sorted(history.nodes.values()), SEATS, history))
        admin = await opened.enter_async_context(AsyncClient(stage.api_urls[0], stage.admin_key))
        # This client does not retry, so it sees every error of a server that has just been healed.
        quiet = QuietClient(patient[RESERVERS - 1], history)
        yield Cast(clients, [tenant.clients[0] for tenant in patient], admin, quiet)


def _at_windows(options: CampaignOptions, reservers: Sequence[Renter], history: History) -> list[WindowClient]:
    """Clients of several tenants that want the same slots of one node a region, and the same bare-metal node."""
    slice_nodes = [id_ for name, id_ in sorted(history.nodes.items()) if name.endswith("slice-1")]
    slots = [f"slot:{node}:{slot}" for node in slice_nodes for slot in SLOTS_AT_WINDOW]
    nodes = [f"node:{id_}" for name, id_ in sorted(history.nodes.items()) if "metal" in name][:1]
    return [
        WindowClient(f"window {n}", reservers[n % RESERVERS], history, slots, nodes or slots)
        for n in range(options.window_clients)
    ]


def _look_at_fleet(stage: Stage, history: History) -> None:
    with stage.admin() as admin:
        for seat in SEATS:
            admin.create_resource(seat)
        history.nodes.update({node.name: node.id for node in admin.iterate_nodes()})


def _tenant(stage: Stage, gpus_limit: int | None) -> tuple[uuid.UUID, str]:
    """An SSH key's id and an API key of a new tenant."""
    with stage.admin() as admin:
        tenant = admin.create_tenant(name=f"renter {uuid.uuid4()}", gpus_limit=gpus_limit)
        key = admin.create_api_key(name="campaign", role="tenant", tenant_id=tenant.id).key
    with Client(stage.endpoints.api_url, key) as client:
        public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        return client.add_ssh_key(name="campaign", public_key=public).id, key
