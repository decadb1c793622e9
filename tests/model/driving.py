"""Random histories on a real database: clients as concurrent transactions, through the commands that the API calls.

Every wish is noted with what was visible when it was sent, the response and its time; the log has the rest. A story is
a list of batches; the steps of one batch run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import psycopg

from orchestrator.allocations.commands.update import Changes, update_allocation
from orchestrator.allocations.rules import NewEnd
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.sqlstates import QUOTA_MOVED
from orchestrator.operations.execution import Context
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Problem
from orchestrator.reservations.commands.cancel import cancel_reservation
from orchestrator.reservations.commands.consume import Consume, consume_reservation
from orchestrator.reservations.commands.expire import end_window, expire_reservation
from orchestrator.reservations.hold_requests import GpuRequest
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.holding import Hold
from orchestrator.reservations.store.turn_over import Start
from orchestrator.tenants.principals import Actor, ActorKind
from tests.allocations.driving import clean_up, provision, release
from tests.allocations.seeding import REGION, SLICE_SKU, Seeded, connect, try_create
from tests.model.answers import Asked, Wish, judge_answers
from tests.model.log import read_log, sequence
from tests.model.replaying import Replay, replay
from tests.model.tables import beginning, differences, read_tables
from tests.reservations.holding import confirm_alone, hold_alone
from tests.support.waiting import wait_past

Step = tuple[str, int, int, int]
"""A verb and three numbers that choose among what there is."""
Story = Sequence[Sequence[Step]]

SEATS = ("seat-1", "seat-2")
HOLDERS = ("h1", "h2")
TENANT = Actor(ActorKind.TENANT, "tenant-key")


@dataclass
class Run:
    """One node, one tenant with a quota smaller than the node, two seats, and everything that was asked of them."""

    url: str
    context: Context
    seeded: Seeded
    catalogue: CatalogueCache
    asked: list[Asked] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)
    allocations: list[uuid.UUID] = field(default_factory=list)
    rival: Seeded | None = None
    began: datetime = datetime.min
    settled: list[int] = field(default_factory=list)
    """The log's end after each batch, when nothing was under way."""

    def names(self) -> list[str]:
        """What can be asked for by name: five slots, the node, two seats, and one that does not exist."""
        node = self.seeded.nodes[-1].id
        return [*(f"slot:{node}:{index}" for index in (0, 1, 2, 3, 7)), f"node:{node}", *SEATS, "seat-none"]

    async def play(self, story: Story) -> None:
        """Batch after batch; between them the log is sequenced, so each batch knows what was visible before it."""
        for batch in story:
            since, sent_at = await asyncio.to_thread(self._look)
            told = await asyncio.gather(*(self._take(step) for step in batch))
            until, _ = await asyncio.to_thread(self._look)
            self.settled.append(until)
            for tenant, key, wish, code in (one for some in told for one in some):
                self.asked.append(Asked(str(tenant), key, wish, since, sent_at, until, code))

    def judge(self) -> list[str]:
        """Every disagreement between the model, the log, the tables and the responses."""
        with connect(self.url) as connection:
            sequence(connection)
            found = self.replayed()
            return [
                *found.divergences,
                *judge_answers(found, self.asked),
                *differences(found.state, read_tables(connection)),
            ]

    def replayed(self) -> Replay:
        """The model, driven by the whole log."""
        with connect(self.url) as connection:
            return replay(read_log(connection), beginning(connection), self.settled)

    def _look(self) -> tuple[int, datetime]:
        with connect(self.url) as connection:
            version = sequence(connection)
            row = connection.execute("select clock_timestamp()").fetchone()
            assert row is not None
            return version, row[0]

    async def _take(self, step: Step) -> list[tuple[uuid.UUID, str, Wish, str]]:
        verb, one, two, three = step
        match verb:
            case "hold":
                return [await self._ask(self._hold(one, two, three))]
            case "gpus":
                wish = Wish(
                    "hold", HOLDERS[0], sku=SLICE_SKU, gpus=(1, 2, 4)[one % 3], count=1 + two % 2, ttl_seconds=900
                )
                return [await self._ask(wish)]
            case "confirm" | "cancel":
                return [await self._ask(self._about(verb, one, two))]
            case "twice":
                return await self._twice(one, two, three)
            case "at_the_deadline":
                return await self._at_the_deadline(one)
            case "over":
                return await self._over(one)
            case _:
                await self._other(verb, one, two)
                return []

    def _hold(self, one: int, two: int, three: int) -> Wish:
        names = self.names()
        picked = {names[one % len(names)]} if two % 3 else {names[one % len(names)], names[two % len(names)]}
        hour, now = timedelta(hours=1), datetime.now(self.began.tzinfo)
        later, soon = self.began + hour, now + timedelta(milliseconds=150)
        windows: list[tuple[datetime | None, datetime | None]] = [
            (None, None), (None, soon), (None, later), (later, later + hour), (later + hour, later + 2 * hour),
            (soon, soon + timedelta(milliseconds=200)), (later, None), (later, self.began), (None, self.began),
        ]  # fmt: skip
        starts_at, ends_at = windows[three % len(windows)]
        ttl_seconds = (900.0, 1.0, 3600.0, 3601.0, 0.0, 60.0)[(one + two + three) % 6]
        return Wish("hold", HOLDERS[two % 2], "", tuple(sorted(picked)), starts_at, ends_at, ttl_seconds)

    def _about(self, verb: str, which: int, who: int) -> Wish:
        known = self.reservations or [str(uuid.UUID(int=1))]
        # One time in eight an id without a reservation, one time in four another holder.
        id_ = str(uuid.UUID(int=2**60 + which)) if which % 8 == 7 else known[which % len(known)]
        holder = HOLDERS[who % 2] if who % 4 else "another holder"
        return Wish("confirm" if verb == "confirm" else "cancel", holder, id_)

    async def _twice(self, one: int, two: int, three: int) -> list[tuple[uuid.UUID, str, Wish, str]]:
        """The same key at once: the same content, or another."""
        key, wish = uuid.uuid4().hex, self._hold(one, two, 0 if three % 2 else 3)
        again = wish if three % 3 else replace(wish, holder="h3")
        return list(await asyncio.gather(self._ask(wish, key), self._ask(again, key)))

    async def _at_the_deadline(self, which: int) -> list[tuple[uuid.UUID, str, Wish, str]]:
        """A hold of 1 s at most; just before its deadline its holder, the sweeper and a rival act at once."""
        name = self.names()[which % 5]
        now = datetime.now(self.began.tzinfo)
        first = Wish("hold", "h1", "", (name,), None, now + timedelta(milliseconds=120), 900.0)
        held = await self._ask(first)
        if held[3] != "ok":
            return [held]
        id_ = self.reservations[-1]
        until = await asyncio.to_thread(self._deadline_of, id_)
        await wait_past(until - timedelta(milliseconds=1))
        rival = Wish("hold", "h2", "", (name,), None, None, 60.0)
        verbs = [Wish("confirm", "h1", id_), rival, Wish("cancel", "h1", id_)][: 2 + which % 2]
        sweep = asyncio.create_task(expire_reservation(self.context, uuid.UUID(id_)))
        told = await asyncio.gather(*(self._ask(one) for one in verbs))
        await sweep
        return [held, *told]

    async def _over(self, which: int) -> list[tuple[uuid.UUID, str, Wish, str]]:
        """A confirmed window of a moment; when it is over, its holder, the sweeper and a rival come."""
        name, told = self.names()[which % 5], []
        # A busy machine takes longer than the shortest moment to judge the hold.
        for milliseconds in (120, 480, 1920):
            ends_at = datetime.now(self.began.tzinfo) + timedelta(milliseconds=milliseconds)
            told.append(await self._ask(Wish("hold", "h1", "", (name,), None, ends_at, 900.0)))
            if told[-1][3] != "window_invalid":
                break
        if told[-1][3] != "ok":
            return told
        id_ = self.reservations[-1]
        told.append(await self._ask(Wish("confirm", "h1", id_)))
        await wait_past(ends_at - timedelta(milliseconds=1))
        sweep = asyncio.create_task(end_window(self.context, uuid.UUID(id_)))
        wishes = [Wish("hold", "h2", "", (name,), None, None, 60.0), Wish("cancel", "h1", id_)][: 1 + which % 2]
        told += await asyncio.gather(*map(self._ask, wishes))
        await sweep
        await end_window(self.context, uuid.UUID(id_))
        return told

    def _deadline_of(self, id_: str) -> datetime:
        with connect(self.url) as connection:
            row = connection.execute("select hold_until from reservations where id = %s::uuid", (id_,)).fetchone()
            assert row is not None
            until: datetime = row[0]
            return until

    async def _other(self, verb: str, which: int, two: int) -> None:
        known = self.reservations
        if verb == "create":
            await asyncio.to_thread(self._create, which)
        elif verb == "expire" and known:
            await expire_reservation(self.context, uuid.UUID(known[which % len(known)]))
        elif verb == "use" and known:
            await self._use(uuid.UUID(known[which % len(known)]))
        elif verb == "end_window" and known:
            await end_window(self.context, uuid.UUID(known[which % len(known)]))
        elif verb == "pass" and known:
            # Until the next deadline of a hold has passed, if that is soon.
            await self._until_a_deadline()
        elif verb in ("run", "release", "clean_up") and self.allocations:
            await self._move(verb, self.allocations[which % len(self.allocations)])
        elif verb == "end" and self.allocations:
            await self._change_end(self.allocations[which % len(self.allocations)], two)

    async def _change_end(self, allocation: uuid.UUID, which: int) -> None:
        """Another end, back to back with the windows of holds, or in one; whether it was right, the model says of the event."""
        hour, now = timedelta(hours=1), datetime.now(self.began.tzinfo)
        ends = (
            None,
            self.began + hour,
            self.began + 2 * hour,
            self.began + 3 * hour,
            now + timedelta(milliseconds=200),
            now,
        )
        changes = Changes(end=NewEnd(ends[which % len(ends)]))
        tenant = self.seeded.tenant_id
        asked = Operation(tenant, uuid.uuid4().hex, b"\0" * 32, 3600.0)
        with contextlib.suppress(Problem):
            await update_allocation(self.context, asked, TENANT, tenant, allocation, changes)

    async def _use(self, reservation: uuid.UUID) -> None:
        """One of its claims becomes an allocation; whether that was right, the model says of the events."""
        tenant, key = self.seeded.tenant_id, uuid.uuid4().hex
        asked = Operation(tenant, key, b"\0" * 32, 3600.0)
        start = Start(key, asked.fingerprint, None, uuid.uuid4(), (self.seeded.ssh_key_id,), None, {}, None)
        for holder in HOLDERS:
            asked = replace(asked, key=f"{key}-{holder}")
            wanted = Consume(reservation, holder, SLICE_SKU, None, replace(start, key=asked.key))
            with contextlib.suppress(Problem):
                answer = await consume_reservation(self.context, self.catalogue, asked, TENANT, tenant, wanted)
                if answer.status == 201:
                    self.allocations.append(uuid.UUID(json.loads(answer.body)["allocation_id"]))

    async def _until_a_deadline(self) -> None:
        def next_one() -> datetime | None:
            with connect(self.url) as connection:
                row = connection.execute(
                    "select min(hold_until) from reservations where state = 'hold' and hold_until between"
                    " clock_timestamp() and clock_timestamp() + interval '1 second'"
                ).fetchone()
            return None if row is None else row[0]

        deadline = await asyncio.to_thread(next_one)
        if deadline is not None:
            await wait_past(deadline + timedelta(milliseconds=1))

    def _create(self, which: int) -> None:
        made = None
        with connect(self.url) as connection:
            try:
                made = try_create(connection, self.seeded, gpus=(1, 2, 4)[which % 3])
            except psycopg.DatabaseError as error:
                # A rival took the rest of the quota between the look and the lock.
                if error.sqlstate != QUOTA_MOVED:
                    raise
        if made is not None:
            self.allocations.append(made)

    async def _move(self, verb: str, allocation: uuid.UUID) -> None:
        # A step that does not fit the allocation's state is refused or does nothing; a rival may have been faster.
        with contextlib.suppress(Problem, AssertionError, StopIteration):
            if verb == "run":
                await provision(self.context, self.url, allocation)
            elif verb == "release":
                await release(self.context, self.seeded, allocation)
            else:
                await clean_up(self.context, self.url, allocation)

    async def _ask(self, wish: Wish, key: str | None = None) -> tuple[uuid.UUID, str, Wish, str]:
        """Execute it as the API would; return the response's code."""
        key = key or uuid.uuid4().hex
        tenant = self.seeded.tenant_id
        try:
            answer = await self._run(wish, Operation(tenant, key, _fingerprint(wish), 3600.0))
        except Problem as problem:
            return tenant, key, wish, problem.code
        told = json.loads(answer.body)
        if answer.status >= 400:
            return tenant, key, wish, str(told["code"])
        if wish.verb == "hold" and told["reservation_id"] not in self.reservations:
            self.reservations.append(told["reservation_id"])
        return tenant, key, wish, str(told["result"])

    def _run(self, wish: Wish, operation: Operation) -> Awaitable[Answer]:
        context, tenant = self.context, operation.scope
        if wish.verb == "hold":
            hold = Hold(
                operation, tenant, wish.holder, wish.starts_at, wish.ends_at, wish.ttl_seconds, None, None, uuid.uuid4()
            )
            wanted = GpuRequest(wish.sku, wish.gpus, REGION, wish.count) if wish.sku else wish.resources
            return hold_alone(context, self.catalogue, hold, wanted)
        reservation_id = uuid.UUID(wish.reservation)
        if wish.verb == "confirm":
            return confirm_alone(context, Confirm(operation, tenant, reservation_id, wish.holder))
        return cancel_reservation(context, operation, TENANT, tenant, reservation_id, wish.holder)


def _fingerprint(wish: Wish) -> bytes:
    return hashlib.sha256(repr(wish).encode()).digest()
