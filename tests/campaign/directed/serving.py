"""A scene with processes of the public API of the test build, and clients and subscribers of the campaign before them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from berth.client import AsyncClient
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.api.processes import public_process
from tests.campaign.directed.scene import deliveries_of_log
from tests.campaign.history import History
from tests.campaign.judging.judging import judge_history
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.keyvalue.clients import KeyWriter, Namespace, commit_write
from tests.campaign.keyvalue.reading import KeyReader
from tests.campaign.keyvalue.records import CommitContent, KeyRead, Member
from tests.campaign.listening.feeds import FeedSubscriber
from tests.campaign.listening.sockets import SocketSubscriber
from tests.campaign.listening.subscribers import HttpSubscriber
from tests.log.retention.partitions import append, published, truncate
from tests.support.waiting import async_wait_for
from tests.testbuild.planted_bugs import PLANTED_BUGS, PLANTED_SQL
from worker.supervision import end_all

SETTINGS = {"BERTH_FEED_CHECKPOINT_SECONDS": "0.05", "BERTH_NOTIFICATIONS_ACK_SECONDS": "0.05"}
SECONDS_MAX = 20.0


@dataclass
class Keys:
    """A client of one namespace."""

    namespace: Namespace
    history: History

    def __post_init__(self) -> None:
        """Read and write through the campaign's own reader and writer."""
        chance = random.Random(self.namespace.id)
        self.reader = KeyReader("scene", self.namespace.id, self.namespace.clients, self.history, chance)
        self.writer = KeyWriter("scene", self.reader, self.history, chance)

    async def commit(self, key: str, operations: list[Member], preconditions: list[Member] | None = None) -> None:
        """Commit with this key until the outcome is definite."""
        content = CommitContent(self.namespace.id, tuple(operations), tuple(preconditions or ()))
        await self.writer.write(commit_write(f"commit-of-the-scene-{key}", content))

    async def read(self, key: bytes) -> KeyRead:
        """Read one key; it has to succeed."""
        found = await self.reader.key(key)
        assert found is not None, "no fault disturbs a scene"
        return found


@dataclass
class LiveScene:
    """A database, API processes, two tenants and an operator."""

    url: str
    apis: list[str]
    admin: Caller
    tenants: list[Caller]
    database: psycopg.Connection[Any]
    history: History = field(default_factory=lambda: History(seed=0))

    @asynccontextmanager
    async def keys(self, door: int = 0) -> AsyncIterator[Keys]:
        """The keys of the first tenant, through one of the API processes."""
        tenant = self.tenants[0]
        async with AsyncClient(self.apis[door], str(tenant.key), retry_seconds=0.0) as client:
            yield Keys(Namespace(str(tenant.tenant_id), [client]), self.history)

    def feed(self, owner: Caller, name: str = "feed", **options: Any) -> FeedSubscriber:
        """A subscriber of the feed that keeps its connection."""
        return FeedSubscriber(name, self.apis[:1], str(owner.key), _tenant(owner), self.history, stays=None, **options)

    def socket(self, owner: Caller, name: str = "socket", **options: Any) -> SocketSubscriber:
        """A subscriber of the socket that keeps its connection."""
        return SocketSubscriber(
            name, self.apis[:1], str(owner.key), _tenant(owner), self.history, stays=None, **options
        )

    def events(self, number: int, tenant: Caller | None = None) -> int:
        """Leave events in the log; return its end."""
        return append(self.database, number, None if tenant is None else tenant.tenant_id)

    def truncate(self) -> None:
        """Drop every partition that is not needed. A reader may hold the lock for a moment (`busy`)."""
        published(self.database)
        self.history.log_age_seconds_min = 0.0
        while truncate(self.database) in ("dropped", "storing", "busy", "elsewhere"):
            pass

    def judge(self) -> list[Violation]:
        """Every check on the history."""
        while self.database.execute("select log_advance(1000)").fetchone() != (0,):
            pass
        self.history.deliveries += deliveries_of_log(self.url)
        return judge_history(self.history)

    def note_log(self) -> None:
        """Take the log as the stream has it, before it is truncated."""
        self.history.deliveries += deliveries_of_log(self.url)


def _tenant(owner: Caller) -> str | None:
    return None if owner.tenant_id is None else str(owner.tenant_id)


@contextmanager
def live_scene(url: str, directory: Path, bug: str | None, apis: int = 1) -> Iterator[LiveScene]:
    """A scene whose processes and whose database have the bug."""
    settings = {**SETTINGS, **({"BERTH_PLANTED_BUG": bug} if bug in PLANTED_BUGS and bug else {})}
    with psycopg.connect(url, autocommit=True) as database:
        if bug in PLANTED_SQL:
            database.execute(PLANTED_SQL[bug].encode())
        with ExitStack() as stack:
            key = insert_admin_key(url)
            doors = [
                stack.enter_context(public_process(url, directory / f"api-{n}", settings, launcher="tests.testbuild"))
                for n in range(apis)
            ]
            admin = Caller(doors[0], key)
            tenants = [new_tenant(admin) for _ in range(2)]
            yield LiveScene(url, [str(door.base_url).rstrip("/") for door in doors], admin, tenants, database)


@asynccontextmanager
async def running(*subscribers: HttpSubscriber) -> AsyncIterator[None]:
    """Each of them has one connection during the block."""
    tasks = {asyncio.create_task(one.read_once()) for one in subscribers}
    try:
        yield
    finally:
        await end_all(tasks)


async def until_reached(subscriber: HttpSubscriber, version: int) -> None:
    """Return when the subscriber has received everything up to that version."""
    await async_wait_for(lambda: subscriber.cursor >= version, f"version {version}", SECONDS_MAX)
