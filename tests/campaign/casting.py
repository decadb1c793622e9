"""The campaign's actors: tenants, their clients, each using every API process, and an operator."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import psycopg

from berth.client import AsyncClient, Client
from tests.campaign.clients.accounts.casting import AccountCast, open_accounts
from tests.campaign.clients.accounts.owning import HookOwner
from tests.campaign.clients.accounts.receiving import HookReceiver
from tests.campaign.clients.accounts.spending import Treasurer
from tests.campaign.clients.fleet.cataloguing import CatalogueOperator
from tests.campaign.clients.fleet.enrolling import CertificateOperator, NodeOperator
from tests.campaign.clients.fleet.maintaining import MaintenanceOperator, SlotOperator
from tests.campaign.clients.fleet.operator import FleetOperator
from tests.campaign.clients.holding import SEATS, HoldingClient
from tests.campaign.clients.load import Renter, RentingClient
from tests.campaign.clients.operating import Operator
from tests.campaign.clients.quiet import QuietClient
from tests.campaign.clients.reserving import LivingClient
from tests.campaign.clients.starting import StartingClient
from tests.campaign.clients.windows import WindowClient
from tests.campaign.history import ATTEMPT_SECONDS_MAX, History
from tests.campaign.keyvalue.clients import KeyClient, Namespace
from tests.campaign.keyvalue.records import OPERATORS
from tests.campaign.listening.casting import Tenancy, subscribers_of
from tests.campaign.listening.subscribers import HttpSubscriber
from tests.campaign.machines.casting import at_rack
from tests.campaign.machines.place import MACHINE_PREFIX
from tests.campaign.stage import Stage

AnyClient = RentingClient | LivingClient | Operator | KeyClient | HookReceiver | HookOwner | Treasurer | FleetOperator
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
    key_clients: int = 5
    subscribes: bool = True
    """Whether subscribers of the feed and of the socket run beside the load."""
    keeps_accounts: bool = True
    """Whether webhooks, a balance and low quotas are used."""
    changes_fleet: bool = True
    """Whether operators change catalogue and fleet."""
    ha: bool = False
    """Three PostgreSQL and three NATS servers."""
    machines: int = 3
    """Bare-metal machines of a rack; 0: no rack."""
    attempt_seconds_max: float = ATTEMPT_SECONDS_MAX


@dataclass(frozen=True)
class Cast:
    """All actors. `tenants` are one client of each tenant that reserves; `keepers` are the clients of the key-value store."""

    clients: Sequence[AnyClient]
    tenants: Sequence[AsyncClient]
    admin: AsyncClient
    quiet: QuietClient
    hook_owners: Sequence[HookOwner]
    keepers: Sequence[KeyClient] = ()
    subscribers: Sequence[HttpSubscriber] = ()


@asynccontextmanager
async def open_cast(stage: Stage, options: CampaignOptions, history: History) -> AsyncIterator[Cast]:
    """Make tenants, seats and clients; close the clients in the end."""
    async with AsyncExitStack() as opened:

        async def open_all(key: str, retry_seconds: float = 0.0) -> list[AsyncClient]:
            made = [AsyncClient(url, key, retry_seconds=retry_seconds) for url in stage.api_urls]
            return [await opened.enter_async_context(client) for client in made]

        admins = await open_all(stage.admin_key)
        renters, reservers, patient = [], [], []
        tenancies = [Tenancy(None, stage.admin_key, admins)]

        async def open_renter(name: str, tenant_id: uuid.UUID | None = None) -> Renter:
            id_, ssh_key, key = _tenant(stage, None, tenant_id)
            history.accounts.tenants.add(id_)
            renter = Renter(name, [ssh_key], await open_all(key), admins, id_)
            if tenant_id is None:
                tenancies.append(Tenancy(str(id_), key, renter.clients))
            return renter

        for number in range(RENTERS):
            renters.append(await open_renter(f"renter {number}"))
        for number in range(RESERVERS):
            id_, ssh_key, key = _tenant(stage, HELD_GPUS_MAX if number == 0 else None)
            history.accounts.tenants.add(id_)
            tenancies.append(Tenancy(str(id_), key, await open_all(key)))
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
        clients.append(Operator(admins, sorted(_with_agents(history).values()), SEATS, history))
        keepers = _keepers(options, tenancies, history)
        subscribed = list(tenancies)
        accounts = AccountCast([], [], [])
        if options.keeps_accounts:
            accounts = await open_accounts(opened, history, renters, admins, open_renter)
        clients += accounts.clients
        clients += _at_fleet(stage, admins, renters[0], history) if options.changes_fleet else []
        clients += at_rack(stage, renters, admins, history)
        admin = await opened.enter_async_context(AsyncClient(stage.api_urls[0], stage.admin_key))
        # This client does not retry, so it sees every error of a server that has just been healed.
        quiet = QuietClient(patient[RESERVERS - 1], history)
        subscribers = subscribers_of(stage, subscribed, history) if options.subscribes else []
        tenants = [tenant.clients[0] for tenant in (*patient, *accounts.reserving)]
        yield Cast([*clients, *keepers], tenants, admin, quiet, accounts.owners, keepers, subscribers)


def _keepers(options: CampaignOptions, tenancies: Sequence[Tenancy], history: History) -> list[KeyClient]:
    """Most of them change the keys of one tenant; one those of the operators, one those of a second tenant."""
    operators, first, second, *_ = tenancies
    owners = [first, second, operators]
    return [
        KeyClient(f"keys {n}", Namespace(owner.tenant or OPERATORS, owner.clients), history)
        for n in range(options.key_clients)
        for owner in [owners[n] if n < len(owners) else first]
    ]


def _at_windows(options: CampaignOptions, reservers: Sequence[Renter], history: History) -> list[WindowClient]:
    """Clients of several tenants that want the same slots of one node a region, and the same bare-metal node."""
    slice_nodes = [id_ for name, id_ in sorted(history.nodes.items()) if name.endswith("slice-1")]
    slots = [f"slot:{node}:{slot}" for node in slice_nodes for slot in SLOTS_AT_WINDOW]
    nodes = [f"node:{id_}" for name, id_ in sorted(history.nodes.items()) if "metal" in name][:1]
    return [
        WindowClient(f"window {n}", reservers[n % RESERVERS], history, slots, nodes or slots)
        for n in range(options.window_clients)
    ]


def _at_fleet(
    stage: Stage, admins: Sequence[AsyncClient], buyer: Renter, history: History
) -> list[FleetOperator]:  # fmt: skip
    """Operators of catalogue and fleet; the nodes that tenants have from the start stay."""
    present = _with_agents(history)
    nodes = sorted(present.values())
    return [
        CatalogueOperator(admins, buyer, history),
        NodeOperator(admins, stage, history),
        CertificateOperator(admins, stage, present, history),
        MaintenanceOperator(admins, nodes, history),
        SlotOperator(admins, nodes, history),
    ]


def _with_agents(history: History) -> dict[str, uuid.UUID]:
    """The nodes but the machines of the rack, which have an operator apart."""
    return {name: id_ for name, id_ in history.nodes.items() if not name.startswith(MACHINE_PREFIX)}


def _look_at_fleet(stage: Stage, history: History) -> None:
    with stage.admin() as admin:
        for seat in SEATS:
            admin.create_resource(seat)
        history.nodes.update({node.name: node.id for node in admin.iterate_nodes()})
        for node_id in history.nodes.values():
            history.fleet.first_units[node_id] = min(slot.unit for slot in admin.get_node(node_id).slots or ())


def _tenant(
    stage: Stage, gpus_limit: int | None, tenant_id: uuid.UUID | None = None
) -> tuple[uuid.UUID, uuid.UUID, str]:
    """The tenant's id, an SSH key's id and an API key, of a new tenant; `tenant_id`: its id, where it must be known before."""
    if tenant_id is not None:
        with psycopg.connect(stage.endpoints.database_url) as connection:
            connection.execute("insert into tenants (id, name) values (%s, %s)", (tenant_id, str(tenant_id)))
            connection.execute("insert into tenant_quotas (tenant_id) values (%s)", (tenant_id,))
    with stage.admin() as admin:
        id_ = tenant_id or admin.create_tenant(name=f"renter {uuid.uuid4()}", gpus_limit=gpus_limit).id
        key = admin.create_api_key(name="campaign", role="tenant", tenant_id=id_).key
    with Client(stage.endpoints.api_url, key) as client:
        public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        return id_, client.add_ssh_key(name="campaign", public_key=public).id, key
