"""A real API process behind a cutting proxy, a tenant at it, and its database to count effects in."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from berth.client import AsyncClient, Client
from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, Place, fresh, insert_admin_key, new_place, new_tenant, ssh_key
from tests.api.processes import public_process
from tests.cutting import CuttingProxy
from tests.databases import copied_database

RETRY_SECONDS = 10.0


@dataclass
class Deployment:
    """One API process; `proxy` is the way to it that can be cut."""

    proxy: CuttingProxy
    address: str
    admin: Caller
    database: psycopg.Connection[Any]

    def count(self, query: str, *values: object) -> int:
        """The one number that a query answers."""
        row = self.database.execute(query.encode(), values).fetchone()
        assert row is not None
        return int(row[0])

    def events(self, event_type: str, operation_key: str) -> int:
        """How many events of that type, in the log or on their way into it, belong to the operation."""
        return self.count(
            """select count(*) from (select event_type, operation_key from outbox union all
                                     select event_type, operation_key from log) e
               where event_type = %s and operation_key = %s""",
            event_type,
            operation_key,
        )


@dataclass
class Tenant:
    """A tenant with a client of either kind, through the proxy, and room for eight allocations at a time."""

    deployment: Deployment
    caller: Caller
    place: Place
    ssh_key_id: uuid.UUID
    client: Client | AsyncClient
    run: Callable[[Any], Any]

    def call(self, name: str, *arguments: Any, retry_seconds: float = RETRY_SECONDS, **named: Any) -> Any:
        """One method of the client."""
        self.client.exchange.retry_seconds = retry_seconds
        return self.run(getattr(self.client, name)(*arguments, **named))

    def create(self, **named: Any) -> Any:
        """One GPU."""
        wanted = {"sku": self.place.sku, "gpus": 1, "region": self.place.region, "ssh_key_ids": [self.ssh_key_id]}
        return self.call("create_allocation", **{**wanted, **named})

    def move_if_full(self) -> None:
        """See to it that the next create finds room."""
        taken = self.deployment.count("select count(*) from claims where node_id = %s", self.place.node["id"])
        if taken >= 8:
            self.place = new_place(self.deployment.admin, self.deployment.database)


@contextmanager
def running_deployment(
    postgres_server: LocalPostgres, template: str, directory: Path, **settings: str
) -> Iterator[Deployment]:
    """An API process over a new database."""
    with (
        copied_database(postgres_server, template) as url,
        public_process(url, directory, settings) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        address = str(http.base_url)
        port = urlsplit(address).port
        assert port is not None
        with CuttingProxy(port) as proxy:
            yield Deployment(proxy, address, Caller(http, insert_admin_key(url)), database)


@contextmanager
def client_tenant(deployment: Deployment, *, asynchronous: bool) -> Iterator[Tenant]:
    """A tenant with quota, an SSH key and a client."""
    caller = new_tenant(deployment.admin)
    key = caller.make("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    place = new_place(deployment.admin, deployment.database)
    ssh_key_id = uuid.UUID(key["id"])
    address = deployment.proxy.address
    if not asynchronous:
        with Client(address, caller.key) as client:
            yield Tenant(deployment, caller, place, ssh_key_id, client, lambda result: result)
        return
    with asyncio.Runner() as runner:
        awaiting = AsyncClient(address, caller.key)
        yield Tenant(deployment, caller, place, ssh_key_id, awaiting, runner.run)
        runner.run(awaiting.close())
