"""A queue with one line of items per tenant: items are taken round robin over the tenants, and in order within each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Generic, TypeVar

LIGHT_RATIO = 8
"""A tenant is light while it has at most this fraction of the mean number of items of a tenant."""

Item = TypeVar("Item")
Tenant = TypeVar("Tenant", bound=Hashable)


class FairQueue(Generic[Item, Tenant]):
    """Lines of items by tenant. Counts what was taken as well, until it is `done`. Pure.

    `judge`: True takes an item, False leaves it where it is, None drops it.
    """

    def __init__(
        self, tenant_of: Callable[[Item], Tenant], judge: Callable[[Item], bool | None] = lambda item: True
    ) -> None:
        self._tenant_of = tenant_of
        self._judge = judge
        self._lines: dict[
            Tenant, deque[Item]
        ] = {}  # in the order of turns: a tenant that was taken from goes to the end
        self._length = 0
        self._outstanding_of: Counter[Tenant] = Counter()
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
        if not self._outstanding_of[tenant]:
            del self._outstanding_of[tenant]

    def is_light(self, tenant: Tenant) -> bool:
        """Whether a tenant has few items outstanding, beside others that have many."""
        tenants = len(self._outstanding_of)
        return self._outstanding_of[tenant] * LIGHT_RATIO * tenants <= self.outstanding

    def light_tenants(self) -> list[Tenant]:
        """The light tenants that have items waiting."""
        return [tenant for tenant in self._lines if self.is_light(tenant)]

    def take(self, count: int, tenants: Collection[Tenant] | None = None) -> list[Item]:
        """Remove and return at most `count` items, of these tenants only if given.

        Each tenant is taken from once before any is taken from again, and those taken from least recently come first.
        """
        taken: list[Item] = []
        left: list[Item] = []
        turns = deque(self._lines if tenants is None else tenants)
        while turns and len(taken) < count:
            tenant = turns.popleft()
            item = self._next(tenant, left)
            if item is not None:
                taken.append(item)
                turns.append(tenant)
        self.put_back(left)
        return taken

    def _next(self, tenant: Tenant, left: list[Item]) -> Item | None:
        """The tenant's next item that is taken; those that are left go to `left`. Its turn is over."""
        line = self._lines.pop(tenant, None)
        while line:
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
        return None
