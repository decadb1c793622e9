"""Resolves and checks the addresses of a webhook's host.

The connection is made to a checked address; the name is not resolved again, which prevents DNS rebinding.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from orchestrator.webhooks.addresses import is_public_address

ADDRESSES_MAX = 4
"""How many of a name's addresses are tried."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name. Raises OSError."""


class DestinationRefused(Exception):
    """The destination is not allowed; the message is the reason, a code for the list of deliveries."""


class Resolver:
    """Resolves names with the system's resolver in dedicated threads: a slow name server delays no other work."""

    def __init__(self, threads_max: int) -> None:
        self._threads = ThreadPoolExecutor(threads_max, thread_name_prefix="webhook-names")

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """All addresses of the name, in the resolver's order. Raises OSError."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except UnicodeError as error:  # a label of more than 63 characters
            raise OSError(str(error)) from error
        return list(dict.fromkeys(str(address[4][0]) for address in found))

    def close(self) -> None:
        """Shut down without waiting for pending lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


async def choose_addresses(resolve: Resolve, host: str, port: int, *, private_allowed: bool) -> Sequence[str]:
    """The addresses to try, in order. Raises `DestinationRefused`.

    A name with any private address is refused, unless `private_allowed`.
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
