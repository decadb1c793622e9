"""A queue with one line of items per tenant: items are taken round robin over the tenants, and in order within each.

An item is light if it need not wait behind the others: its tenant has few items beside tenants with many, or what it asks for
is asked for by few beside something that many ask for (a contended node), and its tenant has no more items than others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

LIGHT_RATIO = 8
"""A tenant is light while it has at most this fraction of the mean number of items of a tenant; a place is quiet while it has at
most this fraction of the items of the busiest one."""

Item = TypeVar("Item")
Tenant = TypeVar("Tenant", bound=Hashable)


class _Crowds:
    """How many items are at each place, and at the busiest one; each change costs the same however many places there are."""

    def __init__(self) -> None:
        self._at: Counter[Hashable] = Counter()
        self._places_with: Counter[int] = Counter()
        self.most = 0

    def __getitem__(self, place: Hashable) -> int:
        return self._at[place]

    def enter(self, places: Collection[Hashable]) -> None:
        """Count one more at each of these."""
        for place in places:
            self._change(place, +1)

    def leave(self, places: Collection[Hashable]) -> None:
        """Count one less at each of these."""
        for place in places:
            self._change(place, -1)

    def _change(self, place: Hashable, by: int) -> None:
        before, after = self._at[place], self._at[place] + by
        self._at[place] = after
        if not after:
            del self._at[place]
        self._places_with[before] -= 1
        self._places_with[after] += 1
        if after > self.most or (before == self.most and not self._places_with[before]):
            self.most = after


class FairQueue(Generic[Item, Tenant]):
    """Lines of items by tenant. Counts what was taken as well, until it is `done`. Pure.

    `judge`: True takes an item, False leaves it where it is, None drops it. `places_of`: what an item asks for that others may
    ask for as well, each once.
    """

    def __init__(
        self,
        tenant_of: Callable[[Item], Tenant],
        judge: Callable[[Item], bool | None] = lambda item: True,
        places_of: Callable[[Item], Collection[Hashable]] = lambda item: (),
    ) -> None:
        self._tenant_of = tenant_of
        self._places_of = places_of
        self._judge = judge
        self._lines: dict[
            Tenant, deque[Item]
        ] = {}  # in the order of turns: a tenant that was taken from goes to the end
        self._length = 0
        self._outstanding_of: Counter[Tenant] = Counter()
        self._crowds = _Crowds()
        self.outstanding = 0  # items that wait, or were taken and are not done

    def __len__(self) -> int:
        return self._length

    def waiting_of(self, tenant: Tenant) -> int:
        """How many items of a tenant wait."""
        return len(self._lines.get(tenant, ()))

    def append(self, item: Item) -> None:
        """Queue an item behind those of its tenant."""
        tenant = self._tenant_of(item)
        self._lines.setdefault(tenant, deque()).append(item)
        self._length += 1
        self._outstanding_of[tenant] += 1
        self._crowds.enter(self._places_of(item))
        self.outstanding += 1

    def put_back(self, items: Iterable[Item]) -> None:
        """Queue items that were taken, in this order, before those of their tenants."""
        for item in reversed(list(items)):
            self._lines.setdefault(self._tenant_of(item), deque()).appendleft(item)
            self._length += 1

    def done(self, item: Item) -> None:
        """An item that was taken counts no longer."""
        tenant = self._tenant_of(item)
        self.outstanding -= 1
        self._outstanding_of[tenant] -= 1
        self._crowds.leave(self._places_of(item))
        if not self._outstanding_of[tenant]:
            del self._outstanding_of[tenant]

    def is_light(self, item: Item) -> bool:
        """Whether an item need not wait behind the others (see the module)."""
        return self.has_light_tenant(item) or self._is_at_quiet_places(item)

    def has_light_tenant(self, item: Item) -> bool:
        """Whether the item's tenant has few items outstanding, beside others that have many."""
        tenants = len(self._outstanding_of)
        return self._outstanding_of[self._tenant_of(item)] * LIGHT_RATIO * tenants <= self.outstanding

    def _is_at_quiet_places(self, item: Item) -> bool:
        """Whether few items are where this one is, beside a place with many; none of a tenant with more items than others."""
        places = self._places_of(item)
        of_tenant = self._outstanding_of[self._tenant_of(item)]
        return (
            bool(places)
            and of_tenant * len(self._outstanding_of) <= self.outstanding
            and all(self._crowds[place] * LIGHT_RATIO <= self._crowds.most for place in places)
        )

    def take(self, count: int, *, light: bool = False) -> list[Item]:
        """Remove and return at most `count` items; with `light`, only those that are light when their tenant's turn comes.

        Each tenant is taken from once before any is taken from again, and those taken from least recently come first.
        """
        taken: list[Item] = []
        left: list[Item] = []
        turns = deque(self._lines)
        while turns and len(taken) < count:
            tenant = turns.popleft()
            item = self._next(tenant, left, light=light)
            if item is not None:
                taken.append(item)
                turns.append(tenant)
        self.put_back(left)
        return taken

    def _next(self, tenant: Tenant, left: list[Item], *, light: bool) -> Item | None:
        """The tenant's next item that is taken; those that are left go to `left`. Its turn is over.

        With `light` it ends before the first item that is not light, and keeps its turn if that is the first of all.
        """
        if light and not self._begins_light(tenant):
            return None
        line = self._lines.pop(tenant, None)
        while line and not (light and not self.is_light(line[0])):
            item = line.popleft()
            self._length -= 1
            verdict = self._judge(item)
            if line:
                self._lines[tenant] = line
            if verdict:
                return item
            if verdict is None:
                self.done(item)
            else:
                left.append(item)
            self._lines.pop(tenant, None)
        if line:
            self._lines[tenant] = line
        return None

    def _begins_light(self, tenant: Tenant) -> bool:
        line = self._lines.get(tenant)
        return line is not None and len(line) > 0 and self.is_light(line[0])
