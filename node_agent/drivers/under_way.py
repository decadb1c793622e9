"""Which allocations a plan works on at the moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from uuid import UUID

Scope = Callable[[], AbstractContextManager[None]]


class UnderWay:
    """Counts plans by allocation. `allocation_id in under_way` is true while the scope of one of its plans is held."""

    def __init__(self) -> None:
        self._plans: Counter[UUID] = Counter()

    def __contains__(self, allocation_id: UUID) -> bool:
        return self._plans[allocation_id] > 0

    def scope(self, allocation_id: UUID, *others: Scope) -> Scope:
        """The scope of a plan: the allocation is under way within, and whatever else the plan needs is held."""

        @contextmanager
        def scope() -> Iterator[None]:
            self._plans[allocation_id] += 1
            try:
                with ExitStack() as stack:
                    for other in others:
                        stack.enter_context(other())
                    yield
            finally:
                self._plans[allocation_id] -= 1
                if not self._plans[allocation_id]:
                    del self._plans[allocation_id]

        return scope
