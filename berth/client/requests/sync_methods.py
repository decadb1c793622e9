"""How a call becomes a method of the synchronous client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from berth.client.calls.call import Call
from berth.client.models import Page

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Runs(Protocol):
    """What a method needs of the client."""

    def run(self, call: Call[Result]) -> Result:
        """Send one call."""
        ...

    def iterate(self, call: Call[Page[Result]]) -> Iterator[Result]:
        """Every item of a list."""
        ...


def now(make: Callable[Arguments, Call[Result]]) -> Callable[Concatenate[Runs, Arguments], Result]:
    """A method that makes the call and runs it."""

    @functools.wraps(make)
    def method(self: Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self.run(make(*args, **kwargs))

    return method


def each(make: Callable[Arguments, Call[Page[Result]]]) -> Callable[Concatenate[Runs, Arguments], Iterator[Result]]:
    """A method that yields every item of a list, page by page."""

    @functools.wraps(make)
    def method(self: Runs, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[Result]:
        return self.iterate(make(*args, **kwargs))

    return method
