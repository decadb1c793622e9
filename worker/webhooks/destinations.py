"""Where a message goes: the name is resolved here, and the connection is made to an address that was looked at.

Between looking and connecting nobody can put another address, for the name is not asked for again.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from orchestrator.webhooks.addresses import is_public_address

ADDRESSES_MAX = 4
"""Of a name's addresses, how many are tried."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises OSError."""


class DestinationRefused(Exception):
    """Nothing is sent there; the text is the reason, a word for the log of deliveries."""


class Resolver:
    """Asks the machine's resolver, in threads of its own: names whose servers are silent keep nobody else waiting."""

    def __init__(self, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="webhook-names")

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Every address of the name, in the resolver's order. Raises OSError."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except UnicodeError as error:  # a label of more than 63 characters
            raise OSError(str(error)) from error
        return list(dict.fromkeys(str(address[4][0]) for address in found))

    def close(self) -> None:
        """Nobody waits for names that are still asked for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def choose_addresses(resolve: Resolve, host: str, port: int, *, private_allowed: bool) -> Sequence[str]:
    """Addresses that may be connected to, to be tried in this order. Raises `DestinationRefused`.

    One that is not of the public internet makes the whole name suspect: it is refused, whatever else it has.
    """
    try:
        found = await resolve(host, port)
    except OSError as error:
        raise DestinationRefused("name_not_resolved") from error
    if not found:
        raise DestinationRefused("name_not_resolved")
    if not private_allowed and not all(map(is_public_address, found)):
        raise DestinationRefused("private_address")
    return found[:ADDRESSES_MAX]
