"""Which address a request comes from: that of the connection, or what a trusted proxy says about it.

A header counts only from a trusted proxy, and only as far back as proxies are trusted: the rightmost address that is not one of
theirs is the caller. What a caller wrote into the header itself is left of that, and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from berth.process.limits.source_addresses import canonical
from orchestrator.http.asgi import Scope

FORWARDED_FOR = re.compile(r'(?i)(?:^|;)\s*for\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;,"\s]*))')
_QUOTED_OR_NOT = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,"])+')
_PORT = re.compile(r"^(?:\[([^\]]*)\](?::\S*)?|([^:]*)(?::\S*)?)$")


class TrustedProxies:
    """The proxies whose word counts. `header`: the one that they set, in lower case; any other is the caller's."""

    def __init__(self, networks: Sequence[str], header: str) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(network) for network in networks]
        self._header = header.encode()
        self._parse = _forwarded if header == "forwarded" else _forwarded_for
        self.trusts = lru_cache(maxsize=4096)(self._trusts)

    def source_of(self, scope: Scope) -> str | None:
        """The caller's address; None if a trusted proxy does not say it."""
        client = scope.get("client")
        peer = canonical(client[0]) if client else None
        if peer is None or not self.trusts(peer):
            return peer
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == self._header]
        for hop in reversed(list(self._parse(",".join(values)))):
            address = canonical(hop)
            if address is None or not self.trusts(address):
                return address
        return None

    def _trusts(self, address: str) -> bool:
        return canonical(address) is not None and any(ip_address(address) in network for network in self._networks)


def _forwarded_for(value: str) -> Iterable[str]:
    """The addresses of X-Forwarded-For, as each proxy added them."""
    return [_without_port(part.strip()) for part in value.split(",")] if value else []


def _forwarded(value: str) -> Iterable[str]:
    """The `for` of each element of Forwarded (RFC 7239 §4); an element without one is an unknown address."""
    for element in _QUOTED_OR_NOT.findall(value):
        found = FORWARDED_FOR.search(element)
        yield "" if found is None else _without_port(found[1] if found[1] is not None else found[2])


def _without_port(node: str) -> str:
    """The address of `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`."""
    if canonical(node) is not None:
        return node
    found = _PORT.match(node)
    return "" if found is None else found[1] or found[2] or ""
