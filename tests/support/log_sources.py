"""A source of events for the consumer, with what it was given."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import psycopg
import pytest

from berth.client import AsyncClient
from berth.client.consumer import Source
from berth.client.feed_source import FeedSource
from berth.client.nats_source import NatsSource
from berth.local.servers import LocalNats, LocalPostgres, free_port
from tests.api.calling import Caller, insert_admin_key
from tests.api.processes import public_process
from tests.consumers.effects import consumer_of, position, prepare, run_until
from tests.databases import copied_database
from tests.outbox_relay.relays import RelayProcess
from tests.support.log_versions import version


@dataclass(frozen=True)
class Telling:
    """A process with the feed, a relay with its NATS, and the database behind both."""

    url: str
    admin: Caller
    nats_url: str
    database: psycopg.Connection[Any]

    @property
    def address(self) -> str:
        """The API's."""
        return str(self.admin.http.base_url)

    def head(self) -> int:
        """The newest version, once nothing waits for its own."""
        return int(version(self.admin)["version"])

    def versions(self, tenant: Caller | None = None) -> list[int]:
        """What the log has, of one tenant if named."""
        self.head()
        which = "" if tenant is None else "where tenant_id = %s"
        values = () if tenant is None else (tenant.tenant_id,)
        return [r[0] for r in self.database.execute(f"select version from log {which} order by 1".encode(), values)]

    @asynccontextmanager
    async def source(
        self, kind: str, caller: Caller | None = None, address: str | None = None
    ) -> AsyncIterator[Source]:
        """The feed or NATS, all of it or one tenant's."""
        if kind == "feed":
            async with AsyncClient(address or self.address, (caller or self.admin).key) as client:
                yield FeedSource(client)
            return
        connection = await nats.connect(self.nats_url)
        try:
            yield NatsSource(connection, tenant_id=None if caller is None else uuid.UUID(caller.tenant_id))
        finally:
            await connection.close()

    def consume(
        self, name: str, kind: str, until: int, caller: Caller | None = None, address: str | None = None
    ) -> None:
        """Run a consumer up to a version."""

        async def run() -> None:
            async with self.source(kind, caller, address) as source:
                consumer = consumer_of(self.url, name, source, batch_max=7)
                await run_until(consumer, lambda: (position(self.database, name) or 0) >= until)

        asyncio.run(run())


@pytest.fixture(scope="module")
def telling(
    postgres_server: LocalPostgres, migrated_template: str, server_directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Telling]:  # fmt: skip
    """Everything that the module's tests read from; the consumers' tables are in the same database."""
    directory = tmp_path_factory.mktemp("sources")
    own = LocalNats(server_directory / uuid.uuid4().hex / "nats", free_port(), free_port())
    own.start()
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        relay = RelayProcess(url, own.url, directory)
        try:
            relay.wait_until_ok()
            prepare(url)
            yield Telling(url, Caller(http, insert_admin_key(url)), own.url, database)
        finally:
            relay.kill()
            own.stop()
