"""What a request is refused with when its principal has reached a limit."""

from __future__ import annotations

from berth.client.errors import Overloaded


class ConcurrencyLimited(Overloaded):
    """The process serves the most requests of this principal that it may; the request was not done."""

    codes = ("concurrency_limited",)


class RateLimited(Overloaded):
    """The principal sends requests of a class faster than it may; the request was not done."""

    codes = ("rate_limited",)
