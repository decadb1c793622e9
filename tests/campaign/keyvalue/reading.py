"""Reads of keys and status queries of commits, each recorded with the times of request and response."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from berth.client import AsyncClient, BerthError, NotFound
from berth.client.calls import keyvalue
from berth.client.keyvalue_models import KeyValue
from tests.campaign.history import History
from tests.campaign.keyvalue.records import KeyRead, ReadItem, StatusSight

READ_SECONDS_MAX = 5.0

T = TypeVar("T")


class KeyReader:
    """Reads through any of `clients` (one per API process, all of one namespace). What fails is only counted.

    `known_before`: by commit, the newest version that the client knew before it sent it: the `min_version` of status queries.
    """

    def __init__(
        self, name: str, namespace: str, clients: Sequence[AsyncClient], history: History, chance: random.Random
    ) -> None:
        self.clients = clients
        self.known_before: dict[str, int] = {}
        self._name = name
        self._namespace = namespace
        self._history = history
        self._chance = chance

    async def key(self, key: bytes, min_version: int | None = None) -> KeyRead | None:
        """One key; None if there was no response."""
        asked = time.monotonic()
        items: tuple[ReadItem, ...] = ()
        try:
            entry = await self._ask("key", lambda client: client.run(keyvalue.get_key(key, min_version=min_version)))
        except NotFound as missing:
            read_version = int(missing.extra["read_version"])
        else:
            if entry is None:
                return None
            items, read_version = (_item(entry),), entry.read_version
        return self._noted(asked, key, key + b"\0", read_version, items)

    async def range(self, begin: bytes, end: bytes | None, *, limit: int, final: bool = False) -> list[KeyRead]:
        """The pages of `[begin, end)`, each a read of its part; nothing if a page had no response."""
        found: list[KeyRead] = []
        cursor: str | None = None
        while True:
            asked = time.monotonic()
            call = keyvalue.list_keys(begin=begin, end=end, limit=limit, cursor=cursor)
            page = await self._ask("keys", lambda client, call=call: client.run(call))  # type: ignore[misc]
            if page is None:
                return []
            items = tuple(_item(item) for item in page.items)
            first = begin if not found else found[-1].items[-1].key + b"\0"
            last = end if page.next_cursor is None else items[-1].key + b"\0"
            found.append(self._noted(asked, first, last, page.read_version, items, final))
            if page.next_cursor is None:
                return found
            cursor = page.next_cursor

    async def status(self, key: str) -> StatusSight | None:
        """What became of a commit; None if there was no response."""
        asked, min_version = time.monotonic(), self.known_before.get(key, 0)
        call = keyvalue.get_commit_status(key, min_version=min_version)
        found = await self._ask("commit status", lambda client: client.run(call))
        if found is None:
            return None
        sight = StatusSight(key, asked, time.monotonic(), min_version, found.status, found.version)
        self._history.commit_statuses.append(sight)
        return sight

    def _noted(
        self,
        asked: float,
        begin: bytes,
        end: bytes | None,
        version: int,
        items: tuple[ReadItem, ...],
        final: bool = False,
    ) -> KeyRead:
        read = KeyRead(self._name, self._namespace, asked, time.monotonic(), begin, end, version, items, final)
        self._history.key_reads.append(read)
        return read

    async def _ask(self, what: str, read: Callable[[AsyncClient], Awaitable[T]]) -> T | None:
        """The response; None where there was none in time. Raises `NotFound`."""
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                found = await read(self._chance.choice(self.clients))
        except NotFound:
            self._history.count_read(f"{what} not_found")
            raise
        except (BerthError, TimeoutError) as error:
            self._history.count_read(f"{what} {getattr(error, 'code', 'client_timeout')}")
            return None
        self._history.count_read(f"{what} ok")
        return found


def _item(found: KeyValue) -> ReadItem:
    return ReadItem(found.key, found.value, found.version)
