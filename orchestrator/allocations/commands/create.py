"""Creates allocations: a list in, one answer each, one transaction (DESIGN §4 step 1, §5).

The API batches creates that arrive together; a list of one is the ordinary case. Items are independent: a refused item leaves
nothing but its refusal, which is stored in a second transaction (DESIGN §6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never
from uuid import UUID

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations.execution import TRIES_MAX, Context, Deferred, Result, store_refusals_of
from orchestrator.operations.outcomes import StoredResponse, TryAgain
from orchestrator.operations.refusals import OperationUnstorable
from orchestrator.operations.store.operations import Answer, replay
from orchestrator.operations.store.refusals import Refused
from orchestrator.placement.admission import Wanted, admit
from orchestrator.placement.outcomes import Failed, LostRace, NoRoom, Placed, PlacementOutcome, StaleCatalogue
from orchestrator.placement.placing import place
from orchestrator.placement.refusals import contended, no_room, no_room_in_window
from orchestrator.placement.store.placing import Create, PlacementRequest, Room, find_free_capacity
from orchestrator.placement.window_placing import place_in_windows
from orchestrator.problems import Problem, QuotaExceeded
from orchestrator.reservations.rival_expiry import expire_overdue_holds

Results = dict[int, Result | Deferred]


async def create_allocations(
    context: Context, catalogue: CatalogueCache, creates: Sequence[Create]
) -> list[Result | Deferred]:
    """Return one outcome per create, in input order: a response (201, or a stored one), or a problem that is not stored.

    A create whose quota or key another transaction holds is `Deferred`, unless it is the only one. Keys within the list must
    be distinct per tenant. Raises `DatabaseUnavailable` or `OutcomeUnknown` for the list as a whole.
    """
    results: Results = {}
    open_items = dict(enumerate(creates))
    waiting: set[int] = set()
    expired: set[UUID] = set()
    for _ in range(TRIES_MAX):
        attempt = _Attempt(context, catalogue, open_items, waiting, expired, results)
        try:
            open_items = await attempt.run()
        except Problem as problem:
            if not results:
                raise
            # The others are committed, whatever failed since.
            results |= {index: problem for index in open_items if index not in results}
            open_items = {}
        if not open_items:
            break
    results |= await _refuse(context, open_items, {index: contended() for index in open_items})
    return [results[index] for index in range(len(creates))]


@dataclass(slots=True)
class _Attempt:
    """One attempt at the open items. `waiting`: those that wait for locked nodes. `results` is filled as soon as known.

    `expired`: tenants over their quota whose overdue holds have expired, once in all attempts.
    """

    context: Context
    catalogue: CatalogueCache
    creates: dict[int, Create]
    waiting: set[int]
    expired: set[UUID]
    results: Results
    requests: dict[int, PlacementRequest] = field(default_factory=dict)
    refusals: dict[int, Problem] = field(default_factory=dict)
    again: dict[int, Create] = field(default_factory=dict)

    async def run(self) -> dict[int, Create]:
        """Admit, place, place within the window, refuse; return what to try again."""
        await self._admit_all()
        outcomes = dict(zip(self.requests, await place(self.context, list(self.requests.values())), strict=True))
        self._settle(outcomes)
        rooms = await self._find_rooms(outcomes)
        without_room = {index: self.requests[index] for index, room in rooms.items() if not room.fits}
        in_window = await place_in_windows(self.context, without_room)
        self._settle(in_window)
        freed = await self._expire_holds_over_quota(outcomes | in_window)
        for index, outcome in (outcomes | in_window).items():
            if isinstance(outcome, QuotaExceeded) and self.creates[index].tenant_id in freed:
                self.again[index] = self.creates[index]
            elif index not in self.results:
                self._decide(index, outcome, rooms.get(index))
        self.results |= await _refuse(self.context, self.creates, self.refusals)
        return self.again

    async def _admit_all(self) -> None:
        """Resolve each create by the catalogue; before refusing one, read the catalogue anew."""
        limits = self.context.limits
        offered = await self.catalogue.current()
        for index, create in self.creates.items():
            wanted = Wanted(create.sku, create.gpus, create.region, create.image, create.user_data is not None)
            try:
                admitted = admit(offered, wanted)
            except Problem:
                offered = await self.catalogue.before_refusing()
                try:
                    admitted = admit(offered, wanted)
                except Problem as refusal:
                    self.refusals[index] = refusal
                    continue
            self.requests[index] = PlacementRequest(
                create, admitted, limits.requested_seconds_max, limits.window_seconds_max, wait=index in self.waiting
            )

    def _settle(self, outcomes: Mapping[int, PlacementOutcome]) -> None:
        """Record what is final at once: a later error must not replace the answer to a committed create."""
        for index, outcome in outcomes.items():
            operation = self.creates[index].operation
            match outcome:
                case Placed(body):
                    self.results[index] = Answer(201, body, kept_seconds=operation.retention_seconds)
                case StoredResponse():
                    try:
                        self.results[index] = replay(operation, outcome)
                    except Problem as conflict_or_fence:
                        self.results[index] = conflict_or_fence
                case Failed(problem):
                    self.results[index] = problem

    async def _find_rooms(self, outcomes: Mapping[int, PlacementOutcome]) -> dict[int, Room]:
        """Free capacity for each item without room, locked nodes included; read once per pool and GPU count."""
        without_room = [index for index, outcome in outcomes.items() if isinstance(outcome, NoRoom)]
        if not without_room:
            return {}
        found: dict[tuple[int, int], Room] = {}
        rooms: dict[int, Room] = {}
        async with self.context.database.reading() as reading:
            for index in without_room:
                admitted = self.requests[index].admitted
                shape = (admitted.pool.pool_id, admitted.gpus)
                if shape not in found:
                    found[shape] = await find_free_capacity(reading, admitted)
                rooms[index] = found[shape]
        return rooms

    async def _expire_holds_over_quota(self, outcomes: Mapping[int, PlacementOutcome]) -> set[UUID]:
        """Expire overdue holds of the tenants over their quota; return the tenants that have quota back."""
        over = {
            self.creates[index].tenant_id
            for index, one in outcomes.items()
            if isinstance(one, QuotaExceeded) and not isinstance(one, OperationUnstorable)
        }
        new = over - self.expired
        self.expired |= new
        return {tenant_id for tenant_id in new if await expire_overdue_holds(self.context, tenant_id=tenant_id)}

    def _decide(self, index: int, outcome: PlacementOutcome, room: Room | None) -> None:
        """Try again, defer, or refuse."""
        create = self.creates[index]
        match outcome:
            case TryAgain():
                self.results[index] = Deferred(partial(_create_alone, self.context, self.catalogue, create))
            case StaleCatalogue() | LostRace():
                self.catalogue.forget()
                self.again[index] = create
            case NoRoom():
                assert room is not None, "the capacity of its pool was read"
                if room.fits:
                    self.waiting.add(index)
                    self.again[index] = create
                elif create.ends_at is not None:
                    self.refusals[index] = no_room_in_window(self.requests[index].admitted)
                else:
                    self.refusals[index] = no_room(self.requests[index].admitted, room.free_gpus)
            case Problem():
                self.refusals[index] = outcome
            case Placed() | StoredResponse() | Failed():
                raise AssertionError("it was settled")
            case _:
                assert_never(outcome)


async def _create_alone(context: Context, catalogue: CatalogueCache, create: Create) -> Result:
    try:
        (result,) = await create_allocations(context, catalogue, [create])
    except Problem as problem:
        return problem
    assert isinstance(result, Answer | Problem), "a list of one defers nothing"
    return result


async def _refuse(context: Context, creates: Mapping[int, Create], refusals: Mapping[int, Problem]) -> Results:
    """Store the business refusals in one transaction; the others leave no record."""
    storable = [index for index, refusal in refusals.items() if refusal.business]
    refused = [Refused(creates[index].operation, refusals[index], creates[index].tenant_id) for index in storable]
    results: Results = {index: refusal for index, refusal in refusals.items() if not refusal.business}
    results.update(zip(storable, await store_refusals_of(context, refused), strict=True))
    return results
