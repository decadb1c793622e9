"""Load on the key-value store: clients that change a few shared keys, each through every API process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from berth.client import AsyncClient
from berth.client.calls import keyvalue
from berth.client.keyvalue_models import Commit
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import Attempt, History
from tests.campaign.keyvalue.reading import KeyReader
from tests.campaign.keyvalue.records import CommitContent, KeyRead, Member
from tests.support.waiting import pause

KEYS = (b"a", b"a\0", b"b", b"c", b"\xff")
BOUNDS = (b"", *KEYS, b"\xff\xff")
DUPLICATED_SHARE = 0.2
ASKED_SHARE = 0.08
"""Of how many commits the status is asked for, whatever became of them: before, while or after they are sent."""
OLD_SHARE = 0.1
"""How often an old commit is sent again, or asked for."""
STALE_SHARE = 0.15
"""How often a precondition names an older version than that of the last read."""


@dataclass(frozen=True)
class Namespace:
    """The keys of one tenant, or of the operators, with a client for each API process."""

    id: str
    clients: Sequence[AsyncClient]


class KeyWriter(Writer):
    """Asks `GET /v1/status` what became of a commit."""

    def __init__(self, name: str, reader: KeyReader, history: History, chance: random.Random) -> None:
        super().__init__(name, reader.clients, history, chance)
        self._keys = reader

    async def ask(self, write: Write) -> None:
        """Ask what became of it."""
        await self._keys.status(write.key)


def commit_write(key: str, content: CommitContent) -> Write:
    """A commit as clients send it."""

    async def send(client: AsyncClient, key: str) -> Commit:
        return await client.run(
            keyvalue.commit_transaction(
                operations=[dict(one) for one in content.operations],
                preconditions=[dict(one) for one in content.preconditions],
                idempotency_key=key,
            )
        )

    return Write("commit", key, content.text(), send)


class KeyClient:
    """Reads and commits, one after the other, until it is stopped."""

    def __init__(self, name: str, namespace: Namespace, history: History) -> None:
        self.name = name
        self._namespace = namespace
        self._history = history
        self._chance = random.Random(f"keys:{history.seed}:{name}")
        self._numbers = iter(range(1_000_000))
        self._reader = KeyReader(name, namespace.id, namespace.clients, history, self._chance)
        self._writer = KeyWriter(name, self._reader, history, random.Random(f"commits:{history.seed}:{name}"))
        self._old: list[Write] = []
        self._versions = [0]
        self._duplicates: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()

    def give_up_at(self, at: float) -> None:
        """From `at` on no commit is repeated any more."""
        self._writer.give_up_at = at

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when stopped and every commit begun has a definite outcome."""
        self._stopping = stopping
        while not stopping.is_set():
            await self._live()
            await pause(self._chance.uniform(0.05, 0.3), stopping)
        await asyncio.gather(*self._duplicates)

    async def read_all(self) -> bool:
        """Read every key after the run; whether there was a response."""
        return bool(await self._reader.range(b"", None, limit=500, final=True))

    async def _live(self) -> None:
        fate = self._chance.random()
        if self._old and fate < OLD_SHARE:
            await self._revisit(self._chance.choice(self._old))
        elif fate < 0.3:
            await self._look()
        elif fate < 0.65:
            await self._change_what_was_read()
        elif fate < 0.9:
            await self._commit(self._operations(), [])
        else:
            await self._commit(self._operations(), [keyvalue.unchanged_key(self._key(), 0)])

    async def _look(self) -> None:
        if self._chance.random() < 0.5:
            await self._reader.key(self._key(), self._chance.choice((None, self._versions[-1])))
        else:
            begin, end = self._range()
            await self._reader.range(begin, end, limit=self._chance.choice((2, 500)))

    async def _change_what_was_read(self) -> None:
        """Read, decide, and commit if nothing of it has changed since."""
        if self._chance.random() < 0.3:
            begin, end = self._range()
            pages = await self._reader.range(begin, end, limit=500)
            if not pages:
                return
            reads = [keyvalue.unchanged_range(begin, end or b"\xff\xff", self._version_of(pages[0]))]
        else:
            keys = self._chance.sample(KEYS, self._chance.choice((1, 1, 2)))
            found = [(key, await self._reader.key(key)) for key in keys]
            reads = [keyvalue.unchanged_key(key, self._version_of(read)) for key, read in found if read is not None]
            if not reads:
                return
        await pause(self._chance.choice((0.0, 0.0, 0.05, 0.3)), self._stopping)
        await self._commit(self._operations(), reads)

    async def _commit(self, operations: Sequence[Member], preconditions: Sequence[Member]) -> None:
        content = CommitContent(self._namespace.id, tuple(operations), tuple(preconditions))
        key = f"{self._history.seed}.commit.of.{self.name.replace(' ', '')}.{next(self._numbers):06}"
        write = commit_write(key, content)
        self._reader.known_before[key] = self._versions[-1]
        self._old.append(write)
        fate = self._chance.random()
        if fate < DUPLICATED_SHARE:
            self._later(self._altered(write) if self._chance.random() < 0.3 else write)
        elif fate < DUPLICATED_SHARE + ASKED_SHARE:
            await self._asked(write)
            return
        self._note(await self._writer.write(write))

    async def _asked(self, write: Write) -> None:
        when = self._chance.choice(("before", "meanwhile", "after", "after"))
        if when == "before":
            await self._writer.ask(write)
        if when == "meanwhile":
            attempt, _ = await asyncio.gather(self._writer.write(write), self._writer.ask(write))
        else:
            attempt = await self._writer.write(write)
        self._note(attempt)
        if when == "after":
            await self._writer.ask(write)

    async def _revisit(self, write: Write) -> None:
        """An old commit has the same response, also when the log has dropped its event."""
        if self._chance.random() < 0.5:
            await self._writer.write(write)
        else:
            await self._writer.ask(write)

    def _later(self, write: Write) -> None:
        seconds = self._chance.choice((0.0, 0.0, self._chance.uniform(0.0, 4.0)))

        async def repeat() -> None:
            await pause(seconds, self._stopping)
            await self._writer.write(write)

        task = asyncio.create_task(repeat())
        self._duplicates.add(task)
        task.add_done_callback(self._duplicates.discard)

    def _altered(self, write: Write) -> Write:
        content = CommitContent(self._namespace.id, tuple(self._operations()), ())
        return commit_write(write.key, content)

    def _note(self, attempt: Attempt) -> None:
        if attempt.answer and attempt.code in ("ok", "not_committed"):
            version = Commit.model_validate_json(attempt.answer).version
            self._versions.append(max(version or 0, self._versions[-1]))

    def _version_of(self, read: KeyRead) -> int:
        """The version of the read, or an older one that this client knows."""
        self._versions.append(max(read.read_version, self._versions[-1]))
        if self._chance.random() < STALE_SHARE:
            return self._chance.choice(self._versions[-10:])
        return read.read_version

    def _operations(self) -> list[Member]:
        return [self._operation() for _ in range(self._chance.choice((1, 1, 2, 3)))]

    def _operation(self) -> Member:
        fate = self._chance.random()
        if fate < 0.7:
            value = f"{self.name}:{self._chance.getrandbits(32):08x}".encode()
            return keyvalue.write_key(self._key(), value)
        if fate < 0.9:
            return keyvalue.delete_key(self._key())
        begin, end = self._range()
        return keyvalue.delete_range(begin, end or b"\xff\xff")

    def _key(self) -> bytes:
        return self._chance.choice(KEYS)

    def _range(self) -> tuple[bytes, bytes | None]:
        first, last = sorted(self._chance.sample(range(len(BOUNDS)), 2))
        return BOUNDS[first], None if last == len(BOUNDS) - 1 else BOUNDS[last]
