"""How a call becomes a method of the asynchronous client."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from berth.client.calls.call import Call
from berth.client.models import Page

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Runs(Protocol):
    """What a method needs of the client."""

    async def run(self, call: Call[Result]) -> Result:
        """Send one call."""
        ...

    def iterate(self, call: Call[Page[Result]]) -> AsyncIterator[Result]:
        """Every item of a list."""
        ...


def now(make: Callable[Arguments, Call[Result]]) -> Callable[Concatenate[Runs, Arguments], Coroutine[Any, Any, Result]]:
    """A method that makes the call and runs it."""

    @functools.wraps(make)
    async def method(self: Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await self.run(make(*args, **kwargs))

    return method


def each(
    make: Callable[Arguments, Call[Page[Result]]],
) -> Callable[Concatenate[Runs, Arguments], AsyncIterator[Result]]:
    """A method that yields every item of a list, page by page."""

    @functools.wraps(make)
    def method(self: Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> AsyncIterator[Result]:
        return self.iterate(make(*args, **kwargs))

    return method
